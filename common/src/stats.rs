//! Exact statistics from raw samples: percentiles, their distribution, the spread over repeats, and intervals by batch
//! means.
//!
//! A percentile is linearly interpolated between sorted samples (rank p/100·(N−1)) and taken from every raw sample:
//! no histogram, no sketch. Property tests hold it against a naive sort. This module must never drop, clip or bin a
//! sample, and never show a percentile of nothing as 0.

mod batches;
mod interval;
mod student;
mod sums;
mod tally;

pub use batches::{
    BATCH_COUNTS, BATCH_LENGTH_IN_MEDIANS, Batching, MAX_LAG1, MIN_BEYOND_PERCENTILE, MIN_MISSED,
    MIN_REQUESTS_PER_BATCH, Observation, PART_COUNTS, ShareBatch, WIDENING_MEAN, WIDENING_SHARE,
    independent_parts, mean_interval, percentile_interval, pooled_share, pooled_share_at,
};
pub use interval::{Interval, NoInterval};
pub use student::t_quantile;
pub use tally::Tally;

use serde::{Deserialize, Serialize};

/// With fewer samples a p99 cannot be bracketed with 95% confidence, even if they are independent.
pub const P99_SAMPLES: u64 = 368;
/// The same for a p99.9.
pub const P999_SAMPLES: u64 = 3_688;

/// The `p`-th percentile (0 to 100) of samples in ascending order; none of no samples.
#[must_use]
pub fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    match percentile_with_infinite(sorted, 0, p) {
        Some(Value::Finite(v)) => Some(v),
        _ => None,
    }
}

/// The `p`-th percentile of `sorted` and `infinite` further samples above all of them. It is infinite as soon as the
/// interpolation touches one of those.
#[must_use]
pub fn percentile_with_infinite(sorted: &[f64], infinite: u64, p: f64) -> Option<Value> {
    let place = place(sorted.len() as u64 + infinite, p)?;
    let at = |i: u64| usize::try_from(i).ok().and_then(|i| sorted.get(i)).copied();
    Some(match (at(place.below), at(place.above)) {
        (Some(low), Some(high)) => Value::Finite(place.between(low, high)),
        _ => Value::Infinite,
    })
}

/// Where a percentile lies: between two samples, which may be one.
#[derive(Debug, Clone, Copy)]
struct Place {
    below: u64,
    above: u64,
    /// Of the way from the one to the other.
    part: f64,
}

impl Place {
    fn between(self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.part
    }
}

/// Where the `p`-th percentile of `n` samples lies; none of none.
fn place(n: u64, p: f64) -> Option<Place> {
    let last = n.checked_sub(1)?;
    let rank = p.clamp(0.0, 100.0) / 100.0 * last as f64;
    let (below, part) = (rank.floor(), rank - rank.floor());
    let below = (below as u64).min(last);
    let above = if part > 0.0 { (below + 1).min(last) } else { below };
    Some(Place { below, above, part })
}

/// A number, or infinity because failures count as infinite. In JSON a number or the text `"inf"`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A number.
    Finite(f64),
    /// Above every number.
    Infinite,
}

impl Value {
    /// The number, or floating-point infinity.
    #[must_use]
    pub fn get(self) -> f64 {
        match self {
            Self::Finite(v) => v,
            Self::Infinite => f64::INFINITY,
        }
    }

    /// A number, or infinity.
    #[must_use]
    pub fn new(v: f64) -> Self {
        if v.is_finite() { Self::Finite(v) } else { Self::Infinite }
    }
}

impl Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Finite(v) => s.serialize_f64(*v),
            Self::Infinite => s.serialize_str("inf"),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(f64),
            Text(String),
        }
        match Form::deserialize(d)? {
            Form::Number(v) if v.is_finite() => Ok(Self::Finite(v)),
            Form::Text(t) if t == "inf" => Ok(Self::Infinite),
            _ => Err(serde::de::Error::custom("expected a number or \"inf\"")),
        }
    }
}

/// How the samples of one metric are distributed. Units are those of the samples; numbers are none when `n` is 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Distribution {
    /// Number of samples.
    pub n: u64,
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
    /// Largest sample.
    pub max: Option<f64>,
    /// Fewer than [`P99_SAMPLES`]: `p99` is an indication only.
    pub p99_thin: bool,
    /// Fewer than [`P999_SAMPLES`]: `p999` is an indication only.
    pub p999_thin: bool,
}

/// Samples of one metric, sorted, from which any percentile can be read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Samples {
    sorted: Vec<f64>,
}

impl Samples {
    /// Sorts `samples`. Not-a-number is sorted last; there is none where samples come from clocks.
    #[must_use]
    pub fn new(mut samples: Vec<f64>) -> Self {
        samples.sort_unstable_by(f64::total_cmp);
        Self { sorted: samples }
    }

    /// In ascending order.
    #[must_use]
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// How they are distributed.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        let n = self.sorted.len() as u64;
        let at = |p| percentile(&self.sorted, p);
        let mean = (n > 0).then(|| self.sorted.iter().sum::<f64>() / n as f64);
        let percentiles = [at(50.0), at(90.0), at(95.0), at(99.0), at(99.9)];
        Distribution { max: self.sorted.last().copied(), ..Distribution::from_parts(n, mean, percentiles) }
    }

    /// The 99th percentile when each of `failures` counts as a sample above all others.
    #[must_use]
    pub fn p99_with_failures_as_infinite(&self, failures: u64) -> Option<Value> {
        percentile_with_infinite(&self.sorted, failures, 99.0)
    }
}

impl Distribution {
    /// The distribution of `samples`.
    #[must_use]
    pub fn of(samples: Vec<f64>) -> Self {
        Samples::new(samples).distribution()
    }

    /// Without its largest sample.
    fn from_parts(n: u64, mean: Option<f64>, [p50, p90, p95, p99, p999]: [Option<f64>; 5]) -> Self {
        let (p99_thin, p999_thin) = (n < P99_SAMPLES, n < P999_SAMPLES);
        Self { n, mean, p50, p90, p95, p99, p999, max: None, p99_thin, p999_thin }
    }
}

/// The values that a number took in the repeats of one rate. It is no confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median over the repeats: the headline value.
    pub median: Value,
    /// Smallest.
    pub min: Value,
    /// Largest.
    pub max: Value,
}

impl Spread {
    /// The spread of `values`, which may be infinite; none of none. Undefined values should be left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let sorted = Samples::new(values.into_iter().collect()).sorted;
        let finite = sorted.partition_point(|v| v.is_finite());
        let infinite = (sorted.len() - finite) as u64;
        let median = percentile_with_infinite(sorted.get(..finite)?, infinite, 50.0)?;
        Some(Self { median, min: Value::new(*sorted.first()?), max: Value::new(*sorted.last()?) })
    }
}

#[cfg(test)]
mod coverage;
#[cfg(test)]
pub(crate) mod queues;
#[cfg(test)]
mod tests;
