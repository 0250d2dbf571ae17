//! A counter that is looked at now and then, and by how much it rose between two instants.

use std::collections::VecDeque;

use common::ids::Nanos;

/// Looks that are kept: ten a second for three seconds, and some.
const MOST_LOOKS: usize = 40;

/// The looks at a counter, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Counter(VecDeque<(Nanos, f64)>);

impl Counter {
    /// What it showed at `at`. Looks come in order; one that does not is passed over.
    pub(super) fn look(&mut self, at: Nanos, count: u64) {
        if self.0.back().is_some_and(|(last, _)| *last >= at) {
            return;
        }
        if self.0.len() == MOST_LOOKS {
            self.0.pop_front();
        }
        self.0.push_back((at, count as f64));
    }

    /// By how much it rose, a straight line between two looks taken for the truth. None where it was not looked at
    /// before the one instant or after the other.
    #[must_use]
    pub(super) fn rise(&self, from: Nanos, to: Nanos) -> Option<f64> {
        // A trial that began within the stretch: from there.
        let from = self.0.front().map_or(from, |(first, _)| from.max(*first)).min(to);
        Some((self.at(to)? - self.at(from)?).max(0.0))
    }

    fn at(&self, at: Nanos) -> Option<f64> {
        let after = self.0.partition_point(|(t, _)| *t < at);
        let (t1, v1) = *self.0.get(after)?;
        let Some((t0, v0)) = after.checked_sub(1).and_then(|i| self.0.get(i)).copied() else {
            return (t1 == at).then_some(v1);
        };
        let share = (at - t0).as_secs_f64() / (t1 - t0).as_secs_f64();
        Some(v0 + (v1 - v0) * share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_as_a_straight_line_between_two_looks() {
        let mut counter = Counter::default();
        let at = Nanos::from_millis;
        for (millis, count) in [(0, 0), (800, 8), (1_800, 28), (2_600, 36)] {
            counter.look(at(millis), count);
        }
        assert_eq!(counter.rise(at(0), at(1_000)), Some(12.0));
        assert_eq!(counter.rise(at(1_000), at(2_000)), Some(18.0));
        assert_eq!(counter.rise(at(2_000), at(3_000)), None, "nobody looked after that");
        (0..1_000).for_each(|i| counter.look(at(3_000 + i), i));
        assert_eq!(counter.0.len(), MOST_LOOKS);
    }
}
