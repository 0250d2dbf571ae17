//! The sums of batches, what varies between them, and the intervals that follow. The formulas and their sources are in
//! [`super::batches`].

use super::batches::{Observation, TAIL, WIDENING_MEAN};
use super::student::t_quantile;

/// Sum and number of the samples of each batch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sums {
    pub(super) e: Vec<f64>,
    pub(super) n: Vec<f64>,
}

impl Sums {
    pub(super) fn of(samples: &[Observation], value: impl Fn(f64) -> f64, length: f64, count: u32) -> Self {
        let mut sums = Self { e: vec![0.0; count as usize], n: vec![0.0; count as usize] };
        for s in samples {
            let batch = position(s.at, length, count as usize);
            sums.e[batch] += value(s.value);
            sums.n[batch] += 1.0;
        }
        sums
    }

    pub(super) fn batches(&self) -> u32 {
        self.n.len() as u32
    }

    pub(super) fn mean(&self) -> f64 {
        self.e.iter().sum::<f64>() / self.n.iter().sum::<f64>()
    }

    fn deviations(&self) -> impl Iterator<Item = f64> {
        let mean = self.mean();
        self.e.iter().zip(&self.n).map(move |(e, n)| e - mean * n)
    }

    fn standard_error(&self) -> f64 {
        let count = self.n.len() as f64;
        let squares: f64 = self.deviations().map(|d| d * d).sum();
        (count / (count - 1.0) * squares).sqrt() / self.n.iter().sum::<f64>()
    }

    pub(super) fn lag1(&self) -> f64 {
        lag1(&self.deviations().collect::<Vec<_>>())
    }

    /// The interval of a mean that is not negative, symmetric for its logarithm.
    pub(super) fn mean_interval(&self) -> (f64, f64) {
        let mean = self.mean();
        if mean <= 0.0 {
            return (mean, mean);
        }
        let factor = libm::exp(errors(self.batches(), WIDENING_MEAN, TAIL) * self.standard_error() / mean);
        (mean / factor, mean * factor)
    }

    /// The interval of a share, `errors` standard errors to both sides of its log-odds; by the delta method their
    /// standard error is that of the share over its variance.
    pub(super) fn share_interval(&self, errors: f64) -> (f64, f64) {
        let share = self.mean();
        let variance = share * (1.0 - share);
        if variance <= 0.0 {
            return (share, share);
        }
        // Not below that of independent requests: a few that missed may by luck lie one in each batch.
        let least = (variance / self.n.iter().sum::<f64>()).sqrt();
        let half = errors * self.standard_error().max(least) / variance;
        let odds = share / (1.0 - share);
        let of_odds = |odds: f64| odds / (1.0 + odds);
        (of_odds(odds * libm::exp(-half)), 1.0 - of_odds(libm::exp(-half) / odds))
    }
}

/// Half width of an interval over `batches`, in standard errors, when `tail` lies beyond each end.
pub(super) fn errors(batches: u32, widening: f64, tail: f64) -> f64 {
    widening * t_quantile(1.0 - tail, batches.saturating_sub(1).max(1))
}

/// The batch of an instant; the last one holds what is scheduled after L.
pub(super) fn position(at: f64, length: f64, count: usize) -> usize {
    // `as` saturates, and makes not-a-number 0.
    ((at / length * count as f64) as usize).min(count - 1)
}

/// The lag-1 correlation; 0 where nothing varies.
pub(super) fn lag1(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    if squares <= 0.0 {
        return 0.0;
    }
    values.iter().zip(values.iter().skip(1)).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / squares
}

/// The rank of each value; equal ones share their middle rank.
pub(super) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut next = 0;
    for same in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let middle = next as f64 + (same.len() - 1) as f64 / 2.0;
        same.iter().for_each(|&i| ranks[i] = middle);
        next += same.len();
    }
    ranks
}
