//! Scripted engines: for each engine that Plimsoll knows, the exact bytes that it sends, over a real socket.
//!
//! An engine here is a script, not a model: it answers the requests that the real one answers, refuses those that the
//! real one refuses, in the real one's words, and streams deterministic text in the real one's framing. The start of a
//! prompt can ask for a misbehaviour (`scenario:error-later …`, see [`Scenario`]). With every answer comes what a
//! correct client must conclude from it ([`Expected`]), noted down while the bytes are made and never read back from
//! them.
//!
//! It exists so that Plimsoll's dialects, its probe and its reading of streams are tested against all engines on a
//! machine that has none. It plays another party: it must never use code of Plimsoll, for a mistake that both share
//! would be seen by nobody.
//!
//! - `server` is a small HTTP/1.1 server of threads; `state` what it knows: open streams, prefix cache.
//! - `ask` reads a request, `answer` decides on the tokens, `script` writes a stream and notes what is in it, `stage`
//!   plays the scenarios.
//! - One file for each engine, with its sources.
//!
//! Guarded by `tests/conformance`: what Plimsoll makes of each script is what the script expects, in any split.

mod answer;
mod ask;
mod expected;
mod reply;
mod rng;
mod scenario;
mod script;
mod server;
mod stage;
mod state;
mod text;

mod dynamo;
mod llamacpp;
mod lmdeploy;
mod mistralrs;
mod ollama;
mod serve_py;
mod sglang;
mod tabbyapi;
mod tensorrt_llm;
mod tgi;
mod transformers;
mod vllm;

pub use ask::Api;
pub use dynamo::Dynamo;
pub use expected::{Channel, Content, EventTokens, Expected, Itl, Outcome, TokenSource};
pub use llamacpp::LlamaCpp;
pub use lmdeploy::LmDeploy;
pub use mistralrs::MistralRs;
pub use ollama::Ollama;
pub use reply::Reply;
pub use rng::Rng;
pub use scenario::Scenario;
pub use serve_py::ServePy;
pub use server::{Logged, Options, Scripted};
pub use sglang::Sglang;
pub use state::State;
pub use tabbyapi::TabbyApi;
pub use tensorrt_llm::TensorRtLlm;
pub use tgi::Tgi;
pub use transformers::Transformers;
pub use vllm::Vllm;

use serde_json::Value;

/// The model that every engine serves.
pub const MODEL: &str = "tiny";

/// Tokens that a prompt and its answer may have together.
pub const CONTEXT: u64 = 1024;

/// One engine's behaviour, without sockets.
pub trait Engine: Send + Sync {
    /// As in Plimsoll's `--dialect`, but for `serve_py`, which is none of the known ones.
    fn name(&self) -> &'static str;

    /// The misbehaviours that it can play at this endpoint, [`Scenario::Normal`] among them.
    fn scenarios(&self, api: Api) -> Vec<Scenario>;

    /// The answer to a GET. `path` has its query.
    fn get(&self, path: &str, state: &State) -> Reply;

    /// The answer to a POST that asks for no generation. `path` has its query.
    fn post(&self, path: &str, body: &Value, state: &State) -> Reply;

    /// The answer to a request for generation.
    fn generate(&self, api: Api, body: &[u8], state: &State) -> Reply;
}

impl<E: Engine + ?Sized> Engine for Box<E> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn scenarios(&self, api: Api) -> Vec<Scenario> {
        (**self).scenarios(api)
    }

    fn get(&self, path: &str, state: &State) -> Reply {
        (**self).get(path, state)
    }

    fn post(&self, path: &str, body: &Value, state: &State) -> Reply {
        (**self).post(path, body, state)
    }

    fn generate(&self, api: Api, body: &[u8], state: &State) -> Reply {
        (**self).generate(api, body, state)
    }
}

/// All of them.
#[must_use]
pub fn all() -> Vec<Box<dyn Engine>> {
    vec![
        Box::new(Vllm),
        Box::new(Sglang),
        Box::new(LlamaCpp),
        Box::new(TabbyApi),
        Box::new(TensorRtLlm),
        Box::new(LmDeploy),
        Box::new(Dynamo),
        Box::new(Ollama),
        Box::new(Tgi),
        Box::new(MistralRs),
        Box::new(Transformers),
        Box::new(ServePy),
    ]
}

/// The engine of this name.
#[must_use]
pub fn named(name: &str) -> Option<Box<dyn Engine>> {
    all().into_iter().find(|engine| engine.name() == name)
}
