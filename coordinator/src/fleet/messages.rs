//! What agents say and are told, in the domain's terms. `rpc` turns these into wire messages and back.

use common::fleet::{
    CollectOrder, CollectReport, DrainReport, EngineOrder, EngineState, Observation, Progress, ReadyReport,
    TargetCheck, TargetReport, TrialOrder,
};
use common::ids::{Epoch, Nanos};

/// Said by an agent.
#[derive(Debug, Clone, PartialEq)]
pub enum FromAgent {
    /// It lives; counters of its trial, if it has one.
    Heartbeat(Option<Progress>),
    /// What came of trying the engine.
    Target(u64, Box<TargetReport>),
    /// Where the engine stands that it launches, or how an order came out.
    Engine(Box<EngineState>),
    /// Prepared.
    Ready(ReadyReport),
    /// Knows when to start.
    Armed(Epoch),
    /// Every arrival has its trace.
    Drained(Box<DrainReport>),
    /// What it holds of a trial whose coordinator was lost.
    Collected(Box<CollectReport>),
    /// The trial cannot go on there.
    Failed {
        /// The trial's.
        epoch: Epoch,
        /// prepare, warm-up, connect, clock, start.
        stage: String,
        /// Why.
        message: String,
    },
}

/// Told to an agent.
#[derive(Debug, Clone, PartialEq)]
pub enum ToAgent {
    /// Try the engine.
    Check(Box<TargetCheck>),
    /// Do something with the engine; answered under this number.
    Engine(u64, EngineOrder),
    /// Record what happens there.
    Observe(Box<Observation>),
    /// Prepare a trial.
    Prepare(Box<TrialOrder>),
    /// Start at this instant of the coordinator's monotonic clock, if told to by then.
    Arm {
        /// The trial's.
        epoch: Epoch,
        /// T0.
        start: Nanos,
    },
    /// Everybody is armed.
    Start(Epoch),
    /// Send nothing more.
    Stop {
        /// The trial's.
        epoch: Epoch,
        /// Cut what is in flight, too.
        cancel: bool,
        /// Why.
        reason: String,
    },
    /// Forget a trial that has not started.
    Abort {
        /// The trial's.
        epoch: Epoch,
        /// Why.
        reason: String,
    },
    /// Say and deliver what is held of a trial whose coordinator was lost.
    Collect(CollectOrder),
    /// The trial's segments may go.
    Sealed(Epoch),
    /// No more work.
    Goodbye(String),
}
