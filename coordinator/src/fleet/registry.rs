//! Who belongs to the fleet, as a pure state machine.
//!
//! An agent is lost when nothing was heard of it for the lease and a margin: by then its own lease, counted from when
//! it *sent* the heartbeat, has run out, and it sends nothing any more. A broken connection alone is no loss: the
//! agent may come back within the lease, as the same process.

use std::collections::{BTreeMap, BTreeSet};

use common::fleet::{EngineCard, Introduction};
use common::ids::{AgentName, Nanos};
use common::lease::is_lost;

/// Agents that send no load take no place. So many there are at the most: more is a mistake.
const MAX_OBSERVERS: usize = 64;

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
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// What it said of itself.
    pub introduction: Introduction,
    last_heard: Nanos,
    /// Its session, as long as that lasts.
    session: Option<u64>,
}

/// The fleet's members.
#[derive(Debug)]
pub struct Registry {
    /// Agents that this coordinator starts itself: nobody else may take their places.
    named: BTreeSet<AgentName>,
    /// Places for everybody else.
    others: usize,
    lease: Nanos,
    members: BTreeMap<AgentName, Member>,
    /// Once the run has begun nobody new may join: the split is over names.
    complete: bool,
}

impl Registry {
    /// A fleet that wants the agents of these names and so many others.
    #[must_use]
    pub fn new(named: BTreeSet<AgentName>, others: usize, lease: Nanos) -> Self {
        Self { named, others, lease, members: BTreeMap::new(), complete: false }
    }

    /// An agent asks to join at `now`, over the session of this number.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn join(&mut self, introduction: Introduction, session: u64, now: Nanos) -> Result<Joined, Refusal> {
        let name = introduction.name.clone();
        let known = self.members.get(&name);
        let joined = match known {
            Some(m) if m.introduction.incarnation == introduction.incarnation => Joined::Back,
            // In a run, one that sends load is not replaced by one that does not: nobody would miss it then.
            Some(m)
                if m.session.is_some()
                    || (self.complete && !(only_records(&introduction) && only_records(&m.introduction))) =>
            {
                let host = &m.introduction.host.hostname;
                return Err(Refusal::NameTaken(format!(
                    "an agent named {name} has joined from {host}; give this one another --name, or wait until the other is given up"
                )));
            }
            // Who only records may come, or begin again, at any time: no split depends on it.
            _ if (self.complete && !only_records(&introduction))
                || (known.is_none() && !self.has_place_for(&introduction)) =>
            {
                return Err(Refusal::Full(format!("it has the {} agents that it wants", self.wanted())));
            }
            _ => Joined::New,
        };
        self.members.insert(name, Member { introduction, last_heard: now, session: Some(session) });
        Ok(joined)
    }

    /// Something was heard of this process at `now`.
    pub fn heard(&mut self, name: &AgentName, now: Nanos) {
        if let Some(m) = self.members.get_mut(name) {
            m.last_heard = m.last_heard.max(now);
        }
    }

    /// A session ended. Before the run begins, that is the end of the membership; but an agent that has come back
    /// over another session is not touched by the end of its old one.
    pub fn disconnected(&mut self, name: &AgentName, session: u64) {
        let Some(m) = self.members.get_mut(name).filter(|m| m.session == Some(session)) else { return };
        m.session = None;
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

    fn has_place_for(&self, agent: &Introduction) -> bool {
        if agent.observer {
            return self.members.values().filter(|m| m.introduction.observer).count() < MAX_OBSERVERS;
        }
        let strangers = self.senders().filter(|(n, _)| !self.named.contains(*n)).count();
        self.named.contains(&agent.name) || strangers < self.others
    }

    /// The members that send load.
    pub fn senders(&self) -> impl Iterator<Item = (&AgentName, &Member)> {
        self.members.iter().filter(|(_, m)| !m.introduction.observer)
    }

    /// The member that launches the engine; the first by name if there are several.
    #[must_use]
    pub fn launcher(&self) -> Option<(&AgentName, &EngineCard)> {
        self.members.iter().find_map(|(name, m)| Some((name, m.introduction.engine.as_ref()?)))
    }

    /// Agents that the fleet wants to send load.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.named.len() + self.others
    }

    /// Whether as many as wanted have joined.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.senders().count() >= self.wanted()
    }

    /// Whether a run cannot go on without this agent: it sends load, or launches the engine, or was waited for and never
    /// said what it is.
    #[must_use]
    pub fn matters(&self, name: &AgentName) -> bool {
        self.members.get(name).is_none_or(|m| !only_records(&m.introduction))
    }

    /// Takes out and gives those of whom nothing was heard for too long: why, and whether a run needs them.
    pub fn expire(&mut self, now: Nanos) -> Vec<(AgentName, String, bool)> {
        let silent = |m: &Member| is_lost(self.lease, m.last_heard, now);
        let lost: Vec<(AgentName, String, bool)> = self
            .members
            .iter()
            .filter(|(_, m)| silent(m))
            .map(|(name, m)| {
                let silence = (now - m.last_heard).as_secs_f64();
                (name.clone(), format!("silent for {silence:.1} s"), !only_records(&m.introduction))
            })
            .collect();
        lost.iter().for_each(|(name, ..)| _ = self.members.remove(name));
        lost
    }

    /// The members, by name.
    #[must_use]
    pub fn members(&self) -> &BTreeMap<AgentName, Member> {
        &self.members
    }
}

/// It sends no load and launches no engine.
fn only_records(agent: &Introduction) -> bool {
    agent.observer && agent.engine.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::fleet::HostFacts;
    use common::ids::Incarnation;
    use common::lease::MARGIN;

    const LEASE: Nanos = Nanos(15_000_000_000);

    fn agent(name: &str, incarnation: u64) -> Introduction {
        let host = HostFacts { hostname: format!("host-of-{name}"), ..HostFacts::default() };
        Introduction {
            version: "1".into(),
            name: name.parse().unwrap(),
            incarnation: Incarnation(incarnation),
            host,
            observer: false,
            engine: None,
            gpu: false,
            calibration: None,
        }
    }

    fn name(text: &str) -> AgentName {
        text.parse().unwrap()
    }

    #[test]
    fn who_sends_no_load_takes_no_place() {
        let mut r = others(1);
        let observer = |name| Introduction { observer: true, ..agent(name, 1) };
        assert_eq!(r.join(observer("o1"), 1, Nanos(0)), Ok(Joined::New));
        assert!(!r.is_full());
        assert_eq!(r.join(agent("a", 1), 2, Nanos(0)), Ok(Joined::New));
        assert!(r.is_full());
        assert!(r.join(agent("b", 1), 3, Nanos(0)).is_err());
        assert_eq!(r.join(observer("o2"), 4, Nanos(0)), Ok(Joined::New));
        assert_eq!(r.senders().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(r.launcher(), None);
        assert!(r.matters(&name("a")) && !r.matters(&name("o1")) && r.matters(&name("never-joined")));
        // In a run, too, and as another process when the first is gone.
        r.complete();
        assert_eq!(r.join(observer("o3"), 5, Nanos(0)), Ok(Joined::New));
        let again =
            |r: &mut Registry, n| r.join(Introduction { observer: true, ..agent("o1", n) }, n, Nanos(0));
        assert!(again(&mut r, 6).is_err(), "the first is there");
        r.disconnected(&name("o1"), 1);
        assert_eq!(again(&mut r, 7), Ok(Joined::New));
        let launches = EngineCard {
            name: "e".into(),
            dialect: "vllm".parse().unwrap(),
            base_url: "http://127.0.0.1:8000".parse().unwrap(),
        };
        assert!(r.join(Introduction { engine: Some(launches), ..observer("o4") }, 8, Nanos(0)).is_err());
    }

    fn others(n: usize) -> Registry {
        Registry::new(BTreeSet::new(), n, LEASE)
    }

    #[test]
    fn a_name_belongs_to_one_process_at_a_time() {
        let mut r = others(2);
        assert_eq!(r.join(agent("a", 1), 1, Nanos(0)), Ok(Joined::New));
        let refused = r.join(agent("a", 2), 2, Nanos(0));
        assert!(matches!(refused, Err(Refusal::NameTaken(text)) if text.contains("host-of-a")));
        assert_eq!(r.join(agent("a", 1), 3, Nanos(0)), Ok(Joined::Back));
        r.disconnected(&name("a"), 1);
        assert_eq!(r.members().len(), 1, "the end of an old session does not touch an agent that came back");
        r.disconnected(&name("a"), 3);
        assert_eq!(
            r.join(agent("a", 2), 4, Nanos(0)),
            Ok(Joined::New),
            "a restarted agent takes its place before the run"
        );
    }

    #[test]
    fn nobody_new_joins_a_full_fleet_or_a_run() {
        let mut r = others(1);
        r.join(agent("a", 1), 1, Nanos(0)).unwrap();
        assert!(r.is_full());
        assert!(matches!(r.join(agent("b", 2), 2, Nanos(0)), Err(Refusal::Full(_))));
        r.complete();
        r.disconnected(&name("a"), 1);
        assert_eq!(r.members().len(), 1, "in a run a broken connection is not a loss");
        assert!(r.join(agent("a", 9), 3, Nanos(0)).is_err(), "another process cannot take over in a run");
        assert_eq!(r.join(agent("a", 1), 4, Nanos(0)), Ok(Joined::Back));
    }

    /// Agents that stand around must not take the places of those that the coordinator starts itself.
    #[test]
    fn named_agents_keep_their_places() {
        let mut r = Registry::new([name("local-1")].into(), 1, LEASE);
        assert!(r.join(agent("x", 1), 1, Nanos(0)).is_ok());
        assert!(matches!(r.join(agent("y", 2), 2, Nanos(0)), Err(Refusal::Full(_))));
        assert!(r.join(agent("local-1", 3), 3, Nanos(0)).is_ok());
        assert!(r.is_full());
    }

    #[test]
    fn silence_beyond_lease_and_margin_is_loss() {
        let mut r = others(2);
        r.join(agent("a", 1), 1, Nanos(0)).unwrap();
        r.join(agent("b", 2), 2, Nanos(0)).unwrap();
        r.heard(&name("b"), Nanos(5_000_000_000));
        assert!(r.expire(LEASE + MARGIN).is_empty());
        let lost = r.expire(LEASE + MARGIN + Nanos(1));
        assert_eq!(lost[0].0, name("a"));
        assert_eq!(r.members().len(), 1);
    }
}
