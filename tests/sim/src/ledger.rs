//! What really happened, as nobody in the fleet can know: every send, every answer of the engine, every process.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::spool::Spool;
use common::fleet::Upload;
use common::ids::{AgentName, Epoch, Incarnation, RunId, TrialId};
use serde::{Deserialize, Serialize};

use crate::clock::true_ns;

/// A request as the engine saw it.
#[derive(Debug, Clone)]
pub struct Sent {
    /// When, in true time.
    pub at_ns: u64,
    /// By whom.
    pub agent: AgentName,
    /// Of which trial.
    pub trial: TrialId,
    /// And try.
    pub epoch: Epoch,
    /// Position in the schedule.
    pub index: u64,
    /// How it ended; none when the agent was gone before.
    pub outcome: Option<String>,
}

/// What the coordinator is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Doing {
    /// Waiting for agents, trying the engine.
    Joining,
    /// A trial is being prepared.
    Preparing,
    /// All are ready; the start is near.
    Armed,
    /// Requests are sent.
    Running,
    /// The last traces are on their way; the books are closed.
    Closing,
    /// A trial of a coordinator that was lost is collected.
    Collecting,
    /// It is not there.
    Down,
}

/// What an agent is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AgentDoing {
    /// No trial.
    Idle,
    /// Its warm-up.
    Preparing,
    /// Waiting for the start.
    Ready,
    /// Sending.
    Sending,
    /// All is sent; what is spooled is being delivered.
    Drained,
    /// It is not there.
    Down,
}

/// A spool that was opened.
pub struct Spooling {
    /// By whom.
    pub agent: AgentName,
    /// By which process.
    pub incarnation: Incarnation,
    /// Of which trial.
    pub trial: TrialId,
    /// And try.
    pub epoch: Epoch,
    /// When its traces may be delivered.
    pub upload: Upload,
    /// It.
    pub spool: Arc<Spool>,
}

/// What may follow from something that was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excuse {
    /// An agent may be taken for lost.
    Lost,
    /// An agent may lose traces.
    Lossy,
    /// Traces may be late.
    Late,
}

/// Something that was done, from when to when, in true time.
#[derive(Debug, Clone)]
pub struct Cause {
    /// To whom; none is the coordinator.
    pub agent: Option<AgentName>,
    /// From then on.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
    /// What may follow.
    pub excuse: Excuse,
}

impl Facts {
    /// Whether something was done that may have led to this for this agent, at some time between.
    pub fn is_excused(&self, excuse: Excuse, agent: &AgentName, (from_ns, to_ns): (u64, u64)) -> bool {
        let is = |cause: &Cause| {
            cause.excuse == excuse
                && cause.agent.as_ref().is_none_or(|of| of == agent)
                && cause.from_ns <= to_ns
                && cause.to_ns >= from_ns
        };
        self.causes.iter().any(is)
    }
}

/// How a coordinator's process ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// With a report, and nothing is left to be sent.
    Done,
    /// With this error.
    Failed(String),
}

/// The facts.
#[derive(Default)]
pub struct Facts {
    /// The run that is under way.
    pub run: Option<RunId>,
    /// Every request.
    pub sent: Vec<Sent>,
    /// Every spool.
    pub spools: Vec<Spooling>,
    /// What the coordinator is doing, and the trial that it is about.
    pub doing: Option<(Doing, u32)>,
    /// What each agent is doing.
    pub agents: BTreeMap<AgentName, AgentDoing>,
    /// When each trial was sealed, in true time.
    pub sealed: BTreeMap<TrialId, u64>,
    /// When agents were taken for lost, and in which try, in true time.
    pub lost: Vec<(AgentName, Epoch, u64)>,
    /// When agents had sent all of a try, in true time.
    pub drained: BTreeMap<(AgentName, Epoch), u64>,
    /// What is known to be on an agent's disk after a crash: positions of a try.
    pub survived: BTreeMap<(AgentName, TrialId, Epoch), Vec<u64>>,
    /// What was done, and what it may excuse.
    pub causes: Vec<Cause>,
    /// When agents' processes were ended, in true time.
    pub crashes: Vec<(AgentName, u64)>,
    /// The coordinator's process has ended by itself.
    pub ended: Option<Ended>,
    /// What the operator was told, and by whom.
    pub told: Vec<(u64, String)>,
    /// Promises that were seen broken while it ran.
    pub broken: Vec<String>,
}

/// The facts, shared by all hosts.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Facts>>, Arc<AtomicU64>);

impl Ledger {
    /// The facts.
    pub fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True time.
    pub fn now_ns(&self) -> u64 {
        true_ns(&self.1)
    }

    /// Something to tell whoever looks at a failing seed.
    pub fn tell(&self, text: impl Into<String>) {
        let at = self.now_ns();
        self.facts().told.push((at, text.into()));
    }

    /// The coordinator goes on to something else.
    pub fn doing(&self, doing: Doing, trial: u32) {
        self.facts().doing = Some((doing, trial));
    }

    /// An agent does.
    pub fn agent(&self, agent: &AgentName, doing: AgentDoing) {
        self.facts().agents.insert(agent.clone(), doing);
    }
}
