//! The lease: how long an agent may send without hearing from its coordinator, and when the coordinator may take it for
//! lost.
//!
//! Two pure halves of one promise: when the coordinator says that an agent is lost, that agent has stopped sending. The
//! [`Holder`] counts from when it *sent* a heartbeat that was answered, never from the answer: the coordinator heard it
//! later than that, so its count ends later. On top of that comes [`MARGIN`], for clocks that do not run alike and for
//! an agent that has to notice. Boot time on both sides: a host that slept must not believe that its lease still holds.
//!
//! What this cannot give: a process that is stopped between its look at the lease and its write sends late. Such a send
//! shows in its stamp and invalidates the trial.
//!
//! (C. Gray, D. Cheriton, "Leases: an efficient fault-tolerant mechanism for distributed file cache consistency", 1989.)

use std::collections::VecDeque;

use crate::ids::Nanos;

/// After the lease, until an agent is taken for lost: it must have noticed first.
pub const MARGIN: Nanos = Nanos(1_500_000_000);

/// Heartbeats without an answer are remembered this far back.
const REMEMBERED: usize = 64;

/// The agent's half.
#[derive(Debug, Clone)]
pub struct Holder {
    length: Nanos,
    until: Nanos,
    /// Heartbeats that may still be answered: number and when it was sent.
    sent: VecDeque<(u64, Nanos)>,
    last: u64,
}

impl Holder {
    /// A lease of `length`, granted in answer to a hello that was sent then.
    #[must_use]
    pub fn new(length: Nanos, hello_sent: Nanos) -> Self {
        Self { length, until: hello_sent + length, sent: VecDeque::new(), last: 0 }
    }

    /// A heartbeat is about to be sent: gives its number, from 1.
    pub fn beat(&mut self, now: Nanos) -> u64 {
        self.last += 1;
        self.sent.push_back((self.last, now));
        if self.sent.len() > REMEMBERED {
            self.sent.pop_front();
        }
        self.last
    }

    /// A heartbeat was answered. An answer to one that is forgotten, or was never sent, means nothing.
    pub fn answered(&mut self, number: u64) {
        if let Some(&(_, sent)) = self.sent.iter().find(|(n, _)| *n == number) {
            self.until = self.until.max(sent + self.length);
            self.sent.retain(|(n, _)| *n > number);
        }
    }

    /// When the lease runs out.
    #[must_use]
    pub fn until(&self) -> Nanos {
        self.until
    }
}

/// The coordinator's half: whether an agent of which something was heard last then is lost.
#[must_use]
pub fn is_lost(length: Nanos, last_heard: Nanos, now: Nanos) -> bool {
    now - last_heard > length + MARGIN
}

/// How long it takes from now until an agent of which something was heard last then is lost: until then it may send.
#[must_use]
pub fn until_lost(length: Nanos, last_heard: Nanos, now: Nanos) -> Nanos {
    // One more, because at the very end it is not lost yet.
    (last_heard + length + MARGIN + Nanos(1)) - now
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LENGTH: Nanos = Nanos::from_secs(15);

    /// What happens to one heartbeat: how long after the one before it is sent, how long it travels, how long its answer
    /// does; a way that is none is lost. Milliseconds.
    type Beat = (u64, Option<u64>, Option<u64>);

    fn beats() -> impl Strategy<Value = Vec<Beat>> {
        let way = || prop::option::weighted(0.7, 0u64..20_000);
        prop::collection::vec((0u64..6_000, way(), way()), 1..60)
    }

    /// A clock that runs `ppm` faster than true time.
    fn shown(true_ns: u64, ppm: i64) -> Nanos {
        Nanos((true_ns as i128 + i128::from(true_ns) * i128::from(ppm) / 1_000_000) as u64)
    }

    /// Plays heartbeats and their answers in the order in which they arrive. Gives, in true time, the first instant from
    /// which on the coordinator takes the agent for lost, and the one at which the agent stops sending.
    fn play(beats: &[Beat], ppm: (i64, i64), counted_from_receipt: bool) -> (u64, u64) {
        let (agent, coordinator) = ppm;
        let mut events = Vec::new();
        let mut sent = 0u64;
        for (number, (wait, there, back)) in (1u64..).zip(beats) {
            sent += wait * 1_000_000;
            events.push((sent, 0, number));
            let Some(there) = there else { continue };
            events.push((sent + there * 1_000_000, 1, number));
            let Some(back) = back else { continue };
            events.push((sent + (there + back) * 1_000_000, 2, number));
        }
        events.sort_unstable();
        let mut holder = Holder::new(LENGTH, Nanos(0));
        let (mut heard, mut receipt) = (Nanos(0), LENGTH);
        for (at, kind, number) in events {
            // Whoever is lost is not taken back by what comes later.
            if is_lost(LENGTH, heard, shown(at, coordinator)) {
                break;
            }
            match kind {
                0 => assert_eq!(holder.beat(shown(at, agent)), number),
                1 => heard = heard.max(shown(at, coordinator)),
                _ => {
                    holder.answered(number);
                    receipt = receipt.max(shown(at, agent) + LENGTH);
                }
            }
        }
        let until = if counted_from_receipt { receipt } else { holder.until() };
        let in_true_time =
            |n: Nanos, ppm: i64| (n.0 as i128 * 1_000_000 / i128::from(1_000_000 + ppm)) as u64;
        (in_true_time(heard + LENGTH + MARGIN, coordinator), in_true_time(until, agent))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Whatever is lost or late on the way, and clocks as far apart as Linux lets them run: who is taken for lost
        /// has stopped.
        #[test]
        fn who_is_lost_has_stopped(beats in beats(), agent in -500i64..=500, coordinator in -500i64..=500) {
            let (lost, stops) = play(&beats, (agent, coordinator), false);
            prop_assert!(stops <= lost, "it stops {} ms after it is lost", (stops - lost) / 1_000_000);
        }

        /// A lease is never longer than its length after the last heartbeat, and never shrinks.
        #[test]
        fn it_grows_by_what_was_sent_alone(steps in prop::collection::vec((0u64..3_000, 0u64..80), 1..200)) {
            let (mut now, mut holder) = (Nanos(0), Holder::new(LENGTH, Nanos(0)));
            for (wait, answer) in steps {
                now = now + Nanos::from_millis(wait);
                let before = holder.until();
                holder.beat(now);
                holder.answered(answer);
                prop_assert!(holder.until() >= before && holder.until() <= now + LENGTH);
            }
        }
    }

    proptest! {
        #[test]
        fn who_is_waited_for_is_lost_then_and_not_before(heard in 0u64..90_000, later in 0u64..90_000) {
            let (heard, now) = (Nanos::from_millis(heard), Nanos::from_millis(heard + later));
            let left = until_lost(LENGTH, heard, now);
            prop_assert!(is_lost(LENGTH, heard, now + left));
            prop_assert_eq!(left == Nanos::ZERO, is_lost(LENGTH, heard, now));
            prop_assert!(left == Nanos::ZERO || !is_lost(LENGTH, heard, now + left - Nanos(1)));
        }
    }

    /// The test above can fail: an answer that takes long grants too much if the lease is counted from its receipt.
    #[test]
    fn counted_from_receipt_it_would_outlast_the_loss() {
        let beats = [(1_000, Some(10), Some(9_000))];
        let (lost, stops) = play(&beats, (0, 0), true);
        assert!(stops > lost);
        let (lost, stops) = play(&beats, (0, 0), false);
        assert!(stops <= lost);
    }
}
