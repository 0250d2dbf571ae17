//! How early to be awake for an arrival, so that it is sent on time.
//!
//! Between the instant for which a thread asked to be woken and the load thread's first look at the clock lie the kernel's
//! timer, two threads' turns on a core and whatever the load thread is doing: tens to hundreds of microseconds. So the pacer
//! asks to be woken so much earlier, says so at once, and the load thread waits for the rest. It waits by yielding: between
//! two looks at the clock it reads what streams have brought, and so delays nothing (see [`super::run`]).
//!
//! (Measured for the design on a virtual machine: sleeping exactly to the deadline is 50–150 µs late at the median; being
//! awake 150–600 µs before is on time at the median. Longer leads only served the last per cent, and cost CPU time that is
//! charged to every event.)

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use common::ids::Nanos;

/// No lead is longer: what is later than that is not the kernel's usual self.
const MAX: Nanos = Nanos(300_000);
/// No lead is shorter, but for none: kernels are rarely quicker.
const MIN: Nanos = Nanos(40_000);
const START: Nanos = Nanos(150_000);
/// Waiting costs the load thread no more than an eighth of a core on average.
const SHARE: u64 = 8;

/// The lead of one trial. Read by the pacer, taught by the load thread and, when it overslept, by the pacer.
#[derive(Debug)]
pub struct Lead {
    ns: AtomicU64,
    max: Nanos,
}

impl Lead {
    /// For arrivals at `instants`. None where they are so dense that the load thread would wait all the time: it is
    /// hardly ever asleep then.
    #[must_use]
    pub fn for_schedule(instants: &[Nanos]) -> Self {
        let span = instants.last().copied().unwrap_or_default();
        let gap = span.0 / (instants.len() as u64).max(1);
        let max = Nanos(gap / SHARE).min(MAX);
        let max = if max < MIN { Nanos::ZERO } else { max };
        Self { ns: START.min(max).0.into(), max }
    }

    /// How early to wake; zero for no lead at all.
    #[must_use]
    pub fn get(&self) -> Nanos {
        // Relaxed: a number that is some microseconds old is as good.
        Nanos(self.ns.load(Relaxed))
    }

    /// The pacer wanted to wake at `wanted`, and the load thread heard of it at `heard`; or the pacer itself, where that was
    /// too late to say anything in advance. Up quickly, down slowly: a lead
    /// that is too short makes an arrival late, one that is too long only costs some microseconds.
    pub fn learn(&self, wanted: Nanos, heard: Nanos) {
        let lead = self.get();
        let needed = Nanos((heard - wanted).0 * 3 / 2);
        let next = if needed > lead { needed } else { Nanos(lead.0 - lead.0 / 256).max(MIN) };
        self.ns.store(next.min(self.max).0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(gap: u64) -> Lead {
        Lead::for_schedule(&(1..=1000).map(|i| Nanos(i * gap)).collect::<Vec<_>>())
    }

    #[test]
    fn it_follows_the_kernel_within_its_bounds() {
        let lead = every(10_000_000);
        lead.learn(Nanos(0), Nanos(10_000_000));
        assert_eq!(lead.get(), MAX);
        (0..10_000).for_each(|_| lead.learn(Nanos(0), Nanos(1)));
        assert_eq!(lead.get(), MIN);
        lead.learn(Nanos(1_000), Nanos(101_000));
        assert_eq!(lead.get(), Nanos(150_000));
    }

    #[test]
    fn waiting_takes_no_more_than_its_share_and_dense_arrivals_have_none() {
        for gap in [400_000, 1_000_000, 2_000_000] {
            let lead = every(gap);
            lead.learn(Nanos(0), Nanos(10_000_000));
            assert_eq!(lead.get(), Nanos(gap / SHARE));
        }
        let dense = every(100_000);
        dense.learn(Nanos(0), Nanos(10_000_000));
        assert_eq!(dense.get(), Nanos::ZERO);
        assert_eq!(Lead::for_schedule(&[]).get(), Nanos::ZERO);
    }
}
