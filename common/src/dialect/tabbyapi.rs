//! TabbyAPI with ExLlamaV3. Source: its code, August 2026.

use super::{Sign, Traits};
use crate::plan::Api;

/// TabbyAPI.
pub(super) static TABBYAPI: Traits = Traits {
    name: "tabbyapi",
    title: "TabbyAPI",
    signs: &[Sign::OwnedBy("tabbyAPI"), Sign::Has("/.well-known/serviceinfo", "/software/name")],
    // But not after an error.
    sends_done: true,
    refuses: &[],
    ignores: &["seed", "return_token_ids"],
    token_id_prompts: false,
    token_counts: None,
    // Those of held-back text are lost.
    logprobs: &[Api::Completions, Api::Chat],
    // Once it has answered 503 after a failed generation it does so for ever.
    ready: "/health",
    version: None,
    settings: Some("/v1/model"),
    metrics: None,
    // Unloading and loading the model would do it, with an admin key.
    cache_reset: None,
};
