//! Latency counts from when a request was due, whoever was the reason that it was sent later.
//!
//! With one server that serves in order, it makes no difference to a request's end whether it waits at the engine or
//! at a client that lets only so many through. So a trial with a concurrency limit has the same closed form, and the
//! E2E that counts from the schedule must meet it. The sabotage counts from the dispatch. A closed loop is the same
//! error as a way of life, and is held against an open loop on an engine that is offered more than it can do.

use common::seed::Seed;
use common::slo::SloSet;
use common::stats::Interval;

use crate::coverage::{Tally, Truth};
use crate::parallel;
use crate::trial::{Case, Trial};

/// The queue behind a concurrency limit.
pub const LIMITED: Case = Case { servers: 1, load: 0.7, requests: 40_000 };
/// The limit.
pub const PERMITS: usize = 2;

/// The engine that is offered more than it can do.
pub const OVERLOADED: Case = Case { servers: 1, load: 1.5, requests: 1_000 };
/// Workers of the closed loop.
pub const WORKERS: usize = 4;
/// How much larger the open loop's p99 has to be.
pub const LEAST_RATIO: f64 = 10.0;

/// Intervals behind a concurrency limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Limited {
    /// The truth.
    pub truth: Truth,
    /// Of the mean E2E, from the schedule.
    pub mean: Tally,
    /// Of the p99, from the schedule.
    pub p99: Tally,
    /// The sabotage: of the mean, from the dispatch.
    pub mean_from_dispatch: Tally,
    /// The sabotage: of the p99, from the dispatch.
    pub p99_from_dispatch: Tally,
}

/// Runs the limited queue for so many seeds.
///
/// # Errors
/// When it cannot be run.
pub fn limited(seeds: u64) -> anyhow::Result<Limited> {
    let truth = Truth::of(&LIMITED, 0.95)?;
    let found = parallel::map(seeds, |seed| -> anyhow::Result<[Interval; 4]> {
        let mut trial = Trial::open(&LIMITED, seed, PERMITS)?;
        let right = trial.numbers(&SloSet::default())?.intervals;
        trial.count_from_dispatch();
        let wrong = trial.numbers(&SloSet::default())?.intervals;
        Ok([right.e2e_mean, right.e2e_p99, wrong.e2e_mean, wrong.e2e_p99])
    });
    let found = found.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let tally = |place: usize, truth| Tally::of(found.iter().map(|found| found[place]), truth);
    Ok(Limited {
        mean: tally(0, truth.mean),
        p99: tally(1, truth.p99),
        mean_from_dispatch: tally(2, truth.mean),
        p99_from_dispatch: tally(3, truth.p99),
        truth,
    })
}

/// An open loop beside a closed one, on the same work.
#[derive(Debug, Clone, PartialEq)]
pub struct Loops {
    /// p99 of the E2E in the open loop over that in the closed loop, in ascending order, one for each seed.
    pub ratios: Vec<f64>,
    /// p99 of the E2E of the first seed, seconds: open, closed.
    pub first: (f64, f64),
}

impl Loops {
    /// The smallest ratio.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.ratios.first().copied().unwrap_or(f64::NAN)
    }

    /// The median ratio.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.ratios.get(self.ratios.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The judgement: whatever the seed, the closed loop hides at least so much.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.least() >= LEAST_RATIO
    }
}

/// Runs both loops for so many seeds.
///
/// # Errors
/// When they cannot be run.
pub fn loops(seeds: u64) -> anyhow::Result<Loops> {
    let pairs = parallel::map(seeds, |seed| both(seed, |seed| Trial::open(&OVERLOADED, seed, usize::MAX)));
    loops_of(pairs)
}

/// The sabotage: both loops are closed, so nothing is seen.
///
/// # Errors
/// When they cannot be run.
pub fn loops_that_are_both_closed(seeds: u64) -> anyhow::Result<Loops> {
    let pairs = parallel::map(seeds, |seed| {
        both(seed, |seed| {
            let mut trial = Trial::open(&OVERLOADED, seed, WORKERS)?;
            trial.count_from_dispatch();
            Ok(trial)
        })
    });
    loops_of(pairs)
}

fn both(seed: Seed, open: impl Fn(Seed) -> anyhow::Result<Trial>) -> anyhow::Result<(f64, f64)> {
    let p99 = |trial: anyhow::Result<Trial>| -> anyhow::Result<f64> {
        let p99 = trial?.numbers(&SloSet::default())?.latency_seconds.e2e.p99;
        p99.ok_or_else(|| anyhow::anyhow!("no request succeeded"))
    };
    Ok((p99(open(seed))?, p99(Trial::closed(&OVERLOADED, seed, WORKERS))?))
}

fn loops_of(pairs: Vec<anyhow::Result<(f64, f64)>>) -> anyhow::Result<Loops> {
    let pairs = pairs.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let mut ratios: Vec<f64> = pairs.iter().map(|(open, closed)| open / closed).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    Ok(Loops { ratios, first: pairs.first().copied().unwrap_or_default() })
}
