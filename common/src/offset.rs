//! The clock model: what another host's clock shows, and how surely.
//!
//! A probe carries four stamps, as NTP's do (RFC 5905, section 8): sent and received on this side, received and
//! answered on the other. Without assuming that both ways take the same time, the offset `other − mine` lies in an
//! interval as wide as the round trip. Intervals of several probes are intersected after each is widened by what two
//! clocks may drift apart in the time between (500 ppm). Nothing here averages: the bound is a bound.

use crate::ids::Nanos;

/// Two clocks drift apart by at most one part in this many: 500 ppm, as far as Linux disciplines a clock.
pub const DRIFT_DIVISOR: i64 = 2_000;

/// Probes of this long a time count as one look at the clock: drift is what lies between two looks.
const ONE_LOOK: Nanos = Nanos::from_secs(1);

/// One exchange of stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Sent, on this side's monotonic clock.
    pub sent: Nanos,
    /// Received, on the other side's.
    pub other_received: Nanos,
    /// Answered, on the other side's.
    pub other_sent: Nanos,
    /// The answer's receipt, on this side's.
    pub received: Nanos,
}

/// The offset of the other clock, with the half width of the interval that surely holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Estimate {
    /// Other clock minus this clock, nanoseconds: the middle of the feasible interval.
    pub offset_ns: i64,
    /// Half the width of the feasible interval, nanoseconds.
    pub bound_ns: u64,
    /// How fast the offset grows; none when the probes lie too close together to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
}

/// How much faster the other clock runs, with the half width of the interval that surely holds it. Parts in 10⁹.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Drift {
    /// The middle of the feasible interval.
    pub ppb: i64,
    /// Half its width.
    pub bound_ppb: u64,
}

/// The feasible offsets from the probes seen so far.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// (instant on this side, lowest, highest feasible offset then).
    feasible: Option<(Nanos, i64, i64)>,
    /// The same as it was at the end of the first look: drift is counted from there.
    anchor: Option<(Nanos, i64, i64)>,
    probes: u64,
    contradictions: u64,
}

fn signed(n: Nanos) -> i64 {
    i64::try_from(n.0).unwrap_or(i64::MAX)
}

impl Model {
    /// Takes a probe in. One whose stamps contradict each other is ignored and counted.
    pub fn add(&mut self, p: Probe) {
        // The request left before it arrived, and the answer likewise: two inequalities for the offset.
        let highest = signed(p.other_received).saturating_sub(signed(p.sent));
        let lowest = signed(p.other_sent).saturating_sub(signed(p.received));
        if lowest > highest || p.received < p.sent {
            self.contradictions += 1;
            return;
        }
        self.probes += 1;
        let (known_low, known_high) = self.at(p.received).unwrap_or((lowest, highest));
        let (low, high) = (known_low.max(lowest), known_high.min(highest));
        // An empty intersection means that the drift limit did not hold (a suspended host, a moved clock): the
        // newest probe alone is the truth then.
        self.feasible = Some(if low <= high {
            (p.received, low, high)
        } else {
            self.contradictions += 1;
            self.anchor = None;
            (p.received, lowest, highest)
        });
        let first = self.anchor.is_none_or(|(when, ..)| p.received - when < ONE_LOOK);
        if first {
            // It stays where the first probe was, so that a look ends.
            let when = self.anchor.map_or(p.received, |(when, ..)| when);
            self.anchor = self.feasible.map(|(_, low, high)| (when, low, high));
        }
    }

    /// The slopes between the first look and the last that both intervals allow, within the drift limit.
    fn drift(&self) -> Option<Drift> {
        let ((begin, low0, high0), (end, low1, high1)) = (self.anchor?, self.feasible?);
        let apart = end - begin;
        if apart < ONE_LOOK {
            return None;
        }
        let limit = 1_000_000_000 / DRIFT_DIVISOR;
        // The first look's interval may be ONE_LOOK younger than its instant: so much more may have drifted.
        let slack = i128::from(signed(ONE_LOOK) / DRIFT_DIVISOR);
        let slope = |rise: i128| {
            let ppb = rise * 1_000_000_000 / i128::from(signed(apart).max(1));
            i64::try_from(ppb).unwrap_or(if ppb < 0 { -limit } else { limit }).clamp(-limit, limit)
        };
        let lowest = slope(i128::from(low1) - i128::from(high0) - slack);
        let highest = slope(i128::from(high1) - i128::from(low0) + slack);
        let width = highest - lowest;
        Some(Drift { ppb: lowest + width / 2, bound_ppb: width.unsigned_abs().div_ceil(2) })
    }

    fn at(&self, now: Nanos) -> Option<(i64, i64)> {
        let (when, low, high) = self.feasible?;
        let apart = signed(now).saturating_sub(signed(when)).abs();
        let drift = apart / DRIFT_DIVISOR + 1;
        Some((low.saturating_sub(drift), high.saturating_add(drift)))
    }

    /// The offset at `now` on this side's clock; none before the first probe.
    #[must_use]
    pub fn estimate(&self, now: Nanos) -> Option<Estimate> {
        let (low, high) = self.at(now)?;
        let width = high.saturating_sub(low);
        let (offset_ns, bound_ns) = (low + width / 2, width.unsigned_abs().div_ceil(2));
        Some(Estimate { offset_ns, bound_ns, drift: self.drift() })
    }

    /// Probes used so far.
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.probes
    }

    /// Probes that contradicted themselves or all before them.
    #[must_use]
    pub fn contradictions(&self) -> u64 {
        self.contradictions
    }
}

impl Estimate {
    /// Where an instant of the other clock lies on this side's.
    #[must_use]
    pub fn to_mine(self, other: Nanos) -> Nanos {
        Nanos(u64::try_from(signed(other).saturating_sub(self.offset_ns)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the transit times and a drift within the limit, the true offset lies within the bound.
        #[test]
        fn the_bound_holds_the_truth(
            offset in -1_000_000_000i64..1_000_000_000,
            ppm in -240i64..240,
            hops in prop::collection::vec((1u64..50_000_000, 1u64..50_000_000, 0u64..5_000_000_000), 1..40),
        ) {
            let mut model = Model::default();
            let mut now = 10_000_000_000u64;
            let truth = |t: u64| offset + (t as i64) / 1_000_000 * ppm;
            for (out, back, wait) in hops {
                let arrives = now + out;
                let other = (arrives as i64 + truth(arrives)) as u64;
                let received = arrives + back;
                // The answer's stamp is taken when it leaves: the same instant here.
                model.add(Probe {
                    sent: Nanos(now),
                    other_received: Nanos(other),
                    other_sent: Nanos(other),
                    received: Nanos(received),
                });
                let e = model.estimate(Nanos(received)).expect("a probe was added");
                let error = (e.offset_ns - truth(received)).unsigned_abs();
                prop_assert!(error <= e.bound_ns + 50_000, "error {error} above bound {}", e.bound_ns);
                if let Some(drift) = e.drift {
                    // The truth of this test moves in steps of a millisecond: that is its error.
                    let error = (drift.ppb - ppm * 1000).unsigned_abs();
                    prop_assert!(error <= drift.bound_ppb + 1_000, "drift {error} above bound {drift:?}");
                }
                now = received + wait;
            }
            prop_assert_eq!(model.contradictions(), 0);
        }
    }

    #[test]
    fn a_narrow_probe_wins_and_the_bound_grows_with_time() {
        let mut model = Model::default();
        let probe = |sent, rtt| Probe {
            sent: Nanos(sent),
            other_received: Nanos(sent + rtt / 2 + 1000),
            other_sent: Nanos(sent + rtt / 2 + 1000),
            received: Nanos(sent + rtt),
        };
        model.add(probe(1_000_000_000, 10_000_000));
        let wide = model.estimate(Nanos(1_010_000_000)).unwrap();
        model.add(probe(1_020_000_000, 200_000));
        let narrow = model.estimate(Nanos(1_020_200_000)).unwrap();
        assert!(narrow.bound_ns < wide.bound_ns);
        assert_eq!(narrow.offset_ns, 1000);
        assert!(model.estimate(Nanos(61_020_200_000)).unwrap().bound_ns > narrow.bound_ns);
        assert_eq!(narrow.to_mine(Nanos(5_000)), Nanos(4_000));
    }

    /// Ten minutes apart, looks of 200 µs tell a drift of 200 ppm to a few ppm.
    #[test]
    fn drift_is_told_by_looks_that_lie_apart() {
        let mut model = Model::default();
        let truth = |t: u64| t + t / 5_000;
        for t in (0..=600).step_by(5).map(|s| 1_000_000_000 * (s + 1)) {
            let middle = Nanos(truth(t + 100_000));
            let probe = Probe {
                sent: Nanos(t),
                other_received: middle,
                other_sent: middle,
                received: Nanos(t + 200_000),
            };
            model.add(probe);
        }
        let drift =
            model.estimate(Nanos(601_000_200_000)).and_then(|e| e.drift).expect("looks that lie apart");
        assert!(drift.bound_ppb < 2_000, "{drift:?}");
        assert!((drift.ppb - 200_000).unsigned_abs() <= drift.bound_ppb, "{drift:?}");
    }
}
