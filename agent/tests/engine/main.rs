//! Tests of the measured path: what `agent::engine` says, in one binary so that it links once.

mod captures;
mod connections;
mod dialects;
mod failures;
mod garbage;
mod requests;
mod stamps;
mod support;
mod timeouts;
