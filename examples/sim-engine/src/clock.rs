//! The one place that reads clocks.
//!
//! Owns the epoch that every engine instant is relative to. The engine model must never see this module: it is
//! told the time.

use std::time::Duration;

use tokio::time::Instant;

/// A monotonic clock that counts from its own creation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    epoch: Instant,
}

impl Clock {
    /// Starts at zero now.
    #[must_use]
    pub(crate) fn start() -> Self {
        Self { epoch: Instant::now() }
    }

    /// Time since the start.
    #[must_use]
    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }
}

/// Wall-clock time since the Unix epoch; zero on a machine whose clock stands before it.
#[must_use]
#[allow(
    clippy::disallowed_types,
    reason = "the simulated engine stands outside the fleet and its Clock seam"
)]
pub(crate) fn unix_now() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// Whole nanoseconds, for logs.
#[must_use]
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
