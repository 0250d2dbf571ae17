//! Whether a trial's numbers can be trusted, and why not.
//!
//! Judging is a pure function of the evidence: [`judge()`]. The worst reason decides the verdict, and every reason is
//! kept, so that a reader sees all that went wrong. The generator's faults are never charged to the engine, nor are
//! they ever hidden: this module must not drop a reason because a worse one was found.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, Nanos};

/// What a trial is worth, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing speaks against it.
    #[default]
    Valid,
    /// The generator sent, or read, later than its budget.
    Late,
    /// Something outside the generator and the engine interfered.
    Degraded,
    /// The generator failed, or requests are unaccounted for.
    Invalid,
}

impl Verdict {
    /// Every verdict, best first.
    pub const ALL: &'static [Self] = &[Self::Valid, Self::Late, Self::Degraded, Self::Invalid];

    /// The name used in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Late => "late",
            Self::Degraded => "degraded",
            Self::Invalid => "invalid",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What kind of thing went wrong. Some kinds are found here; the others come from whoever led the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonKind {
    /// Dispatch lateness p99 of an agent above the budget.
    DispatchLateness,
    /// Read lateness p99 of an agent above the budget.
    ReadLateness,
    /// The bound of an agent's clock above its limit.
    ClockBound,
    /// Requests gave up waiting for a permit: the declared concurrency limit was the bottleneck.
    ClientQueueTimeout,
    /// The client queue grew over the trial.
    ClientQueueGrew,
    /// Telemetry that was required is missing.
    TelemetryLost,
    /// A request failed by a fault of the generator.
    GeneratorFailure,
    /// An agent is gone.
    AgentLost,
    /// Scheduled and recorded arrivals are not the same.
    Conservation,
    /// An arrival has two real traces.
    DuplicateTraces,
    /// The coordinator was restarted during the trial.
    CoordinatorRestarted,
    /// The engine was restarted during the trial.
    EngineRestarted,
    /// The engine ended by itself during the trial.
    EngineDied,
    /// The operator ended the trial early.
    Interrupted,
    /// The search for the knee ended the trial early, because its rate could not pass any more. Nothing is wrong with it;
    /// it is to be known.
    CutBySearch,
}

impl ReasonKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::DispatchLateness,
        Self::ReadLateness,
        Self::ClockBound,
        Self::ClientQueueTimeout,
        Self::ClientQueueGrew,
        Self::TelemetryLost,
        Self::GeneratorFailure,
        Self::AgentLost,
        Self::Conservation,
        Self::DuplicateTraces,
        Self::CoordinatorRestarted,
        Self::EngineRestarted,
        Self::EngineDied,
        Self::Interrupted,
        Self::CutBySearch,
    ];

    /// The verdict that this kind leads to.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        match self {
            Self::CutBySearch => Verdict::Valid,
            Self::DispatchLateness | Self::ReadLateness => Verdict::Late,
            Self::ClockBound | Self::ClientQueueTimeout | Self::ClientQueueGrew | Self::TelemetryLost => {
                Verdict::Degraded
            }
            Self::GeneratorFailure
            | Self::AgentLost
            | Self::Conservation
            | Self::DuplicateTraces
            | Self::CoordinatorRestarted
            | Self::EngineRestarted
            | Self::EngineDied
            | Self::Interrupted => Verdict::Invalid,
        }
    }
}

/// One thing that speaks against a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What it makes of the trial.
    pub verdict: Verdict,
    /// What kind of thing it is.
    pub kind: ReasonKind,
    /// Whose it is, where it is one agent's.
    pub agent: Option<AgentName>,
    /// A sentence for a person; names the agent too.
    pub message: String,
}

impl Reason {
    /// A reason of `kind` that is not one agent's.
    #[must_use]
    pub fn new(kind: ReasonKind, message: impl Into<String>) -> Self {
        Self { verdict: kind.verdict(), kind, agent: None, message: message.into() }
    }

    /// A reason of `kind` that is `agent`'s; its name is put before `message`.
    #[must_use]
    pub fn of_agent(kind: ReasonKind, agent: &AgentName, message: impl fmt::Display) -> Self {
        Self { agent: Some(agent.clone()), ..Self::new(kind, format!("agent {agent}: {message}")) }
    }
}

/// The verdict on a trial, with every reason for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Validity {
    /// The worst of the reasons.
    pub verdict: Verdict,
    /// All of them, worst first.
    pub reasons: Vec<Reason>,
}

impl Validity {
    /// The verdict that `reasons` lead to.
    #[must_use]
    pub fn of(mut reasons: Vec<Reason>) -> Self {
        reasons.sort_by_key(|r| std::cmp::Reverse(r.verdict));
        Self { verdict: reasons.first().map_or(Verdict::Valid, |r| r.verdict), reasons }
    }

    /// One more reason.
    pub fn add(&mut self, reason: Reason) {
        let mut reasons = std::mem::take(&mut self.reasons);
        reasons.push(reason);
        *self = Self::of(reasons);
    }

    /// Nothing speaks against the trial.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.verdict == Verdict::Valid
    }
}

/// Where evidence becomes a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidityLimits {
    /// Dispatch lateness p99 of an agent above this makes the trial late.
    pub lateness_budget: Nanos,
    /// A clock bound above this makes the trial degraded.
    pub clock_bound: Nanos,
}

impl Default for ValidityLimits {
    /// 1 ms of lateness, 5 ms of clock bound.
    fn default() -> Self {
        Self { lateness_budget: Nanos::from_millis(1), clock_bound: Nanos::from_millis(5) }
    }
}

/// Whether every scheduled arrival ended as exactly one trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Conservation {
    /// Arrivals in the schedule.
    pub scheduled: u64,
    /// Traces.
    pub recorded: u64,
    /// Arrivals without a trace.
    pub missing: u64,
    /// Traces beyond the first of their arrival.
    pub duplicates: u64,
    /// Traces of arrivals, or from agents, that the trial does not have.
    pub unknown: u64,
}

impl Conservation {
    /// Every scheduled arrival has exactly one trace, and there is no other.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.scheduled == self.recorded && self.missing == 0 && self.duplicates == 0 && self.unknown == 0
    }
}

mod judge;
pub mod silence;
pub use judge::{AgentEvidence, Evidence, QueueGrowth, judge};

#[cfg(test)]
mod tests;
