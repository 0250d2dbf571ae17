//! What Plimsoll makes of each scripted engine is what the script says that a correct client must make of it: for each
//! engine, endpoint and scenario, in any split of the bytes, over sockets and without. And what the dialects believe of
//! an engine is what the engine does.
//!
//! In one binary so that it links once.

// A test says what it expected; clippy's own exception does not reach the helpers of a test crate.
#![allow(clippy::unwrap_used)]

mod cases;
mod check;
mod dialects;
mod engines;
mod http;
mod no_evidence;
mod recordings;
mod sockets;
mod splits;
