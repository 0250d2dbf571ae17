//! Time, behind one trait, so that a whole fleet can run on a simulated clock.
//!
//! This is the only module that may ask the operating system for the time; clippy's `disallowed-types` and the
//! layout check guard that.

use rustix::time::{ClockId, clock_gettime};

use crate::ids::Nanos;

/// Where time comes from.
pub trait Clock: Send + Sync {
    /// Monotonic time in nanoseconds (`CLOCK_MONOTONIC`). Every stamp of a request is taken with it.
    fn monotonic(&self) -> Nanos;
    /// Time since boot with suspension counted (`CLOCK_BOOTTIME`). Leases are counted with it: a laptop that slept
    /// must not believe that its lease still holds.
    fn boottime(&self) -> Nanos;
    /// Nanoseconds since the Unix epoch. For people and file names only: it may jump.
    fn wall(&self) -> Nanos;
}

/// The operating system's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

fn read(id: ClockId) -> Nanos {
    let t = clock_gettime(id);
    let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(t.tv_nsec).unwrap_or(0);
    Nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Nanos {
        read(ClockId::Monotonic)
    }

    fn boottime(&self) -> Nanos {
        read(ClockId::Boottime)
    }

    fn wall(&self) -> Nanos {
        read(ClockId::Realtime)
    }
}

/// A clock that moves only when told to. All three readings start at the same instant.
#[derive(Debug, Default)]
pub struct ManualClock(std::sync::atomic::AtomicU64);

impl ManualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn at(now: Nanos) -> Self {
        Self(std::sync::atomic::AtomicU64::new(now.0))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Nanos) {
        self.0.fetch_add(by.0, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Nanos {
        Nanos(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }

    fn boottime(&self) -> Nanos {
        self.monotonic()
    }

    fn wall(&self) -> Nanos {
        self.monotonic()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_never_goes_back() {
        let clock = SystemClock;
        let mut last = clock.monotonic();
        for _ in 0..10_000 {
            let now = clock.monotonic();
            assert!(now >= last);
            last = now;
        }
    }
}
