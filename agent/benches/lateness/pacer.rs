//! The pacer with nobody behind it: how late the kernel and the pacer's own loop are on this machine.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use agent::load::lead::Lead;
use agent::load::pacer::{Guard, PaceEnd, pace};
use agent::load::run::Pace;
use anyhow::{Context, ensure};
use common::clock::{Clock, SystemClock};
use common::ids::Nanos;
use common::plan::{ArrivalPlan, Extent, Process};
use common::schedule::Schedule;
use common::seed::Seed;
use common::stats::percentile;

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
    // As the agent's thread has it: by default the kernel may wake a thread 50 us late to save power.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let guard = Guard::new(Arc::new(AtomicU64::new(u64::MAX)));
    let start = SystemClock.monotonic() + Nanos::from_millis(20);
    let mut late = Vec::with_capacity(instants.len());
    let lead = Lead::for_schedule(&instants);
    let end = pace(start, &instants, &lead, &guard, &SystemClock, |pace| {
        let (announced, at) = match pace {
            Pace::Due(count) => (count, Nanos::ZERO),
            Pace::Soon { count, at, wanted } => {
                lead.learn(wanted, SystemClock.monotonic());
                (count, at)
            }
            Pace::Ended(_) => return,
        };
        // Nobody else needs this thread.
        while SystemClock.monotonic() < at {
            std::hint::spin_loop();
        }
        let now = SystemClock.monotonic();
        late.extend(instants[late.len()..announced].iter().map(|&at| (now - (start + at)).as_secs_f64()));
    });
    ensure!(end == PaceEnd::Complete, "{end:?}");
    late.sort_unstable_by(f64::total_cmp);
    let at = |p| percentile(&late, p).context("no arrivals");
    Ok(Lateness { n: late.len() as u64, p50: at(50.0)?, p99: at(99.0)?, max: at(100.0)? })
}
