//! Whether the engine was saturated: requests in flight grew over the trial beyond their noise.
//!
//! L is cut into 32 cells, of each the mean number in flight is taken, and the mean of the last quarter is held against
//! that of the second. (The first quarter fills an empty engine.) Their difference has noise that depends on how long
//! a queue remembers: in-flight of an engine near its limit wanders, and a test that took the cells for independent
//! would call that growth. So the noise is that of a first-order autoregression, fitted to what is left of the cells
//! after a straight line, with its coefficient corrected for the bias of short series (Kendall, Note on bias in the
//! estimation of autocorrelation, Biometrika 41, 1954; with a fitted trend the bias is about −(2 + 4φ)/n). A
//! coefficient within 1/√n of 1 is taken for 1, a random walk, as Perron and Yabu do (Journal of Econometrics 151,
//! 2009): there the walk's own steps say how far it strays. The trial is saturated when the difference exceeds
//! Student's t at 97.5% times that noise, and one request.
//!
//! This module must never judge by rates: an engine that keeps up achieves less than what is offered too, since what
//! is in flight at L is missing. Tests hold M/M/1 queues at 50 to 130% against it.

use serde::{Deserialize, Serialize};

use crate::stats::t_quantile;

const CELLS: usize = 32;
const QUARTER: usize = CELLS / 4;
/// Cells from the second quarter on.
const OBSERVED: usize = CELLS - QUARTER;
/// Four in a cell; with fewer every number in flight is noise.
const MIN_REQUESTS: usize = 4 * CELLS;
/// A difference of less than this is no growth, however steady it is.
const MIN_GROWTH: f64 = 1.0;

/// Growth of the requests in flight, in requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Saturation {
    /// Mean in flight over the second quarter of L.
    pub second_quarter: f64,
    /// Mean in flight over the last quarter of L.
    pub last_quarter: f64,
    /// Growth above this, and above one request, is saturation.
    pub noise: f64,
}

impl Saturation {
    /// Of spans (start and end in nanoseconds) in a trial of `length` nanoseconds; none where that cannot be told.
    pub(super) fn of(spans: &[(u64, u64)], length: u64) -> Option<Self> {
        if length == 0 || spans.len() < MIN_REQUESTS {
            return None;
        }
        let cells = cells(spans, length as f64);
        let (_, observed) = cells.split_at(QUARTER);
        let mean = |cells: &[f64]| cells.iter().sum::<f64>() / cells.len() as f64;
        Some(Self {
            second_quarter: mean(&observed[..QUARTER]),
            last_quarter: mean(&observed[OBSERVED - QUARTER..]),
            // Two for the straight line, one for the autoregression.
            noise: t_quantile(0.975, OBSERVED as u32 - 3) * standard_error(observed),
        })
    }

    /// The verdict.
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.last_quarter - self.second_quarter > self.noise.max(MIN_GROWTH)
    }
}

/// Mean number in flight in each cell of `[0, length]`.
fn cells(spans: &[(u64, u64)], length: f64) -> [f64; CELLS] {
    let width = length / CELLS as f64;
    let (mut partly, mut change) = ([0.0; CELLS], [0.0; CELLS + 1]);
    let cell = |at: f64| ((at / width) as usize).min(CELLS - 1);
    for &(start, end) in spans {
        let (start, end) = (start as f64, (end as f64).min(length));
        if end <= start {
            continue;
        }
        let (first, last) = (cell(start), cell(end));
        if first == last {
            partly[first] += end - start;
        } else {
            partly[first] += (first + 1) as f64 * width - start;
            partly[last] += end - last as f64 * width;
            // In flight throughout the cells between them.
            change[first + 1] += 1.0;
            change[last] -= 1.0;
        }
    }
    let mut throughout = 0.0;
    for (partly, change) in partly.iter_mut().zip(change) {
        throughout += change;
        *partly = *partly / width + throughout;
    }
    partly
}

/// Of the difference between the means of the last and the first quarter of the trial's length in `cells`.
fn standard_error(cells: &[f64]) -> f64 {
    let n = cells.len() as f64;
    let left = detrended(cells);
    let squares = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>();
    let before = squares(&left[..left.len() - 1]);
    if before <= 0.0 {
        return 0.0;
    }
    let fitted = left.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / before;
    let coefficient = (n * fitted + 2.0) / (n - 4.0);
    if coefficient >= 1.0 - 1.0 / n.sqrt() {
        return of_random_walk(cells);
    }
    let phi = coefficient.max(0.0);
    let steps: Vec<f64> = left.windows(2).map(|w| w[1] - phi * w[0]).collect();
    let variance = squares(&steps) / (n - 3.0) / (1.0 - phi * phi);
    let weight = |i: usize| match i {
        i if i < QUARTER => -1.0 / QUARTER as f64,
        i if i >= cells.len() - QUARTER => 1.0 / QUARTER as f64,
        _ => 0.0,
    };
    let pairs = (0..cells.len()).flat_map(|i| (0..cells.len()).map(move |j| (i, j)));
    let sum: f64 = pairs.map(|(i, j)| weight(i) * weight(j) * libm::pow(phi, i.abs_diff(j) as f64)).sum();
    (variance * sum).sqrt()
}

/// The difference is a weighted sum of the walk's steps: those within a quarter count in part.
fn of_random_walk(cells: &[f64]) -> f64 {
    let steps: Vec<f64> = cells.windows(2).map(|w| w[1] - w[0]).collect();
    let count = steps.len() as f64;
    let mean = steps.iter().sum::<f64>() / count;
    let variance = steps.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / (count - 1.0);
    let quarter = QUARTER as f64;
    let weight = |step: usize| (step as f64).min((cells.len() - step) as f64).min(quarter) / quarter;
    let weights: f64 = (1..cells.len()).map(|step| weight(step) * weight(step)).sum();
    // Steps between means over cells have two thirds of the variance of the walk over a cell, and the rest in the
    // correlation of neighbours.
    (1.5 * variance * weights).sqrt()
}

/// What is left after a straight line by least squares.
fn detrended(values: &[f64]) -> Vec<f64> {
    let n = values.len() as f64;
    let (middle, mean) = ((n - 1.0) / 2.0, values.iter().sum::<f64>() / n);
    let from_middle = |i: usize| i as f64 - middle;
    let slope = values.iter().enumerate().map(|(i, v)| from_middle(i) * (v - mean)).sum::<f64>()
        / (0..values.len()).map(|i| from_middle(i) * from_middle(i)).sum::<f64>();
    values.iter().enumerate().map(|(i, v)| v - mean - slope * from_middle(i)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::queues::{MM1_50, MM1_70, MM1_90, MM4_90, Queue};

    /// Of a queue of `requests`; a service takes a second.
    fn saturation(queue: Queue, requests: usize, seed: u64) -> Option<Saturation> {
        let nanos = |seconds: f64| (seconds * 1e9) as u64;
        let samples = queue.sojourns(requests, seed);
        let spans: Vec<_> = samples.iter().map(|s| (nanos(s.at), nanos(s.at + s.value))).collect();
        Saturation::of(&spans, nanos(queue.length(requests)))
    }

    fn share_saturated(queue: Queue, requests: usize, seeds: u64) -> f64 {
        let saturated =
            (0..seeds).filter(|&s| saturation(queue, requests, s).unwrap().is_saturated()).count();
        saturated as f64 / seeds as f64
    }

    #[test]
    fn an_engine_that_keeps_up_is_not_saturated() {
        for queue in [MM1_50, MM1_70, MM1_90, MM4_90] {
            for (requests, seeds) in [(200, 400), (1_000, 200), (5_000, 60)] {
                let share = share_saturated(queue, requests, seeds);
                assert!(share <= 0.05, "{queue:?}, {requests} requests: {share}");
            }
        }
    }

    #[test]
    fn an_engine_that_falls_behind_is_saturated() {
        for servers in [1, 16] {
            let share = |load, requests, seeds| share_saturated(Queue { servers, load }, requests, seeds);
            assert!(share(1.3, 1_000, 100) >= 0.95);
            assert!(share(1.3, 3_000, 50) >= 0.99);
            assert!(share(1.1, 10_000, 40) >= 0.95);
        }
    }

    #[test]
    fn few_requests_and_no_length_do_not_tell() {
        let saturated = Queue { servers: 1, load: 3.0 };
        assert_eq!(saturation(saturated, MIN_REQUESTS - 1, 1), None);
        assert!(saturation(saturated, MIN_REQUESTS, 1).unwrap().is_saturated());
        assert_eq!(Saturation::of(&[(0, 1); 200], 0), None);
    }

    #[test]
    fn cells_hold_the_time_in_flight() {
        // Two cells and a half, a part of one, and what lies beyond the end.
        let found = cells(&[(0, 250), (310, 340), (3_150, 9_000)], 3_200.0);
        assert_eq!(found[..4], [1.0, 1.0, 0.5, 0.3]);
        assert_eq!(found[31], 0.5);
        assert!(found[4..31].iter().all(|&v| v == 0.0));
        // One more request in flight from the middle on, without any noise, is not more than one request.
        let step = |n: u64| (0..n).map(|i| (1_600 + i, 4_000)).collect::<Vec<_>>();
        let steady: Vec<(u64, u64)> = (0..320).map(|i| (i * 10, i * 10 + 50)).collect();
        let with = |n| Saturation::of(&[steady.clone(), step(n)].concat(), 3_200).unwrap();
        assert!(!with(1).is_saturated(), "{:?}", with(1));
        assert!(!with(0).is_saturated(), "{:?}", with(0));
    }
}
