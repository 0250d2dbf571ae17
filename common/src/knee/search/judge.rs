//! What the trials of one rate say: whether it passes, fails, or neither yet.
//!
//! **Looks.** After each trial it is looked whether the trials so far decide. Looking often finds something by chance,
//! so each look may spend only a part of the rate's error: with K looks, look k adds (k/K)² − ((k−1)/K)² of it, the
//! power family of Kim and DeMets (Design and analysis of group sequential tests based on the type I error spending rate
//! function, Biometrika 74, 1987) within the frame of Lan and DeMets (Discrete sequential boundaries for clinical trials,
//! Biometrika 70, 1983). The parts are simply added (Bonferroni over the looks), which is more careful than their
//! boundaries and needs no model of how looks depend on each other. What was decided stays decided.
//!
//! **How a look decides**, in this order:
//! - the interval of attainment over the batches of all trials ([`pooled_share_at`]), at the look's own level: a rate
//!   passes when all of it is at the target or above, and fails when all of it is below;
//! - where fewer than 5 requests missed there is no such interval. Then the rate passes when so few missed are
//!   unlikely at the target: by the binomial distribution, as if each of the [`independent_parts`] of a trial were one
//!   request (of trials that have no batches, each of the [`parts`](crate::stats::Batching::parts) that its pace allows).
//!   That holds however much the requests within a part depend on each other;
//! - where a trial has no batches, because it is overloaded or short, and there are [`TRIALS_AS_BATCHES`] trials or
//!   more: the same interval with each trial as one batch, for trials do not depend on each other;
//! - the product over the trials of ½ + ½·(share missed)/(share that may miss) has an expectation of at most 1 as long as
//!   the rate meets the target, so it exceeds 1/e at any time with a probability of at most e (Ville's inequality; see
//!   Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, JRSS B 86, 2024). This one needs
//!   no batches, may be looked at after every trial, and is how a rate fails that the engine cannot carry at all. It
//!   gets a fifth of the rate's error for failing, the interval the rest.

use serde::{Deserialize, Serialize};

use super::{MOST_SPOILED, Search, TrialEvidence};
use crate::stats::{MIN_MISSED, ShareBatch, independent_parts, pooled_share_at};

/// From so many trials on each may be taken for a batch.
const TRIALS_AS_BATCHES: usize = 4;
/// A rate leans to pass when it misses at most this share of what it may miss, and to fail from the inverse on.
const CLEAR: f64 = 0.5;
/// Trials at a rate are given up when the estimate's distance from the target is below this share of the half width
/// that all looks together would leave.
const HOPELESS: f64 = 0.6;
/// Looks before that.
const LOOKS_BEFORE_GIVING_UP: u32 = 2;
/// A trial may be ended early when so many like it decide.
const A_FEW: i32 = 3;
/// Of the error that a rate fails wrongly with: the share for many that missed. The interval has the rest.
const MANY_MISSED_SHARE: f64 = 0.2;

/// Where a rate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Decided: it meets the target.
    Pass,
    /// Decided: it misses the target.
    Fail,
    /// Not decided; it looks like a pass.
    LeansPass,
    /// Not decided; it looks like a failure.
    LeansFail,
    /// Not decided, and too near to the target to lean; more trials would tell.
    Unclear,
    /// More trials would hardly decide it, or are not allowed.
    Undecided,
    /// None of its trials is valid.
    Spoiled,
}

/// By what a rate was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The interval over batches.
    Batches,
    /// The interval over trials.
    Trials,
    /// So few missed are unlikely at the target.
    FewMissed,
    /// So many missed are unlikely at the target.
    ManyMissed,
}

/// What the trials of one rate say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateJudgement {
    /// Requests per second.
    pub rate_per_second: f64,
    /// Where it stands.
    pub standing: Standing,
    /// By what it was decided; none while it is not.
    pub by: Option<By>,
    /// The look that decided, from 1.
    pub decided_at_look: Option<u32>,
    /// Trials, all of them.
    pub trials: u32,
    /// Valid ones: so many looks were taken.
    pub looks: u32,
    /// Trials that the search ended early, because they could not pass any more.
    pub cut: u32,
    /// Arrivals of the valid trials; of those that were cut the whole schedule's.
    pub requests: u64,
    /// Requests that were not good; of those that were cut: among the arrivals before the cut.
    pub missed: u64,
    /// Lower end of the interval at the last look, where there was one.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The error that this rate may be decided wrongly with.
    pub error: f64,
}

impl RateJudgement {
    /// The share of requests that was good, at most; none without a valid trial.
    #[must_use]
    pub fn attainment(&self) -> Option<f64> {
        (self.requests > 0).then(|| 1.0 - self.missed as f64 / self.requests as f64)
    }
}

/// What one look finds.
#[derive(Debug, Default)]
struct Found {
    decided: Option<(bool, By)>,
    ends: Option<(f64, f64)>,
}

/// Judges a rate by its trials, in the order of sending.
pub(super) fn judge(search: &Search, rate: f64, trials: &[&TrialEvidence]) -> RateJudgement {
    let error = search.error_of_a_rate();
    let valid: Vec<&TrialEvidence> = trials.iter().copied().filter(|t| t.valid).collect();
    let looks = valid.len() as u32;
    let mut judged = RateJudgement {
        rate_per_second: rate,
        standing: Standing::Unclear,
        by: None,
        decided_at_look: None,
        trials: trials.len() as u32,
        looks,
        cut: valid.iter().filter(|t| t.cut).count() as u32,
        requests: valid.iter().map(|t| t.scheduled).sum(),
        missed: valid.iter().map(|t| t.missed).sum(),
        low: None,
        high: None,
        error,
    };
    // The first trial of a rate of the doubling only steers.
    let first = if search.is_of_the_doubling(rate) { 2 } else { 1 };
    for look in first..=looks {
        let found = Look { search, error, look, trials: &valid[..look as usize] }.find();
        (judged.low, judged.high) = found.ends.unzip();
        if let Some((passes, by)) = found.decided {
            judged.standing = if passes { Standing::Pass } else { Standing::Fail };
            (judged.by, judged.decided_at_look) = (Some(by), Some(look));
            return judged;
        }
    }
    judged.standing = undecided(search, &judged);
    judged
}

/// Where a rate stands that its looks did not decide.
fn undecided(search: &Search, judged: &RateJudgement) -> Standing {
    let most = search.settings.trials_a_rate;
    let spoiled = judged.trials - judged.looks;
    if judged.looks == 0 {
        return if spoiled < MOST_SPOILED { Standing::Unclear } else { Standing::Spoiled };
    }
    let no_more = judged.looks >= most || spoiled > MOST_SPOILED;
    if no_more || gives_up(search, judged) {
        return Standing::Undecided;
    }
    let may_miss = (1.0 - search.target.share()) * judged.requests as f64;
    let missed = judged.missed as f64;
    if judged.cut == 0 && missed <= CLEAR * may_miss {
        Standing::LeansPass
    } else if judged.cut > 0 || (missed >= may_miss / CLEAR && judged.missed >= MIN_MISSED) {
        Standing::LeansFail
    } else {
        Standing::Unclear
    }
}

/// Whether all looks that are left would hardly decide: the half width shrinks with the root of the looks.
fn gives_up(search: &Search, judged: &RateJudgement) -> bool {
    let (Some(low), Some(high), Some(attained)) = (judged.low, judged.high, judged.attainment()) else {
        return false;
    };
    let half = (log_odds(high) - log_odds(low)) / 2.0;
    let left = half * (f64::from(judged.looks) / f64::from(search.settings.trials_a_rate)).sqrt();
    let distance = (log_odds(attained) - log_odds(search.target.share())).abs();
    judged.looks >= LOOKS_BEFORE_GIVING_UP && distance < HOPELESS * left
}

fn log_odds(share: f64) -> f64 {
    libm::log(share / (1.0 - share))
}

/// One look at the first trials of a rate.
struct Look<'a> {
    search: &'a Search,
    error: f64,
    look: u32,
    trials: &'a [&'a TrialEvidence],
}

impl Look<'_> {
    /// What this look may spend of the rate's error.
    fn spends(&self) -> f64 {
        let of = |look: u32| (f64::from(look) / f64::from(self.search.settings.trials_a_rate)).powi(2);
        self.error * (of(self.look) - of(self.look - 1))
    }

    fn find(&self) -> Found {
        let many = self.many_missed().then_some((false, By::ManyMissed));
        // What was cut has no batches that were not chosen: it may only count against the rate.
        if self.trials.iter().any(|t| t.cut) {
            return Found { decided: many, ends: None };
        }
        let batches: Option<Vec<Vec<ShareBatch>>> =
            self.trials.iter().map(|t| t.batches.clone().ok()).collect();
        let (ends, by) = match &batches {
            Some(batches) => (self.interval(batches), By::Batches),
            None if self.trials.len() >= TRIALS_AS_BATCHES => {
                let one =
                    |t: &&TrialEvidence| ShareBatch { scheduled: t.scheduled, good: t.scheduled - t.missed };
                (self.interval(&[self.trials.iter().map(one).collect()]), By::Trials)
            }
            None => (None, By::Trials),
        };
        let target = self.search.target.share();
        let by_ends = ends.and_then(|((low, _), (_, high))| match (low >= target, high < target) {
            (true, _) => Some((true, by)),
            (_, true) => Some((false, by)),
            _ => None,
        });
        let few = self.few_missed(batches.as_deref()).then_some((true, By::FewMissed));
        Found { decided: by_ends.or(few).or(many), ends: ends.map(|((low, _), (_, high))| (low, high)) }
    }

    /// The interval that a pass is decided by, and the wider one for a failure, which has not all of the error.
    fn interval(&self, batches: &[Vec<ShareBatch>]) -> Option<((f64, f64), (f64, f64))> {
        let spends = self.spends();
        let pass = pooled_share_at(batches, spends).ends()?;
        Some((pass, pooled_share_at(batches, spends * (1.0 - MANY_MISSED_SHARE)).ends()?))
    }

    fn few_missed(&self, batches: Option<&[Vec<ShareBatch>]>) -> bool {
        let missed: u64 = self.trials.iter().map(|t| t.missed).sum();
        let parts = |(trial, batches): (&&TrialEvidence, &Vec<ShareBatch>)| {
            independent_parts(trial.scheduled, batches.len() as u32)
        };
        let parts: u64 = match batches {
            Some(batches) => self.trials.iter().zip(batches).map(parts).sum(),
            None => self.trials.iter().map(|t| t.parts).sum(),
        };
        let may_miss = 1.0 - self.search.target.share();
        missed < MIN_MISSED && at_most(missed, parts, may_miss) <= self.spends()
    }

    fn many_missed(&self) -> bool {
        let may_miss = 1.0 - self.search.target.share();
        if may_miss <= 0.0 {
            // All have to be good: one that is not decides.
            return self.trials.iter().any(|t| t.missed > 0);
        }
        let against =
            |t: &&TrialEvidence| 0.5 + 0.5 * (t.missed as f64 / t.scheduled.max(1) as f64) / may_miss;
        self.trials.iter().map(against).product::<f64>() >= too_many(self.error)
    }
}

/// What a trial says against its rate: its expectation is at most 1 while the rate meets the target.
fn against(missed: u64, scheduled: u64, may_miss: f64) -> f64 {
    0.5 + 0.5 * (missed as f64 / scheduled.max(1) as f64) / may_miss
}

/// The product over the trials that decides against a rate.
fn too_many(error: f64) -> f64 {
    1.0 / (error * MANY_MISSED_SHARE)
}

/// Whether [`A_FEW`] trials of so many that missed would decide against their rate.
pub(super) fn a_few_decide(search: &Search, missed: u64, planned: u64) -> bool {
    let may_miss = 1.0 - search.target.share();
    let product = against(missed, planned, may_miss).powi(A_FEW);
    missed >= MIN_MISSED && may_miss > 0.0 && product >= too_many(search.error_of_a_rate())
}

/// The probability that at most `hits` of `n` independent trials hit, when each does with the probability `p`.
fn at_most(hits: u64, n: u64, p: f64) -> f64 {
    if p <= 0.0 {
        return 1.0;
    }
    let mut term = libm::exp(n as f64 * libm::log1p(-p));
    let mut sum = term;
    for k in 0..hits.min(n) {
        term *= (n - k) as f64 / (k + 1) as f64 * p / (1.0 - p);
        sum += term;
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binomial_is_that_of_the_tables() {
        assert!((at_most(0, 458, 0.01) - 0.01).abs() < 1e-4);
        // Of 10 throws of a coin at most 2: 56/1024.
        assert!((at_most(2, 10, 0.5) - 56.0 / 1024.0).abs() < 1e-12);
        assert_eq!((at_most(10, 10, 0.5), at_most(0, 9, 0.0)), (1.0, 1.0));
    }
}
