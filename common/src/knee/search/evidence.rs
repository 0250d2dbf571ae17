//! What a search takes from a trial.

use serde::{Deserialize, Serialize};

use crate::stats::{NoInterval, ShareBatch};
use crate::summary::TrialSummary;

/// A trial that the search ended early.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cut {
    /// Arrivals of the whole schedule.
    pub planned: u64,
    /// When the first arrival that was not sent was scheduled: what counts of the trial is that long. Seconds.
    pub length_seconds: f64,
}

/// Where within a trial's schedule it is looked whether it is hopeless: shares of its length.
pub const CUT_LOOKS: [f64; 3] = [0.25, 0.5, 0.75];

/// What a search takes from a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialEvidence {
    /// λ, requests per second.
    pub rate: f64,
    /// It is valid: nothing but the engine was measured.
    pub valid: bool,
    /// Arrivals of its schedule; of one that was cut the whole schedule's.
    pub scheduled: u64,
    /// Requests that were not good; of one that was cut those among the arrivals before the cut.
    pub missed: u64,
    /// The batches of its attainment, or why it has none.
    pub batches: Result<Vec<ShareBatch>, NoInterval>,
    /// Parts of it that do not depend on each other, for where it has no batches.
    pub parts: u64,
    /// It was ended by the search.
    pub cut: bool,
    /// What it took from its start to its last request's end. Seconds.
    pub seconds: f64,
}

impl TrialEvidence {
    /// Of a trial at `rate` requests per second. One whose books do not balance, or without objectives, says nothing.
    #[must_use]
    pub fn of(rate: f64, summary: &TrialSummary, cut: Option<Cut>) -> Self {
        let numbers = summary.numbers.as_ref();
        let good = numbers.and_then(|n| n.good);
        let judged = numbers.map_or(0, |n| n.successful + n.failed);
        let batches = numbers.map(|n| &n.intervals).filter(|i| !i.slo_attainment_batches.is_empty());
        let reason = numbers.and_then(|n| n.intervals.slo_attainment.reason());
        Self {
            rate,
            valid: summary.validity.is_valid() && good.is_some(),
            scheduled: cut.map_or(judged, |cut| cut.planned),
            missed: judged - good.unwrap_or_default(),
            batches: batches
                .map(|i| i.slo_attainment_batches.clone())
                .ok_or(reason.unwrap_or(NoInterval::Undefined)),
            parts: numbers.map_or(0, |n| u64::from(n.intervals.independent_parts)),
            cut: cut.is_some(),
            seconds: numbers.map_or(0.0, |n| n.duration_seconds),
        }
    }
}
