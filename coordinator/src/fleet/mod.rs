//! The fleet: the agents of this coordinator, and the one place where the driver hears of them.
//!
//! `rpc` puts what comes over the wire into one channel of [`FleetEvent`]s; the driver takes it out through
//! [`Fleet::next`], which also notices silence. So the driver is one loop over one source, and everything it decides
//! is decided in one order.

pub mod messages;
pub mod registry;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::clock::Clock;
use common::fleet::Introduction;
use common::ids::{AgentName, Incarnation, Nanos};
use tokio::sync::{mpsc, oneshot};

pub use messages::{FromAgent, ToAgent};
pub use registry::{Refusal, Registry};

/// Between two heartbeats.
pub const HEARTBEAT: Nanos = Nanos(1_000_000_000);

/// How long an agent may send without an answer from the coordinator.
pub const LEASE: Nanos = Nanos(15_000_000_000);

/// How often the driver looks for silence.
const LOOK: std::time::Duration = std::time::Duration::from_millis(500);

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
        /// Of which process.
        incarnation: Incarnation,
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
    clock: Arc<dyn Clock>,
}

impl Fleet {
    /// A fleet that wants so many agents and hears of them through `events`.
    #[must_use]
    pub fn new(wanted: usize, events: mpsc::Receiver<FleetEvent>, clock: Arc<dyn Clock>) -> Self {
        let registry = Registry::new(wanted, LEASE);
        Self { registry, links: BTreeMap::new(), events, lost: Vec::new(), clock }
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
            match tokio::time::timeout(LOOK, self.events.recv()).await {
                Ok(Some(event)) => {
                    if let Some(change) = self.take(event) {
                        return change;
                    }
                }
                // What waits in the channel was heard before: only a quiet channel may show silence.
                Ok(None) | Err(_) => {
                    self.lost = self.registry.expire(self.clock.boottime());
                    if self.lost.is_empty() {
                        return Change::Tick;
                    }
                }
            }
        }
    }

    fn take(&mut self, event: FleetEvent) -> Option<Change> {
        match event {
            FleetEvent::Join { introduction, at, link, answer } => {
                let name = introduction.name.clone();
                let result = self.registry.join(*introduction, at);
                let taken = result.is_ok();
                if answer.send(result.map(|_| ())).is_err() || !taken {
                    return None;
                }
                self.links.insert(name.clone(), link);
                Some(Change::Joined(name))
            }
            FleetEvent::Said { agent, at, what } => {
                self.registry.heard(&agent, at);
                Some(Change::Said(agent, what))
            }
            FleetEvent::Gone { agent, reason } => {
                self.registry.remove(&agent);
                self.links.remove(&agent);
                Some(Change::Lost(agent, reason))
            }
            FleetEvent::Left { agent, incarnation } => {
                self.registry.disconnected(&agent, incarnation);
                None
            }
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
