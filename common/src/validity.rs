//! Whether a trial's numbers can be trusted, and why not.
//!
//! Judging is a pure function of the evidence: [`judge`]. The worst reason decides the verdict, and every reason is
//! kept, so that a reader sees all that went wrong. The generator's faults are never charged to the engine, nor are
//! they ever hidden: this module must not drop a reason because a worse one was found.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, Nanos};
use crate::trace::{FailureClass, FailureKind};

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
    /// The operator ended the trial early.
    Interrupted,
}

impl ReasonKind {
    /// The verdict that this kind leads to.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        match self {
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

/// What is known of one agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentEvidence<'a> {
    /// Its name.
    pub name: &'a AgentName,
    /// Dispatch lateness p99 over every request that it sent, seconds.
    pub lateness_p99: Option<f64>,
    /// Number of samples behind it.
    pub lateness_n: u64,
    /// Half width of its clock's feasible interval.
    pub clock_bound: Option<Nanos>,
    /// It was lost during the trial.
    pub lost: bool,
    /// How many of its requests failed, by kind.
    pub failures: &'a BTreeMap<FailureKind, u64>,
}

/// A client queue whose mean wait grew.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueueGrowth {
    /// Mean wait in the second quarter of the trial, seconds.
    pub second_quarter: f64,
    /// Mean wait in the last quarter, seconds.
    pub last_quarter: f64,
}

/// Everything that a trial is judged by.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evidence<'a> {
    /// Each agent of the trial.
    pub agents: Vec<AgentEvidence<'a>>,
    /// Whether the books balance.
    pub conservation: Conservation,
    /// The client queue, if it grew.
    pub queue_growth: Option<QueueGrowth>,
    /// What whoever led the trial knows beside the traces.
    pub findings: &'a [Reason],
}

/// Judges a trial.
#[must_use]
pub fn judge(evidence: &Evidence<'_>, limits: &ValidityLimits) -> Validity {
    let mut reasons = evidence.findings.to_vec();
    reasons.extend(of_conservation(&evidence.conservation));
    for agent in &evidence.agents {
        of_agent(agent, limits, &mut reasons);
    }
    if let Some(g) = evidence.queue_growth {
        let message = format!(
            "the client queue grew from a mean of {:.3} s in the second quarter to {:.3} s in the last: \
             the concurrency limit was the bottleneck, so a client-limited service was measured",
            g.second_quarter, g.last_quarter
        );
        reasons.push(Reason::new(ReasonKind::ClientQueueGrew, message));
    }
    Validity::of(reasons)
}

fn of_conservation(c: &Conservation) -> Option<Reason> {
    if c.holds() {
        return None;
    }
    let message = format!(
        "{} arrivals were scheduled and {} recorded ({} missing, {} recorded twice, {} unknown): \
         the trial is broken and not summarised",
        c.scheduled, c.recorded, c.missing, c.duplicates, c.unknown
    );
    let only_twice = c.duplicates > 0 && c.missing == 0 && c.unknown == 0;
    let kind = if only_twice { ReasonKind::DuplicateTraces } else { ReasonKind::Conservation };
    Some(Reason::new(kind, message))
}

fn of_agent(agent: &AgentEvidence<'_>, limits: &ValidityLimits, reasons: &mut Vec<Reason>) {
    let mut add = |kind, message: String| reasons.push(Reason::of_agent(kind, agent.name, message));
    if agent.lost {
        add(ReasonKind::AgentLost, "it was lost during the trial".to_owned());
    }
    for (&kind, &count) in agent.failures {
        let requests = if count == 1 { "request" } else { "requests" };
        match (kind, kind.class()) {
            (FailureKind::AgentLost, _) => {
                add(ReasonKind::AgentLost, format!("{count} {requests} with it lost, their fate unknown"));
            }
            (_, FailureClass::Generator) => {
                let message = format!("{count} {requests} failed as {} by a fault of the generator", kind.name());
                add(ReasonKind::GeneratorFailure, message);
            }
            (FailureKind::ClientQueueTimeout, _) => {
                let message = format!(
                    "{count} {requests} timed out waiting for a permit: the concurrency limit was the bottleneck"
                );
                add(ReasonKind::ClientQueueTimeout, message);
            }
            _ => {}
        }
    }
    if let Some(p99) = agent.lateness_p99
        && p99 > limits.lateness_budget.as_secs_f64()
    {
        let message = format!(
            "dispatch lateness p99 of {:.3} ms over {} requests is above the budget of {:.3} ms",
            p99 * 1e3,
            agent.lateness_n,
            limits.lateness_budget.as_secs_f64() * 1e3
        );
        add(ReasonKind::DispatchLateness, message);
    }
    if let Some(bound) = agent.clock_bound.filter(|&b| b > limits.clock_bound) {
        let message = format!(
            "its clock is known only to ±{:.3} ms, above the limit of {:.3} ms",
            bound.as_secs_f64() * 1e3,
            limits.clock_bound.as_secs_f64() * 1e3
        );
        add(ReasonKind::ClockBound, message);
    }
}

#[cfg(test)]
mod tests;
