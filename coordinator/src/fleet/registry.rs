//! Who belongs to the fleet, as a pure state machine.
//!
//! An agent is lost when nothing was heard of it for the lease and a margin: by then its own lease, counted from when
//! it *sent* the heartbeat, has run out, and it sends nothing any more. A broken connection alone is no loss: the
//! agent may come back within the lease, as the same process.

use std::collections::BTreeMap;

use common::fleet::Introduction;
use common::ids::{AgentName, Incarnation, Nanos};

/// After the lease, until an agent is declared lost: it must have noticed first.
const MARGIN: Nanos = Nanos(1_500_000_000);

/// Why an agent is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Another process serves under this name.
    NameTaken(String),
    /// The fleet is complete, or a run is under way without it.
    Full(String),
}

/// How an agent came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// For the first time.
    New,
    /// The same process, over a new connection.
    Back,
}

/// One agent of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// What it said of itself.
    pub introduction: Introduction,
    last_heard: Nanos,
    connected: bool,
}

/// The fleet's members.
#[derive(Debug)]
pub struct Registry {
    wanted: usize,
    lease: Nanos,
    members: BTreeMap<AgentName, Member>,
    /// Once the run has begun nobody new may join: the split is over names.
    complete: bool,
}

impl Registry {
    /// A fleet that wants so many agents.
    #[must_use]
    pub fn new(wanted: usize, lease: Nanos) -> Self {
        Self { wanted, lease, members: BTreeMap::new(), complete: false }
    }

    /// An agent asks to join at `now`.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn join(&mut self, introduction: Introduction, now: Nanos) -> Result<Joined, Refusal> {
        let name = introduction.name.clone();
        let known = self.members.get(&name);
        let joined = match known {
            Some(m) if m.introduction.incarnation == introduction.incarnation => Joined::Back,
            Some(m) if m.connected || self.complete => {
                let host = &m.introduction.host.hostname;
                return Err(Refusal::NameTaken(format!(
                    "an agent named {name} has joined from {host}; give this one another --name"
                )));
            }
            _ if self.complete || (known.is_none() && self.members.len() >= self.wanted) => {
                return Err(Refusal::Full(format!("it has the {} agents that it wants", self.wanted)));
            }
            _ => Joined::New,
        };
        self.members.insert(name, Member { introduction, last_heard: now, connected: true });
        Ok(joined)
    }

    /// Something was heard of this process at `now`.
    pub fn heard(&mut self, name: &AgentName, now: Nanos) {
        if let Some(m) = self.members.get_mut(name) {
            m.last_heard = m.last_heard.max(now);
        }
    }

    /// Its connection broke. Before the run begins, that is the end of its membership.
    pub fn disconnected(&mut self, name: &AgentName, incarnation: Incarnation) {
        let Some(m) = self.members.get_mut(name).filter(|m| m.introduction.incarnation == incarnation) else {
            return;
        };
        m.connected = false;
        if !self.complete {
            self.members.remove(name);
        }
    }

    /// Its process is known to be gone.
    pub fn remove(&mut self, name: &AgentName) {
        self.members.remove(name);
    }

    /// The run begins: the members are fixed.
    pub fn complete(&mut self) {
        self.complete = true;
    }

    /// Whether as many as wanted have joined.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.members.len() >= self.wanted
    }

    /// Takes out and gives those of whom nothing was heard for too long.
    pub fn expire(&mut self, now: Nanos) -> Vec<(AgentName, String)> {
        let limit = self.lease + MARGIN;
        let silent = |m: &Member| now - m.last_heard > limit;
        let lost: Vec<(AgentName, String)> = self
            .members
            .iter()
            .filter(|(_, m)| silent(m))
            .map(|(name, m)| {
                (name.clone(), format!("silent for {:.1} s", (now - m.last_heard).as_secs_f64()))
            })
            .collect();
        lost.iter().for_each(|(name, _)| _ = self.members.remove(name));
        lost
    }

    /// The members, by name.
    #[must_use]
    pub fn members(&self) -> &BTreeMap<AgentName, Member> {
        &self.members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::fleet::HostFacts;

    const LEASE: Nanos = Nanos(15_000_000_000);

    fn agent(name: &str, incarnation: u64) -> Introduction {
        let host = HostFacts { hostname: format!("host-of-{name}"), ..HostFacts::default() };
        Introduction {
            version: "1".into(),
            name: name.parse().unwrap(),
            incarnation: Incarnation(incarnation),
            host,
        }
    }

    fn name(text: &str) -> AgentName {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_belongs_to_one_process_at_a_time() {
        let mut r = Registry::new(2, LEASE);
        assert_eq!(r.join(agent("a", 1), Nanos(0)), Ok(Joined::New));
        let refused = r.join(agent("a", 2), Nanos(0));
        assert!(matches!(refused, Err(Refusal::NameTaken(text)) if text.contains("host-of-a")));
        assert_eq!(r.join(agent("a", 1), Nanos(0)), Ok(Joined::Back));
        r.disconnected(&name("a"), Incarnation(1));
        assert_eq!(
            r.join(agent("a", 2), Nanos(0)),
            Ok(Joined::New),
            "a restarted agent takes its place before the run"
        );
        r.disconnected(&name("a"), Incarnation(1));
        assert_eq!(r.members().len(), 1, "the old connection's end does not touch the new process");
    }

    #[test]
    fn nobody_new_joins_a_full_fleet_or_a_run() {
        let mut r = Registry::new(1, LEASE);
        r.join(agent("a", 1), Nanos(0)).unwrap();
        assert!(r.is_full());
        assert!(matches!(r.join(agent("b", 2), Nanos(0)), Err(Refusal::Full(_))));
        r.complete();
        r.disconnected(&name("a"), Incarnation(1));
        assert_eq!(r.members().len(), 1, "in a run a broken connection is not a loss");
        assert!(r.join(agent("a", 9), Nanos(0)).is_err(), "another process cannot take over in a run");
        assert_eq!(r.join(agent("a", 1), Nanos(0)), Ok(Joined::Back));
    }

    #[test]
    fn silence_beyond_lease_and_margin_is_loss() {
        let mut r = Registry::new(2, LEASE);
        r.join(agent("a", 1), Nanos(0)).unwrap();
        r.join(agent("b", 2), Nanos(0)).unwrap();
        r.heard(&name("b"), Nanos(5_000_000_000));
        assert!(r.expire(LEASE + MARGIN).is_empty());
        let lost = r.expire(LEASE + MARGIN + Nanos(1));
        assert_eq!(lost[0].0, name("a"));
        assert_eq!(r.members().len(), 1);
    }
}
