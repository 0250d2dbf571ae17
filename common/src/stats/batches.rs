//! Intervals by batch means: Student's t over stretches of a trial that are long enough to be independent.
//!
//! Requests under load are not independent: one that waits makes the next one wait. A trial is therefore cut into
//! stretches of equal length by `scheduled`, and what varies is the stretch, not the request. The method is that of
//! Law and Kelton, Operations Research 30, 1982 and 32, 1984, with the ratio estimator for stretches of unequal
//! numbers of requests (Cochran, Sampling Techniques, 1977, chapter 6): with e the sum and n the number of the samples
//! of a batch and m = Σe/Σn, its deviation is d = e − m·n and the standard error of m is √(K/(K−1)·Σd²)/Σn.
//!
//! **The tail.** Batch k of K holds what is scheduled within [k·L/K, (k+1)·L/K); a Poisson schedule of N requests may
//! end after L = N/λ, and what is scheduled at L or after it belongs to the last batch. Nothing is left out.
//!
//! **When there is an interval.** Beside the conditions of the specification, section 5, the pace of the trial has to
//! qualify: the E2E of consecutive requests, averaged over sixteenths of a batch (or larger parts, of at least
//! 3 requests), must show a lag-1 rank correlation below 0.2 too. Ten batches are too few to tell a correlated trial
//! by their own correlation, which a third of the heavily correlated ones pass by chance. Ranks, because a test by
//! values would pass the trials that happened to have no long queue, whose means are then too low.
//!
//! **Its width.** Means of queueing delays are skewed, and trials with a low mean show a low variance. So the interval
//! is symmetric for the logarithm (for a share: the log-odds), and wider by [`WIDENING_MEAN`] or [`WIDENING_SHARE`]
//! than Student's t. Both were chosen by simulation of M/M/1 and M/M/4 queues; the tests in `coverage` hold what comes
//! out, and print the table. This module must never give an interval as if requests were independent: a test there
//! shows what that would cover.

use serde::{Deserialize, Serialize};

use super::interval::{Interval, NoInterval};
use super::sums::{Sums, errors, lag1, position, ranks};

/// Numbers of batches, in the order in which they are tried: few and long ones first.
pub const BATCH_COUNTS: [u32; 2] = [10, 20];
/// Numbers of parts whose pace is compared, each twice the one before.
pub const PART_COUNTS: [u32; 5] = [20, 40, 80, 160, 320];
/// A batch lasts at least this many times the median E2E.
pub const BATCH_LENGTH_IN_MEDIANS: f64 = 10.0;
/// A batch holds at least this many requests on average.
pub const MIN_REQUESTS_PER_BATCH: u64 = 30;
/// The lag-1 correlation of the batches, and of the pace, has to be below this.
pub const MAX_LAG1: f64 = 0.2;
/// An interval of a share needs at least this many requests that missed, and as many that met.
pub const MIN_MISSED: u64 = 5;
/// An interval of a percentile needs at least this many requests beyond it.
pub const MIN_BEYOND_PERCENTILE: f64 = 50.0;
/// The probability beyond each end of a 95% interval.
pub(super) const TAIL: f64 = 0.025;
/// Half width of a mean's interval, over that of Student's t.
pub const WIDENING_MEAN: f64 = 1.3;
/// Half width of the interval of a share or a percentile, over that of Student's t.
pub const WIDENING_SHARE: f64 = 1.5;

/// A value of one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// When the request was scheduled, seconds since the trial's start.
    pub at: f64,
    /// The value; for a share 1 where it is met and 0 where not.
    pub value: f64,
}

/// The requests of one batch, and how many of them are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShareBatch {
    /// Requests scheduled within the batch.
    pub scheduled: u64,
    /// Good ones.
    pub good: u64,
}

/// How a trial can be cut into batches, or why it cannot. The pace is looked at once for all its metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct Batching {
    length: f64,
    counts: Result<Vec<u32>, NoInterval>,
    parts: u32,
}

impl Batching {
    /// For a trial of `length_seconds` (L) whose successes have a median E2E of `median_e2e_seconds`. `e2e` is the E2E
    /// of every request, failures included, in any order.
    #[must_use]
    pub fn new(length_seconds: f64, median_e2e_seconds: f64, e2e: &[Observation]) -> Self {
        let mut order = e2e.to_vec();
        order.sort_by(|a, b| a.at.total_cmp(&b.at));
        let counts = counts(length_seconds, median_e2e_seconds, &order);
        Self { length: length_seconds, counts, parts: parts(length_seconds, median_e2e_seconds, &order) }
    }

    /// For a trial that has no intervals whatever its samples.
    #[must_use]
    pub fn refused(reason: NoInterval) -> Self {
        Self { length: 0.0, counts: Err(reason), parts: 0 }
    }

    /// Into how many parts the trial can be cut whose pace does not depend on the part before: the largest of
    /// [`PART_COUNTS`] at which, and at whose half, the ranks of the parts' mean E2E show a lag-1 correlation below
    /// [`MAX_LAG1`]; each with at least 3 requests, and at least as long as the median E2E. 0 where there is none. More than
    /// there are batches, and known of trials, too, that have no batches.
    #[must_use]
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// The interval of the mean of `samples`, which are not negative: over the requests that have the metric, each
    /// once.
    #[must_use]
    pub fn mean(&self, samples: &[Observation]) -> Interval {
        match self.uncorrelated(samples, |value| value) {
            Err(reason) => Interval::none(reason),
            Ok(sums) => {
                let (low, high) = sums.mean_interval();
                Interval::Known { low, high, batches: sums.batches(), lag1: sums.lag1() }
            }
        }
    }

    /// The interval of a share: of `samples` that are 1 or 0.
    #[must_use]
    pub fn share(&self, samples: &[Observation]) -> Interval {
        let met: f64 = samples.iter().map(|s| s.value).sum();
        let missed = samples.len() as f64 - met;
        match self.share_batches(samples) {
            Err(reason) => Interval::none(reason),
            Ok(_) if missed.min(met) < MIN_MISSED as f64 => Interval::none(NoInterval::TooFewMissed),
            Ok(batches) => pooled_share(&[batches]),
        }
    }

    /// The batches behind [`Batching::share`], for [`pooled_share`] over the repeats of a rate.
    ///
    /// # Errors
    /// Why the trial has none.
    pub fn share_batches(&self, samples: &[Observation]) -> Result<Vec<ShareBatch>, NoInterval> {
        let sums = self.uncorrelated(samples, |value| value)?;
        let count = |v: &f64| v.round() as u64;
        Ok(sums
            .n
            .iter()
            .zip(&sums.e)
            .map(|(n, e)| ShareBatch { scheduled: count(n), good: count(e) })
            .collect())
    }

    /// The interval of the `p`-th percentile (50 to 100, exclusive) of `samples`.
    ///
    /// It holds every value x for which the share of samples above x, with its own interval, could be 1 − p/100. The
    /// interval of the share is taken anew at each x, so that its width is that of the tail at that end; one at the
    /// estimate alone is too short on the side of the long queues.
    #[must_use]
    pub fn percentile(&self, samples: &[Observation], p: f64) -> Interval {
        self.tail(samples, 1.0 - p / 100.0).unwrap_or_else(Interval::none)
    }

    fn tail(&self, samples: &[Observation], beyond: f64) -> Result<Interval, NoInterval> {
        let expected = samples.len() as f64 * beyond;
        if expected < MIN_BEYOND_PERCENTILE {
            self.uncorrelated(samples, |value| value)?;
            return Err(NoInterval::TooFewRequests);
        }
        let mut order: Vec<Observation> = samples.to_vec();
        order.sort_unstable_by(|a, b| b.value.total_cmp(&a.value));
        let at_estimate = order.get(expected as usize).map_or(f64::INFINITY, |s| s.value);
        let estimate = self.uncorrelated(samples, |value| f64::from(u8::from(value > at_estimate)))?;
        let mut sums = Sums { e: vec![0.0; estimate.e.len()], n: estimate.n.clone() };
        let errors = errors(estimate.batches(), WIDENING_SHARE, TAIL);
        let (mut low, mut high) = (None, None);
        for (i, sample) in order.iter().enumerate() {
            sums.e[position(sample.at, self.length, sums.n.len())] += 1.0;
            let (least, most) = sums.share_interval(errors);
            if high.is_none() && most >= beyond {
                if i == 0 {
                    return Err(NoInterval::TailTooShort);
                }
                high = Some(sample.value);
            }
            if i as f64 >= expected && least > beyond {
                low = Some(sample.value);
                break;
            }
        }
        let low = low.or(order.last().map(|s| s.value));
        let (low, high) = low.zip(high).ok_or(NoInterval::TailTooShort)?;
        Ok(Interval::Known { low, high, batches: estimate.batches(), lag1: estimate.lag1() })
    }

    /// The sums of what `value` makes of the samples' values, for the first number of batches that shows no correlation.
    fn uncorrelated(&self, samples: &[Observation], value: impl Fn(f64) -> f64) -> Result<Sums, NoInterval> {
        let counts = self.counts.as_ref().map_err(|reason| *reason)?;
        if samples.is_empty() {
            return Err(NoInterval::Undefined);
        }
        let mut reason = NoInterval::TooFewRequests;
        for &count in counts {
            // A metric may be undefined for many requests.
            if (samples.len() as u64) < MIN_REQUESTS_PER_BATCH * u64::from(count) {
                continue;
            }
            let sums = Sums::of(samples, &value, self.length, count);
            if sums.n.contains(&0.0) {
                continue;
            }
            if sums.lag1() < MAX_LAG1 {
                return Ok(sums);
            }
            reason = NoInterval::Correlated;
        }
        Err(reason)
    }
}

/// The interval of a share over the batches of all repeats of a rate together. Each repeat has to have batches.
#[must_use]
pub fn pooled_share(repeats: &[Vec<ShareBatch>]) -> Interval {
    pooled_share_at(repeats, TAIL)
}

/// The same for another level: the share lies beyond each end with at most the probability `tail` (above 0, below one
/// half). For a look of a sequence of looks, which may spend only a part of the error.
#[must_use]
pub fn pooled_share_at(repeats: &[Vec<ShareBatch>], tail: f64) -> Interval {
    if repeats.is_empty() || repeats.iter().any(Vec::is_empty) {
        return Interval::none(NoInterval::NotEveryRepeat);
    }
    let sums = |batches: &mut dyn Iterator<Item = &ShareBatch>| {
        let (n, e) = batches.map(|b| (b.scheduled as f64, b.good as f64)).unzip();
        Sums { e, n }
    };
    let all = sums(&mut repeats.iter().flatten());
    let (scheduled, met): (f64, f64) = (all.n.iter().sum(), all.e.iter().sum());
    if met.min(scheduled - met) < MIN_MISSED as f64 {
        return Interval::none(NoInterval::TooFewMissed);
    }
    let lag1 = repeats.iter().map(|r| sums(&mut r.iter()).lag1()).fold(f64::NEG_INFINITY, f64::max);
    let (low, high) = all.share_interval(errors(all.batches(), WIDENING_SHARE, tail));
    Interval::Known { low, high, batches: all.batches(), lag1 }
}

/// How many stretches of a trial were looked at and found not to depend on each other, when it qualified for so many
/// `batches`: the parts of which the pace is compared. Less than requests, so that a request in such a part may depend
/// on all others in it.
#[must_use]
pub fn independent_parts(requests: u64, batches: u32) -> u64 {
    let batches = u64::from(batches.max(1));
    batches * parts_of_a_batch(requests, batches)
}

/// The interval of the mean of `samples`, which are the E2E of every request of a trial of `length_seconds`.
#[must_use]
pub fn mean_interval(samples: &[Observation], length_seconds: f64, median_e2e_seconds: f64) -> Interval {
    Batching::new(length_seconds, median_e2e_seconds, samples).mean(samples)
}

/// The interval of the `p`-th percentile of `samples`, which are the E2E of every request of a trial.
#[must_use]
pub fn percentile_interval(
    samples: &[Observation],
    p: f64,
    length_seconds: f64,
    median_e2e_seconds: f64,
) -> Interval {
    Batching::new(length_seconds, median_e2e_seconds, samples).percentile(samples, p)
}

/// See [`Batching::parts`].
fn parts(length: f64, median: f64, order: &[Observation]) -> u32 {
    let qualifies = |parts: u32| {
        let long_enough = length / f64::from(parts) >= median && order.len() >= 3 * parts as usize;
        long_enough && lag1_of_parts(order, parts as usize) < MAX_LAG1
    };
    let alone = |parts: u32| parts == PART_COUNTS[0] || qualifies(parts / 2);
    PART_COUNTS.into_iter().rev().find(|&parts| qualifies(parts) && alone(parts)).unwrap_or(0)
}

/// The numbers of batches for which length, requests and pace qualify.
fn counts(length: f64, median: f64, order: &[Observation]) -> Result<Vec<u32>, NoInterval> {
    let mut counts = Vec::new();
    let mut first_reason = None;
    for count in BATCH_COUNTS {
        // Written so that not-a-number does not qualify.
        let long_enough = length / f64::from(count) >= BATCH_LENGTH_IN_MEDIANS * median;
        let reason = if !long_enough {
            NoInterval::TooShort
        } else if (order.len() as u64) < MIN_REQUESTS_PER_BATCH * u64::from(count) {
            NoInterval::TooFewRequests
        } else if pace_lag1(order, count as usize) >= MAX_LAG1 {
            NoInterval::Correlated
        } else {
            counts.push(count);
            continue;
        };
        first_reason.get_or_insert(reason);
    }
    match first_reason {
        Some(reason) if counts.is_empty() => Err(reason),
        _ => Ok(counts),
    }
}

fn parts_of_a_batch(requests: u64, batches: u64) -> u64 {
    (requests / (3 * batches)).clamp(1, 16)
}

/// Lag-1 correlation of the ranks of the mean E2E of parts of a batch: 16 to a batch, or fewer and of at least
/// 3 requests.
fn pace_lag1(order: &[Observation], batches: usize) -> f64 {
    lag1_of_parts(order, batches * parts_of_a_batch(order.len() as u64, batches as u64) as usize)
}

fn lag1_of_parts(order: &[Observation], parts: usize) -> f64 {
    let mean = |part: usize| {
        let (from, to) = (part * order.len() / parts, (part + 1) * order.len() / parts);
        let part = order.get(from..to).unwrap_or_default();
        part.iter().map(|s| s.value).sum::<f64>() / part.len() as f64
    };
    lag1(&ranks(&(0..parts).map(mean).collect::<Vec<_>>()))
}
