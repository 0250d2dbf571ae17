//! mistral.rs. Source: its server's code.

use super::{Metrics, Sign, Traits};
use crate::plan::Api;

/// mistral.rs.
pub(super) static MISTRALRS: Traits = Traits {
    name: "mistralrs",
    title: "mistral.rs",
    signs: &[Sign::Says("/metrics", "mistralrs_"), Sign::Says("/api-doc/openapi.json", "istral.rs")],
    sends_done: true,
    refuses: &[],
    ignores: &["ignore_eos", "return_token_ids", "min_tokens"],
    token_id_prompts: false,
    token_counts: None,
    logprobs: &[Api::Completions, Api::Chat],
    ready: "/health",
    version: None,
    settings: None,
    metrics: Some(Metrics {
        path: "/metrics",
        running: Some("mistralrs_sequences_running"),
        waiting: Some("mistralrs_sequences_waiting"),
    }),
    cache_reset: None,
};
