//! Arrivals are the process that they say they are.
//!
//! For every process of [`common::plan::Process`] the gaps are held against their distribution (Kolmogorov and
//! Smirnov), the counts in windows against their dispersion, and each gap against its neighbour. Each test rejects one
//! honest seed in a hundred, so what is judged is how many seeds are rejected.
//!
//! Then the same for what five agents send together when their clocks are up to 50 ms wrong. A random thinning of a
//! Poisson process stays one under any shift of its parts. The sabotage splits by index modulo agents, which makes the
//! sum smoother than Poisson and flatters the engine.

use common::ids::AgentName;
use common::plan::{ArrivalPlan, Extent, Process, Rate};
use common::schedule::Schedule;
use common::seed::Seed;
use common::split::{Share, owners};

use crate::parallel;
use crate::statistics::{
    counts, dependence_rejects, dispersion, dispersion_rejects, gamma_cdf, ks_rejects, lag_1, too_many,
};

const RATE: f64 = 100.0;
const ARRIVALS: u64 = 10_000;
/// Each test rejects so many honest seeds.
const LEVEL: f64 = 0.01;
/// Of the agents' clocks, seconds.
pub const OFFSETS: [f64; 5] = [-0.05, -0.025, 0.0, 0.025, 0.05];
/// The reach of the offsets: where smoothing shows.
const MERGED_WINDOW: f64 = 0.1;

/// How many seeds each test rejects.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tests {
    /// Seeds.
    pub seeds: u64,
    /// By the distribution of the gaps.
    pub gaps: u64,
    /// By the dispersion of the counts; none where the process has no known one.
    pub counts: Option<u64>,
    /// By the dependence of neighbouring gaps.
    pub neighbours: u64,
    /// Mean index of dispersion.
    pub dispersion: f64,
    /// Mean lag-1 correlation of the gaps.
    pub lag_1: f64,
}

impl Tests {
    /// The judgement: no test rejects more seeds than chance does.
    #[must_use]
    pub fn holds(&self) -> bool {
        let by_chance = |rejected: u64| !too_many(rejected, self.seeds, LEVEL);
        by_chance(self.gaps) && by_chance(self.neighbours) && self.counts.is_none_or(by_chance)
    }
}

/// What one seed's test said.
#[derive(Debug, Clone, Copy)]
struct Seen {
    gaps: bool,
    counts: Option<bool>,
    neighbours: bool,
    dispersion: f64,
    lag_1: f64,
}

impl Seen {
    /// `events` ascend; their gaps should follow `cdf`, and their counts be Poisson if `poisson`.
    fn of(events: &[f64], window: f64, poisson: bool, cdf: impl Fn(f64) -> f64) -> Self {
        let gaps: Vec<f64> = events.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let counts = counts(events, window);
        Self {
            gaps: ks_rejects(&gaps, cdf),
            counts: poisson.then(|| dispersion_rejects(&counts)),
            neighbours: dependence_rejects(&gaps),
            dispersion: dispersion(&counts),
            lag_1: lag_1(&gaps),
        }
    }

    fn tally(all: &[Self]) -> Tests {
        let n = all.len() as f64;
        let count = |of: fn(&Self) -> bool| all.iter().filter(|seen| of(seen)).count() as u64;
        let known = all.iter().any(|seen| seen.counts.is_some());
        Tests {
            seeds: all.len() as u64,
            gaps: count(|seen| seen.gaps),
            counts: known.then(|| count(|seen| seen.counts == Some(true))),
            neighbours: count(|seen| seen.neighbours),
            dispersion: all.iter().map(|seen| seen.dispersion).sum::<f64>() / n,
            lag_1: all.iter().map(|seen| seen.lag_1).sum::<f64>() / n,
        }
    }
}

fn plan(process: Process) -> anyhow::Result<ArrivalPlan> {
    Ok(ArrivalPlan { process, rate: RATE.to_string().parse()?, extent: Extent::Requests(ARRIVALS) })
}

fn seconds(plan: &ArrivalPlan, seed: Seed) -> anyhow::Result<Vec<f64>> {
    let schedule = Schedule::generate(plan, seed, 1)?;
    Ok(schedule.arrivals.iter().map(|arrival| arrival.at.as_secs_f64()).collect())
}

fn exponential(rate: f64) -> impl Fn(f64) -> f64 {
    move |gap| -(-rate * gap).exp_m1()
}

fn collect(seen: Vec<anyhow::Result<Seen>>) -> anyhow::Result<Tests> {
    Ok(Seen::tally(&seen.into_iter().collect::<anyhow::Result<Vec<_>>>()?))
}

/// `poisson`.
///
/// # Errors
/// When the plan is refused.
pub fn poisson(seeds: u64) -> anyhow::Result<Tests> {
    let plan = plan(Process::Poisson)?;
    collect(parallel::map(seeds, |seed| Ok(Seen::of(&seconds(&plan, seed)?, 0.2, true, exponential(RATE)))))
}

/// `gamma` of this coefficient of variation, against gaps of `expected` (another one is the sabotage). Its dispersion
/// tends to the square of the coefficient as windows grow.
///
/// # Errors
/// When the plan is refused.
pub fn gamma(seeds: u64, cv: f64, expected: f64) -> anyhow::Result<Tests> {
    let plan = plan(Process::Gamma { cv })?;
    let shape = 1.0 / (expected * expected);
    let cdf = |gap: f64| gamma_cdf(shape, gap * RATE * shape);
    collect(parallel::map(seeds, |seed| Ok(Seen::of(&seconds(&plan, seed)?, 1.0, false, cdf))))
}

/// `ramp` from 100/s to this rate, seen on the time scale on which it should be a Poisson process of rate 1: the
/// integral of its rate. `straight` tests it as if its rate were constant: the sabotage.
///
/// # Errors
/// When the plan is refused.
pub fn ramp(seeds: u64, to: f64, straight: bool) -> anyhow::Result<Tests> {
    let plan = plan(Process::Ramp { to: Rate::try_from(to)? })?;
    let length = 2.0 * ARRIVALS as f64 / (RATE + to);
    let operational = |at: f64| match straight {
        true => at * ARRIVALS as f64 / length,
        false if at < length => RATE * at + (to - RATE) * at * at / (2.0 * length),
        false => ARRIVALS as f64 + to * (at - length),
    };
    collect(parallel::map(seeds, |seed| {
        let events: Vec<f64> = seconds(&plan, seed)?.into_iter().map(operational).collect();
        Ok(Seen::of(&events, 20.0, true, exponential(1.0)))
    }))
}

/// Whether `constant` and `burst` are exactly what they say, to the nanosecond.
///
/// # Errors
/// When a plan is refused.
pub fn exact() -> anyhow::Result<bool> {
    let constant = seconds(&plan(Process::Constant)?, Seed(1))?;
    let evenly = (0u32..).zip(&constant).all(|(i, at)| (at - f64::from(i) / RATE).abs() < 1e-9);
    let burst = seconds(&plan(Process::Burst { size: 8 })?, Seed(1))?;
    let groups = (0u32..).zip(&burst).all(|(i, at)| (at - f64::from(i / 8 * 8) / RATE).abs() < 1e-9);
    Ok(evenly && groups)
}

/// Who sends which arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// As Plimsoll does.
    Rendezvous,
    /// The sabotage: index modulo agents.
    Modulo,
}

/// What five agents with [`OFFSETS`] send together.
///
/// # Errors
/// When the plan is refused.
pub fn merged(seeds: u64, split: Split) -> anyhow::Result<Tests> {
    let plan = plan(Process::Poisson)?;
    let names = (0..OFFSETS.len()).map(|i| Ok(format!("agent-{i}").parse()?));
    let names = names.collect::<anyhow::Result<Vec<AgentName>>>()?;
    let shares: Vec<Share> = names.into_iter().map(|agent| Share { agent, weight: 1.0 }).collect();
    let reach = OFFSETS.iter().fold(0.0f64, |reach, offset| reach.max(offset.abs()));
    collect(parallel::map(seeds, |seed| {
        let schedule = Schedule::generate(&plan, seed, 1)?;
        let owners = match split {
            Split::Rendezvous => owners(&schedule, seed, &shares),
            Split::Modulo => (0..schedule.arrivals.len()).map(|index| index % OFFSETS.len()).collect(),
        };
        let mut sent: Vec<f64> = schedule
            .arrivals
            .iter()
            .zip(owners)
            .map(|(arrival, owner)| arrival.at.as_secs_f64() + OFFSETS[owner])
            .collect();
        sent.sort_unstable_by(f64::total_cmp);
        // At both ends some agents' arrivals are missing, however they are split.
        let end = sent.last().copied().unwrap_or(0.0) - 2.0 * reach;
        let inner: Vec<f64> =
            sent.into_iter().filter(|at| *at > reach && *at < end).map(|at| at - reach).collect();
        Ok(Seen::of(&inner, MERGED_WINDOW, true, exponential(RATE)))
    }))
}
