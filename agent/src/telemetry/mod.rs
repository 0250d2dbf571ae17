//! What happens on this host while a run goes on: the host itself, the engine's own metrics, and the GPUs, once a second
//! to the coordinator.
//!
//! It exists so that a result says what it cost and what else was going on. Everything runs on the control runtime or on
//! threads of its own; nothing that is measured waits for it. What cannot be sent is kept for a while, then the oldest is
//! dropped and that is counted. It must never hold up a trial, nor show 0 for what it does not know.
//!
//! - `gpus` is the sampler of `gpu` as an observation sees it, and who the engine is.
//! - `host` looks at the host, `engine` reads the engine's metrics, `observe` puts it together and sends it.
//!
//! Guarded by `tests/tests/telemetry.rs`.

pub mod engine;
mod gpus;
pub mod host;
mod observe;

pub use gpus::{EngineRoot, GpuFeed};
pub use observe::{Means, observe};
