//! One signal over a window: what lies between its readings, and how far apart they are.
//!
//! Owns the arithmetic that every signal needs: the integral and mean of a gauge, the difference of a counter, the
//! largest gap. Times are seconds since the window's start, so that an `f64` holds them to the nanosecond. Readings
//! may come in any order and more than once. It must never invent a value far from a reading: at an edge the nearest
//! one is held for a stated time and no longer.

/// Readings of one signal in order of time.
#[derive(Debug, Clone, Default)]
pub(super) struct Points {
    points: Vec<(f64, f64)>,
    /// Length of the window in seconds.
    length: f64,
}

/// An integral over the window, with the values at its edges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Integral {
    /// Value × seconds.
    pub sum: f64,
    /// At the start and at the end.
    pub edges: [f64; 2],
    /// Seconds between the readings round the start, and round the end; where there is only one, twice as far.
    pub edge_gaps: [f64; 2],
    /// A value was held beyond the first or last reading.
    pub held: bool,
}

/// What a counter amounts to over a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Delta {
    /// It rose by this much.
    Rose(f64),
    /// It went back: whoever counts began anew.
    WentBack,
    /// There are no readings near an edge.
    Unknown,
}

impl Delta {
    pub(super) fn known(self) -> Option<f64> {
        if let Self::Rose(by) = self { Some(by) } else { None }
    }
}

/// A gap that leaves the window incomplete: longer than 1 s, or than 5 % of it.
pub(super) fn too_long(gap_seconds: f64, window_seconds: f64) -> bool {
    gap_seconds > LONGEST_GAP_SECONDS || gap_seconds > LONGEST_GAP_SHARE * window_seconds
}

/// A longer stretch without a reading leaves a window incomplete.
pub(super) const LONGEST_GAP_SECONDS: f64 = 1.0;
/// The same as a share of the window.
pub(super) const LONGEST_GAP_SHARE: f64 = 0.05;

impl Points {
    /// Takes (seconds since the window's start, value) in any order. Of two at the same time the first given stays.
    pub(super) fn new(points: impl IntoIterator<Item = (f64, f64)>, window_seconds: f64) -> Self {
        let mut points: Vec<(f64, f64)> = points.into_iter().collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by(|later, first| later.0 == first.0);
        Self { points, length: window_seconds }
    }

    /// Those in the window, edges included.
    pub(super) fn inside(&self) -> &[(f64, f64)] {
        let start = self.points.partition_point(|p| p.0 < 0.0);
        let end = self.points.partition_point(|p| p.0 <= self.length);
        self.points.get(start..end).unwrap_or_default()
    }

    /// Those in the window with the nearest outside each edge.
    fn around(&self) -> &[(f64, f64)] {
        let start = self.points.partition_point(|p| p.0 <= 0.0).saturating_sub(1);
        let end = (self.points.partition_point(|p| p.0 < self.length) + 1).min(self.points.len());
        self.points.get(start..end).unwrap_or_default()
    }

    /// Values in the window.
    pub(super) fn values(&self) -> impl Iterator<Item = f64> {
        self.inside().iter().map(|p| p.1)
    }

    /// Smallest value in the window.
    pub(super) fn min(&self) -> Option<f64> {
        self.values().reduce(f64::min)
    }

    /// Largest value in the window.
    pub(super) fn max(&self) -> Option<f64> {
        self.values().reduce(f64::max)
    }

    /// Largest value of all, outside the window too.
    pub(super) fn highest(&self) -> Option<f64> {
        self.points.iter().map(|p| p.1).reduce(f64::max)
    }

    /// The longest part of the window without a reading; all of it when there is none.
    pub(super) fn largest_gap(&self) -> f64 {
        largest_gap(self.inside().iter().map(|p| p.0), self.length)
    }

    /// The value at `t`, linear between readings, the nearest one for at most `hold` seconds beyond them; with the
    /// seconds between the two readings.
    fn at(&self, t: f64, hold: f64) -> Option<(f64, f64, bool)> {
        let next = self.points.partition_point(|p| p.0 < t);
        let after = self.points.get(next).copied();
        let before = next.checked_sub(1).and_then(|i| self.points.get(i)).copied();
        match (before, after) {
            (Some(a), Some(b)) => Some((a.1 + (b.1 - a.1) * (t - a.0) / (b.0 - a.0), b.0 - a.0, false)),
            (None, Some(b)) if b.0 == t => Some((b.1, 0.0, false)),
            (Some(p), None) | (None, Some(p)) => {
                let beyond = (p.0 - t).abs();
                (beyond <= hold).then_some((p.1, 2.0 * beyond, true))
            }
            (None, None) => None,
        }
    }

    /// The integral over the window by the trapezoid rule; none when an edge is further than `hold` seconds from the
    /// readings.
    pub(super) fn integral(&self, hold: f64) -> Option<Integral> {
        let (first, first_gap, first_held) = self.at(0.0, hold)?;
        let (last, last_gap, last_held) = self.at(self.length, hold)?;
        let line =
            [(0.0, first)].into_iter().chain(self.inside().iter().copied()).chain([(self.length, last)]);
        Some(Integral {
            sum: area(line),
            edges: [first, last],
            edge_gaps: [first_gap, last_gap],
            held: first_held || last_held,
        })
    }

    /// The mean over that part of the window that lies between readings; of a single reading, its value.
    pub(super) fn mean(&self) -> Option<f64> {
        let end = |t: f64| self.at(t, 0.0).map(|(v, ..)| (t, v));
        let line: Vec<(f64, f64)> =
            end(0.0).into_iter().chain(self.inside().iter().copied()).chain(end(self.length)).collect();
        let (first, last) = (line.first()?, line.last()?);
        let covered = last.0 - first.0;
        if covered > 0.0 { Some(area(line.iter().copied()) / covered) } else { Some(first.1) }
    }

    /// Seconds of the window in which the reading before was at least `threshold`; a stretch longer than
    /// [`LONGEST_GAP_SECONDS`] counts for nothing.
    pub(super) fn seconds_at_least(&self, threshold: f64) -> f64 {
        let clip = |t: f64| t.clamp(0.0, self.length);
        let pairs = self.points.iter().zip(self.points.iter().skip(1));
        pairs
            .filter(|(a, b)| a.1 >= threshold && b.0 - a.0 <= LONGEST_GAP_SECONDS)
            .map(|(a, b)| clip(b.0) - clip(a.0))
            .sum()
    }

    /// By how much a counter rose from edge to edge, linear between readings. Beyond the first and last reading it
    /// is taken as still, for no longer than a gap may be.
    pub(super) fn delta(&self) -> Delta {
        let around = self.around();
        if around.iter().zip(around.iter().skip(1)).any(|(a, b)| b.1 < a.1) {
            return Delta::WentBack;
        }
        let hold = LONGEST_GAP_SECONDS.min(LONGEST_GAP_SHARE * self.length);
        match (self.at(0.0, hold), self.at(self.length, hold)) {
            (Some(first), Some(last)) => Delta::Rose((last.0 - first.0).max(0.0)),
            _ => Delta::Unknown,
        }
    }

    /// Those in the window with the last before it: what held in it, of what holds until it changes.
    pub(super) fn held(&self) -> &[(f64, f64)] {
        let start = self.points.partition_point(|p| p.0 <= 0.0).saturating_sub(1);
        let end = self.points.partition_point(|p| p.0 <= self.length);
        self.points.get(start..end).unwrap_or_default()
    }

    /// By how much a count of rare events rose, from the last reading before the window (else the first in it) to the
    /// last in it: events are whole, so nothing is interpolated. None without two readings, or when it went back.
    pub(super) fn change(&self) -> Option<f64> {
        let readings = self.held();
        let back = readings.iter().zip(readings.iter().skip(1)).any(|(a, b)| b.1 < a.1);
        match (readings.first(), readings.last()) {
            (Some(first), Some(last)) if readings.len() > 1 && !back => Some(last.1 - first.1),
            _ => None,
        }
    }
}

/// The longest part of `[0, length]` without one of `stamps`, which are in order.
pub(super) fn largest_gap(stamps: impl Iterator<Item = f64>, length: f64) -> f64 {
    let mut last = 0.0;
    let mut largest = 0.0_f64;
    for t in stamps.map(|t| t.clamp(0.0, length)).chain([length]) {
        largest = largest.max(t - last);
        last = t;
    }
    largest
}

/// The area under a line through points in order of time.
fn area(line: impl Iterator<Item = (f64, f64)>) -> f64 {
    let mut last: Option<(f64, f64)> = None;
    let mut sum = 0.0;
    for (t, v) in line {
        if let Some((before, value)) = last {
            sum += (t - before) * (v + value) / 2.0;
        }
        last = Some((t, v));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_repeats_do_not_matter() {
        let line = [(2.0, 4.0), (-1.0, 1.0), (0.5, 2.5), (2.0, 4.0), (-1.0, 1.0)];
        let p = Points::new(line, 1.5);
        // The line is 2 + t: from 0 to 1.5 it is 3 + 1.125.
        assert_eq!(p.integral(0.0).unwrap().sum, 4.125);
        assert_eq!(p.mean(), Some(2.75));
        assert_eq!(p.delta(), Delta::Rose(1.5));
        assert_eq!((p.largest_gap(), p.inside().len()), (1.0, 1));
    }

    #[test]
    fn nothing_is_invented_far_from_a_reading() {
        let p = Points::new([(1.0, 5.0), (9.0, 5.0)], 10.0);
        assert_eq!(p.integral(0.9), None);
        assert!(p.integral(1.0).unwrap().held);
        assert_eq!(p.delta(), Delta::Unknown);
        assert_eq!((p.mean(), p.largest_gap()), (Some(5.0), 8.0));
        assert_eq!(p.seconds_at_least(5.0), 0.0);
        let none = Points::new([], 10.0);
        assert_eq!((none.mean(), none.integral(9.0), none.largest_gap()), (None, None, 10.0));
    }

    #[test]
    fn a_counter_that_went_back_is_told_only_where_it_touches_the_window() {
        let before = Points::new([(-2.0, 9.0), (-1.0, 1.0), (1.0, 3.0), (3.0, 5.0)], 2.0);
        assert_eq!(before.delta(), Delta::Rose(2.0));
        let inside = Points::new([(-1.0, 1.0), (1.0, 3.0), (1.5, 0.0), (3.0, 5.0)], 2.0);
        assert_eq!(inside.delta(), Delta::WentBack);
        let at_the_edge = Points::new([(-1.0, 9.0), (0.5, 3.0), (3.0, 5.0)], 2.0);
        assert_eq!(at_the_edge.delta(), Delta::WentBack);
    }

    #[test]
    fn time_above_a_threshold_is_clipped_to_the_window() {
        let p = Points::new((-5..40).map(|i| (f64::from(i) / 4.0, f64::from(i % 2))), 5.0);
        assert!((p.seconds_at_least(1.0) - 2.5).abs() < 1e-9);
        assert!((p.seconds_at_least(0.0) - 5.0).abs() < 1e-9);
    }
}
