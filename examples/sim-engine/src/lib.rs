//! A simulated LLM serving engine behind an OpenAI-compatible HTTP server.
//!
//! It exists so that a load generator can be tested, and a sweep can be shown, without a GPU: its capacity, its knee
//! and its misbehaviour are known exactly, and its own log says what arrived when.
//!
//! - [`engine`] is the model, a pure state machine in whatever time its caller counts: [`Engine::submit`],
//!   [`Engine::next_deadline`], [`Engine::on_time`], [`Engine::cancel`]. [`batch`] is continuous batching, with
//!   [`prefix`] as its prefix cache; [`fixed`] is fixed delays; [`mmc`] is a queue whose truth [`closed_form`] knows.
//! - [`virtual_time`] runs it without a clock, for proofs over millions of requests.
//! - [`serve()`] runs it under the wall clock behind HTTP; [`Background`] does so for a test.
//! - [`fault`] names the ways to misbehave.

mod answer;
mod background;
pub mod batch;
mod body;
mod clock;
pub mod closed_form;
mod config;
mod driver;
pub mod engine;
pub mod fault;
pub mod fixed;
mod generate;
mod latency;
mod listen;
mod log;
mod metrics;
pub mod mmc;
mod openai;
pub mod prefix;
mod serve;
mod text;
mod tls;
pub mod virtual_time;
mod wire;

pub use background::Background;
pub use config::{Config, Options};
pub use engine::Engine;
pub use serve::{serve, serve_tls};
pub use text::prompt_tokens;
pub use tls::Tls;
