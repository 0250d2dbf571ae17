//! The pacer: a thread that knows only instants.
//!
//! It sleeps in the kernel until a little before an arrival is due, by the lead that the trial has learnt
//! ([`super::lead`]), and tells the load thread to look out for it; without a lead it sleeps until it is due and says that.
//! It reads no stream and waits for nobody, so nothing that the engine does can move an arrival.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::clock::Clock;
use common::ids::Nanos;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;
use tokio::sync::mpsc;

use super::lead::Lead;
use super::run::Pace;

/// Longest sleep without a look at stop and lease.
const LOOK_UP: Nanos = Nanos(50_000_000);

/// Why pacing ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PaceEnd {
    /// Every arrival was announced.
    Complete,
    /// The agent's lease ran out: the coordinator cannot be reached any more and may have given this trial up.
    LeaseExpired,
    /// Somebody asked for an end.
    Stopped,
}

/// What ends pacing early, looked at before every arrival.
#[derive(Debug)]
pub struct Guard {
    stop: std::sync::atomic::AtomicBool,
    lease_until: Arc<AtomicU64>,
}

impl Guard {
    /// Holds while the boot-time clock is below `lease_until` and [`Guard::stop`] was not called.
    #[must_use]
    pub fn new(lease_until: Arc<AtomicU64>) -> Self {
        Self { stop: false.into(), lease_until }
    }

    /// Ends pacing at its next look.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Whether the lease has run out.
    #[must_use]
    pub fn lease_expired(&self, clock: &dyn Clock) -> bool {
        clock.boottime().0 >= self.lease_until.load(Ordering::Acquire)
    }

    fn check(&self, clock: &dyn Clock) -> Option<PaceEnd> {
        if self.stop.load(Ordering::Acquire) {
            return Some(PaceEnd::Stopped);
        }
        self.lease_expired(clock).then_some(PaceEnd::LeaseExpired)
    }
}

/// Announces each of `instants` (offsets from `start`, in order): a lead before it is due, or when it is due. Arrivals
/// that share an instant, or were missed together, are announced together.
pub fn pace(
    start: Nanos,
    instants: &[Nanos],
    lead: &Lead,
    guard: &Guard,
    clock: &dyn Clock,
    mut announce: impl FnMut(Pace),
) -> PaceEnd {
    let mut announced = 0;
    while let Some(&instant) = instants.get(announced) {
        let at = start + instant;
        let wake = at - lead.get();
        let slept = match sleep_until(wake, guard, clock) {
            Ok(slept) => slept,
            Err(end) => return end,
        };
        let now = clock.monotonic();
        if now < at {
            announced += instants[announced..].partition_point(|&i| i <= instant);
            announce(Pace::Soon { count: announced, at, wanted: wake });
        } else {
            if slept {
                // Woken too late for the load thread to learn it.
                lead.learn(wake, now);
            }
            announced += due_by(start, &instants[announced..], now).max(1);
            announce(Pace::Due(announced));
        }
    }
    PaceEnd::Complete
}

/// The same as a task, for a simulation: without a lead.
pub async fn pace_in_task(
    start: Nanos,
    instants: &[Nanos],
    guard: &Guard,
    clock: &dyn Clock,
    announce: &mpsc::Sender<Pace>,
) -> PaceEnd {
    let mut announced = 0;
    while let Some(&instant) = instants.get(announced) {
        let left = (start + instant) - clock.monotonic();
        if let Some(end) = guard.check(clock) {
            return end;
        }
        if left > Nanos::ZERO {
            tokio::time::sleep(left.min(LOOK_UP).to_duration()).await;
            continue;
        }
        announced += due_by(start, &instants[announced..], clock.monotonic()).max(1);
        let _ = announce.send(Pace::Due(announced)).await;
    }
    PaceEnd::Complete
}

/// How many of `instants` are due by now.
fn due_by(start: Nanos, instants: &[Nanos], now: Nanos) -> usize {
    instants.partition_point(|&i| start + i <= now)
}

/// Says whether there was anything to sleep for.
fn sleep_until(wake: Nanos, guard: &Guard, clock: &dyn Clock) -> Result<bool, PaceEnd> {
    let mut slept = false;
    loop {
        if let Some(end) = guard.check(clock) {
            return Err(end);
        }
        let now = clock.monotonic();
        if now >= wake {
            return Ok(slept);
        }
        sleep_to(wake.min(now + LOOK_UP));
        slept = true;
    }
}

fn sleep_to(instant: Nanos) {
    let at = Timespec {
        tv_sec: i64::try_from(instant.0 / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (instant.0 % 1_000_000_000) as _,
    };
    // A signal ends the sleep early: the caller's loop looks at the clock and sleeps again.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::clock::{ManualClock, SystemClock};

    fn forever() -> Arc<AtomicU64> {
        Arc::new(u64::MAX.into())
    }

    fn every(gap: u64, n: u64) -> Vec<Nanos> {
        (0..n).map(|i| Nanos(i / 3 * gap)).collect()
    }

    /// On the real clock, but only order and counts: nothing is due early, everything is announced, in order.
    #[test]
    fn nothing_is_due_early_and_nothing_is_left_out() {
        let clock = SystemClock;
        for (gap, has_lead) in [(6_000_000, true), (100_000, false)] {
            let instants = every(gap, 200);
            let start = clock.monotonic() + Nanos::from_millis(5);
            let (mut counts, mut soon) = (Vec::new(), 0);
            let lead = Lead::for_schedule(&instants);
            assert_eq!(lead.get() > Nanos::ZERO, has_lead);
            let end = pace(start, &instants, &lead, &Guard::new(forever()), &clock, |pace| {
                let now = clock.monotonic();
                counts.push(match pace {
                    Pace::Due(n) => {
                        assert!(now >= start + instants[n - 1], "arrival {} is not due", n - 1);
                        n
                    }
                    Pace::Soon { count, at, wanted } => {
                        assert_eq!(at, start + instants[count - 1]);
                        assert!(wanted < at && wanted <= now, "woken before it was wanted");
                        soon += 1;
                        count
                    }
                    Pace::Ended(end) => panic!("{end:?}"),
                });
            });
            assert_eq!(end, PaceEnd::Complete);
            assert_eq!(soon > 0, has_lead, "{soon} of them before they were due");
            assert!(counts.windows(2).all(|w| w[0] < w[1]) && counts.last() == Some(&200));
            assert!(
                counts.iter().all(|n| n % 3 == 0 || *n == 200),
                "arrivals of one instant are announced together"
            );
        }
    }

    /// Arrivals that were missed are all announced at once, and none is moved or dropped.
    #[test]
    fn missed_arrivals_are_announced_together() {
        let clock = ManualClock::at(Nanos(1_000));
        let instants: Vec<Nanos> = (0..5).map(Nanos).collect();
        let mut heard = Vec::new();
        let lead = Lead::for_schedule(&instants);
        pace(Nanos(0), &instants, &lead, &Guard::new(forever()), &clock, |pace| heard.push(pace));
        assert!(matches!(heard[..], [Pace::Due(5)]), "{heard:?}");
    }

    #[test]
    fn a_stop_or_an_expired_lease_ends_pacing_before_the_next_arrival() {
        let clock = ManualClock::at(Nanos(1_000));
        let ended = |guard: &Guard| {
            let lead = Lead::for_schedule(&[Nanos(0)]);
            pace(Nanos(0), &[Nanos(0)], &lead, guard, &clock, |pace| panic!("{pace:?}"))
        };
        assert_eq!(ended(&Guard::new(Arc::new(AtomicU64::new(1_000)))), PaceEnd::LeaseExpired);
        let guard = Guard::new(forever());
        guard.stop();
        assert_eq!(ended(&guard), PaceEnd::Stopped);
    }
}
