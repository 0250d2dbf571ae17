//! The search for the knee: which rate is tried next, and what its trials say of where the knee lies.
//!
//! Owns the steps of `sweep --find-knee` as a pure function of the trials so far ([`Search::next`]): whoever sends them
//! asks again after each one, and a run that goes on after an interruption asks with the trials that are there. So the
//! same trials always lead to the same next step. Two kinds of knowledge are kept apart:
//!
//! - what the trials of a rate *lean* to. It steers: where to try next. It may be wrong, and costs little.
//! - what they *decide* (`judge`), with an error that was budgeted before. Only that is claimed.
//!
//! **Steps.** Doubling from the lowest rate until one leans to fail; halving of the bracket on the scale of ratios, for
//! its width is a ratio; then more trials at both ends, until each is decided. A rate that stays undecided is left
//! between the ends, and the bracket is narrowed around it.
//!
//! **Confidence.** Of the error that the bracket may be wrong with, each rate that may be decided gets its equal part before
//! the first trial (a union bound, Bonferroni); the looks at a rate spend its part (see `judge`). So whatever the trials
//! make the search do, the chance that any rate is decided wrongly, and with it that the bracket does not hold the knee, is
//! within the budget. The first trial of a rate of the doubling only steers: most of these rates are far from the knee,
//! and the few that come to be ends get more trials (`DOUBLED_ENDS` at most), so they alone need a part.
//!
//! It must never let a trial decide that is not valid, and never claim a rate that was not tried.

mod evidence;
mod judge;
mod outcome;
mod steer;
#[cfg(test)]
mod tests;

pub use evidence::{CUT_LOOKS, Cut, TrialEvidence};
pub use judge::{By, RateJudgement, Standing};
pub use outcome::{SearchCase, SearchResult};

use serde::{Deserialize, Serialize};

use crate::plan::{ArrivalPlan, Extent, OfferedRate, Process, Rate};
use crate::slo::Target;

/// What a trial takes beside its schedule and its drain, about: warm-up, barrier, analysis. Seconds.
pub const AROUND_A_TRIAL_SECONDS: f64 = 3.0;

/// Rates beyond those that halving takes, for what stays undecided.
const RATES_TO_SPARE: u32 = 3;

/// Rates of the doubling that may be decided, because they came to be ends.
const DOUBLED_ENDS: u32 = 3;

/// Trials at a rate of which none is valid, after which it is left alone.
const MOST_SPOILED: u32 = 2;

/// What is asked of a search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SearchSettings {
    /// The first rate, requests per second.
    pub min_rate_per_second: f64,
    /// The highest rate, requests per second.
    pub max_rate_per_second: f64,
    /// The bracket is narrow enough when `fail / pass − 1` is at most this.
    pub relative_width: f64,
    /// The probability with which the bracket has to hold the knee, at least.
    pub confidence: f64,
    /// Trials at one rate, at most: so often it is looked whether they decide.
    pub trials_a_rate: u32,
    /// No trial begins that would end after this. Seconds.
    pub budget_seconds: f64,
}

/// A search: what is asked, and what its trials are like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// What is asked.
    pub settings: SearchSettings,
    /// The share of requests that has to be good.
    pub target: Target,
    /// The shape of the arrivals.
    pub process: Process,
    /// How much each trial sends.
    pub extent: Extent,
}

/// Why a rate is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// No rate has failed yet.
    Doubling,
    /// Between one that passes and one that fails.
    Halving,
    /// What its trials say is not clear.
    Unclear,
    /// It is an end of the bracket, and not decided yet.
    Confirmation,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// A trial.
    Trial {
        /// Its rate.
        rate: OfferedRate,
        /// How many trials there were at that rate.
        repeat: u32,
        /// Why.
        why: Why,
    },
    /// Nothing: the search is over.
    End(Ended),
}

/// Why a search is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The bracket is as narrow as was asked for, and both ends are decided.
    Narrow,
    /// The highest rate passes.
    HighestPasses,
    /// The lowest rate fails.
    LowestFails,
    /// Another trial would end after the budget.
    Budget,
    /// Every rate between the ends that may be tried stays undecided.
    Undecided,
    /// It is not over: it was ended early.
    Early,
}

/// What a search may take at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AtMost {
    /// Trials.
    pub trials: u32,
    /// Seconds: of the trials, or the budget where that is less. The drain of the last trial comes on top.
    pub seconds: f64,
}

impl Search {
    /// The rates of the doubling, lowest first, the highest rate last.
    #[must_use]
    pub fn ladder(&self) -> Vec<f64> {
        let SearchSettings { min_rate_per_second: min, max_rate_per_second: max, .. } = self.settings;
        let doubled = std::iter::successors(Some(min), |rate| Some(rate * 2.0));
        doubled.take_while(|rate| *rate < max).chain([max]).collect()
    }

    /// Rates between those of the doubling that may be tried: those of two halvings from two to one, for an end may turn
    /// out to be none, and some to spare.
    fn halvings(&self) -> u32 {
        let steps = libm::log2(std::f64::consts::LN_2 / libm::log1p(self.settings.relative_width));
        // `as` saturates: a width above 1 takes no step.
        2 * steps.ceil().max(0.0) as u32 + RATES_TO_SPARE
    }

    fn is_of_the_doubling(&self, rate: f64) -> bool {
        self.ladder().contains(&rate)
    }

    /// The error that one rate may be decided wrongly with.
    fn error_of_a_rate(&self) -> f64 {
        (1.0 - self.settings.confidence) / f64::from(self.halvings() + DOUBLED_ENDS)
    }

    /// What a trial at this rate takes, about, when the engine keeps up. Seconds.
    #[must_use]
    pub fn trial_seconds(&self, rate: f64) -> f64 {
        let offered = Rate::try_from(rate).map(OfferedRate::PerSecond);
        let plan = offered.map(|rate| ArrivalPlan { process: self.process, rate, extent: self.extent });
        let length = plan.ok().and_then(|plan| plan.length());
        length.map_or(0.0, |length| length.as_secs_f64()) + AROUND_A_TRIAL_SECONDS
    }

    /// What the search may take at most.
    #[must_use]
    pub fn at_most(&self) -> AtMost {
        let ladder = self.ladder();
        let rates = ladder.len() as u32 + self.halvings();
        let shortest = self.trial_seconds(self.settings.max_rate_per_second);
        let longest = self.trial_seconds(self.settings.min_rate_per_second);
        let by_budget = (self.settings.budget_seconds / shortest).min(f64::from(u32::MAX)) as u32;
        let trials = (rates * (self.settings.trials_a_rate + MOST_SPOILED)).min(by_budget);
        AtMost { trials, seconds: self.settings.budget_seconds.min(f64::from(trials) * longest) }
    }

    /// What the trials so far took, about. Seconds.
    fn spent_seconds(&self, trials: &[TrialEvidence]) -> f64 {
        trials.iter().map(|t| t.seconds + AROUND_A_TRIAL_SECONDS).sum()
    }

    /// Whether a trial of `planned` arrivals of which `missed` are already known not to be good is not worth its rest: it
    /// misses the target however good the rest may be, and by so much that a few like it decide their rate.
    ///
    /// What is left away then cannot favour any side: such a trial only counts against its rate, with the misses that are
    /// known, and as if all the rest had been good.
    #[must_use]
    pub fn is_hopeless(&self, missed: u64, planned: u64) -> bool {
        judge::a_few_decide(self, missed, planned)
    }

    /// What comes after these trials, which are those that count, in the order of sending.
    #[must_use]
    pub fn next(&self, trials: &[TrialEvidence]) -> Step {
        let judged = self.judged(trials);
        let step = steer::step(self, &judged);
        let Step::Trial { rate, .. } = step else { return step };
        let takes = self.trial_seconds(rate.per_second().unwrap_or_default());
        match self.spent_seconds(trials) + takes > self.settings.budget_seconds {
            true => Step::End(Ended::Budget),
            false => step,
        }
    }

    /// What the trials say of each rate, lowest first.
    #[must_use]
    pub fn judged(&self, trials: &[TrialEvidence]) -> Vec<RateJudgement> {
        let mut rates: Vec<f64> = trials.iter().map(|t| t.rate).collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        let of = |rate: f64| trials.iter().filter(|t| t.rate == rate).collect::<Vec<_>>();
        rates.into_iter().map(|rate| judge::judge(self, rate, &of(rate))).collect()
    }
}
