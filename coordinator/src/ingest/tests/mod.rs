//! Tests of the ingest.

mod admit;
mod crash;
mod faults;
mod handle;
