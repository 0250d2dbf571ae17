//! Live counters of a trial: written by the load thread, read by the heartbeat.
//!
//! For people to watch. Verdicts and reports are computed from the traces, never from here.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use common::fleet::Progress;
use common::ids::{Epoch, Nanos};
use hdrhistogram::Histogram;

/// Counters of one trial.
#[derive(Debug)]
pub struct Counters {
    epoch: Epoch,
    scheduled: u64,
    dispatched: AtomicU64,
    in_flight: AtomicU64,
    waiting: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    traces_lost: AtomicU64,
    /// Microseconds. Locked once an arrival and once a heartbeat: never contended for long.
    lateness: Mutex<Option<Histogram<u64>>>,
}

impl Counters {
    /// For a trial with so many arrivals on this agent.
    #[must_use]
    pub fn new(epoch: Epoch, scheduled: u64) -> Self {
        Self {
            epoch,
            scheduled,
            dispatched: 0.into(),
            in_flight: 0.into(),
            waiting: 0.into(),
            succeeded: 0.into(),
            failed: 0.into(),
            traces_lost: 0.into(),
            lateness: Mutex::new(Histogram::new_with_bounds(1, 3_600_000_000, 2).ok()),
        }
    }

    /// An arrival was released, this much after it was due.
    pub fn released(&self, lateness: Nanos, waited: bool) {
        self.dispatched.fetch_add(1, Relaxed);
        if !waited && let Some(h) = self.lateness.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            h.saturating_record(lateness.0 / 1_000);
        }
    }

    /// A trace is complete.
    pub fn ended(&self, success: bool) {
        if success { &self.succeeded } else { &self.failed }.fetch_add(1, Relaxed);
    }

    /// The spool could not take a trace.
    pub fn trace_lost(&self) {
        self.traces_lost.fetch_add(1, Relaxed);
    }

    /// Where the dispatcher stands.
    pub fn stand(&self, in_flight: usize, waiting: usize) {
        self.in_flight.store(in_flight as u64, Relaxed);
        self.waiting.store(waiting as u64, Relaxed);
    }

    /// Traces that the spool could not take.
    #[must_use]
    pub fn traces_lost(&self) -> u64 {
        self.traces_lost.load(Relaxed)
    }

    /// For a heartbeat.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let lateness = self.lateness.lock().unwrap_or_else(PoisonError::into_inner);
        let p99 = lateness.as_ref().map_or(0, |h| h.value_at_quantile(0.99));
        Progress {
            epoch: self.epoch,
            scheduled: self.scheduled,
            dispatched: self.dispatched.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            succeeded: self.succeeded.load(Relaxed),
            failed: self.failed.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            lateness_p99: Nanos(p99 * 1_000),
            traces_lost: self.traces_lost.load(Relaxed),
        }
    }
}
