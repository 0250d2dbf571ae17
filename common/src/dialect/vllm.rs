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
        path: "/metrics",
        running: Some("vllm:num_requests_running"),
        waiting: Some("vllm:num_requests_waiting"),
    }),
    // Answers 200 with false while blocks are in use.
    cache_reset: Some(CacheReset {
        path: "/reset_prefix_cache",
        success: Some("/success"),
        needs: Some("VLLM_SERVER_DEV_MODE=1 in the engine's environment"),
    }),
};
