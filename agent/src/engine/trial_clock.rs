//! Time since a trial's start, on the agent's monotonic clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::clock::Clock;
use common::ids::Nanos;

/// A monotonic clock with the trial's start as its zero. Clones share the zero.
///
/// A client is made, and its connections are warmed, before the trial's start is known; the start is set when the
/// trial is armed, before the first request.
#[derive(Clone)]
pub struct TrialClock {
    clock: Arc<dyn Clock>,
    t0: Arc<AtomicU64>,
}

impl TrialClock {
    /// A clock that reads zero when `clock` reads `t0`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, t0: Nanos) -> Self {
        Self { clock, t0: Arc::new(AtomicU64::new(t0.0)) }
    }

    /// Time since the trial's start; zero before it.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.clock.monotonic().since(self.t0())
    }

    /// The monotonic clock itself, before the start as after it.
    #[must_use]
    pub fn monotonic(&self) -> Nanos {
        self.clock.monotonic()
    }

    /// The trial's start on the monotonic clock.
    #[must_use]
    pub fn t0(&self) -> Nanos {
        // Relaxed: the start is set before the requests that read it are spawned, which orders the two.
        Nanos(self.t0.load(Ordering::Relaxed))
    }

    /// Moves the zero, for every clone. Never while a request is in flight: its stamps would jump.
    pub fn set_t0(&self, t0: Nanos) {
        self.t0.store(t0.0, Ordering::Relaxed);
    }
}

impl fmt::Debug for TrialClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrialClock").field("t0", &self.t0()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::clock::ManualClock;

    #[test]
    fn before_the_start_it_is_zero_and_clones_move_together() {
        let manual = Arc::new(ManualClock::at(Nanos(100)));
        let clock = TrialClock::new(manual.clone(), Nanos(150));
        let other = clock.clone();
        assert_eq!(clock.now(), Nanos::ZERO);
        manual.advance(Nanos(60));
        assert_eq!(clock.now(), Nanos(10));
        other.set_t0(Nanos(155));
        assert_eq!(clock.now(), Nanos(5));
    }
}
