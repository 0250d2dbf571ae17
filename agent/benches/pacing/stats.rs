//! Schedules, and what is printed of them.

use anyhow::Context;
use common::ids::Nanos;
use common::plan::{ArrivalPlan, Extent, Process};
use common::schedule::Schedule;
use common::seed::Seed;
use common::stats::percentile;

/// Microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lateness {
    pub(crate) n: usize,
    p50: f64,
    p99: f64,
    max: f64,
}

impl Lateness {
    pub(crate) fn of(mut late: Vec<Nanos>) -> anyhow::Result<Self> {
        late.sort_unstable();
        let late: Vec<f64> = late.iter().map(|l| l.0 as f64 / 1e3).collect();
        let at = |p| percentile(&late, p).context("nothing was late or on time");
        Ok(Self { n: late.len(), p50: at(50.0)?, p99: at(99.0)?, max: at(100.0)? })
    }
}

impl From<common::fleet::Lateness> for Lateness {
    fn from(seconds: common::fleet::Lateness) -> Self {
        let us = |s: f64| s * 1e6;
        let n = usize::try_from(seconds.n).unwrap_or(usize::MAX);
        Self { n, p50: us(seconds.p50), p99: us(seconds.p99), max: us(seconds.max) }
    }
}

/// Poisson arrivals.
pub(crate) fn poisson(rate: u32, seconds: f64) -> anyhow::Result<Vec<Nanos>> {
    let plan = ArrivalPlan {
        process: Process::Poisson,
        rate: rate.to_string().parse()?,
        extent: Extent::Duration(Nanos((seconds * 1e9) as u64)),
    };
    let schedule = Schedule::generate(&plan, Seed(7), 1)?;
    Ok(schedule.arrivals.iter().map(|a| a.at).collect())
}

/// A line: medians over the turns, and the ratio of p99 to that of the same turn of `floor`.
pub(crate) fn row(rate: u32, what: &str, turns: &[Lateness], floor: &[Lateness]) {
    let sorted = |value: &dyn Fn(usize) -> f64| {
        let mut values: Vec<f64> = (0..turns.len()).map(value).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    let middle = |value: &dyn Fn(usize) -> f64| {
        let values = sorted(value);
        values[values.len() / 2]
    };
    let ratios = sorted(&|i| turns[i].p99 / floor[i].p99.max(1.0));
    let ratio = format!("{:.1} ({:.1}-{:.1})", ratios[ratios.len() / 2], ratios[0], ratios[ratios.len() - 1]);
    println!(
        "| {rate:>10} | {what:<25} | {:>8} | {:>6.0} | {:>6.0} | {:>8.0} | {ratio:>20} |",
        turns[0].n,
        middle(&|i| turns[i].p50),
        middle(&|i| turns[i].p99),
        middle(&|i| turns[i].max),
    );
}
