//! The pacer: a thread that knows only instants.
//!
//! It sleeps in the kernel until a little before an arrival is due, spins for the rest on its own thread, and tells
//! the load thread how many arrivals are due by now. It reads no stream and waits for nobody, so nothing that the
//! engine does can move an arrival. How early it wakes adapts to how late the kernel woke it before.
//!
//! (Measured for the design on a virtual machine: sleeping exactly to the deadline is 50–150 µs late at the median;
//! waking 150–600 µs early and spinning is on time at the median.)

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::clock::Clock;
use common::ids::Nanos;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;
use tokio::sync::mpsc;

use super::run::Pace;

/// Bounds of the lead, from the measurements behind the design.
const LEAD_MIN: Nanos = Nanos(100_000);
const LEAD_MAX: Nanos = Nanos(600_000);
const LEAD_START: Nanos = Nanos(300_000);

/// With arrivals closer than this on average the pacer would spin all the time, and burn the core that the load
/// thread may need: it then sleeps only.
const SPIN_WORTH_GAP: Nanos = Nanos(200_000);

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

/// How early to wake: follows how late the kernel wakes this thread.
#[derive(Debug)]
struct Lead {
    lead: Nanos,
}

impl Lead {
    fn for_schedule(instants: &[Nanos]) -> Self {
        let span = instants.last().copied().unwrap_or_default();
        let gap = Nanos(span.0 / (instants.len() as u64).max(1));
        // A schedule of one instant has no gaps to spin in.
        let spin = gap >= SPIN_WORTH_GAP;
        Self { lead: if spin { LEAD_START } else { Nanos::ZERO } }
    }

    /// The thread wanted to wake at `wanted` and woke at `woke`. Up quickly, down slowly: a lead that is too short
    /// makes an arrival late, one that is too long only burns some microseconds.
    fn learn(&mut self, wanted: Nanos, woke: Nanos) {
        if self.lead == Nanos::ZERO {
            return;
        }
        let needed = Nanos((woke - wanted).0 * 3 / 2);
        self.lead = if needed > self.lead {
            needed.min(LEAD_MAX)
        } else {
            Nanos(self.lead.0 - self.lead.0 / 256).max(LEAD_MIN)
        };
    }
}

/// Announces each of `instants` (offsets from `start`, in order) when it is due, by calling `due` with the number of
/// arrivals due so far. Arrivals that share an instant, or were missed together, are announced together.
pub fn pace(
    start: Nanos,
    instants: &[Nanos],
    guard: &Guard,
    clock: &dyn Clock,
    mut due: impl FnMut(usize),
) -> PaceEnd {
    let mut lead = Lead::for_schedule(instants);
    let mut announced = 0;
    while let Some(&instant) = instants.get(announced) {
        let deadline = start + instant;
        if let Some(end) = sleep_until(deadline, &mut lead, guard, clock) {
            return end;
        }
        // The deadline has passed, so that is at least one.
        announced += due_by(start, &instants[announced..], clock.monotonic()).max(1);
        due(announced);
    }
    PaceEnd::Complete
}

/// The same as a task, for a simulation: nobody spins there.
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

fn sleep_until(deadline: Nanos, lead: &mut Lead, guard: &Guard, clock: &dyn Clock) -> Option<PaceEnd> {
    loop {
        let now = clock.monotonic();
        if now >= deadline {
            return guard.check(clock);
        }
        let wake = deadline - lead.lead;
        if now >= wake {
            break;
        }
        if let Some(end) = guard.check(clock) {
            return Some(end);
        }
        let wanted = wake.min(now + LOOK_UP);
        sleep_to(wanted);
        lead.learn(wanted, clock.monotonic());
    }
    while clock.monotonic() < deadline {
        std::hint::spin_loop();
    }
    guard.check(clock)
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

    /// On the real clock, but only order and counts: nothing is announced early, everything is announced.
    #[test]
    fn nothing_is_announced_early_and_nothing_is_left_out() {
        let clock = SystemClock;
        let instants: Vec<Nanos> = (0..200).map(|i| Nanos(i / 3 * 700_000)).collect();
        let start = clock.monotonic() + Nanos::from_millis(5);
        let guard = Guard::new(forever());
        let mut counts = Vec::new();
        let end = pace(start, &instants, &guard, &clock, |n| {
            let now = clock.monotonic();
            assert!(now >= start + instants[n - 1], "arrival {} was announced early", n - 1);
            counts.push(n);
        });
        assert_eq!(end, PaceEnd::Complete);
        assert!(counts.windows(2).all(|w| w[0] < w[1]) && counts.last() == Some(&200));
        assert!(
            counts.iter().all(|n| n % 3 == 0 || *n == 200),
            "arrivals of one instant are announced together"
        );
    }

    /// Arrivals that were missed are all announced at once, and none is moved or dropped.
    #[test]
    fn missed_arrivals_are_announced_together() {
        let clock = ManualClock::at(Nanos(1_000));
        let instants: Vec<Nanos> = (0..5).map(Nanos).collect();
        let mut counts = Vec::new();
        pace(Nanos(0), &instants, &Guard::new(forever()), &clock, |n| counts.push(n));
        assert_eq!(counts, [5]);
    }

    #[test]
    fn a_stop_or_an_expired_lease_ends_pacing_before_the_next_arrival() {
        let clock = ManualClock::at(Nanos(1_000));
        let guard = Guard::new(Arc::new(AtomicU64::new(1_000)));
        assert_eq!(
            pace(Nanos(0), &[Nanos(0)], &guard, &clock, |_| panic!("announced")),
            PaceEnd::LeaseExpired
        );
        let guard = Guard::new(forever());
        guard.stop();
        assert_eq!(pace(Nanos(0), &[Nanos(0)], &guard, &clock, |_| panic!("announced")), PaceEnd::Stopped);
    }

    #[test]
    fn the_lead_follows_the_kernel_within_its_bounds() {
        let mut lead = Lead { lead: LEAD_START };
        lead.learn(Nanos(0), Nanos(10_000_000));
        assert_eq!(lead.lead, LEAD_MAX);
        (0..10_000).for_each(|_| lead.learn(Nanos(0), Nanos(1)));
        assert_eq!(lead.lead, LEAD_MIN);
        let dense: Vec<Nanos> = (0..1000).map(|i| Nanos(i * 1_000)).collect();
        let mut none = Lead::for_schedule(&dense);
        none.learn(Nanos(0), Nanos(10_000_000));
        assert_eq!(none.lead, Nanos::ZERO);
    }
}
