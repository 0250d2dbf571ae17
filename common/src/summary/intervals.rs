//! The confidence intervals of a trial.

use serde::{Deserialize, Serialize};

use super::requests::{Metric, Requests};
use crate::stats::{Batching, Interval, NoInterval, Observation, ShareBatch, percentile};

/// 95% confidence intervals by batch means, or why there are none (see [`Batching`]). Latencies are over the
/// successes, seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intervals {
    /// Of the mean TTFT.
    pub ttft_mean: Interval,
    /// Of the mean E2E.
    pub e2e_mean: Interval,
    /// Of the mean TPOT.
    pub tpot_mean: Interval,
    /// Of the p99 of TTFT.
    pub ttft_p99: Interval,
    /// Of the p99 of E2E.
    pub e2e_p99: Interval,
    /// Of SLO attainment.
    pub slo_attainment: Interval,
    /// The batches behind the interval of attainment, for pooling it over repeats; empty where there are none.
    pub slo_attainment_batches: Vec<ShareBatch>,
    /// Parts of the trial whose pace does not depend on the part before (see [`Batching::parts`]); 0 where there are none.
    #[serde(default)]
    pub independent_parts: u32,
}

impl Intervals {
    /// None at all, for one reason.
    #[must_use]
    pub fn none(reason: NoInterval) -> Self {
        let none = Interval::none(reason);
        Self {
            ttft_mean: none,
            e2e_mean: none,
            tpot_mean: none,
            ttft_p99: none,
            e2e_p99: none,
            slo_attainment: none,
            slo_attainment_batches: Vec::new(),
            independent_parts: 0,
        }
    }
}

impl Default for Intervals {
    /// As a summary has it that was written before there were intervals.
    fn default() -> Self {
        Self::none(NoInterval::Undefined)
    }
}

impl Intervals {
    /// `length` is L in seconds, or why there are no intervals.
    pub(super) fn of(requests: &Requests, length: Result<f64, NoInterval>, has_objectives: bool) -> Self {
        let batching = match length {
            Err(reason) => Batching::refused(reason),
            Ok(length) => match median(requests.values(Metric::E2e)) {
                None => Batching::refused(NoInterval::Undefined),
                Some(median) => Batching::new(length, median, &requests.pace()),
            },
        };
        let (ttft_mean, ttft_p99) = of_metric(&batching, &requests.observations(Metric::Ttft));
        let (e2e_mean, e2e_p99) = of_metric(&batching, &requests.observations(Metric::E2e));
        let tpot_mean = batching.mean(&requests.observations(Metric::Tpot));
        let good = if has_objectives { requests.good() } else { Vec::new() };
        let undefined = Interval::none(NoInterval::Undefined);
        let batches = if has_objectives { batching.share_batches(&good).ok() } else { None };
        Self {
            ttft_mean,
            e2e_mean,
            tpot_mean,
            ttft_p99,
            e2e_p99,
            slo_attainment: if has_objectives { batching.share(&good) } else { undefined },
            slo_attainment_batches: batches.unwrap_or_default(),
            independent_parts: batching.parts(),
        }
    }
}

/// Of the mean and of the p99.
fn of_metric(batching: &Batching, samples: &[Observation]) -> (Interval, Interval) {
    (batching.mean(samples), batching.percentile(samples, 99.0))
}

/// As [`crate::stats::Distribution`] has it, without sorting everything.
fn median(mut samples: Vec<f64>) -> Option<f64> {
    let last = samples.len().checked_sub(1)?;
    let (_, low, above) = samples.select_nth_unstable_by(last / 2, f64::total_cmp);
    let high = if last % 2 == 0 { *low } else { above.iter().copied().fold(f64::INFINITY, f64::min) };
    percentile(&[*low, high], 50.0)
}
