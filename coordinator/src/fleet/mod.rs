//! The fleet: the agents of this coordinator, and the one place where the driver hears of them.
//!
//! `rpc` puts what comes over the wire into one channel of [`FleetEvent`]s; the driver takes it out through
//! [`Fleet::next`], which also notices silence. So the driver is one loop over one source, and everything it decides
//! is decided in one order.

pub mod messages;
pub mod registry;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use common::clock::Clock;
use common::fleet::{EngineStage, EngineState, Introduction, Observation};
use common::ids::{AgentName, Nanos};
use tokio::sync::{mpsc, oneshot};

pub use messages::{FromAgent, ToAgent};
pub use registry::{Refusal, Registry};

/// Between two heartbeats.
pub const HEARTBEAT: Nanos = Nanos(1_000_000_000);

/// How long an agent may send without an answer from the coordinator.
pub const LEASE: Nanos = Nanos(15_000_000_000);

/// How often the driver looks for silence.
const LOOK: Nanos = Nanos(500_000_000);

/// From so long between two looks on, this process itself did not run, or looked elsewhere, for a while.
const STOPPED: Nanos = Nanos(2_000_000_000);

/// For agents to be heard again after that: what they said may still be in the sockets, and those that gave the
/// connection up dial again after at most five seconds. To call an agent lost later is always safe.
const GRACE: Nanos = Nanos(10_000_000_000);

/// Orders to one agent that wait for the network: a few for each trial.
pub const ORDERS: usize = 64;

/// Events of the whole fleet that wait for the driver: one heartbeat a second and agent, some more around a trial.
/// A session waits when it is full; leases are renewed by the session itself, so nobody is lost over it.
pub const EVENTS: usize = 1024;

/// What comes from the sessions.
pub enum FleetEvent {
    /// An agent asks to join.
    Join {
        /// Who.
        introduction: Box<Introduction>,
        /// Which of its sessions this is: a number that no other session of this coordinator has.
        session: u64,
        /// Boot time.
        at: Nanos,
        /// Where orders go.
        link: mpsc::Sender<ToAgent>,
        /// Whether it may.
        answer: oneshot::Sender<Result<(), Refusal>>,
    },
    /// An agent said something.
    Said {
        /// Who.
        agent: AgentName,
        /// Boot time.
        at: Nanos,
        /// What.
        what: FromAgent,
    },
    /// An agent's process is known to be gone.
    Gone {
        /// Which.
        agent: AgentName,
        /// How it ended.
        reason: String,
    },
    /// A session ended.
    Left {
        /// Whose.
        agent: AgentName,
        /// Which of its sessions.
        session: u64,
    },
}

/// What the driver hears.
#[derive(Debug)]
pub enum Change {
    /// An agent joined, or came back.
    Joined(AgentName),
    /// An agent said something.
    Said(AgentName, FromAgent),
    /// An agent is lost, for this reason.
    Lost(AgentName, String),
    /// Time passed.
    Tick,
}

/// The fleet.
pub struct Fleet {
    registry: Registry,
    links: BTreeMap<AgentName, mpsc::Sender<ToAgent>>,
    events: mpsc::Receiver<FleetEvent>,
    lost: Vec<(AgentName, String)>,
    /// Taken out of the channel by a look, and not given to the driver yet: at most as many as the channel holds.
    heard: VecDeque<Change>,
    clock: Arc<dyn Clock>,
    /// When silence was last looked for (monotonic).
    looked: Nanos,
    /// The same by boot time, which goes on while this host sleeps.
    awake: Nanos,
    /// Nobody is called silent before (boot time).
    hear_until: Nanos,
    /// Where the engines stand that agents launch, as last heard: a death must not be missed because it was told while
    /// something else was waited for.
    engines: BTreeMap<AgentName, EngineState>,
    /// What agents are to record, and which of them the engine's metrics: those that join later, too.
    observation: Option<(Observation, Option<AgentName>)>,
}

impl Fleet {
    /// A fleet that wants the agents of these names and so many others, and hears of them through `events`.
    #[must_use]
    pub fn new(
        named: BTreeSet<AgentName>,
        others: usize,
        events: mpsc::Receiver<FleetEvent>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let registry = Registry::new(named, others, LEASE);
        let (looked, awake) = (clock.monotonic(), clock.boottime());
        Self {
            registry,
            links: BTreeMap::new(),
            events,
            lost: Vec::new(),
            heard: VecDeque::new(),
            clock,
            looked,
            awake,
            hear_until: Nanos::ZERO,
            engines: BTreeMap::new(),
            observation: None,
        }
    }

    /// Where the engine stands that this agent launches, as last heard.
    #[must_use]
    pub fn engine(&self, agent: &AgentName) -> Option<&EngineState> {
        self.engines.get(agent)
    }

    /// How an engine that an agent launches has died, if one has: by itself, or with its agent.
    #[must_use]
    pub fn engine_death(&self) -> Option<&str> {
        let dead = self.engines.values().find(|state| state.stage == EngineStage::Died);
        dead.map(|state| state.message.as_str())
    }

    /// An agent is gone, and with it the engine that it launched.
    fn engine_goes_with(&mut self, agent: &AgentName, reason: &str) {
        if let Some(state) = self.engines.get_mut(agent) {
            state.stage = EngineStage::Died;
            state.message = format!("agent {agent}, which launched it, is gone: {reason}");
        }
    }

    /// The members.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Fixes the members.
    pub fn complete(&mut self) {
        self.registry.complete();
    }

    /// What happens next; [`Change::Tick`] at the latest after half a second. Nothing is lost when it is dropped
    /// while waiting.
    pub async fn next(&mut self) -> Change {
        loop {
            if let Some((name, reason)) = self.lost.pop() {
                self.links.remove(&name);
                return Change::Lost(name, reason);
            }
            if let Some(change) = self.heard.pop_front() {
                return change;
            }
            let until_look = (self.looked + LOOK) - self.clock.monotonic();
            if until_look == Nanos::ZERO {
                self.look();
                if self.lost.is_empty() && self.heard.is_empty() {
                    return Change::Tick;
                }
                continue;
            }
            if let Ok(Some(event)) = tokio::time::timeout(until_look.to_duration(), self.events.recv()).await
                && let Some(change) = self.take(event)
            {
                return change;
            }
        }
    }

    /// Looks for silence. By time, not when it is quiet: others that talk must not hide it. What waits in the channel
    /// was said before now, and is heard before anybody is called silent.
    fn look(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            let change = self.take(event);
            self.heard.extend(change);
        }
        self.looked = self.clock.monotonic();
        let now = self.clock.boottime();
        if now - std::mem::replace(&mut self.awake, now) > STOPPED {
            self.hear_until = now + GRACE;
        }
        if now < self.hear_until {
            return;
        }
        for (agent, reason, matters) in self.registry.expire(now) {
            self.engine_goes_with(&agent, &reason);
            if matters {
                self.lost.push((agent, reason));
            } else {
                self.links.remove(&agent);
                missing(&agent, &reason);
            }
        }
    }

    fn take(&mut self, event: FleetEvent) -> Option<Change> {
        match event {
            FleetEvent::Join { introduction, session, at, link, answer } => {
                let name = introduction.name.clone();
                let result = self.registry.join(*introduction, session, at);
                let taken = result.is_ok();
                if answer.send(result.map(|_| ())).is_err() || !taken {
                    return None;
                }
                self.links.insert(name.clone(), link);
                // Also one that is back: it may not have heard it, and goes on if it has.
                self.have_record(&name);
                Some(Change::Joined(name))
            }
            FleetEvent::Said { agent, at, what } => {
                self.registry.heard(&agent, at);
                if let FromAgent::Engine(state) = &what
                    && state.order == 0
                {
                    self.engines.insert(agent.clone(), (**state).clone());
                }
                Some(Change::Said(agent, what))
            }
            FleetEvent::Gone { agent, reason } => {
                let matters = self.registry.matters(&agent);
                self.registry.remove(&agent);
                self.links.remove(&agent);
                self.engine_goes_with(&agent, &reason);
                if !matters {
                    missing(&agent, &reason);
                    return None;
                }
                Some(Change::Lost(agent, reason))
            }
            FleetEvent::Left { agent, session } => {
                self.registry.disconnected(&agent, session);
                None
            }
        }
    }

    /// Has every agent record `what`, also those that join later; `scraper` the engine's metrics, too.
    pub fn observe(&mut self, what: Observation, scraper: Option<AgentName>) {
        self.observation = Some((what, scraper));
        self.links.keys().for_each(|agent| self.have_record(agent));
    }

    fn have_record(&self, agent: &AgentName) {
        if let Some((what, scraper)) = &self.observation {
            let what = Observation { metrics: scraper.as_ref() == Some(agent), ..what.clone() };
            self.tell(agent, ToAgent::Observe(Box::new(what)));
        }
    }

    /// Tells an agent something. An agent whose connection is broken does not hear it; the deadline of what it was
    /// told, or its lease, deals with that.
    pub fn tell(&self, agent: &AgentName, order: ToAgent) {
        match self.links.get(agent).map(|link| link.try_send(order)) {
            Some(Ok(())) => {}
            Some(Err(e)) => tracing::warn!(%agent, "an order could not be sent: {e}"),
            None => tracing::warn!(%agent, "an order for an agent that is not connected"),
        }
    }

    /// Tells every agent the same.
    pub fn tell_all(&self, order: &ToAgent) {
        self.links.keys().for_each(|agent| self.tell(agent, order.clone()));
    }
}

/// An agent is gone that only records: that ends nothing, and what it does not record says so itself.
fn missing(agent: &AgentName, reason: &str) {
    tracing::warn!(%agent, "it records nothing any more: {reason}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::clock::ManualClock;
    use common::fleet::HostFacts;
    use common::ids::Incarnation;

    fn join(name: &str, session: u64) -> (FleetEvent, mpsc::Receiver<ToAgent>) {
        let introduction = Box::new(Introduction {
            version: "1".into(),
            name: name.parse().unwrap(),
            incarnation: Incarnation(session),
            host: HostFacts::default(),
            observer: false,
            engine: None,
            gpu: false,
            calibration: None,
        });
        let (link, orders) = mpsc::channel(ORDERS);
        let (answer, _) = oneshot::channel();
        (FleetEvent::Join { introduction, session, at: Nanos(1), link, answer }, orders)
    }

    struct Two {
        clock: Arc<ManualClock>,
        events: mpsc::Sender<FleetEvent>,
        fleet: Fleet,
        _orders: [mpsc::Receiver<ToAgent>; 2],
    }

    /// A fleet of agents `silent` and `talks`, who have said nothing since they joined.
    async fn two() -> Two {
        let clock = Arc::new(ManualClock::at(Nanos(1)));
        let (events, inbox) = mpsc::channel(EVENTS);
        let fleet = Fleet::new(BTreeSet::new(), 2, inbox, clock.clone());
        let (a, of_a) = join("silent", 1);
        let (b, of_b) = join("talks", 2);
        for event in [a, b] {
            events.send(event).await.unwrap();
        }
        Two { clock, events, fleet, _orders: [of_a, of_b] }
    }

    fn heartbeat(clock: &dyn Clock) -> FleetEvent {
        let (agent, what) = ("talks".parse().unwrap(), FromAgent::Heartbeat(None));
        FleetEvent::Said { agent, at: clock.boottime(), what }
    }

    /// A coordinator that was stopped hears nobody, and that is not the agents' silence.
    #[tokio::test]
    async fn who_was_stopped_itself_listens_before_it_calls_others_silent() {
        let Two { clock, events, mut fleet, _orders } = two().await;
        clock.advance(LEASE + Nanos::from_secs(10));
        assert!(matches!(fleet.next().await, Change::Tick));
        events.send(heartbeat(&*clock)).await.unwrap();
        let mut lost = Vec::new();
        for _ in 0..GRACE.0 / LOOK.0 + 4 {
            clock.advance(LOOK);
            if let Change::Lost(agent, _) = fleet.next().await {
                lost.push(agent.to_string());
            }
        }
        assert_eq!(lost, ["silent"]);
    }

    /// Others that talk all the time must not hide that one is silent.
    #[tokio::test]
    async fn silence_is_noticed_while_others_talk() {
        let Two { clock, events, mut fleet, _orders } = two().await;
        let mut lost = None;
        for tenth in 1..=200 {
            clock.advance(Nanos::from_millis(100));
            events.send(heartbeat(&*clock)).await.unwrap();
            if let Change::Lost(name, _) = fleet.next().await {
                lost = Some((name.to_string(), Nanos::from_millis(100 * tenth)));
                break;
            }
        }
        let (name, after) = lost.expect("nobody was lost");
        assert_eq!(name, "silent");
        assert!(after > LEASE && after < LEASE + Nanos::from_secs(3), "{after:?}");
    }
}
