//! Ingest: the single writer of a run's traces.
//!
//! It owns the promise behind an acknowledgement: a trace that was acknowledged is on the disk and named by the index,
//! once. One OS thread takes what agents submit, appends it to the segment file, syncs, makes the index name it
//! together with the new marks, and only then answers. What waits meanwhile is stored as one group, so a sync is
//! shared by whoever is there.
//!
//! Invariants, with the names that the property test in `ingest/tests/crash.rs` uses:
//! - *acknowledged is stored*: no crash loses a trace below an acknowledged mark.
//! - *stored once*: a block sent again, or by two connections, is in the index once.
//! - *marks agree*: a mark is the end of what the segments hold of that agent process without a gap.
//!
//! It must never acknowledge before both are durable, never store behind a torn tail, and never decide whether a
//! trial still takes traces: that is the caller's, before [`IngestHandle::submit`].

mod admit;
mod handle;
mod writer;

pub use admit::Confusion;
pub use handle::{Ack, IngestCounters, IngestError, IngestHandle, start};

#[cfg(test)]
mod tests;
