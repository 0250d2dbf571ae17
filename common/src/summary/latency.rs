//! The latencies of a trial, over its successes, in seconds, and the samples behind them.

use serde::{Deserialize, Serialize};

use super::gaps::Gaps;
use super::requests::{Metric, Requests};
use crate::ids::Nanos;
use crate::metrics::RequestMetrics;
use crate::stats::{Distribution, Samples, Value};
use crate::trace::{Channel, Facts};

/// The distribution of each metric, seconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LatencySeconds {
    /// First content − scheduled.
    pub ttft: Distribution,
    /// First content − written.
    pub service_ttft: Distribution,
    /// Time per output token, one sample a request.
    pub tpot: Distribution,
    /// Proven gaps between tokens, one sample a gap.
    pub itl: Distribution,
    /// Gaps between content events, one sample a gap.
    pub chunk_gap: Distribution,
    /// Finished − scheduled.
    pub e2e: Distribution,
    /// Wait for a permit of the concurrency limit.
    pub client_queue: Distribution,
    /// Connected − released.
    pub connect: Distribution,
    /// Released − scheduled of requests that did not wait for a permit.
    pub dispatch_lateness: Distribution,
    /// First event of the answer − scheduled, of requests that had an answer.
    #[serde(default)]
    pub first_answer: Distribution,
    /// First event of the reasoning − scheduled, of requests that had reasoning.
    #[serde(default)]
    pub first_reasoning: Distribution,
    /// The engine's queue, on its own clock, of requests for which it says so.
    #[serde(default)]
    pub engine_queue: Distribution,
    /// From there to the first token, on the engine's own clock, of requests for which it says so.
    #[serde(default)]
    pub engine_first_token: Distribution,
    /// From the engine's acceptance to the last token, on its own clock, of requests for which it says so.
    #[serde(default)]
    pub engine_time: Distribution,
    /// (Finished − written) − `engine_time`, at least 0.
    #[serde(default)]
    pub engine_overhead: Distribution,
}

/// p99 with failures as infinite, seconds; in JSON a number, `"inf"`, or null without requests.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct P99WithFailures {
    /// Of TTFT.
    pub ttft: Option<Value>,
    /// Of service TTFT.
    pub service_ttft: Option<Value>,
    /// Of TPOT; a success without TPOT is left out.
    pub tpot: Option<Value>,
    /// Of E2E.
    pub e2e: Option<Value>,
}

/// Beside what [`Requests`] has.
#[derive(Debug, Default)]
pub(super) struct LatencySamples {
    service_ttft: Vec<f64>,
    client_queue: Vec<f64>,
    connect: Vec<f64>,
    dispatch_lateness: Vec<f64>,
    first_answer: Vec<f64>,
    first_reasoning: Vec<f64>,
    engine_queue: Vec<f64>,
    engine_first_token: Vec<f64>,
    engine_time: Vec<f64>,
    engine_overhead: Vec<f64>,
}

impl LatencySamples {
    pub(super) fn add(&mut self, m: &RequestMetrics, facts: &Facts) {
        self.service_ttft.extend(m.service_ttft.map(Nanos::as_secs_f64));
        self.client_queue.extend(m.client_queue.map(Nanos::as_secs_f64));
        self.connect.extend(m.connect.map(Nanos::as_secs_f64));
        self.dispatch_lateness.extend(m.dispatch_lateness.map(Nanos::as_secs_f64));
        self.first_answer.extend(m.first_in(Channel::Answer).map(Nanos::as_secs_f64));
        self.first_reasoning.extend(m.first_in(Channel::Reasoning).map(Nanos::as_secs_f64));
        self.engine_queue.extend(facts.engine_time.queue.map(Nanos::as_secs_f64));
        self.engine_first_token.extend(facts.engine_time.first_token.map(Nanos::as_secs_f64));
        self.engine_time.extend(m.engine_time.map(Nanos::as_secs_f64));
        self.engine_overhead.extend(m.engine_overhead.map(Nanos::as_secs_f64));
    }

    /// The distributions, and the p99 that counts `failed` more requests as infinite. One metric after the other: the
    /// sorted samples of one are gone before those of the next are made.
    pub(super) fn distributions(
        self,
        requests: &Requests,
        gaps: Gaps,
        failed: u64,
    ) -> (LatencySeconds, P99WithFailures) {
        let with_p99 = |values: Vec<f64>| {
            let samples = Samples::new(values);
            (samples.distribution(), samples.p99_with_failures_as_infinite(failed))
        };
        let (itl, chunk_gap) = gaps.distributions();
        let (service_ttft, service_ttft_p99) = with_p99(self.service_ttft);
        let client_queue = Distribution::of(self.client_queue);
        let connect = Distribution::of(self.connect);
        let dispatch_lateness = Distribution::of(self.dispatch_lateness);
        let first_answer = Distribution::of(self.first_answer);
        let (ttft, ttft_p99) = with_p99(requests.values(Metric::Ttft));
        let (tpot, tpot_p99) = with_p99(requests.values(Metric::Tpot));
        let (e2e, e2e_p99) = with_p99(requests.values(Metric::E2e));
        let latency = LatencySeconds {
            ttft,
            service_ttft,
            tpot,
            itl,
            chunk_gap,
            e2e,
            client_queue,
            connect,
            dispatch_lateness,
            first_answer,
            first_reasoning: Distribution::of(self.first_reasoning),
            engine_queue: Distribution::of(self.engine_queue),
            engine_first_token: Distribution::of(self.engine_first_token),
            engine_time: Distribution::of(self.engine_time),
            engine_overhead: Distribution::of(self.engine_overhead),
        };
        let p99 =
            P99WithFailures { ttft: ttft_p99, service_ttft: service_ttft_p99, tpot: tpot_p99, e2e: e2e_p99 };
        (latency, p99)
    }
}
