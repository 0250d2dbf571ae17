//! vLLM. Source: its OpenAI server and recordings, 0.32 and 0.33.

use super::{CacheReset, JsonAt, Metrics, Sign, TokenCounts, Traits};
use crate::plan::Api;

/// vLLM's `vllm serve`.
pub(super) static VLLM: Traits = Traits {
    name: "vllm",
    title: "vLLM",
    signs: &[Sign::OwnedBy("vllm")],
    sends_done: true,
    refuses: &[],
    ignores: &[],
    token_id_prompts: true,
    // One entry a token, also for tokens whose text is held back; cheaper for the engine than log probabilities.
    token_counts: Some(TokenCounts::Field("return_token_ids")),
    logprobs: &[Api::Completions, Api::Chat],
    ready: "/health",
    version: Some(JsonAt { path: "/version", pointer: "/version" }),
    // With VLLM_SERVER_DEV_MODE=1 only.
    settings: Some("/server_info?config_format=json"),
    metrics: Some(Metrics {
        running: Some("vllm:num_requests_running"),
        waiting: Some("vllm:num_requests_waiting"),
        kv_cache_usage: Some("vllm:kv_cache_usage_perc"),
        prefix_queries: Some("vllm:prefix_cache_queries_total"),
        prefix_hits: Some("vllm:prefix_cache_hits_total"),
        preemptions: Some("vllm:num_preemptions_total"),
        generated_tokens: Some("vllm:generation_tokens_total"),
        prompt_tokens: Some("vllm:prompt_tokens_total"),
        ttft: Some("vllm:time_to_first_token_seconds"),
        queue_time: Some("vllm:request_queue_time_seconds"),
        e2e: Some("vllm:e2e_request_latency_seconds"),
        ..Metrics::at("/metrics")
    }),
    // Answers 200 with false while blocks are in use.
    cache_reset: Some(CacheReset {
        path: "/reset_prefix_cache",
        success: Some("/success"),
        needs: Some("VLLM_SERVER_DEV_MODE=1 in the engine's environment"),
    }),
};
