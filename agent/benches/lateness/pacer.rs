//! The pacer alone, on a schedule of the bench.

use agent::load::scheduling::Scheduling;
use agent::load::thread::prepare_thread;
use anyhow::Context;
use common::ids::Nanos;
use common::plan::{ArrivalPlan, Extent, Process};
use common::schedule::Schedule;
use common::seed::Seed;
use common::stats::percentile;

use crate::bare;
use crate::trial::Lateness;

/// Announces a schedule to a callback that only looks at the clock.
pub(crate) fn alone(rate: u32, seconds: u64) -> anyhow::Result<Lateness> {
    let plan = ArrivalPlan {
        process: Process::Poisson,
        rate: rate.to_string().parse()?,
        extent: Extent::Duration(Nanos::from_secs(seconds)),
    };
    let schedule = Schedule::generate(&plan, Seed(7), 1)?;
    let instants: Vec<Nanos> = schedule.arrivals.iter().map(|a| a.at).collect();
    prepare_thread(Scheduling::Usual);
    let mut late: Vec<f64> = bare::lateness(&instants)?.iter().map(|late| late.as_secs_f64()).collect();
    late.sort_unstable_by(f64::total_cmp);
    let at = |p| percentile(&late, p).context("no arrivals");
    Ok(Lateness { n: late.len() as u64, p50: at(50.0)?, p99: at(99.0)?, max: at(100.0)? })
}
