//! The agent: sends its part of the load at the scheduled instants and records every clock.
//!
//! - [`session`] joins a coordinator and follows it through a trial.
//! - [`load`] is the load itself: the pacer, the dispatcher, the requests in flight, the drain.
//! - [`engine`] is the measured path: one request over HTTP, stamped at its reads.
//! - [`calibrate`] measures what this host can carry.
//! - [`spool`] keeps finished traces on disk until the coordinator has sealed them.
//! - [`gpu`] reads the GPUs of the engine beside it.
//! - [`health`] gathers the evidence on which a trial is called late.
//! - [`telemetry`] records the host, the engine's own metrics and the GPUs beside a run.
//! - [`host`] says what kind of machine this is.
//! - [`null_engine`] is an engine without a model, to measure this host against.
//! - [`outside`] is what a simulation of a fleet replaces: connections, the load thread, chance.
//! - [`launch`] starts and ends an engine on this host, from a recipe.
//!
//! Whatever the engine, the network or the coordinator does, arrivals are never moved: the load thread waits for
//! nobody.

mod aside;
pub mod calibrate;
pub mod cli;
pub mod engine;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod gpu;
pub mod health;
pub mod host;
pub mod launch;
pub mod load;
pub mod null_engine;
pub mod outside;
pub mod probe;
pub mod session;
pub mod spool;
pub mod telemetry;
