//! How long requests took, in the histograms of vLLM.
//!
//! Owns the buckets and the counts. Must never be told by the wall clock: the instants are the model's, so that what
//! `/metrics` says is the engine's own view, without the lateness of the machine.

use std::fmt::Write as _;
use std::time::Duration;

/// vLLM's bounds, seconds.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
const BETWEEN_TOKENS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
const REQUEST: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];

/// A Prometheus histogram.
#[derive(Debug, Clone)]
struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds: what is above the last.
    counts: Vec<u64>,
    sum: Duration,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: Duration::ZERO }
    }

    fn add(&mut self, value: Duration) {
        let bucket = self.bounds.partition_point(|bound| *bound < value.as_secs_f64());
        self.counts[bucket] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    fn print(&self, text: &mut String, name: &str, help: &str, labels: &str) {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut below = 0;
        for (at, count) in self.counts.iter().enumerate() {
            below += count;
            let bound = self.bounds.get(at).map_or_else(|| "+Inf".to_owned(), |bound| format!("{bound:?}"));
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(text, "{name}_sum{{{labels}}} {}", self.sum.as_secs_f64());
        let _ = writeln!(text, "{name}_count{{{labels}}} {below}");
    }
}

/// The three latencies that a load generator can be held against.
#[derive(Debug, Clone)]
pub(crate) struct Latencies {
    first_token: Histogram,
    between_tokens: Histogram,
    request: Histogram,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            first_token: Histogram::new(FIRST_TOKEN),
            between_tokens: Histogram::new(BETWEEN_TOKENS),
            request: Histogram::new(REQUEST),
        }
    }
}

impl Latencies {
    /// From the arrival to the first token.
    pub(crate) fn first_token(&mut self, took: Duration) {
        self.first_token.add(took);
    }

    /// From one output to the next.
    pub(crate) fn next_tokens(&mut self, took: Duration) {
        self.between_tokens.add(took);
    }

    /// From the arrival to the last token.
    pub(crate) fn whole_request(&mut self, took: Duration) {
        self.request.add(took);
    }

    /// In the Prometheus text format, under vLLM's names.
    pub(crate) fn print(&self, text: &mut String, labels: &str) {
        for (histogram, name, help) in [
            (&self.first_token, "vllm:time_to_first_token_seconds", "From arrival to first token."),
            (&self.between_tokens, "vllm:inter_token_latency_seconds", "From one token to the next."),
            (&self.request, "vllm:e2e_request_latency_seconds", "From arrival to last token."),
        ] {
            histogram.print(text, name, help, labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_hold_their_bound() {
        let mut latencies = Latencies::default();
        for millis in [1, 5, 6, 3_000_000] {
            latencies.first_token(Duration::from_millis(millis));
        }
        let mut text = String::new();
        latencies.print(&mut text, "x=\"y\"");
        for line in [
            "vllm:time_to_first_token_seconds_bucket{x=\"y\",le=\"0.001\"} 1",
            "vllm:time_to_first_token_seconds_bucket{x=\"y\",le=\"0.005\"} 2",
            "vllm:time_to_first_token_seconds_bucket{x=\"y\",le=\"1.0\"} 3",
            "vllm:time_to_first_token_seconds_bucket{x=\"y\",le=\"2560.0\"} 3",
            "vllm:time_to_first_token_seconds_bucket{x=\"y\",le=\"+Inf\"} 4",
            "vllm:time_to_first_token_seconds_sum{x=\"y\"} 3000.012",
            "vllm:time_to_first_token_seconds_count{x=\"y\"} 4",
            "vllm:inter_token_latency_seconds_count{x=\"y\"} 0",
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line} in {text}");
        }
    }
}
