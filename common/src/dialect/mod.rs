//! What is different from engine to engine, one file each.
//!
//! Everything here is data: which end of a stream is an end, which fields of a request an engine refuses, how it is
//! asked for its tokens, where it says that it is ready, what version it is, how busy it is, and how its prefix cache
//! is emptied. The code that reads streams, builds requests, probes and launches is written once and asks these
//! tables. An engine that is not known is [`Dialect::OPENAI`]: nothing is assumed of it that the protocol does not say.
//!
//! Adding an engine is a file with one [`Traits`] and a line in [`ALL`] (and its scripted twin in `tests/engines`).
//!
//! Sources: the engines' own code and recordings, as told in each file.

mod dynamo;
mod llamacpp;
mod lmdeploy;
mod mistralrs;
mod ollama;
mod openai;
mod recognise;
mod sglang;
mod tabbyapi;
mod tensorrt_llm;
mod tgi;
mod transformers;
mod vllm;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use recognise::{Answer, Sign, recognise};

use crate::plan::Api;

/// All engines that are known, in the order in which they are looked for: those that say their name first.
pub const ALL: &[&Traits] = &[
    &vllm::VLLM,
    &sglang::SGLANG,
    &llamacpp::LLAMACPP,
    &tabbyapi::TABBYAPI,
    &tensorrt_llm::TENSORRT_LLM,
    &lmdeploy::LMDEPLOY,
    &dynamo::DYNAMO,
    &ollama::OLLAMA,
    &tgi::TGI,
    &mistralrs::MISTRALRS,
    &transformers::TRANSFORMERS,
    &openai::OPENAI,
];

/// What one engine does in its own way.
#[derive(Debug)]
pub struct Traits {
    /// As in `--dialect` and in every output.
    pub name: &'static str,
    /// As its makers write it.
    pub title: &'static str,
    /// How it is recognised; any one of them is enough.
    pub signs: &'static [Sign],
    /// The stream ends with `data: [DONE]`. Where an engine is known never to send it, a finish reason with a clean
    /// end of the body is an end too.
    pub sends_done: bool,
    /// Top-level fields of a body that make it refuse the request. They are never sent.
    pub refuses: &'static [&'static str],
    /// Top-level fields that it takes and does not heed.
    pub ignores: &'static [&'static str],
    /// A prompt may be a list of token ids.
    pub token_id_prompts: bool,
    /// The cheapest way to learn how many tokens an event holds.
    pub token_counts: Option<TokenCounts>,
    /// Endpoints where `logprobs` come with the stream.
    pub logprobs: &'static [Api],
    /// Where it says that it can be used, with a GET that generates nothing and answers 200.
    pub ready: &'static str,
    /// Where it says its version: path, and pointer into the JSON.
    pub version: Option<JsonAt>,
    /// Where it says its resolved settings.
    pub settings: Option<&'static str>,
    /// Where it says how busy it is.
    pub metrics: Option<Metrics>,
    /// How its prefix cache is emptied.
    pub cache_reset: Option<CacheReset>,
}

/// A field that asks for token counts, merged into the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenCounts {
    /// `FIELD: true`
    Field(&'static str),
    /// `stream_options.FIELD: true`
    StreamOption(&'static str),
}

/// A value in a JSON answer to a GET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonAt {
    /// The path, beside `/v1`.
    pub path: &'static str,
    /// A JSON pointer.
    pub pointer: &'static str,
}

/// Prometheus metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metrics {
    /// The path, beside `/v1`.
    pub path: &'static str,
    /// The gauge of requests that are being worked on; none when there is no such gauge.
    pub running: Option<&'static str>,
    /// The gauge of requests that wait.
    pub waiting: Option<&'static str>,
    /// The gauge of the share of the KV cache that is in use, 0 to 1.
    pub kv_cache_usage: Option<&'static str>,
    /// The counter of prompt tokens looked up in the prefix cache.
    pub prefix_queries: Option<&'static str>,
    /// The counter of prompt tokens found there.
    pub prefix_hits: Option<&'static str>,
    /// The counter of requests that lost their place in the batch.
    pub preemptions: Option<&'static str>,
    /// The counter of output tokens.
    pub generated_tokens: Option<&'static str>,
    /// The counter of prompt tokens.
    pub prompt_tokens: Option<&'static str>,
    /// The histogram or summary of its own TTFT, seconds.
    pub ttft: Option<&'static str>,
    /// The histogram of time in its queue, seconds.
    pub queue_time: Option<&'static str>,
    /// The histogram of whole requests, seconds.
    pub e2e: Option<&'static str>,
}

impl Metrics {
    /// At `path`, with no names yet.
    #[must_use]
    pub const fn at(path: &'static str) -> Self {
        Self {
            path,
            running: None,
            waiting: None,
            kv_cache_usage: None,
            prefix_queries: None,
            prefix_hits: None,
            preemptions: None,
            generated_tokens: None,
            prompt_tokens: None,
            ttft: None,
            queue_time: None,
            e2e: None,
        }
    }
}

/// A POST that empties the prefix cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheReset {
    /// The path, beside `/v1`.
    pub path: &'static str,
    /// Where the answer says that it was done; none when the status alone says so.
    pub success: Option<&'static str>,
    /// What has to be set at the engine's start for it, for a message.
    pub needs: Option<&'static str>,
}

/// One of the engines that are known. Equal and ordered by name.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Dialect(&'static Traits);

impl Dialect {
    /// Anything that speaks the protocol and is not one of the others.
    pub const OPENAI: Self = Self(&openai::OPENAI);

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().map(|traits| Self(traits))
    }

    /// What it does in its own way.
    #[must_use]
    pub fn traits(self) -> &'static Traits {
        self.0
    }

    /// As in `--dialect`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// It would refuse a request with this field.
    #[must_use]
    pub fn refuses(self, field: &str) -> bool {
        self.0.refuses.contains(&field)
    }

    /// It takes this field and does not heed it.
    #[must_use]
    pub fn ignores(self, field: &str) -> bool {
        self.0.ignores.contains(&field)
    }

    /// Log probabilities come with the stream of this endpoint.
    #[must_use]
    pub fn has_logprobs(self, api: Api) -> bool {
        self.0.logprobs.contains(&api)
    }
}

impl Default for Dialect {
    fn default() -> Self {
        Self::OPENAI
    }
}

impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Dialect {}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dialect({})", self.0.name)
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

/// A name that is no engine's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no dialect; known are {}", names())]
pub struct UnknownDialect {
    given: String,
}

fn names() -> String {
    ALL.iter().map(|d| d.name).collect::<Vec<_>>().join(", ")
}

impl FromStr for Dialect {
    type Err = UnknownDialect;
    fn from_str(name: &str) -> Result<Self, UnknownDialect> {
        let found = Self::all().find(|d| d.name() == name);
        found.ok_or_else(|| UnknownDialect { given: name.to_owned() })
    }
}

impl TryFrom<String> for Dialect {
    type Error = UnknownDialect;
    fn try_from(name: String) -> Result<Self, UnknownDialect> {
        name.parse()
    }
}

impl From<Dialect> for String {
    fn from(dialect: Dialect) -> String {
        dialect.name().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_dialect_has_a_name_of_its_own_and_is_found_by_it() {
        let names: BTreeSet<_> = Dialect::all().map(Dialect::name).collect();
        assert_eq!(names.len(), ALL.len());
        for dialect in Dialect::all() {
            assert_eq!(dialect.name().parse(), Ok(dialect));
            assert_eq!(String::from(dialect).parse(), Ok(dialect));
        }
        let error = "vlm".parse::<Dialect>().unwrap_err().to_string();
        assert!(error.contains("\"vlm\" is no dialect") && error.contains("vllm, sglang"), "{error}");
    }

    #[test]
    fn what_is_refused_is_not_asked_for() {
        for dialect in Dialect::all() {
            let traits = dialect.traits();
            if let Some(TokenCounts::Field(field)) = traits.token_counts {
                assert!(!dialect.refuses(field) && !dialect.ignores(field), "{dialect}: {field}");
            }
            assert!(traits.refuses.iter().all(|field| !dialect.ignores(field)), "{dialect}");
            assert!(traits.ready.starts_with('/'), "{dialect}");
        }
    }
}
