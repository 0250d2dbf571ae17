//! Clocks of hosts that disagree: each has its own beginning and its own pace, and its wall clock jumps.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use common::clock::Clock;
use common::ids::Nanos;

/// Nanoseconds since the simulation began, by a clock that nobody has.
pub fn true_ns(last: &AtomicU64) -> u64 {
    match turmoil::sim_elapsed() {
        Some(elapsed) => {
            last.fetch_max(elapsed.as_nanos() as u64, Ordering::Relaxed).max(elapsed.as_nanos() as u64)
        }
        // Outside of every host: while one is being torn down.
        None => last.load(Ordering::Relaxed),
    }
}

/// Virtual time, in seconds.
pub fn elapsed_seconds() -> f64 {
    turmoil::sim_elapsed().map_or(0.0, |elapsed| elapsed.as_secs_f64())
}

/// A host's clocks.
#[derive(Debug)]
pub struct SimClock {
    /// What the monotonic clock showed at the beginning.
    offset_ns: u64,
    /// By how many parts in a million it runs fast.
    ppm: i64,
    /// By how much the wall clock is wrong.
    wall_error_ns: AtomicI64,
    last: AtomicU64,
}

/// Some Monday.
const WALL_NS: i64 = 1_700_000_000_000_000_000;
/// Boot time runs ahead of the monotonic clock by the time that the host slept.
const SLEPT_NS: u64 = 77_000_000_000;

impl SimClock {
    /// A clock that shows `offset_ns` at the beginning.
    pub fn new(offset_ns: u64, ppm: i64) -> Self {
        Self { offset_ns, ppm, wall_error_ns: AtomicI64::new(0), last: AtomicU64::new(0) }
    }

    /// Lets the wall clock jump.
    pub fn step_wall(&self, by_ns: i64) {
        self.wall_error_ns.fetch_add(by_ns, Ordering::Relaxed);
    }

    /// What the monotonic clock shows `true_ns` after the beginning.
    pub fn shown(&self, true_ns: u64) -> u64 {
        let drift = i128::from(true_ns) * i128::from(self.ppm) / 1_000_000;
        self.offset_ns + (i128::from(true_ns) + drift) as u64
    }
}

impl Clock for SimClock {
    fn monotonic(&self) -> Nanos {
        Nanos(self.shown(true_ns(&self.last)))
    }

    fn boottime(&self) -> Nanos {
        self.monotonic() + Nanos(SLEPT_NS)
    }

    fn wall(&self) -> Nanos {
        let true_ns = true_ns(&self.last) as i64;
        Nanos((WALL_NS + true_ns + self.wall_error_ns.load(Ordering::Relaxed)) as u64)
    }
}
