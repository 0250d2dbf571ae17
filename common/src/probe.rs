//! What a probe found out about an engine: the document that every run stores with its record.
//!
//! Its JSON form is versioned ([`VERSION`]) and described in `docs/engines.md`. A finding says how it was found: by
//! trying, or from what is known of the dialect. What could not be found out is unknown, never no.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dialect::Dialect;

/// Of the JSON form.
pub const VERSION: u32 = 1;

/// An engine, as far as it let itself be found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineProbe {
    /// Of this form.
    pub version: u32,
    /// Which of the known engines it is.
    pub dialect: Dialect,
    /// What gave it away; null when it was told, or when it is none of those that are known.
    pub recognised_by: Option<String>,
    /// Its makers' name for it.
    pub engine: String,
    /// Its version; null when it does not say.
    pub engine_version: Option<String>,
    /// The models that it lists.
    pub models: Vec<String>,
    /// The model that was asked.
    pub model: Option<String>,
    /// Where it says that it is ready.
    pub ready: Endpoint,
    /// Where it says how busy it is; null when it has no such place.
    pub metrics: Option<Endpoint>,
    /// Its resolved settings, as it tells them, secrets blotted out; null when it does not.
    pub settings: Option<serde_json::Value>,
    /// What it can do.
    pub capabilities: BTreeMap<Capability, Finding>,
    /// Generation requests that the probe sent.
    pub requests: u32,
    /// Output tokens of them, as far as they are known.
    pub output_tokens: u64,
    /// Prompt tokens of them, as far as they are known.
    pub prompt_tokens: u64,
}

/// A path and what it answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The path, beside `/v1`.
    pub path: String,
    /// HTTP status; null when there was no answer.
    pub status: Option<u16>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{} ({status})", self.path),
            None => write!(f, "{} (no answer)", self.path),
        }
    }
}

/// What an engine may be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// `usage` in the stream.
    Usage,
    /// Each event says how many tokens it holds, in the engine's cheapest way.
    TokenCounts,
    /// Log probabilities in the stream.
    Logprobs,
    /// `ignore_eos`: goes on to `max_tokens`.
    IgnoreEos,
    /// `seed`: the same text again.
    Seed,
    /// A prompt as a list of token ids.
    TokenIdPrompts,
    /// The prefix cache can be emptied.
    CacheReset,
    /// Stops generating when the client goes away.
    AbortOnDisconnect,
}

impl Capability {
    /// As in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::TokenCounts => "token_counts",
            Self::Logprobs => "logprobs",
            Self::IgnoreEos => "ignore_eos",
            Self::Seed => "seed",
            Self::TokenIdPrompts => "token_id_prompts",
            Self::CacheReset => "cache_reset",
            Self::AbortOnDisconnect => "abort_on_disconnect",
        }
    }
}

/// Whether it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Seen to work.
    Yes,
    /// Seen not to, or known not to.
    No,
    /// Could not be found out.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        })
    }
}

/// A verdict and how it was reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Whether it can.
    pub verdict: Verdict,
    /// How that was found, for a person.
    pub how: String,
}

impl Finding {
    /// Seen to work.
    pub fn yes(how: impl Into<String>) -> Self {
        Self { verdict: Verdict::Yes, how: how.into() }
    }

    /// Seen not to work, or known not to.
    pub fn no(how: impl Into<String>) -> Self {
        Self { verdict: Verdict::No, how: how.into() }
    }

    /// Could not be found out.
    pub fn unknown(how: impl Into<String>) -> Self {
        Self { verdict: Verdict::Unknown, how: how.into() }
    }
}
