//! Where a search goes next, by what its rates say. Leaning steers, deciding ends: see [`super`].

use super::{DOUBLED_ENDS, Ended, RateJudgement, Search, Standing, Step, Why};
use crate::plan::{OfferedRate, Rate};

/// A gap between an end and an undecided rate is worth a trial when it is at least this share of the width that was
/// asked for, as ratios.
const WORTH_A_TRIAL: f64 = 0.25;

/// What the rates lean to, as a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bracket<'a> {
    /// The highest rate below `fail` that passes or leans to.
    pub(super) pass: Option<&'a RateJudgement>,
    /// The lowest rate that fails or leans to.
    pub(super) fail: Option<&'a RateJudgement>,
}

impl<'a> Bracket<'a> {
    /// Of rates in ascending order. What is decided wins over what leans: a rate that leans to fail below one that
    /// passes does not count. Of decided rates that contradict each other the lowest that fails counts.
    pub(super) fn leaning(judged: &'a [RateJudgement], search: &Search) -> Self {
        let highest_pass = judged.iter().rev().find(|r| r.standing == Standing::Pass);
        let passed = highest_pass.map_or(f64::NEG_INFINITY, |r| r.rate_per_second);
        let fails = |r: &&RateJudgement| {
            r.standing == Standing::Fail || (r.rate_per_second > passed && leans(search, r) == Some(false))
        };
        let fail = judged.iter().find(fails);
        let below = fail.map_or(f64::INFINITY, |r| r.rate_per_second);
        let passes = |r: &&RateJudgement| r.rate_per_second < below && leans(search, r) == Some(true);
        Self { pass: judged.iter().rev().find(passes), fail }
    }

    /// Of decided rates alone.
    pub(super) fn decided(judged: &'a [RateJudgement]) -> Self {
        let fail = judged.iter().find(|r| r.standing == Standing::Fail);
        let below = fail.map_or(f64::INFINITY, |r| r.rate_per_second);
        let passes = |r: &&RateJudgement| r.rate_per_second < below && r.standing == Standing::Pass;
        Self { pass: judged.iter().rev().find(passes), fail }
    }
}

/// What a rate leans to. While the rates double, the nearer side will do: what is wrong with it shows later.
fn leans(search: &Search, rate: &RateJudgement) -> Option<bool> {
    match rate.standing {
        Standing::Pass | Standing::LeansPass => Some(true),
        Standing::Fail | Standing::LeansFail => Some(false),
        Standing::Unclear if rate.looks > 0 && search.is_of_the_doubling(rate.rate_per_second) => {
            Some(rate.attainment().is_some_and(|share| share >= search.target.share()))
        }
        Standing::Unclear | Standing::Undecided | Standing::Spoiled => None,
    }
}

pub(super) fn step(search: &Search, judged: &[RateJudgement]) -> Step {
    let unclear = |r: &&RateJudgement| r.standing == Standing::Unclear && leans(search, r).is_none();
    if let Some(rate) = judged.iter().find(unclear) {
        let why = if rate.looks > 0 { Why::Unclear } else { Why::Doubling };
        return again(rate, why);
    }
    let bracket = Bracket::leaning(judged, search);
    let Some(fail) = bracket.fail else { return upwards(search, judged, bracket.pass) };
    let Some(pass) = bracket.pass else {
        return confirm(search, judged, &[fail]).unwrap_or(Step::End(match judged.first() {
            Some(lowest) if lowest.rate_per_second == fail.rate_per_second => Ended::LowestFails,
            _ => Ended::Undecided,
        }));
    };
    let width = fail.rate_per_second / pass.rate_per_second - 1.0;
    let narrow = width <= search.settings.relative_width;
    let between = if narrow { None } else { between(search, judged, pass, fail.rate_per_second) };
    let end = if narrow { Ended::Narrow } else { Ended::Undecided };
    between.or_else(|| confirm(search, judged, &[fail, pass])).unwrap_or(Step::End(end))
}

/// No rate fails yet.
fn upwards(search: &Search, judged: &[RateJudgement], pass: Option<&RateJudgement>) -> Step {
    let ladder = search.ladder();
    let Some(highest) = judged.last() else { return first(ladder.first().copied()) };
    // Above a rate that cannot be measured no other can: it is the generator that is at its end there.
    if let Some(wall) = judged.iter().find(|r| r.standing == Standing::Spoiled) {
        let between = pass.and_then(|pass| between(search, judged, pass, wall.rate_per_second));
        let confirmed = || pass.and_then(|pass| confirm(search, judged, &[pass]));
        return between.or_else(confirmed).unwrap_or(Step::End(Ended::Undecided));
    }
    match ladder.iter().find(|rate| **rate > highest.rate_per_second) {
        Some(&rate) => first(Some(rate)),
        None => pass.and_then(|pass| confirm(search, judged, &[pass])).unwrap_or(Step::End(
            match highest.standing {
                Standing::Pass => Ended::HighestPasses,
                _ => Ended::Undecided,
            },
        )),
    }
}

/// A new rate between the ends, beside what is undecided there: in the wider of the outer gaps.
fn between(search: &Search, judged: &[RateJudgement], pass: &RateJudgement, fail: f64) -> Option<Step> {
    let tried = judged.iter().filter(|r| !search.is_of_the_doubling(r.rate_per_second)).count();
    if tried >= search.halvings() as usize {
        return None;
    }
    let pass = pass.rate_per_second;
    let inside = || judged.iter().map(|r| r.rate_per_second).filter(|rate| *rate > pass && *rate < fail);
    let (lowest, highest) = (inside().next().unwrap_or(fail), inside().next_back().unwrap_or(pass));
    let (low, high) = if lowest / pass >= fail / highest { (pass, lowest) } else { (highest, fail) };
    let worth = WORTH_A_TRIAL * libm::log1p(search.settings.relative_width);
    (libm::log(high / low) >= worth).then(|| trial(middle(low, high), 0, Why::Halving))
}

/// The middle of two rates as ratios, with as few digits as leave it near there.
fn middle(low: f64, high: f64) -> f64 {
    let exact = (low * high).sqrt();
    let rounded = (2..17).map(|digits| format!("{exact:.digits$e}").parse().unwrap_or(exact));
    let near = |rate: &f64| libm::log(rate / exact).abs() < 0.1 * libm::log(high / low);
    rounded.into_iter().find(near).unwrap_or(exact)
}

/// One more trial at the first of these that is not decided yet, and may be.
fn confirm(search: &Search, judged: &[RateJudgement], ends: &[&RateJudgement]) -> Option<Step> {
    let doubled = |r: &RateJudgement| search.is_of_the_doubling(r.rate_per_second);
    let begun = judged.iter().filter(|r| doubled(r) && r.looks > 1).count();
    let may = |r: &RateJudgement| !doubled(r) || r.looks > 1 || begun < DOUBLED_ENDS as usize;
    let open = |r: &RateJudgement| {
        matches!(r.standing, Standing::LeansPass | Standing::LeansFail | Standing::Unclear)
    };
    ends.iter().find(|r| open(r) && may(r)).map(|rate| again(rate, Why::Confirmation))
}

fn first(rate: Option<f64>) -> Step {
    rate.map_or(Step::End(Ended::Undecided), |rate| trial(rate, 0, Why::Doubling))
}

fn again(rate: &RateJudgement, why: Why) -> Step {
    trial(rate.rate_per_second, rate.trials, why)
}

fn trial(rate: f64, repeat: u32, why: Why) -> Step {
    match Rate::try_from(rate) {
        Ok(rate) => Step::Trial { rate: OfferedRate::PerSecond(rate), repeat, why },
        // It lies between two rates that can be offered, so it can.
        Err(_) => Step::End(Ended::Undecided),
    }
}
