//! The trials that are over, and what they say so far: pooled rates and the knee.
//!
//! Every number is computed in `common`; here it is only kept. A trial that is shown has its verdict beside it.

use common::knee::search::Cut;
use common::knee::{Knee, RateResult, TrialRef, pool_rates};
use common::plan::OfferedRate;
use common::slo::{SloSet, Target};
use common::stats::Value;
use common::summary::TrialSummary;
use serde::Serialize;

use crate::report::TrialReport;

/// Trials that are kept, some kilobytes each: the newest. A sweep has dozens.
const MOST_TRIALS: usize = 512;

/// A trial that is over. Times are seconds, rates per second; what is undefined is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialRow {
    /// Its number.
    pub trial: u32,
    /// As it was asked for.
    pub offered: String,
    /// Requests per second; none for `inf` and a closed loop.
    pub offered_per_second: Option<f64>,
    /// Which repeat.
    pub repeat: u32,
    /// The trial that it was sent again for.
    pub rerun_of: Option<u32>,
    /// valid, late, degraded or invalid.
    pub verdict: &'static str,
    /// Why not valid.
    pub reasons: Vec<String>,
    /// Arrivals.
    pub requests: u64,
    /// Successes.
    pub successful: Option<u64>,
    /// Failures.
    pub failed: Option<u64>,
    /// Completions within the schedule.
    pub achieved_per_second: Option<f64>,
    /// None without objectives.
    pub goodput_per_second: Option<f64>,
    /// Of 1; none without objectives.
    pub attainment: Option<f64>,
    /// Median TTFT.
    pub ttft_p50_seconds: Option<f64>,
    /// 99th percentile of TTFT.
    pub ttft_p99_seconds: Option<f64>,
    /// 99th percentile of TPOT.
    pub tpot_p99_seconds: Option<f64>,
    /// 99th percentile of E2E.
    pub e2e_p99_seconds: Option<f64>,
    /// In flight grew.
    pub saturated: Option<bool>,
}

impl TrialRow {
    fn of(report: &TrialReport) -> Self {
        let summary = &report.summary;
        let numbers = summary.numbers.as_ref();
        let latency = numbers.map(|n| &n.latency_seconds);
        Self {
            trial: report.trial.0,
            offered: report.rate.to_string(),
            offered_per_second: report.rate.per_second(),
            repeat: report.repeat,
            rerun_of: report.rerun_of.map(|t| t.0),
            verdict: summary.validity.verdict.name(),
            reasons: summary.validity.reasons.iter().map(|r| r.message.clone()).take(4).collect(),
            requests: summary.requests,
            successful: numbers.map(|n| n.successful),
            failed: numbers.map(|n| n.failed),
            achieved_per_second: numbers.and_then(|n| n.achieved_rate_per_second),
            goodput_per_second: numbers.and_then(|n| n.goodput_requests_per_second),
            attainment: numbers.and_then(|n| n.slo_attainment),
            ttft_p50_seconds: latency.and_then(|l| l.ttft.p50),
            ttft_p99_seconds: latency.and_then(|l| l.ttft.p99),
            tpot_p99_seconds: latency.and_then(|l| l.tpot.p99),
            e2e_p99_seconds: latency.and_then(|l| l.e2e.p99),
            saturated: numbers.and_then(|n| n.saturated),
        }
    }
}

/// A rate, its repeats pooled.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RateRow {
    /// As it was asked for.
    pub offered: String,
    /// Requests per second; none for `inf`.
    pub offered_per_second: Option<f64>,
    /// Trials at it, and how many of them are valid.
    pub trials: u32,
    /// Valid ones.
    pub valid: u32,
    /// Of 1; none without objectives.
    pub attainment: Option<f64>,
    /// Median over the repeats, per second.
    pub achieved_per_second: Option<f64>,
    /// Median over the repeats, per second.
    pub goodput_per_second: Option<f64>,
    /// Median over the repeats of the p99, seconds; none where it is infinite.
    pub ttft_p99_seconds: Option<f64>,
    /// It meets the objectives; none where no valid trial says so, and without objectives.
    pub passes: Option<bool>,
}

fn finite(value: Value) -> Option<f64> {
    match value {
        Value::Finite(v) => Some(v),
        Value::Infinite => None,
    }
}

impl RateRow {
    fn of(rate: &RateResult, slos: &SloSet, target: Target) -> Self {
        let decides = rate.is_decided(target) && !slos.is_empty();
        Self {
            offered: rate.offered_rate.clone(),
            offered_per_second: rate.offered_rate_per_second,
            trials: rate.verdicts.total(),
            valid: rate.verdicts.valid,
            attainment: rate.slo_attainment,
            achieved_per_second: rate.achieved_rate_per_second.and_then(|s| finite(s.median)),
            goodput_per_second: rate.goodput_requests_per_second.and_then(|s| finite(s.median)),
            ttft_p99_seconds: rate.latency_seconds.ttft.p99.and_then(|s| finite(s.median)),
            passes: decides.then(|| rate.passes(target)),
        }
    }
}

/// What the sweep says so far about the knee.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct KneeRow {
    /// In words.
    pub text: String,
    /// The highest rate that passes, per second.
    pub pass_per_second: Option<f64>,
    /// The lowest that fails, per second.
    pub fail_per_second: Option<f64>,
}

/// The trials so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Trials {
    kept: Vec<(TrialRow, OfferedRate, TrialSummary, Option<Cut>)>,
    /// The trials pooled by rate.
    pub rates: Vec<RateRow>,
    /// The knee so far; none before the first trial.
    pub knee: Option<KneeRow>,
    /// Trials that are over, those that are kept no more included.
    pub ended: u64,
}

impl Trials {
    /// A trial is over.
    pub(super) fn ended(&mut self, report: &TrialReport, slos: &SloSet, target: Target) {
        self.ended += 1;
        if self.kept.len() == MOST_TRIALS {
            self.kept.remove(0);
        }
        self.kept.push((TrialRow::of(report), report.rate, report.summary.clone(), report.cut));
        let refs =
            self.kept.iter().map(|(_, rate, summary, cut)| TrialRef { rate: *rate, summary, cut: *cut });
        let rates = pool_rates(refs);
        let knee = Knee::find(&rates, slos, target);
        self.rates = rates.iter().map(|rate| RateRow::of(rate, slos, target)).collect();
        self.knee = Some(KneeRow {
            text: knee.text,
            pass_per_second: knee.bracket.pass,
            fail_per_second: knee.bracket.fail,
        });
    }

    /// Rows, in the order in which they were sent.
    #[must_use]
    pub(super) fn rows(&self) -> Vec<TrialRow> {
        self.kept.iter().map(|(row, ..)| row.clone()).collect()
    }
}
