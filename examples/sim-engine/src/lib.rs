//! A simulated LLM serving engine behind an OpenAI-compatible HTTP server.
//!
//! It exists so that a load generator can be tested, and a sweep can be shown, without a GPU: its capacity, its knee
//! and its misbehaviour are known exactly, and its own log says what arrived when.
//!
//! - [`engine`] is the model, a pure state machine in whatever time its caller counts: [`Engine::submit`],
//!   [`Engine::next_deadline`], [`Engine::on_time`], [`Engine::cancel`]. [`batch`] is continuous batching, [`fixed`]
//!   is fixed delays.
//! - [`serve()`] runs it under the wall clock behind HTTP; [`Background`] does so for a test.
//! - [`fault`] names the ways to misbehave.

mod answer;
mod background;
pub mod batch;
mod body;
mod clock;
mod config;
mod driver;
pub mod engine;
pub mod fault;
pub mod fixed;
mod generate;
mod listen;
mod log;
mod metrics;
mod openai;
mod serve;
mod text;
mod wire;

pub use background::Background;
pub use config::{Config, Options};
pub use engine::Engine;
pub use serve::serve;
pub use text::prompt_tokens;
