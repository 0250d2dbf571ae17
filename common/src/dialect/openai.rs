//! Any server that speaks the protocol: nothing is assumed beyond it.

use super::Traits;
use crate::plan::Api;

/// A plain OpenAI-style server, such as a `serve.py` of one's own.
pub(super) static OPENAI: Traits = Traits {
    name: "openai",
    title: "an OpenAI-compatible server",
    signs: &[],
    sends_done: true,
    refuses: &[],
    ignores: &[],
    // It may or may not take them: a probe tells.
    token_id_prompts: true,
    token_counts: None,
    logprobs: &[Api::Completions, Api::Chat],
    ready: "/v1/models",
    version: None,
    settings: None,
    metrics: None,
    cache_reset: None,
};
