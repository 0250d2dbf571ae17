//! Lines about peers that were turned away: each names the address and the reason, and no flood of them can bury the rest.
//!
//! A pure function of what happened when. A port scan makes thousands of refusals, and an agent that waits for a place
//! one every few seconds: the same is said once a minute, and everything together at a slow pace, with a count of what
//! was left out.

use std::collections::VecDeque;
use std::net::IpAddr;

use common::ids::Nanos;

use super::limits::{LINE_EVERY, LINES_AT_ONCE, SAME_LINE_EVERY};

/// Refusals that are remembered, so that the same is not said again.
const REMEMBERED: usize = 64;

/// What was said, and how much more may be.
#[derive(Debug)]
pub(super) struct Notices {
    said: VecDeque<(Nanos, IpAddr, String)>,
    left: u32,
    /// Since when `left` is counted.
    since: Nanos,
    unsaid: u64,
}

impl Notices {
    pub(super) fn new(now: Nanos) -> Self {
        Self { said: VecDeque::new(), left: LINES_AT_ONCE, since: now, unsaid: 0 }
    }

    /// Whether a refusal at `now` is to be said, and then how many were not since the last one that was.
    pub(super) fn take(&mut self, peer: IpAddr, reason: &str, now: Nanos) -> Option<u64> {
        let earned = (now - self.since).0 / LINE_EVERY.0;
        if earned > 0 {
            self.left =
                LINES_AT_ONCE.min(self.left.saturating_add(u32::try_from(earned).unwrap_or(u32::MAX)));
            self.since = now;
        }
        self.said.retain(|(at, ..)| now - *at < SAME_LINE_EVERY);
        let known = self.said.iter().any(|(_, who, why)| *who == peer && why == reason);
        if known || self.left == 0 {
            self.unsaid += 1;
            return None;
        }
        self.left -= 1;
        if self.said.len() == REMEMBERED {
            self.said.pop_front();
        }
        self.said.push_back((now, peer, reason.to_owned()));
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn the_same_is_said_once_a_minute() {
        let mut notices = Notices::new(Nanos(0));
        assert_eq!(notices.take(A, "no token", Nanos(0)), Some(0));
        assert_eq!(notices.take(A, "no token", Nanos::from_secs(5)), None);
        assert_eq!(notices.take(B, "no token", Nanos::from_secs(6)), Some(1), "another peer, and the count");
        assert_eq!(notices.take(A, "wrong token", Nanos::from_secs(7)), Some(0), "another reason");
        assert_eq!(notices.take(A, "no token", Nanos::from_secs(61)), Some(0));
    }

    /// A scan from many addresses for a minute: a handful of lines, and every refusal is either said or counted.
    #[test]
    fn a_scan_does_not_flood() {
        let mut notices = Notices::new(Nanos(0));
        let (mut lines, mut counted) = (0u64, 0);
        for n in 0..60_000u64 {
            let peer = IpAddr::from([10, 1, (n >> 8) as u8, n as u8]);
            if let Some(unsaid) = notices.take(peer, "no token", Nanos::from_millis(n)) {
                lines += 1;
                counted += unsaid;
            }
        }
        assert!(lines <= u64::from(LINES_AT_ONCE) + 6, "{lines} lines");
        assert_eq!(lines + counted + notices.unsaid, 60_000);
    }
}
