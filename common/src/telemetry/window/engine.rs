//! The engine over a window, by its own metrics: gauges over time, differences of its counters.
//!
//! These are the engine's words, to stand beside what was measured; nothing measured is ever replaced by them. A
//! counter that went back is an engine that was started again: then no difference is given at all, for those that had
//! not risen before do not show it.

use serde::{Deserialize, Serialize};

use crate::telemetry::points::{Delta, Points};
use crate::telemetry::{EngineSample, Window};

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
    /// Mean of its queue time, seconds.
    pub queue_time_mean_seconds: Option<f64>,
    /// Mean of its request time, seconds.
    pub e2e_mean_seconds: Option<f64>,
    /// A counter went back: the engine was started again.
    pub restarted: bool,
    /// Scrapes in the window.
    pub scrapes: u64,
    /// The longest part of the window without one, seconds.
    pub largest_gap_seconds: f64,
}

/// Fewer are what interpolation leaves of none.
const LEAST_COUNT: f64 = 1e-6;

impl EngineWindow {
    /// What `samples`, in any order, amount to over `window`; none when none of them is in it.
    #[must_use]
    pub fn of(samples: &[EngineSample], window: Window) -> Option<Self> {
        let length = window.seconds();
        let signal = |of: &dyn Fn(&EngineSample) -> Option<f64>| {
            let read = samples.iter().filter_map(|s| Some((window.seconds_at(s.at), of(s)?)));
            Points::new(read.filter(|p| p.1.is_finite()), length)
        };
        let all = signal(&|_| Some(0.0));
        if length <= 0.0 || all.inside().is_empty() {
            return None;
        }
        let pair = |of: fn(&EngineSample) -> Option<(f64, f64)>| {
            [signal(&|s| of(s).map(|p| p.0)).delta(), signal(&|s| of(s).map(|p| p.1)).delta()]
        };
        let [queries, hits] = [signal(&|s| s.prefix_queries).delta(), signal(&|s| s.prefix_hits).delta()];
        let counts =
            [signal(&|s| s.preemptions), signal(&|s| s.generated_tokens), signal(&|s| s.prompt_tokens)];
        let [preemptions, generated, prompt] = counts.map(|points| points.delta());
        let (ttft, queue_time, e2e) = (pair(|s| s.ttft), pair(|s| s.queue_time), pair(|s| s.e2e));

        let counters = [queries, hits, preemptions, generated, prompt].into_iter();
        let restarted = counters.chain(ttft).chain(queue_time).chain(e2e).any(|d| d == Delta::WentBack);
        let rose = |d: Delta| d.known().filter(|_| !restarted);
        let ratio = |over: Delta, under: Delta| Some(rose(over)? / rose(under).filter(|&n| n > LEAST_COUNT)?);
        let mean = |[sum, count]: [Delta; 2]| ratio(sum, count);
        let (running, waiting) = (signal(&|s| s.running), signal(&|s| s.waiting));
        let kv_cache = signal(&|s| s.kv_cache_usage);
        Some(Self {
            running_mean: running.mean(),
            running_peak: running.max(),
            waiting_mean: waiting.mean(),
            waiting_peak: waiting.max(),
            kv_cache_usage_mean: kv_cache.mean(),
            kv_cache_usage_peak: kv_cache.max(),
            prefix_hit_rate: ratio(hits, queries),
            preemptions: rose(preemptions),
            generated_tokens: rose(generated),
            prompt_tokens: rose(prompt),
            ttft_mean_seconds: mean(ttft),
            queue_time_mean_seconds: mean(queue_time),
            e2e_mean_seconds: mean(e2e),
            restarted,
            scrapes: all.inside().len() as u64,
            largest_gap_seconds: all.largest_gap(),
        })
    }
}
