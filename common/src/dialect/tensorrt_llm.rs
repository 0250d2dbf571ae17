//! TensorRT-LLM's trtllm-serve. Source: its OpenAI server.

use super::{JsonAt, Metrics, Sign, TokenCounts, Traits};
use crate::plan::Api;

/// TensorRT-LLM's `trtllm-serve`.
pub(super) static TENSORRT_LLM: Traits = Traits {
    name: "tensorrt-llm",
    title: "TensorRT-LLM",
    signs: &[Sign::OwnedBy("tensorrt_llm")],
    sends_done: true,
    // Its request models forbid fields that they do not know.
    refuses: &["return_token_ids", "timings_per_token", "cache_prompt", "cache_salt"],
    ignores: &[],
    token_id_prompts: true,
    token_counts: Some(TokenCounts::StreamOption("continuous_usage_stats")),
    logprobs: &[Api::Completions, Api::Chat],
    ready: "/health",
    version: Some(JsonAt { path: "/version", pointer: "/version" }),
    settings: Some("/server_info"),
    // /metrics is something else: a JSON list that is emptied by reading it.
    metrics: Some(Metrics {
        running: Some("trtllm_num_requests_running"),
        waiting: Some("trtllm_num_requests_waiting"),
        kv_cache_usage: Some("trtllm_kv_cache_utilization"),
        prefix_hits: Some("trtllm_prompt_cached_tokens_total"),
        ttft: Some("trtllm_time_to_first_token_seconds"),
        queue_time: Some("trtllm_request_queue_time_seconds"),
        e2e: Some("trtllm_e2e_request_latency_seconds"),
        ..Metrics::at("/prometheus/metrics")
    }),
    // A restart, or enable_block_reuse: false.
    cache_reset: None,
};
