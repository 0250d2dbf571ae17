//! The engine over a window, by its own metrics: gauges over time, differences of its counters.
//!
//! These are the engine's words, to stand beside what was measured; nothing measured is ever replaced by them. A
//! counter that went back is an engine that was started again: then no difference is given at all, for those that had
//! not risen before do not show it.
//!
//! A percentile is as good as the engine's buckets: it lies in the right one, and where in it is a guess. What lies
//! above the last bound is not guessed.

use serde::{Deserialize, Serialize};

use crate::telemetry::points::{Delta, Points};
use crate::telemetry::{EngineHistogram, EngineSample, Window};

/// What an engine did in a window, by its own account. What is not known is none, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct EngineWindow {
    /// Mean over time of the requests that were worked on.
    pub running_mean: Option<f64>,
    /// The most at a scrape.
    pub running_peak: Option<f64>,
    /// Mean over time of the requests that waited.
    pub waiting_mean: Option<f64>,
    /// The most at a scrape.
    pub waiting_peak: Option<f64>,
    /// Mean over time of the share of the KV cache in use, 0 to 1.
    pub kv_cache_usage_mean: Option<f64>,
    /// The most at a scrape.
    pub kv_cache_usage_peak: Option<f64>,
    /// Share of the prompt tokens looked up in the prefix cache that were found, 0 to 1; none when none was looked up.
    pub prefix_hit_rate: Option<f64>,
    /// Requests that lost their place in the batch.
    pub preemptions: Option<f64>,
    /// Output tokens.
    pub generated_tokens: Option<f64>,
    /// Prompt tokens.
    pub prompt_tokens: Option<f64>,
    /// Mean of the engine's own TTFT, seconds, over the requests that it counted in the window.
    pub ttft_mean_seconds: Option<f64>,
    /// Median of the same, estimated from buckets; none without buckets, and where it lies above the last bound.
    pub ttft_p50_seconds: Option<f64>,
    /// 99th percentile, estimated in the same way.
    pub ttft_p99_seconds: Option<f64>,
    /// Mean of its queue time, seconds.
    pub queue_time_mean_seconds: Option<f64>,
    /// Median of the same, estimated from buckets.
    pub queue_time_p50_seconds: Option<f64>,
    /// 99th percentile, estimated from buckets.
    pub queue_time_p99_seconds: Option<f64>,
    /// Mean of its request time, seconds.
    pub e2e_mean_seconds: Option<f64>,
    /// Median of the same, estimated from buckets.
    pub e2e_p50_seconds: Option<f64>,
    /// 99th percentile, estimated from buckets.
    pub e2e_p99_seconds: Option<f64>,
    /// A counter went back: the engine was started again.
    pub restarted: bool,
    /// Scrapes in the window.
    pub scrapes: u64,
    /// The longest part of the window without one, seconds.
    pub largest_gap_seconds: f64,
}

/// Fewer are what interpolation leaves of none.
const LEAST_COUNT: f64 = 1e-6;

/// Percentiles of less than one time are of what interpolation made.
const LEAST_TIMES: f64 = 1.0;

/// A histogram over the window: by how much each of its counters rose.
struct Rise {
    sum: Delta,
    count: Delta,
    /// By upper bound, ascending.
    buckets: Vec<(f64, Delta)>,
}

/// What is told of a histogram, seconds.
#[derive(Default)]
struct Times {
    mean: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
}

impl EngineWindow {
    /// What `samples`, in any order, amount to over `window`; none when none of them is in it.
    #[must_use]
    pub fn of(samples: &[EngineSample], window: Window) -> Option<Self> {
        let signal = |of: fn(&EngineSample) -> Option<f64>| signal(samples, window, of);
        let all = signal(|_| Some(0.0));
        if window.seconds() <= 0.0 || all.inside().is_empty() {
            return None;
        }
        let counters: [fn(&EngineSample) -> Option<f64>; 5] = [
            |s| s.prefix_queries,
            |s| s.prefix_hits,
            |s| s.preemptions,
            |s| s.generated_tokens,
            |s| s.prompt_tokens,
        ];
        let counters = counters.map(|of| signal(of).delta());
        let histograms: [fn(&EngineSample) -> Option<&EngineHistogram>; 3] =
            [|s| s.ttft.as_ref(), |s| s.queue_time.as_ref(), |s| s.e2e.as_ref()];
        let histograms = histograms.map(|of| Rise::of(samples, window, of));

        let deltas = counters.into_iter().chain(histograms.iter().flat_map(Rise::deltas));
        let restarted = deltas.into_iter().any(|d| d == Delta::WentBack);
        let rose = |d: Delta| d.known().filter(|_| !restarted);
        let [queries, hits, preemptions, generated_tokens, prompt_tokens] = counters.map(rose);
        let [ttft, queue_time, e2e] =
            histograms.map(|h| if restarted { Times::default() } else { h.times() });
        let (running, waiting) = (signal(|s| s.running), signal(|s| s.waiting));
        let kv_cache = signal(|s| s.kv_cache_usage);
        Some(Self {
            running_mean: running.mean(),
            running_peak: running.max(),
            waiting_mean: waiting.mean(),
            waiting_peak: waiting.max(),
            kv_cache_usage_mean: kv_cache.mean(),
            kv_cache_usage_peak: kv_cache.max(),
            prefix_hit_rate: ratio(hits, queries),
            preemptions,
            generated_tokens,
            prompt_tokens,
            ttft_mean_seconds: ttft.mean,
            ttft_p50_seconds: ttft.p50,
            ttft_p99_seconds: ttft.p99,
            queue_time_mean_seconds: queue_time.mean,
            queue_time_p50_seconds: queue_time.p50,
            queue_time_p99_seconds: queue_time.p99,
            e2e_mean_seconds: e2e.mean,
            e2e_p50_seconds: e2e.p50,
            e2e_p99_seconds: e2e.p99,
            restarted,
            scrapes: all.inside().len() as u64,
            largest_gap_seconds: all.largest_gap(),
        })
    }
}

impl Rise {
    fn of(
        samples: &[EngineSample],
        window: Window,
        of: impl Fn(&EngineSample) -> Option<&EngineHistogram>,
    ) -> Self {
        let delta = |part: &dyn Fn(&EngineHistogram) -> Option<f64>| {
            signal(samples, window, |s| of(s).and_then(part)).delta()
        };
        let mut bounds: Vec<f64> =
            samples.iter().filter_map(&of).flat_map(|h| h.buckets.iter().map(|b| b.0)).collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        let below = |bound: f64| delta(&|h| h.buckets.iter().find(|b| b.0 == bound).map(|b| b.1));
        Self {
            sum: delta(&|h| Some(h.sum)),
            count: delta(&|h| Some(h.count)),
            buckets: bounds.into_iter().map(|bound| (bound, below(bound))).collect(),
        }
    }

    fn deltas(&self) -> impl Iterator<Item = Delta> {
        [self.sum, self.count].into_iter().chain(self.buckets.iter().map(|b| b.1))
    }

    fn times(&self) -> Times {
        Times {
            mean: ratio(self.sum.known(), self.count.known()),
            p50: self.quantile(0.5),
            p99: self.quantile(0.99),
        }
    }

    /// Linear within the bucket that it falls into, as Prometheus' `histogram_quantile` has it; none above the last
    /// bound. A bound that was not told near both edges is passed over: the bucket after it is the wider.
    fn quantile(&self, share: f64) -> Option<f64> {
        let rank = share * self.count.known().filter(|&n| n >= LEAST_TIMES)?;
        let (mut lower, mut before) = (0.0_f64, 0.0);
        for (bound, delta) in &self.buckets {
            let Some(below) = delta.known() else { continue };
            if below >= rank {
                // A first bound below 0 has nothing under it to start from.
                let lower = lower.min(*bound);
                return Some(lower + (bound - lower) * (rank - before) / (below - before));
            }
            (lower, before) = (*bound, below);
        }
        None
    }
}

fn signal(samples: &[EngineSample], window: Window, of: impl Fn(&EngineSample) -> Option<f64>) -> Points {
    let read = samples.iter().filter_map(|s| Some((window.seconds_at(s.at), of(s)?)));
    Points::new(read.filter(|p| p.1.is_finite()), window.seconds())
}

fn ratio(over: Option<f64>, under: Option<f64>) -> Option<f64> {
    Some(over? / under.filter(|&n| n > LEAST_COUNT)?)
}
