//! The time of a scenario: the machine's, or one that a test moves.
//!
//! Owns the only reading of the operating system's clocks in this crate. Time is in nanoseconds of the scenario and
//! may be negative: a scenario whose zero (`t0_ns`) lies ahead has not begun.

use rustix::time::{ClockId, clock_gettime};

/// A second, in the unit of this crate.
pub(crate) const SECOND: i64 = 1_000_000_000;

/// Where the time of a scenario comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock {
    /// `CLOCK_MONOTONIC`, from the instant `t0` on.
    Real {
        /// The scenario's zero on `CLOCK_MONOTONIC`.
        t0: i64,
        /// The scenario's zero in microseconds since the Unix epoch, looked at once: stamps must not jitter.
        wall_t0_us: i64,
    },
    /// Stands still until it is told to move.
    Manual {
        /// The scenario's zero, where something outside speaks of `CLOCK_MONOTONIC`.
        t0: i64,
        /// Now.
        now: i64,
        /// The scenario's zero in microseconds since the Unix epoch.
        wall_t0_us: i64,
    },
}

impl Clock {
    /// The machine's clock, with its zero at `t0` on `CLOCK_MONOTONIC`.
    pub(crate) fn real(t0: i64) -> Self {
        Self::Real { t0, wall_t0_us: (read(ClockId::Realtime) - monotonic() + t0) / 1000 }
    }

    /// Nanoseconds since the scenario's zero.
    pub(crate) fn now(&self) -> i64 {
        match *self {
            Self::Real { t0, .. } => monotonic().saturating_sub(t0),
            Self::Manual { now, .. } => now,
        }
    }

    /// The scenario's zero on `CLOCK_MONOTONIC`.
    pub(crate) fn t0(&self) -> i64 {
        match *self {
            Self::Real { t0, .. } | Self::Manual { t0, .. } => t0,
        }
    }

    /// Whether a test moves it.
    pub(crate) fn is_manual(&self) -> bool {
        matches!(self, Self::Manual { .. })
    }

    /// Moves a manual clock and says whether it is one.
    pub(crate) fn advance(&mut self, by: i64) -> bool {
        match self {
            Self::Real { .. } => false,
            Self::Manual { now, .. } => {
                *now = now.saturating_add(by);
                true
            }
        }
    }

    /// The time since the Unix epoch, in microseconds, of an instant of the scenario.
    pub(crate) fn wall_us(&self, at: i64) -> u64 {
        let (Self::Real { wall_t0_us, .. } | Self::Manual { wall_t0_us, .. }) = *self;
        u64::try_from(wall_t0_us.saturating_add(at.div_euclid(1000))).unwrap_or(0)
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn monotonic() -> i64 {
    read(ClockId::Monotonic)
}

fn read(id: ClockId) -> i64 {
    let time = clock_gettime(id);
    time.tv_sec.saturating_mul(SECOND).saturating_add(time.tv_nsec)
}

/// Seconds, for the signals.
pub(crate) fn seconds(nanos: i64) -> f64 {
    nanos as f64 / SECOND as f64
}

/// Nanoseconds, of a scenario's seconds.
pub(crate) fn nanos(seconds: f64) -> i64 {
    (seconds * SECOND as f64).round() as i64
}
