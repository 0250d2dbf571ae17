//! What was lost counts: failures in the attainment, the drain in the throughput.
//!
//! Requests that take too long are cut by the client as failures; the truth of an objective below the timeout does not
//! change by that, so the attainment must still meet the closed form. The sabotage leaves the failures out, which are
//! the slowest requests. And an engine that is offered more than it can do completes what it can do per second: the
//! sabotage divides by the time of the arrivals and leaves the drain out.

use common::ids::Nanos;
use common::slo::SloSet;
use common::stats::Interval;

use crate::coverage::{Tally, Truth};
use crate::parallel;
use crate::trial::{Case, Trial, cut_at};

/// The queue whose slowest requests are cut.
pub const CUT: Case = Case { servers: 1, load: 0.7, requests: 40_000 };
/// About this share meets the objective.
pub const MEETING: f64 = 0.90;
/// About this share ends before the timeout.
pub const IN_TIME: f64 = 0.95;
/// The engine that is offered more than it can do.
pub const OVERLOADED: Case = Case { servers: 1, load: 1.5, requests: 1_000 };
/// How far the mean throughput over the seeds may be from the service rate, as a share of it.
pub const TOLERANCE: f64 = 0.02;

/// Intervals of the attainment where the slowest requests fail.
#[derive(Debug, Clone, PartialEq)]
pub struct Failures {
    /// The truth.
    pub truth: Truth,
    /// After how many seconds a request is cut.
    pub timeout: f64,
    /// Over all that were scheduled.
    pub attainment: Tally,
    /// The sabotage: over the successes.
    pub without_failures: Tally,
    /// Mean share of failures.
    pub failed: f64,
}

/// Runs the queue with a timeout for so many seeds.
///
/// # Errors
/// When it cannot be run.
pub fn failures(seeds: u64) -> anyhow::Result<Failures> {
    let truth = Truth::of(&CUT, MEETING)?;
    let timeout = CUT.truth().map_or(0.0, |queue| queue.sojourn_quantile(IN_TIME));
    let found = parallel::map(seeds, |seed| -> anyhow::Result<(Interval, Interval, f64)> {
        let mut trial = Trial::open(&CUT, seed, usize::MAX)?;
        trial.traces.iter_mut().for_each(|trace| cut_at(trace, Nanos::from_secs_f64(timeout)));
        let right = trial.numbers(&truth.slo)?;
        trial.leave_failures_out();
        let wrong = trial.numbers(&truth.slo)?;
        let failed = right.failed as f64 / CUT.requests as f64;
        Ok((right.intervals.slo_attainment, wrong.intervals.slo_attainment, failed))
    });
    let found = found.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Failures {
        attainment: Tally::of(found.iter().map(|found| found.0), truth.attainment),
        without_failures: Tally::of(found.iter().map(|found| found.1), truth.attainment),
        failed: found.iter().map(|found| found.2).sum::<f64>() / found.len() as f64,
        truth,
        timeout,
    })
}

/// Throughput of an overloaded engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drain {
    /// What it can do, per second.
    pub truth: f64,
    /// Mean over the seeds: successes over the window, which holds the drain.
    pub throughput: f64,
    /// The sabotage: successes over the time of the arrivals.
    pub without_drain: f64,
}

impl Drain {
    /// The judgement, for either number.
    #[must_use]
    pub fn holds(&self, throughput: f64) -> bool {
        (throughput / self.truth - 1.0).abs() <= TOLERANCE
    }
}

/// Runs the overloaded engine for so many seeds.
///
/// # Errors
/// When it cannot be run.
pub fn drain(seeds: u64) -> anyhow::Result<Drain> {
    let found = parallel::map(seeds, |seed| -> anyhow::Result<(f64, f64)> {
        let trial = Trial::open(&OVERLOADED, seed, usize::MAX)?;
        let numbers = trial.numbers(&SloSet::default())?;
        let throughput = numbers.request_throughput_per_second;
        let length = trial.plan.length().map(Nanos::as_secs_f64);
        let both = throughput.zip(length).map(|(right, length)| (right, numbers.successful as f64 / length));
        both.ok_or_else(|| anyhow::anyhow!("a trial without a length"))
    });
    let found = found.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let mean = |of: fn(&(f64, f64)) -> f64| found.iter().map(of).sum::<f64>() / found.len() as f64;
    Ok(Drain {
        truth: OVERLOADED.service_rate(),
        throughput: mean(|found| found.0),
        without_drain: mean(|found| found.1),
    })
}
