//! When a sweep may end early. Pure decisions on what was measured so far; whoever drives the sweep asks them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::rate::RateResult;
use crate::plan::OfferedRate;
use crate::slo::{SloSet, Target};
use crate::summary::TrialSummary;

/// Whether what remains of a sweep cannot move the knee: a finite rate has failed, every finite rate below it that was
/// tested is decided, and all of `remaining` (the rates of the trials still to be sent) lie above it.
///
/// `rates` are pooled from the trials so far. A rate of which a repeat remains, or which is undecided below the one
/// that failed, may still move the knee; a rate above it may not, and neither may `inf`, which takes no part.
#[must_use]
pub fn should_stop_after_knee(
    rates: &[RateResult],
    slos: &SloSet,
    target: Target,
    remaining: &[OfferedRate],
) -> bool {
    lowest_failure(rates, slos, target).is_some_and(|failed| {
        let undecided_below =
            rates.iter().any(|r| !r.is_decided(target) && lies_within(r.offered_rate_per_second, failed));
        let left_below = remaining.iter().any(|r| lies_within(r.per_second(), failed));
        !undecided_below && !left_below
    })
}

/// The lowest finite rate that is decided and fails: the upper end of the knee's bracket, as far as it is known.
#[must_use]
pub fn lowest_failure(rates: &[RateResult], slos: &SloSet, target: Target) -> Option<f64> {
    if slos.is_empty() {
        return None;
    }
    let failed = rates.iter().filter(|r| r.is_decided(target) && !r.passes(target));
    failed.filter_map(|r| r.offered_rate_per_second).min_by(f64::total_cmp)
}

fn lies_within(rate: Option<f64>, failed: f64) -> bool {
    rate.is_some_and(|rate| rate <= failed)
}

/// Whether more than `share` of a trial's requests failed. A trial that is broken says nothing of the engine: false.
#[must_use]
pub fn failures_exceed(summary: &TrialSummary, share: FailureShare) -> bool {
    let numbers = summary.numbers.as_ref();
    numbers.is_some_and(|n| n.failed as f64 > share.share() * (n.successful + n.failed) as f64)
}

/// The share of failed requests above which a sweep ends: at least 0, below 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct FailureShare(f64);

/// Why a share was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a share of requests from 0 to below 1; write 20% or 0.2")]
pub struct FailureShareError(String);

impl FailureShare {
    /// As a share of 1.
    #[must_use]
    pub fn share(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for FailureShare {
    type Error = FailureShareError;
    fn try_from(v: f64) -> Result<Self, FailureShareError> {
        // More than all cannot fail: a limit of 1 would be ignored.
        if (0.0..1.0).contains(&v) { Ok(Self(v)) } else { Err(FailureShareError(v.to_string())) }
    }
}

impl From<FailureShare> for f64 {
    fn from(s: FailureShare) -> f64 {
        s.0
    }
}

impl FromStr for FailureShare {
    type Err = FailureShareError;
    fn from_str(text: &str) -> Result<Self, FailureShareError> {
        let refused = || FailureShareError(format!("{text:?}"));
        let (number, of) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |n| (n.trim(), 100.0));
        let value: f64 = number.parse().map_err(|_| refused())?;
        Self::try_from(value / of).map_err(|_| refused())
    }
}

impl fmt::Display for FailureShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As a target is shown: twelve digits hide the last bit and no digit that anybody gave.
        let percent = format!("{:.12}", self.0 * 100.0);
        write!(f, "{}%", percent.trim_end_matches('0').trim_end_matches('.'))
    }
}
