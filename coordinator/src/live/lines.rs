//! Time lines of bounded length: an hour at a point a second, then thinned.
//!
//! Owns how history is kept. It must never lose an extreme: where two seconds become one point, that has the lowest and
//! the highest of both, so that a spike of an hour ago is still drawn as high as it was. A property test holds that.

use std::collections::VecDeque;

use super::point::{Point, Values};

/// Points that are kept: an hour at one a second.
pub const MOST_POINTS: usize = 3600;

/// The time lines of a run.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    points: VecDeque<Point>,
    /// Points that were ever closed: the number of the last one.
    closed: u64,
    /// Up to this number points are not what they were when they were closed.
    thinned: u64,
}

impl Lines {
    /// The next second, which begins `at_seconds` after the live view's start.
    pub fn push(&mut self, at_seconds: u32, trial: Option<u32>, values: Values) {
        self.closed += 1;
        let (number, low, high) = (self.closed, values, values);
        self.points.push_back(Point { number, at_seconds, span_seconds: 1, trial, low, high });
        if self.points.len() > MOST_POINTS {
            self.thin();
        }
    }

    /// Makes one of every two points of the older half.
    fn thin(&mut self) {
        let old = MOST_POINTS / 2;
        let recent = self.points.split_off(old);
        let old: Vec<Point> = self.points.drain(..).collect();
        self.points.extend(old.chunks(2).map(|pair| match pair {
            [a, b] => a.with(b),
            rest => rest[0],
        }));
        self.thinned = self.points.back().map_or(0, |p| p.number);
        self.points.extend(recent);
    }

    /// All of them, oldest first.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Point> + ExactSizeIterator {
        self.points.iter()
    }

    /// The number of the last one; 0 before the first.
    #[must_use]
    pub fn last_number(&self) -> u64 {
        self.closed
    }

    /// Those after the point of this number; none where the reader's older ones are not what is kept any more, and
    /// where that number was never given.
    #[must_use]
    pub fn since(&self, number: u64) -> Option<Vec<Point>> {
        (self.thinned..=self.closed).contains(&number).then(|| {
            let known = self.points.partition_point(|p| p.number <= number);
            self.points.range(known..).copied().collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::point::Metric;
    use super::*;

    fn values(v: Option<f64>) -> Values {
        let mut values = Values::default();
        values.set(Metric::TtftP99, v);
        values
    }

    proptest! {
        // Each is thousands of seconds.
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// However long it goes on, it is bounded, has a place for every second, and its extremes are the true ones.
        #[test]
        fn thinning_keeps_the_extremes_and_covers_all(
            seconds in prop::collection::vec(prop::option::of(0.0..1e3f64), 1..MOST_POINTS * 3)
        ) {
            let mut lines = Lines::default();
            for (at, v) in (0..).zip(&seconds) {
                lines.push(at, None, values(*v));
            }
            prop_assert!(lines.all().len() <= MOST_POINTS);
            let extreme = |of: fn(f64, f64) -> f64, all: &mut dyn Iterator<Item = f64>| all.reduce(of);
            let low = extreme(f64::min, &mut lines.all().filter_map(|p| p.low.get(Metric::TtftP99)));
            let high = extreme(f64::max, &mut lines.all().filter_map(|p| p.high.get(Metric::TtftP99)));
            prop_assert_eq!(low, extreme(f64::min, &mut seconds.iter().flatten().copied()));
            prop_assert_eq!(high, extreme(f64::max, &mut seconds.iter().flatten().copied()));
            let mut next = 0;
            for point in lines.all() {
                prop_assert_eq!(point.at_seconds, next);
                next += point.span_seconds;
            }
            prop_assert_eq!(next as usize, seconds.len());
        }

        /// A reader who comes back gets exactly what it lacks, or is told to begin anew.
        #[test]
        fn a_reader_gets_what_it_lacks(n in 1..MOST_POINTS * 2, known in 0..MOST_POINTS * 2 + 2) {
            let mut lines = Lines::default();
            (0..n).for_each(|at| lines.push(at as u32, None, values(Some(at as f64))));
            match lines.since(known as u64) {
                None => prop_assert!(known > n || (known as u64) < lines.thinned),
                Some(news) => {
                    let numbers: Vec<u64> = news.iter().map(|p| p.number).collect();
                    prop_assert_eq!(numbers, (known as u64 + 1..=n as u64).collect::<Vec<_>>());
                    prop_assert!(news.iter().all(|p| p.span_seconds == 1));
                }
            }
        }
    }
}
