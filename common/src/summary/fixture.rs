//! Traces and trials for tests.

use super::{AgentInput, Sample, TrialInput, TrialSummary, summarise};
use crate::ids::{ArrivalIndex, Nanos};
use crate::plan::OfferedRate;
use crate::slo::SloSet;
use crate::trace::{
    Channel, ContentEvent, Failure, FailureKind, Outcome, OutputTokens, TokenSource, Trace, Unsent,
};
use crate::validity::ValidityLimits;

pub(crate) fn unsent(index: u64, scheduled_ms: u64) -> Unsent {
    Unsent {
        index: ArrivalIndex(index),
        scheduled: Nanos::from_millis(scheduled_ms),
        row: index as u32,
        requested_tokens: 16,
        prompt_tokens: None,
    }
}

/// Sent at once, first text `ttft_ms` after it was due, and then `tokens` events evenly to the end.
pub(crate) fn success(index: u64, scheduled_ms: u64, ttft_ms: u64, e2e_ms: u64, tokens: u64) -> Trace {
    let at = Nanos::from_millis;
    let mut trace = Trace::unsent(
        unsent(index, scheduled_ms),
        Failure::new(FailureKind::NotDispatched, ""),
        at(scheduled_ms + e2e_ms),
    );
    let (c, f) = (&mut trace.clocks, &mut trace.facts);
    (c.released, c.connected) = (Some(c.scheduled), Some(c.scheduled));
    c.written = Some(c.scheduled);
    let step = (e2e_ms - ttft_ms) as f64 / (tokens.max(2) - 1) as f64;
    c.content = (0..tokens)
        .map(|i| ContentEvent {
            at: Nanos::from_secs_f64((scheduled_ms as f64 + ttft_ms as f64 + step * i as f64) / 1e3),
            channel: Channel::Answer,
        })
        .collect();
    f.outcome = Outcome::Success;
    f.output_tokens = OutputTokens { count: Some(tokens), source: TokenSource::Usage };
    f.finish_reason = Some("length".to_owned());
    f.done_seen = true;
    trace
}

/// Sent at once where the kind allows it, ended `e2e_ms` after it was due.
pub(crate) fn failure(index: u64, scheduled_ms: u64, e2e_ms: u64, kind: FailureKind) -> Trace {
    let mut trace = Trace::unsent(
        unsent(index, scheduled_ms),
        Failure::new(kind, "it failed"),
        Nanos::from_millis(scheduled_ms + e2e_ms),
    );
    if !matches!(kind, FailureKind::NotDispatched | FailureKind::AgentLost | FailureKind::ClientQueueTimeout)
    {
        trace.clocks.released = Some(trace.clocks.scheduled);
        trace.clocks.written = Some(trace.clocks.scheduled);
    }
    trace
}

pub(crate) fn agents(names: &[&str]) -> Vec<AgentInput> {
    names
        .iter()
        .map(|name| AgentInput {
            name: name.parse().unwrap(),
            clock: None,
            start_skew: None,
            lost: false,
            health: None,
        })
        .collect()
}

pub(crate) fn input<'a>(scheduled: u64, slos: &'a SloSet, agents: &'a [AgentInput]) -> TrialInput<'a> {
    TrialInput {
        scheduled,
        offered: OfferedRate::Infinite,
        length: None,
        slos,
        agents,
        limits: ValidityLimits::default(),
        findings: &[],
    }
}

pub(crate) fn samples(traces: &[Trace]) -> impl Iterator<Item = Sample<'_>> {
    traces.iter().map(|t| Sample { agent: 0, clocks: &t.clocks, facts: &t.facts })
}

/// The summary of `traces` at `rate`, all from one agent.
pub(crate) fn trial(rate: &str, slos: &SloSet, traces: &[Trace]) -> TrialSummary {
    let offered: OfferedRate = rate.parse().unwrap();
    let n = traces.len() as u64;
    let length = offered.per_second().map(|lambda| Nanos::from_secs_f64(n as f64 / lambda));
    let agents = agents(&["a1"]);
    summarise(TrialInput { offered, length, ..input(n, slos, &agents) }, samples(traces))
}
