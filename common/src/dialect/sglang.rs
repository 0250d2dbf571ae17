//! SGLang. Source: its HTTP server and recordings, 0.5.23.

use super::{CacheReset, JsonAt, Metrics, Sign, TokenCounts, Traits};
use crate::plan::Api;

/// SGLang's `sglang.launch_server`.
pub(super) static SGLANG: Traits = Traits {
    name: "sglang",
    title: "SGLang",
    signs: &[Sign::OwnedBy("sglang")],
    sends_done: true,
    refuses: &[],
    ignores: &[],
    token_id_prompts: true,
    token_counts: Some(TokenCounts::Field("return_token_ids")),
    logprobs: &[Api::Completions, Api::Chat],
    // Not /health: that generates a token and takes a second.
    ready: "/ready",
    version: Some(JsonAt { path: "/server_info", pointer: "/version" }),
    settings: Some("/server_info"),
    // With --enable-metrics only.
    metrics: Some(Metrics {
        running: Some("sglang:num_running_reqs"),
        waiting: Some("sglang:num_queue_reqs"),
        kv_cache_usage: Some("sglang:token_usage"),
        prefix_hits: Some("sglang:cached_tokens_total"),
        preemptions: Some("sglang:num_retracted_requests_total"),
        generated_tokens: Some("sglang:generation_tokens_total"),
        prompt_tokens: Some("sglang:prompt_tokens_total"),
        ttft: Some("sglang:time_to_first_token_seconds"),
        queue_time: Some("sglang:queue_time_seconds"),
        e2e: Some("sglang:e2e_request_latency_seconds"),
        ..Metrics::at("/metrics")
    }),
    // 400 while requests run.
    cache_reset: Some(CacheReset { path: "/flush_cache", success: None, needs: None }),
};
