//! Ollama. Source: its server's code.

use super::{JsonAt, Sign, Traits};
use crate::plan::Api;

/// Ollama.
pub(super) static OLLAMA: Traits = Traits {
    name: "ollama",
    title: "Ollama",
    signs: &[Sign::OwnedBy("library"), Sign::Says("/", "Ollama is running")],
    // But not after an error in the middle: that stream just ends.
    sends_done: true,
    refuses: &[],
    ignores: &["ignore_eos", "return_token_ids", "min_tokens"],
    token_id_prompts: false,
    token_counts: None,
    logprobs: &[Api::Chat],
    ready: "/api/version",
    version: Some(JsonAt { path: "/api/version", pointer: "/version" }),
    settings: Some("/api/ps"),
    metrics: None,
    cache_reset: None,
};
