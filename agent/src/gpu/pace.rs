//! How often to read, and when.
//!
//! A GPU's energy counter stands still between its own updates, so it tells nothing to read it more often than a few
//! times an update, and much less than that loses the edges of a window. Its period is found by watching it: the
//! counter moves also when the GPU idles, which power need not. Pure; threads and clocks are the sampler's.

use common::ids::Nanos;

/// Readings in each period of the counter.
const A_PERIOD: u64 = 5;

/// Between two readings when no counter was seen to move: right for a period of 100 ms, which is what recent GPUs have.
pub const USUAL: Nanos = Nanos::from_millis(20);

/// A reading costs the GPU's driver something: no more often than this.
const SHORTEST: Nanos = Nanos::from_millis(5);

/// Power is read with the counter, and its window may be a second: no less often than this.
const LONGEST: Nanos = Nanos::from_millis(100);

/// Steps that must have been seen before a period is believed.
const ENOUGH: usize = 5;

/// Between two readings while the period is looked for.
pub const LOOKING: Nanos = Nanos::from_millis(3);

/// When a counter moved.
#[derive(Debug, Clone, Default)]
pub struct Steps {
    last: Option<u64>,
    moved: Option<Nanos>,
    gaps: Vec<Nanos>,
}

impl Steps {
    /// Takes a reading in.
    pub fn read(&mut self, at: Nanos, counter: u64) {
        match self.last {
            Some(last) if counter > last => {
                self.gaps.extend(self.moved.map(|moved| at - moved));
                self.moved = Some(at);
            }
            // It began again: the time between is none of its periods.
            Some(last) if counter < last => self.moved = None,
            _ => {}
        }
        self.last = Some(counter);
    }

    /// The median time between two steps; none of too few.
    #[must_use]
    pub fn period(&self) -> Option<Nanos> {
        if self.gaps.len() < ENOUGH {
            return None;
        }
        let mut gaps = self.gaps.clone();
        let middle = gaps.len() / 2;
        Some(*gaps.select_nth_unstable(middle).1)
    }
}

/// Between two readings, for counters with these periods: the quickest decides.
#[must_use]
pub fn interval(periods: impl IntoIterator<Item = Nanos>) -> Nanos {
    let quickest = periods.into_iter().min();
    quickest.map_or(USUAL, |period| Nanos(period.0 / A_PERIOD).clamp(SHORTEST, LONGEST))
}

/// Instants at equal distances. One that has passed when it is asked for is left out, and counted: readings that are
/// made up for would be late and close together, and say nothing more.
#[derive(Debug, Clone)]
pub struct Ticks {
    next: Nanos,
    every: Nanos,
    skipped: u64,
}

impl Ticks {
    /// The first is a distance after `start`.
    #[must_use]
    pub fn new(start: Nanos, every: Nanos) -> Self {
        let every = every.max(Nanos(1));
        Self { next: start + every, every, skipped: 0 }
    }

    /// The next instant that has not passed.
    pub fn next(&mut self, now: Nanos) -> Nanos {
        let missed = now.since(self.next).0.div_ceil(self.every.0);
        self.skipped += missed;
        let due = self.next + Nanos(missed * self.every.0);
        self.next = due + self.every;
        due
    }

    /// Instants that were left out.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A counter that moves every `period` ms at an idle GPU's power, polled every `poll` ms.
    fn watched(period: u64, poll: u64, seconds: u64) -> Steps {
        let mut steps = Steps::default();
        for t in (0..seconds * 1000).step_by(poll as usize) {
            steps.read(Nanos(t * MS), 1_000_000 + t / period * period * 70);
        }
        steps
    }

    #[test]
    fn the_period_of_a_counter_is_found_at_idle() {
        for period in [20, 100, 250] {
            let found = watched(period, 3, 3).period().unwrap();
            assert!(found.0.abs_diff(period * MS) <= 3 * MS, "{period}: {found:?}");
        }
    }

    #[test]
    fn the_quickest_counter_decides_within_bounds() {
        let ms = |ms| Nanos(ms * MS);
        assert_eq!(interval([ms(100), ms(250)]), ms(20));
        assert_eq!(interval([]), USUAL);
        assert_eq!(interval([ms(1)]), SHORTEST);
        assert_eq!(interval([ms(5000)]), LONGEST);
    }

    #[test]
    fn few_steps_say_nothing_and_a_reset_is_no_step() {
        assert_eq!(watched(1000, 3, 3).period(), None);
        let mut steps = watched(100, 5, 2);
        let before = steps.gaps.len();
        steps.read(Nanos(9_000 * MS), 5);
        steps.read(Nanos(9_100 * MS), 12);
        assert_eq!(steps.gaps.len(), before, "the time to the first step after a reset is not known");
    }

    #[test]
    fn late_ticks_are_left_out_and_counted() {
        let mut ticks = Ticks::new(Nanos(0), Nanos(10));
        assert_eq!(ticks.next(Nanos(0)), Nanos(10));
        assert_eq!(ticks.next(Nanos(12)), Nanos(20));
        assert_eq!(ticks.next(Nanos(30)), Nanos(30), "just in time");
        assert_eq!((ticks.next(Nanos(41)), ticks.skipped()), (Nanos(50), 1));
        assert_eq!((ticks.next(Nanos(95)), ticks.skipped()), (Nanos(100), 5), "60, 70, 80 and 90 are gone");
        assert_eq!(ticks.next(Nanos(100)), Nanos(110));
    }
}
