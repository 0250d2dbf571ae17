//! How much a session may say: a bucket of bytes that fills with time.
//!
//! The fleet's channel holds a number of messages, not of bytes, and the driver is one for all. An agent that says much
//! more than heartbeats and a trial's few messages is at fault, and is ended before the others feel it.

use common::ids::Nanos;

use crate::rpc::limits::{MESSAGE_COST, SESSION_BURST, SESSION_RATE};

/// What is left of a session's allowance.
pub(super) struct Pace {
    left: u64,
    /// When `left` was counted.
    at: Nanos,
}

impl Pace {
    pub(super) fn new(now: Nanos) -> Self {
        Self { left: SESSION_BURST, at: now }
    }

    /// Takes a message of so many bytes out of the allowance; false when there is not enough left.
    pub(super) fn take(&mut self, bytes: u64, now: Nanos) -> bool {
        let earned = u128::from((now - self.at).0) * u128::from(SESSION_RATE) / 1_000_000_000;
        if earned > 0 {
            let earned = u64::try_from(earned).unwrap_or(u64::MAX);
            self.left = self.left.saturating_add(earned).min(SESSION_BURST);
            self.at = now;
        }
        let cost = bytes.saturating_add(MESSAGE_COST);
        let enough = self.left >= cost;
        self.left = self.left.saturating_sub(cost);
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_honest_session_never_feels_it_and_a_flood_ends_soon() {
        let mut pace = Pace::new(Nanos(0));
        // A day of heartbeats, and a large report now and then.
        for second in 0..86_400 {
            let bytes = if second % 60 == 0 { 1 << 20 } else { 100 };
            assert!(pace.take(bytes, Nanos::from_secs(second)), "after {second} s");
        }
        let mut flood = Pace::new(Nanos(0));
        let taken = (0..1_000_000).take_while(|_| flood.take(100, Nanos(0))).count() as u64;
        assert_eq!(taken, SESSION_BURST / (MESSAGE_COST + 100));
        let mut large = Pace::new(Nanos(0));
        assert_eq!((0..100).take_while(|_| large.take(1 << 20, Nanos(0))).count(), 7);
    }
}
