//! Hugging Face `transformers serve`. Source: recordings, 5.24.

use super::{Sign, Traits};

/// `transformers serve`.
pub(super) static TRANSFORMERS: Traits = Traits {
    name: "transformers",
    title: "transformers serve",
    signs: &[Sign::Has("/openapi.json", "/paths/~1load_model")],
    sends_done: false,
    // "Unexpected fields", status 422.
    refuses: &[
        "ignore_eos",
        "return_token_ids",
        "timings_per_token",
        "min_tokens",
        "cache_salt",
        "cache_prompt",
    ],
    // With a warning in its log.
    ignores: &["logprobs", "top_logprobs", "n", "stream_options", "tool_choice"],
    token_id_prompts: false,
    token_counts: None,
    logprobs: &[],
    ready: "/health",
    version: None,
    settings: None,
    metrics: None,
    // POST /reset is something else: it unloads every model.
    cache_reset: None,
};
