//! LMDeploy. Source: its API server's code, 0.18.

use super::{Metrics, Sign, Traits};
use crate::plan::Api;

/// LMDeploy's `lmdeploy serve api_server`.
pub(super) static LMDEPLOY: Traits = Traits {
    name: "lmdeploy",
    title: "LMDeploy",
    signs: &[Sign::OwnedBy("lmdeploy")],
    sends_done: true,
    refuses: &[],
    // Its name for it is min_new_tokens.
    ignores: &["min_tokens", "return_token_ids"],
    token_id_prompts: false,
    token_counts: None,
    // The completions endpoint raises when asked for them.
    logprobs: &[Api::Chat],
    ready: "/health",
    version: None,
    settings: None,
    // With --enable-metrics only.
    metrics: Some(Metrics {
        running: Some("lmdeploy:num_requests_running"),
        waiting: Some("lmdeploy:num_requests_waiting"),
        kv_cache_usage: Some("lmdeploy:gpu_cache_usage_perc"),
        ttft: Some("lmdeploy:time_to_first_token_seconds"),
        ..Metrics::at("/metrics")
    }),
    cache_reset: None,
};
