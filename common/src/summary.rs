//! What a trial amounts to: the numbers of the specification, section 4, from its traces.
//!
//! Owns the rates, the window, goodput, attainment and the books that prove that every scheduled arrival is in them.
//! Traces are taken one at a time ([`Summariser::add`]) and by reference, so that millions pass through without their
//! texts; what is kept are samples. Where the books do not balance, [`TrialSummary::numbers`] is none: such a trial
//! is reported as broken and must never be summarised. The worked example of the specification is a test, and
//! property tests hold the definitions against naive ones.

mod books;
mod build;
mod counts;
#[cfg(test)]
pub(crate) mod fixture;
mod gaps;
mod in_flight;
mod intervals;
mod latency;
mod queue;
mod replicas;
mod requests;
mod saturation;
#[cfg(test)]
mod tests;
mod tokens;

pub use build::Summariser;
pub use gaps::{Gaps, KnownGaps};
pub use intervals::Intervals;
pub use latency::{LatencySeconds, P99WithFailures};
pub use replicas::ReplicaSummary;
pub use saturation::Saturation;
pub use tokens::TokenEvidence;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::fleet::Health;
use crate::ids::{AgentName, Nanos};
use crate::offset::Estimate;
use crate::plan::OfferedRate;
use crate::slo::{Slo, SloSet};
use crate::stats::{Distribution, Value};
use crate::trace::{Clocks, Facts};
use crate::validity::{Conservation, Reason, Validity, ValidityLimits};

/// What is known of a trial beside its traces.
#[derive(Debug, Clone, Copy)]
pub struct TrialInput<'a> {
    /// Arrivals in the schedule, N.
    pub scheduled: u64,
    /// The configured rate, λ.
    pub offered: OfferedRate,
    /// L: the duration asked for, or N/λ (see [`crate::plan::ArrivalPlan::length`]); none for `inf`.
    pub length: Option<Nanos>,
    /// The objectives.
    pub slos: &'a SloSet,
    /// The trial's agents; a trace names one by its position here.
    pub agents: &'a [AgentInput],
    /// Where evidence becomes a reason.
    pub limits: ValidityLimits,
    /// Reasons that the traces do not show, such as a restarted engine.
    pub findings: &'a [Reason],
}

/// An agent of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentInput {
    /// Its name.
    pub name: AgentName,
    /// Its clock against the coordinator's; none when it was not probed.
    pub clock: Option<Estimate>,
    /// How long after its start it looked at the clock first; none when it did not say.
    pub start_skew: Option<Nanos>,
    /// It was lost during the trial.
    pub lost: bool,
    /// How it fared; none when it did not say.
    pub health: Option<Health>,
}

/// A trace without its text, and the position of its agent in [`TrialInput::agents`].
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// Position of the agent.
    pub agent: u16,
    /// The clocks.
    pub clocks: &'a Clocks,
    /// Counts, outcome and marks.
    pub facts: &'a Facts,
}

/// Summarises a trial whose traces are at hand.
pub fn summarise<'t>(input: TrialInput<'_>, traces: impl IntoIterator<Item = Sample<'t>>) -> TrialSummary {
    let mut summariser = Summariser::new(input);
    for trace in traces {
        summariser.add(trace);
    }
    summariser.finish()
}

/// A trial in numbers. Its serde form needs a format that describes itself, such as JSON: postcard cannot read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialSummary {
    /// Scheduled arrivals, N.
    pub requests: u64,
    /// Whether each of them was recorded once.
    pub conservation: Conservation,
    /// The numbers; none, and absent in JSON, when the books do not balance.
    #[serde(flatten)]
    pub numbers: Option<Numbers>,
    /// What each agent carried.
    pub agents: Vec<AgentSummary>,
    /// What each of several engines was sent, the base URL's first; empty, and absent in JSON, for one engine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaSummary>,
    /// Whether the numbers can be trusted.
    pub validity: Validity,
}

/// The numbers of a trial whose books balance. `None` is undefined, and `null` in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Requests that succeeded.
    pub successful: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Failures by the name of their kind; kinds that did not occur are left out.
    pub failures_by_kind: BTreeMap<String, u64>,
    /// W: from 0 to the last request's end, the drain included. Seconds.
    pub duration_seconds: f64,
    /// λ, requests per second. None for `inf`.
    pub offered_rate_per_second: Option<f64>,
    /// N / L, requests per second. None for `inf`.
    pub scheduled_rate_per_second: Option<f64>,
    /// Successes that ended within [0, L], divided by L; per second. None for `inf`.
    pub achieved_rate_per_second: Option<f64>,
    /// Successes / W, per second.
    pub request_throughput_per_second: Option<f64>,
    /// Known output tokens of the successes / W, per second. None when there were successes and no count was known.
    pub output_token_throughput_per_second: Option<f64>,
    /// Known prompt tokens of the successes / W, per second. None when there were successes and no count was known.
    pub input_token_throughput_per_second: Option<f64>,
    /// Output and input throughput together; none where one is.
    pub total_token_throughput_per_second: Option<f64>,
    /// Known output tokens of the successes.
    pub output_tokens: u64,
    /// Known prompt tokens of the successes.
    pub input_tokens: u64,
    /// Prompt tokens of the successes that the engine found in its prefix cache; none when it never said.
    pub cached_tokens: Option<u64>,
    /// Successes whose output tokens are known.
    pub requests_with_token_counts: u64,
    /// Successes whose prompt tokens are known.
    pub requests_with_prompt_token_counts: u64,
    /// Successes for which the engine said how many prompt tokens were cached.
    pub requests_with_cached_token_counts: u64,
    /// Successes by the source of their output token count.
    pub token_count_sources: BTreeMap<String, u64>,
    /// Good requests: successes that meet every objective on each request. None without objectives.
    pub good: Option<u64>,
    /// Good requests / W, per second. None without objectives.
    pub goodput_requests_per_second: Option<f64>,
    /// Good requests / N. None without objectives.
    pub slo_attainment: Option<f64>,
    /// What was lost to each cause: a failure counts once, under its kind; a success counts once under *each*
    /// objective that it missed, so that the sum may exceed the requests that were not good. Empty without
    /// objectives.
    pub slo_lost_by_cause: BTreeMap<String, u64>,
    /// The objectives over the trial.
    pub objectives: Vec<ObjectiveResult>,
    /// Requests in flight.
    pub in_flight: InFlight,
    /// Whether in-flight grew beyond its noise over the trial. None for `inf`, where the load changes over the trial,
    /// and where there are too few requests to tell.
    #[serde(default)]
    pub saturated: Option<bool>,
    /// What `saturated` was decided by.
    #[serde(default)]
    pub saturation: Option<Saturation>,
    /// 95% confidence intervals, or why there are none.
    #[serde(default)]
    pub intervals: Intervals,
    /// Requests by the engine's finish reason, failures included; those without one are left out.
    pub finish_reasons: BTreeMap<String, u64>,
    /// Distributions over the successes, seconds.
    pub latency_seconds: LatencySeconds,
    /// p99 over the successes and the failures, each failure counting as infinite.
    pub p99_with_failures_as_infinite_seconds: P99WithFailures,
    /// Successes whose chunk gaps are proven to be inter-token latencies.
    pub itl_proven_requests: u64,
    /// What there is to check the counts of tokens by.
    #[serde(default)]
    pub token_evidence: TokenEvidence,
    /// Idle connections that turned out closed and were replaced.
    pub reconnections: u64,
    /// Successes that ended with `[DONE]` and without a finish reason.
    pub done_without_finish: u64,
    /// Successes with fewer tokens than asked for under `ignore_eos`. They are not good.
    pub short_outputs: u64,
    /// Successes whose text all came in one read although it was several events or tokens.
    pub coalesced_streams: u64,
    /// Content events of the successes.
    pub content_events: u64,
    /// Content events of the successes that shared a read with the content event before them.
    pub coalesced_events: u64,
    /// Requests whose workload row another request of the trial had carried before.
    pub repeated_prompts: u64,
    /// Traces that the coordinator wrote for arrivals whose own trace cannot come any more.
    pub synthetic_traces: u64,
}

/// Requests in flight: from `written`, or `released` where nothing was written, to `finished`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct InFlight {
    /// Mean over W.
    pub mean: Option<f64>,
    /// Largest number at one instant.
    pub peak: u64,
    /// Little's law as a check: achieved rate × mean E2E. Near `mean` in a stationary trial without client queue.
    pub littles_law: Option<f64>,
    /// `littles_law` / `mean` − 1. Far from 0 in a trial that is not stationary (its in-flight grew, or its drain is
    /// long), or that has failures or a client queue.
    #[serde(default)]
    pub littles_law_relative_difference: Option<f64>,
}

/// How an objective over the trial came out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveResult {
    /// The objective.
    pub objective: Slo,
    /// The percentile, seconds, over all N requests; for `itl` of each request's largest proven gap.
    pub value: Option<Value>,
    /// It is at most the limit.
    pub met: bool,
    /// Requests that counted as infinite: failures, and successes for which the metric is undefined.
    pub infinite: u64,
}

/// What one agent carried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentSummary {
    /// Its name.
    pub name: AgentName,
    /// Traces that are its.
    pub requests: u64,
    /// `requests` / all recorded.
    pub share: Option<f64>,
    /// Those of its requests that failed.
    pub failed: u64,
    /// Dispatch lateness over every request that it released without a wait, failures included. Seconds.
    pub dispatch_lateness_seconds: Distribution,
    /// Its clock minus the coordinator's, seconds.
    pub clock_offset_seconds: Option<f64>,
    /// Half width of the interval that surely holds the offset, seconds.
    pub clock_bound_seconds: Option<f64>,
    /// How much faster its clock runs than the coordinator's, parts per million; none when the trial was too short to
    /// say.
    pub clock_drift_ppm: Option<f64>,
    /// Half width of the interval that surely holds the drift, parts per million.
    pub clock_drift_bound_ppm: Option<f64>,
    /// When it started after the instant that all were to start at, by its own clock: what its pacer took to look.
    /// The offset's bound comes on top. Seconds.
    pub start_skew_seconds: Option<f64>,
    /// It was lost during the trial.
    pub lost: bool,
    /// How it fared: read lateness, and the evidence for why; null when it did not say.
    pub health: Option<Health>,
}
