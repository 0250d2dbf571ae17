//! Text Generation Inference. Source: its router's code.

use super::{JsonAt, Metrics, Sign, Traits};
use crate::plan::Api;

/// Hugging Face's text-generation-inference.
pub(super) static TGI: Traits = Traits {
    name: "tgi",
    title: "Text Generation Inference",
    signs: &[Sign::Has("/info", "/max_concurrent_requests")],
    sends_done: true,
    refuses: &[],
    ignores: &["ignore_eos", "return_token_ids", "min_tokens"],
    token_id_prompts: false,
    token_counts: None,
    logprobs: &[Api::Chat],
    ready: "/health",
    version: Some(JsonAt { path: "/info", pointer: "/version" }),
    settings: Some("/info"),
    metrics: Some(Metrics {
        running: Some("tgi_batch_current_size"),
        waiting: Some("tgi_queue_size"),
        queue_time: Some("tgi_request_queue_duration"),
        ..Metrics::at("/metrics")
    }),
    cache_reset: None,
};
