//! mistral.rs. Source: its server's code.

use super::{Metrics, Sign, Traits};

/// mistral.rs.
pub(super) static MISTRALRS: Traits = Traits {
    name: "mistralrs",
    title: "mistral.rs",
    signs: &[Sign::Says("/metrics", "mistralrs_"), Sign::Says("/api-doc/openapi.json", "istral.rs")],
    sends_done: true,
    refuses: &[],
    ignores: &["ignore_eos", "return_token_ids", "min_tokens", "seed", "stream_options"],
    token_id_prompts: false,
    token_counts: None,
    // One object, of the last token, where others have a list: it proves nothing.
    logprobs: &[],
    ready: "/health",
    version: None,
    settings: None,
    metrics: Some(Metrics {
        running: Some("mistralrs_sequences_running"),
        waiting: Some("mistralrs_sequences_waiting"),
        prefix_queries: Some("mistralrs_prefix_cache_lookups_total"),
        prefix_hits: Some("mistralrs_prefix_cache_hits_total"),
        preemptions: Some("mistralrs_paged_preemptions_total"),
        ..Metrics::at("/metrics")
    }),
    cache_reset: None,
};
