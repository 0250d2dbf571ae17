//! What a search takes from a trial.

use serde::{Deserialize, Serialize};

use crate::slo::Target;
use crate::stats::{MIN_MISSED, NoInterval, ShareBatch};
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

/// A trial is hopeless when so many times what it may miss have missed.
const CUT_AT: f64 = 10.0;

/// Whether a trial of `planned` arrivals of which `missed` are already known not to be good is not worth its rest: it
/// misses the target however good the rest may be, and by far.
///
/// What is left away then cannot favour any side: such a trial only counts against its rate, with the misses that are
/// known, and as if all the rest had been good.
#[must_use]
pub fn is_hopeless(missed: u64, planned: u64, target: Target) -> bool {
    let at = (CUT_AT * (1.0 - target.share())).min(0.5) * planned as f64;
    missed >= MIN_MISSED && missed as f64 >= at
}

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
            cut: cut.is_some(),
            seconds: numbers.map_or(0.0, |n| n.duration_seconds),
        }
    }
}
