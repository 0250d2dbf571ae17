//! Waiting for a condition, with a deadline whose error says what was missing.

use std::time::Duration;

use common::clock::{Clock, SystemClock};

/// How long anything may take on a slow and busy machine. A test that is right never waits so long.
pub const PATIENCE: Duration = Duration::from_secs(60);

const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Looks again and again until `look` gives something; none when `patience` ran out.
pub(crate) fn poll<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = SystemClock.monotonic().to_duration() + patience;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if SystemClock.monotonic().to_duration() >= deadline {
            return None;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Looks again and again until `look` gives something.
///
/// # Panics
/// When [`PATIENCE`] ran out; `what` says what was waited for.
#[track_caller]
pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, look)
}

/// The same with another patience, for what waits for a lease or a timeout of the program.
///
/// # Panics
/// When `patience` ran out.
#[track_caller]
pub fn within<T>(patience: Duration, what: &str, look: impl FnMut() -> Option<T>) -> T {
    poll(patience, look).unwrap_or_else(|| panic!("waited {patience:?} in vain for {what}"))
}
