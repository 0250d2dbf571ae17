//! Tests of the GPU telemetry: what `agent::gpu` makes of scripted libraries that stand in for NVIDIA's.
//!
//! The fake NVML's clock is moved by the tests wherever time matters, so that what happens, and when, is the scenario's
//! and not this machine's. The sampler's threads run in real time, and their records are waited for.

// A test says what it expected; clippy's own exception does not reach the helpers of a test crate.
#![allow(clippy::unwrap_used)]

mod checks;
mod child;
mod foreign;
mod inventory;
mod lost;
mod samples;
mod states;
mod support;
