//! The confidence intervals of a trial, and the samples behind them.

use serde::{Deserialize, Serialize};

use crate::ids::Nanos;
use crate::metrics::{RequestMetrics, Tpot};
use crate::stats::{Batching, Interval, NoInterval, Observation, ShareBatch};
use crate::trace::Clocks;

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
        }
    }
}

impl Default for Intervals {
    /// As a summary has it that was written before there were intervals.
    fn default() -> Self {
        Self::none(NoInterval::Undefined)
    }
}

/// What each request adds, in the order in which traces come.
#[derive(Debug, Default)]
pub(super) struct IntervalSamples {
    /// Of every request, failures included: the pace of the trial.
    pace: Vec<Observation>,
    good: Vec<Observation>,
    ttft: Vec<Observation>,
    e2e: Vec<Observation>,
    tpot: Vec<Observation>,
}

impl IntervalSamples {
    pub(super) fn add(&mut self, clocks: &Clocks, metrics: &RequestMetrics<'_>, success: bool, good: bool) {
        let at = clocks.scheduled.as_secs_f64();
        let of = |value: f64| Observation { at, value };
        self.pace.push(of(metrics.e2e.as_secs_f64()));
        self.good.push(of(f64::from(u8::from(good))));
        if success {
            self.ttft.extend(metrics.ttft.map(Nanos::as_secs_f64).map(of));
            self.e2e.push(of(metrics.e2e.as_secs_f64()));
            self.tpot.extend(metrics.tpot.map(Tpot::as_secs_f64).map(of));
        }
    }

    /// `length` is L in seconds, none where the trial has none; `median` is that of the E2E of the successes.
    pub(super) fn intervals(
        &self,
        length: Result<f64, NoInterval>,
        median: Option<f64>,
        has_objectives: bool,
    ) -> Intervals {
        let batching = match (length, median) {
            (Err(reason), _) => Batching::refused(reason),
            (Ok(_), None) => Batching::refused(NoInterval::Undefined),
            (Ok(length), Some(median)) => Batching::new(length, median, &self.pace),
        };
        let undefined = Interval::none(NoInterval::Undefined);
        let batches = if has_objectives { batching.share_batches(&self.good).ok() } else { None };
        Intervals {
            ttft_mean: batching.mean(&self.ttft),
            e2e_mean: batching.mean(&self.e2e),
            tpot_mean: batching.mean(&self.tpot),
            ttft_p99: batching.percentile(&self.ttft, 99.0),
            e2e_p99: batching.percentile(&self.e2e, 99.0),
            slo_attainment: if has_objectives { batching.share(&self.good) } else { undefined },
            slo_attainment_batches: batches.unwrap_or_default(),
        }
    }
}
