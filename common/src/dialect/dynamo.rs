//! NVIDIA Dynamo and NIM. Source: the frontend's code.

use super::{CacheReset, Metrics, Sign, TokenCounts, Traits};
use crate::plan::Api;

/// Dynamo's HTTP frontend.
pub(super) static DYNAMO: Traits = Traits {
    name: "dynamo",
    title: "Dynamo",
    signs: &[Sign::OwnedBy("nvidia"), Sign::Says("/metrics", "dynamo_frontend_")],
    sends_done: true,
    refuses: &[],
    ignores: &["return_token_ids"],
    token_id_prompts: true,
    token_counts: Some(TokenCounts::StreamOption("continuous_usage_stats")),
    logprobs: &[Api::Completions, Api::Chat],
    // 503 until its workers are found.
    ready: "/health",
    version: None,
    settings: None,
    metrics: Some(Metrics {
        running: Some("dynamo_frontend_inflight_requests"),
        waiting: Some("dynamo_frontend_queued_requests"),
        ttft: Some("dynamo_frontend_time_to_first_token_seconds"),
        ..Metrics::at("/metrics")
    }),
    cache_reset: Some(CacheReset { path: "/reset_prefix_cache", success: None, needs: None }),
};
