//! SGLang. Source: its HTTP server and recordings, 0.5.23.

use super::{CacheReset, JsonAt, Metrics, Sign, TokenCounts, Traits};
use crate::plan::Api;

/// SGLang's `sglang.launch_server`.
pub(super) static SGLANG: Traits = Traits {
    name: "sglang",
    title: "SGLang",
    signs: &[Sign::OwnedBy("sglang")],
    sends_done: true,
    refuses: &[],
    ignores: &[],
    token_id_prompts: true,
    token_counts: Some(TokenCounts::Field("return_token_ids")),
    logprobs: &[Api::Completions, Api::Chat],
    // Not /health: that generates a token and takes a second.
    ready: "/ready",
    version: Some(JsonAt { path: "/server_info", pointer: "/version" }),
    settings: Some("/server_info"),
    // With --enable-metrics only.
    metrics: Some(Metrics {
        path: "/metrics",
        running: Some("sglang:num_running_reqs"),
        waiting: Some("sglang:num_queue_reqs"),
    }),
    // 400 while requests run.
    cache_reset: Some(CacheReset { path: "/flush_cache", success: None, needs: None }),
};
