//! The samples behind the latencies of a trial, over its successes, in seconds.

use super::{LatencySeconds, P99WithFailures};
use crate::ids::Nanos;
use crate::metrics::{RequestMetrics, Tpot};
use crate::stats::{Distribution, Samples};

#[derive(Debug, Default)]
pub(super) struct LatencySamples {
    ttft: Vec<f64>,
    service_ttft: Vec<f64>,
    tpot: Vec<f64>,
    /// A sample a gap is by far the most: a gap is kept once, here or in `unproven_gaps`, and chunk gaps are both.
    itl: Vec<f64>,
    unproven_gaps: Vec<f64>,
    e2e: Vec<f64>,
    client_queue: Vec<f64>,
    connect: Vec<f64>,
    dispatch_lateness: Vec<f64>,
}

impl LatencySamples {
    pub(super) fn add(&mut self, m: &RequestMetrics<'_>) {
        self.ttft.extend(m.ttft.map(Nanos::as_secs_f64));
        self.service_ttft.extend(m.service_ttft.map(Nanos::as_secs_f64));
        self.tpot.extend(m.tpot.map(Tpot::as_secs_f64));
        self.e2e.push(m.e2e.as_secs_f64());
        self.client_queue.extend(m.client_queue.map(Nanos::as_secs_f64));
        self.connect.extend(m.connect.map(Nanos::as_secs_f64));
        self.dispatch_lateness.extend(m.dispatch_lateness.map(Nanos::as_secs_f64));
        let gaps = if m.itl_proven() { &mut self.itl } else { &mut self.unproven_gaps };
        gaps.extend(m.chunk_gaps().map(Nanos::as_secs_f64));
    }

    /// The distributions, and the p99 that counts `failed` more requests as infinite.
    pub(super) fn distributions(self, failed: u64) -> (LatencySeconds, P99WithFailures) {
        let (ttft, service_ttft) = (Samples::new(self.ttft), Samples::new(self.service_ttft));
        let (tpot, e2e) = (Samples::new(self.tpot), Samples::new(self.e2e));
        let itl = Samples::new(self.itl);
        let itl_distribution = itl.distribution();
        // The smaller part moves: gaps are most of the memory, and one of the two is usually empty.
        let (mut gaps, mut rest) = (itl.into_sorted(), self.unproven_gaps);
        if gaps.len() < rest.len() {
            std::mem::swap(&mut gaps, &mut rest);
        }
        gaps.extend(rest);
        let latency = LatencySeconds {
            ttft: ttft.distribution(),
            service_ttft: service_ttft.distribution(),
            tpot: tpot.distribution(),
            itl: itl_distribution,
            chunk_gap: Distribution::of(gaps),
            e2e: e2e.distribution(),
            client_queue: Distribution::of(self.client_queue),
            connect: Distribution::of(self.connect),
            dispatch_lateness: Distribution::of(self.dispatch_lateness),
        };
        let p99 = P99WithFailures {
            ttft: ttft.p99_with_failures_as_infinite(failed),
            service_ttft: service_ttft.p99_with_failures_as_infinite(failed),
            tpot: tpot.p99_with_failures_as_infinite(failed),
            e2e: e2e.p99_with_failures_as_infinite(failed),
        };
        (latency, p99)
    }
}
