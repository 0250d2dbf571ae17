//! Whether an interval that claims 95% holds the truth that often, and how often there is none.
//!
//! The sabotage: the interval that a textbook gives for independent samples. Requests under load are not independent,
//! so it is far too short.

use std::collections::BTreeMap;

use common::seed::Seed;
use common::slo::SloSet;
use common::stats::{Interval, NoInterval};

use crate::parallel;
use crate::statistics::{moments, too_few};
use crate::trial::{Case, Trial};

/// The share of the given intervals that has to hold the truth.
pub const LEAST_COVERAGE: f64 = 0.93;
/// With so many intervals their coverage has to be at the bound; with fewer it may be below it by its noise.
pub const ENOUGH: u64 = 500;
/// The share of all trials that may get a wrong interval when they are too short: what a 95% interval promises.
pub const MOST_WRONG: f64 = 0.05;
/// The share of trials for which an interval has to be given: these trials are long enough.
pub const LEAST_GIVEN: f64 = 0.5;

/// The queues, each long enough that an interval can be given.
pub const CASES: [Case; 4] = [
    Case { servers: 1, load: 0.5, requests: 20_000 },
    Case { servers: 1, load: 0.7, requests: 40_000 },
    Case { servers: 1, load: 0.9, requests: 200_000 },
    Case { servers: 4, load: 0.7, requests: 40_000 },
];

/// The same queues in trials so short that mostly no interval can be given. The few that get one are those that
/// happened to see no long queue, and hold the truth less often; so what is judged is how many of *all* trials get a
/// wrong interval.
pub const SHORT_CASES: [Case; 4] = [
    Case { servers: 1, load: 0.5, requests: 2_000 },
    Case { servers: 1, load: 0.7, requests: 4_000 },
    Case { servers: 1, load: 0.9, requests: 20_000 },
    Case { servers: 4, load: 0.7, requests: 4_000 },
];

/// The share of requests that meets the objective, about: the objective is a whole number of milliseconds.
const MEETING: f64 = 0.95;

/// How often an interval held the truth.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Trials with an interval.
    pub given: u64,
    /// Those whose interval holds the truth.
    pub covered: u64,
    /// Trials without one, by the reason.
    pub none: BTreeMap<NoInterval, u64>,
    /// Sum of the half widths over the truth.
    relative_half_widths: f64,
}

impl Tally {
    fn add(&mut self, interval: &Interval, truth: f64) {
        match (interval.ends(), interval.reason()) {
            (Some((low, high)), _) => {
                self.given += 1;
                self.covered += u64::from(interval.covers(truth));
                self.relative_half_widths += (high - low) / 2.0 / truth;
            }
            (None, reason) => *self.none.entry(reason.unwrap_or(NoInterval::Undefined)).or_default() += 1,
        }
    }

    /// Of these intervals and truths.
    #[must_use]
    pub fn of(intervals: impl IntoIterator<Item = Interval>, truth: f64) -> Self {
        let mut tally = Self::default();
        intervals.into_iter().for_each(|interval| tally.add(&interval, truth));
        tally
    }

    /// Trials.
    #[must_use]
    pub fn trials(&self) -> u64 {
        self.given + self.none.values().sum::<u64>()
    }

    /// The share of the given intervals that holds the truth.
    #[must_use]
    pub fn coverage(&self) -> Option<f64> {
        (self.given > 0).then(|| self.covered as f64 / self.given as f64)
    }

    /// Mean half width over the truth.
    #[must_use]
    pub fn relative_half_width(&self) -> Option<f64> {
        (self.given > 0).then(|| self.relative_half_widths / self.given as f64)
    }

    /// The judgement: enough of the given intervals hold the truth; to within their noise when they are few.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.given > 0 && self.holds_where_given()
    }

    fn holds_where_given(&self) -> bool {
        if self.given >= ENOUGH {
            self.covered as f64 >= LEAST_COVERAGE * self.given as f64
        } else {
            !too_few(self.covered, self.given, LEAST_COVERAGE)
        }
    }

    /// The share of all trials that got an interval which does not hold the truth.
    #[must_use]
    pub fn wrong(&self) -> f64 {
        (self.given - self.covered) as f64 / self.trials().max(1) as f64
    }

    /// The judgement on trials that are too short: a wrong interval is rare among all of them.
    #[must_use]
    pub fn is_rarely_wrong(&self) -> bool {
        self.wrong() <= MOST_WRONG
    }

    /// An interval is given often enough to be of use.
    #[must_use]
    pub fn is_given_often(&self) -> bool {
        self.given as f64 >= LEAST_GIVEN * self.trials() as f64
    }
}

/// The truth of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    /// Mean sojourn, seconds.
    pub mean: f64,
    /// 99th percentile of the sojourn, seconds.
    pub p99: f64,
    /// The objective on the E2E of each request.
    pub slo: SloSet,
    /// Its limit, seconds.
    pub limit: f64,
    /// The share of requests that meets it.
    pub attainment: f64,
}

impl Truth {
    /// Of a case whose load is below 1.
    ///
    /// # Errors
    /// When the case has no steady state.
    pub fn of(case: &Case, meeting: f64) -> anyhow::Result<Self> {
        let queue = case.truth().ok_or_else(|| anyhow::anyhow!("{} has no steady state", case.name()))?;
        let millis = (queue.sojourn_quantile(meeting) * 1000.0).round();
        let limit = millis / 1000.0;
        Ok(Self {
            mean: queue.mean_sojourn(),
            p99: queue.sojourn_quantile(0.99),
            slo: format!("e2e={millis}ms").parse()?,
            limit,
            attainment: 1.0 - queue.sojourn_tail(limit),
        })
    }
}

/// What the seeds said of one case.
#[derive(Debug, Clone, PartialEq)]
pub struct Coverage {
    /// The case.
    pub case: Case,
    /// Its truth.
    pub truth: Truth,
    /// Intervals of the mean E2E.
    pub mean: Tally,
    /// Intervals of the p99 of the E2E.
    pub p99: Tally,
    /// Intervals of the attainment.
    pub attainment: Tally,
    /// The sabotage: of the mean, as if requests were independent.
    pub independent_mean: Tally,
    /// The sabotage: of the attainment, as if requests were independent.
    pub independent_attainment: Tally,
}

impl Coverage {
    /// Each of Plimsoll's own tallies with its name.
    #[must_use]
    pub fn tallies(&self) -> [(&'static str, f64, &Tally); 3] {
        [
            ("mean E2E", self.truth.mean, &self.mean),
            ("p99 E2E", self.truth.p99, &self.p99),
            ("attainment", self.truth.attainment, &self.attainment),
        ]
    }
}

struct Found {
    mean: Interval,
    p99: Interval,
    attainment: Interval,
    independent_mean: Interval,
    independent_attainment: Interval,
}

/// Runs the case for so many seeds.
///
/// # Errors
/// When the case cannot be run.
pub fn measure(case: &Case, seeds: u64) -> anyhow::Result<Coverage> {
    let truth = Truth::of(case, MEETING)?;
    let found = parallel::map(seeds, |seed| look(case, &truth, seed));
    let found = found.into_iter().collect::<anyhow::Result<Vec<Found>>>()?;
    let tally = |of: fn(&Found) -> Interval, truth| Tally::of(found.iter().map(of), truth);
    Ok(Coverage {
        case: *case,
        mean: tally(|found| found.mean, truth.mean),
        p99: tally(|found| found.p99, truth.p99),
        attainment: tally(|found| found.attainment, truth.attainment),
        independent_mean: tally(|found| found.independent_mean, truth.mean),
        independent_attainment: tally(|found| found.independent_attainment, truth.attainment),
        truth,
    })
}

fn look(case: &Case, truth: &Truth, seed: Seed) -> anyhow::Result<Found> {
    let trial = Trial::open(case, seed, usize::MAX)?;
    let numbers = trial.numbers(&truth.slo)?;
    let sojourns = trial.traces.iter().map(|trace| trace.clocks.finished.since(trace.clocks.scheduled));
    let sojourns: Vec<f64> = sojourns.map(common::ids::Nanos::as_secs_f64).collect();
    let met: Vec<f64> = sojourns.iter().map(|&took| f64::from(u8::from(took <= truth.limit))).collect();
    Ok(Found {
        mean: numbers.intervals.e2e_mean,
        p99: numbers.intervals.e2e_p99,
        attainment: numbers.intervals.slo_attainment,
        independent_mean: as_if_independent(&sojourns),
        independent_attainment: as_if_independent(&met),
    })
}

/// The interval of the textbook: mean ± 1.96 standard errors of so many independent samples.
#[must_use]
pub fn as_if_independent(samples: &[f64]) -> Interval {
    let (mean, variance) = moments(samples);
    let half = 1.96 * (variance / samples.len() as f64).sqrt();
    Interval::Known { low: mean - half, high: mean + half, batches: 0, lag1: 0.0 }
}
