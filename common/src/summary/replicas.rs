//! What each of several engines was sent, and how it fared: one that is slower than the others hides in the whole.

use serde::{Deserialize, Serialize};

use crate::ids::Digest;
use crate::metrics::RequestMetrics;
use crate::plan::BaseUrl;
use crate::replicas::Replicas;
use crate::slo::SloMetric;
use crate::stats::Distribution;
use crate::trace::Facts;

/// One of several engines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplicaSummary {
    /// Where it is.
    pub base_url: BaseUrl,
    /// Requests that were its.
    pub requests: u64,
    /// Those that failed.
    pub failed: u64,
    /// Time to first token of its successes. Seconds.
    pub ttft_seconds: Distribution,
    /// End to end, of its successes. Seconds.
    pub e2e_seconds: Distribution,
}

/// Counts them; nothing where there is only one engine.
#[derive(Debug, Default)]
pub(super) struct ReplicaCounts {
    choice: Option<Replicas>,
    engines: Vec<Count>,
}

#[derive(Debug)]
struct Count {
    url: BaseUrl,
    requests: u64,
    failed: u64,
    ttft: Vec<f64>,
    e2e: Vec<f64>,
}

impl ReplicaCounts {
    pub(super) fn new(urls: &[BaseUrl], schedule: Digest) -> Self {
        if urls.len() < 2 {
            return Self::default();
        }
        let count = |url: &BaseUrl| Count {
            url: url.clone(),
            requests: 0,
            failed: 0,
            ttft: Vec::new(),
            e2e: Vec::new(),
        };
        Self { choice: Some(Replicas::new(schedule, urls)), engines: urls.iter().map(count).collect() }
    }

    pub(super) fn add(&mut self, metrics: &RequestMetrics, facts: &Facts) {
        let Some(choice) = &self.choice else { return };
        let engine = &mut self.engines[choice.of(facts.index.0)];
        engine.requests += 1;
        if facts.outcome.is_success() {
            engine.ttft.extend(metrics.seconds(SloMetric::Ttft));
            engine.e2e.extend(metrics.seconds(SloMetric::E2e));
        } else {
            engine.failed += 1;
        }
    }

    pub(super) fn finish(self) -> Vec<ReplicaSummary> {
        let summary = |count: Count| ReplicaSummary {
            base_url: count.url,
            requests: count.requests,
            failed: count.failed,
            ttft_seconds: Distribution::of(count.ttft),
            e2e_seconds: Distribution::of(count.e2e),
        };
        self.engines.into_iter().map(summary).collect()
    }
}
