//! llama.cpp's llama-server. Source: its server's code and recordings.

use super::{JsonAt, Metrics, Sign, TokenCounts, Traits};
use crate::plan::Api;

/// llama.cpp's `llama-server`.
pub(super) static LLAMACPP: Traits = Traits {
    name: "llamacpp",
    title: "llama.cpp",
    signs: &[Sign::OwnedBy("llamacpp"), Sign::Server("llama.cpp")],
    sends_done: true,
    refuses: &[],
    ignores: &["return_token_ids", "min_tokens"],
    token_id_prompts: true,
    // The only count that is right where text is held back: log probabilities leave those tokens out.
    token_counts: Some(TokenCounts::Field("timings_per_token")),
    logprobs: &[Api::Completions, Api::Chat],
    ready: "/health",
    version: Some(JsonAt { path: "/props", pointer: "/build_info" }),
    settings: Some("/props"),
    // With --metrics only.
    metrics: Some(Metrics {
        running: Some("llamacpp:requests_processing"),
        waiting: Some("llamacpp:requests_deferred"),
        prefix_hits: Some("llamacpp:prompt_tokens_cached_total"),
        generated_tokens: Some("llamacpp:tokens_predicted_total"),
        prompt_tokens: Some("llamacpp:prompt_tokens_total"),
        ..Metrics::at("/metrics")
    }),
    // Slots are erased one by one, and only with --slot-save-path: start it with --no-cache-prompt instead.
    cache_reset: None,
};
