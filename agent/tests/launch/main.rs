//! Tests of an engine's life cycle: what `agent::launch` says, against stubs of the engines' programs.
//!
//! The stub is `engine.py`, put under an engine's name into a folder of the test's. What it is told to do stands in the
//! environment that an overlay gives it; what it was told, and asked for, it writes down.

// A test says what it expected; clippy's own exception does not reach the helpers of a test crate.
#![allow(clippy::unwrap_used)]

mod lifecycle;
mod ports;
mod real;
mod recipes;
mod record;
mod support;
mod tree;
