//! Tests of the measured path: what `agent::engine` says, in one binary so that it links once.

// A test says what it expected; clippy's own exception does not reach the helpers of a test crate.
#![allow(clippy::unwrap_used)]

mod captures;
mod connections;
mod dialects;
mod failures;
mod garbage;
mod replicas;
mod requests;
mod rogue;
mod stamps;
mod support;
mod timeouts;
mod tls;
