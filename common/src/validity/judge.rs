//! From evidence to reasons.

use std::collections::BTreeMap;

use super::{Conservation, Reason, ReasonKind, Validity, ValidityLimits};
use crate::fleet::Health;
use crate::ids::{AgentName, Nanos};
use crate::trace::{FailureClass, FailureKind};

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
    /// How it fared; none when it did not say.
    pub health: Option<Health>,
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
                let message =
                    format!("{count} {requests} failed as {} by a fault of the generator", kind.name());
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
        add(ReasonKind::DispatchLateness, message + &why(agent.health.as_ref()));
    }
    let reads = agent.health.and_then(|h| h.read_lateness);
    if let Some(reads) = reads.filter(|r| r.p99 > limits.lateness_budget.as_secs_f64()) {
        let message = format!(
            "read lateness p99 of {:.3} ms over {} looks is above the budget of {:.3} ms",
            reads.p99 * 1e3,
            reads.n,
            limits.lateness_budget.as_secs_f64() * 1e3
        );
        add(ReasonKind::ReadLateness, message + &why(agent.health.as_ref()));
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

/// The evidence for why an agent was late: what the kernel said of CPU, waiting and steal.
fn why(health: Option<&Health>) -> String {
    let Some(health) = health.filter(|h| h.seconds > 0.0) else { return String::new() };
    let share = |seconds: Option<f64>| seconds.map(|s| 100.0 * s / health.seconds);
    let known = [
        ("its CPU time", share(health.process_cpu_seconds)),
        ("its reading thread waited for a core", share(health.reader_run_queue_seconds)),
        ("its pacing thread", share(health.pacer_run_queue_seconds)),
        ("some task of the host did", share(health.cpu_pressure_seconds)),
        ("the hypervisor took", share(health.steal_seconds)),
    ];
    let parts: Vec<String> =
        known.iter().filter_map(|(name, share)| share.map(|share| format!("{name} {share:.0}%"))).collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!(" (of the time: {}; {} cores)", parts.join(", "), health.cores)
    }
}
