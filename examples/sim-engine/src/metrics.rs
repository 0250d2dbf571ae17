//! `GET /metrics`: the Prometheus text format under vLLM's names.
//!
//! Owns the counters of finished requests; everything else is read from the engine. Must never count tokens on its
//! own: the engine's totals are what a load generator's are compared with.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::Stats;
use crate::latency::Latencies;

/// Finish reasons that are counted, as vLLM labels them.
const REASONS: [&str; 3] = ["stop", "length", "abort"];

/// Requests by finish reason.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    counts: [AtomicU64; REASONS.len()],
}

impl Finished {
    pub(crate) fn count(&self, reason: &str) {
        if let Some(at) = REASONS.iter().position(|known| *known == reason) {
            self.counts[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn print(&self, stats: Stats, latencies: &Latencies, model: &str) -> String {
        let label = model.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
        let labels = format!("engine=\"0\",model_name=\"{label}\"");
        let mut text = String::new();
        let mut single = |name: &str, kind: &str, help: &str, value: u64| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{{{labels}}} {value}");
        };
        single("vllm:num_requests_running", "gauge", "Requests that hold a slot.", stats.running as u64);
        single("vllm:num_requests_waiting", "gauge", "Requests in the queue.", stats.waiting as u64);
        single("vllm:prompt_tokens_total", "counter", "Prompt tokens prefilled.", stats.prompt_tokens_total);
        single("vllm:generation_tokens_total", "counter", "Tokens generated.", stats.generation_tokens_total);
        single("vllm:num_preemptions_total", "counter", "Preemptions.", stats.preemptions_total);
        let (queries, hits) = (stats.prefix_queries_total, stats.prefix_hits_total);
        single("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up.", queries);
        single("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found.", hits);
        let _ = writeln!(
            text,
            "# HELP vllm:kv_cache_usage_perc Share of the KV cache in use, from 0 to 1.\n\
             # TYPE vllm:kv_cache_usage_perc gauge\n\
             vllm:kv_cache_usage_perc{{{labels}}} {}",
            stats.kv_usage()
        );
        text.push_str(
            "# HELP vllm:request_success_total Requests by finish reason.\n\
             # TYPE vllm:request_success_total counter\n",
        );
        for (reason, count) in REASONS.iter().zip(&self.counts) {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(
                text,
                "vllm:request_success_total\
                 {{engine=\"0\",finished_reason=\"{reason}\",model_name=\"{label}\"}} {count}"
            );
        }
        latencies.print(&mut text, &labels);
        text
    }
}
