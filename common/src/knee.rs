//! The rates of a sweep, and the knee: the highest tested rate that still meets the objectives.
//!
//! Owns how repeats of one rate are pooled ([`RateResult`]) and how the knee is read off them ([`Knee`]). Only valid
//! trials decide. A rate without a valid trial is *undecided*: it neither passes nor fails, and the knee is looked
//! for among the others; the sentence names it. This module must never interpolate between rates: the knee is a
//! bracket of two rates that were tested. Table-driven tests hold every case. [`search`] says which rates to test where
//! nobody knows them before.

mod rate;
pub mod search;
mod stop;
#[cfg(test)]
mod tests;

pub use rate::{PooledObjective, RateLatency, RateResult, SpreadPair, TrialRef, VerdictCounts, pool_rates};
pub use stop::{FailureShare, FailureShareError, failures_exceed, lowest_failure, should_stop_after_knee};

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::slo::{SloSet, Target};
use crate::stats::Value;

/// What a sweep says about the knee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KneeCase {
    /// Without an objective there is no knee.
    NoSlo,
    /// No finite rate was tested: rate `inf` never takes part.
    NoRate,
    /// No rate has a valid trial.
    Undecided,
    /// The lowest decided rate already fails: the knee is below it.
    BelowLowest,
    /// Between two tested rates: it is the lower one.
    Bracket,
    /// Every decided rate passes: the knee is at the highest of them or above.
    AtOrAboveHighest,
}

/// Requests per second that pass, and that fail.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Bracket {
    /// The highest rate that passes and below which every decided rate passes.
    pub pass: Option<f64>,
    /// The lowest rate that fails.
    pub fail: Option<f64>,
}

/// The rate at which goodput was highest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GoodputPeak {
    /// Where, requests per second.
    pub offered_rate_per_second: f64,
    /// Median over the repeats, requests per second.
    pub goodput_requests_per_second: f64,
}

/// The knee of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// Which case it is.
    pub case: KneeCase,
    /// The knee is `bracket.pass`.
    pub bracket: Bracket,
    /// The objectives.
    pub slos: SloSet,
    /// The share of requests that has to be good.
    pub target: Target,
    /// Finite rates without a valid trial, requests per second.
    pub undecided: Vec<f64>,
    /// Rates above `bracket.fail` that pass again: a sign of noise, or of too few requests.
    pub passes_above_fail: Vec<f64>,
    /// The goodput peak over the decided rates.
    pub goodput_peak: Option<GoodputPeak>,
    /// All of this in words.
    pub text: String,
}

impl Knee {
    /// Reads the knee off the pooled rates, in any order.
    #[must_use]
    pub fn find(rates: &[RateResult], slos: &SloSet, target: Target) -> Self {
        let mut finite: Vec<(f64, &RateResult)> =
            rates.iter().filter_map(|r| Some((r.offered_rate_per_second?, r))).collect();
        finite.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut knee = Self {
            case: KneeCase::NoSlo,
            bracket: Bracket::default(),
            slos: slos.clone(),
            target,
            undecided: finite.iter().filter(|(_, r)| !r.is_decided(target)).map(|(rate, _)| *rate).collect(),
            passes_above_fail: Vec::new(),
            goodput_peak: goodput_peak(&finite, target),
            text: String::new(),
        };
        if !slos.is_empty() {
            knee.decide(&finite);
        }
        knee.text = knee.sentences(
            finite.iter().any(|(_, r)| r.is_decided(target) && r.verdicts.total() > r.verdicts.valid),
        );
        knee
    }

    fn decide(&mut self, finite: &[(f64, &RateResult)]) {
        for (rate, result) in finite.iter().filter(|(_, r)| r.is_decided(self.target)) {
            match (result.passes(self.target), self.bracket.fail) {
                (true, None) => self.bracket.pass = Some(*rate),
                (true, Some(_)) => self.passes_above_fail.push(*rate),
                (false, None) => self.bracket.fail = Some(*rate),
                (false, Some(_)) => {}
            }
        }
        self.case = match (self.bracket.pass, self.bracket.fail) {
            _ if finite.is_empty() => KneeCase::NoRate,
            (None, None) => KneeCase::Undecided,
            (None, Some(_)) => KneeCase::BelowLowest,
            (Some(_), Some(_)) => KneeCase::Bracket,
            (Some(_), None) => KneeCase::AtOrAboveHighest,
        };
    }

    fn sentences(&self, some_left_out: bool) -> String {
        let objective = format!("{} for {} of requests", self.slos, self.target);
        let (pass, fail) = (self.bracket.pass.unwrap_or_default(), self.bracket.fail.unwrap_or_default());
        // A rate beyond may have been tested and come to nothing.
        let known = if self.undecided.is_empty() { "tested" } else { "decided" };
        let mut text = match self.case {
            KneeCase::NoSlo => "No knee: no SLO was given.".to_owned(),
            KneeCase::NoRate => {
                "No knee: no finite rate was tested (rate inf and closed loops take no part).".to_owned()
            }
            KneeCase::Undecided => "The knee is undecided: no rate has a valid trial.".to_owned(),
            KneeCase::BelowLowest => {
                format!(
                    "The knee is below {fail} requests/s, the lowest rate {known}: it misses {objective}."
                )
            }
            KneeCase::Bracket => format!(
                "The knee is {pass} requests/s (bracket [{pass}, {fail}]): {pass} meets {objective}, and {fail} \
                 does not."
            ),
            KneeCase::AtOrAboveHighest => format!(
                "The knee is at or above {pass} requests/s, the highest rate {known}: every rate {known} meets \
                 {objective}."
            ),
        };
        let searched = !matches!(self.case, KneeCase::NoSlo | KneeCase::NoRate | KneeCase::Undecided);
        if searched && !self.undecided.is_empty() {
            text += &format!(
                " Undecided for want of a valid and whole trial, and left out: {} requests/s.",
                listed(&self.undecided)
            );
        }
        if searched && some_left_out {
            text += " Rates are decided by their valid trials alone; some have others too.";
        }
        if !self.passes_above_fail.is_empty() {
            text += &format!(
                " {} requests/s met it again although {fail} did not: more requests or repeats would tell.",
                listed(&self.passes_above_fail)
            );
        }
        if let Some(peak) = self.goodput_peak {
            text += &format!(
                " Goodput peaks at {:.3} requests/s, offered {}.",
                peak.goodput_requests_per_second, peak.offered_rate_per_second
            );
        }
        text
    }
}

impl fmt::Display for Knee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn listed(rates: &[f64]) -> String {
    rates.iter().map(f64::to_string).collect::<Vec<_>>().join(", ")
}

fn goodput_peak(finite: &[(f64, &RateResult)], target: Target) -> Option<GoodputPeak> {
    let mut peak: Option<GoodputPeak> = None;
    // What was ended early was not measured to its end.
    let whole = |r: &RateResult| r.is_decided(target) && r.slo_attainment_at_most.is_none();
    for (rate, result) in finite.iter().filter(|(_, r)| whole(r)) {
        let Some(Value::Finite(goodput)) = result.goodput_requests_per_second.map(|s| s.median) else {
            continue;
        };
        // Of equals the lowest rate: more load that brings no more is no better.
        if peak.is_none_or(|p| goodput > p.goodput_requests_per_second) {
            peak = Some(GoodputPeak { offered_rate_per_second: *rate, goodput_requests_per_second: goodput });
        }
    }
    peak
}
