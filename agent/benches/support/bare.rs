//! The pacer with nobody behind it: how late the kernel and the pacer's own loop are on this machine.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use agent::load::lead::Lead;
use agent::load::pacer::{Guard, PaceEnd, pace};
use agent::load::run::Pace;
use anyhow::ensure;
use common::clock::{Clock, SystemClock};
use common::ids::Nanos;

/// A guard that lets everything through.
pub(crate) fn forever() -> Guard {
    Guard::new(Arc::new(AtomicU64::new(u64::MAX)))
}

/// How late each of `instants` is on the calling thread, which spins for what the lead leaves.
pub(crate) fn lateness(instants: &[Nanos]) -> anyhow::Result<Vec<Nanos>> {
    let lead = Lead::for_schedule(instants);
    let start = SystemClock.monotonic() + Nanos::from_millis(20);
    let mut late = Vec::with_capacity(instants.len());
    let end = pace(start, instants, &lead, &forever(), &SystemClock, |pace| {
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
        late.extend(instants[late.len()..announced].iter().map(|&at| now - (start + at)));
    });
    ensure!(end == PaceEnd::Complete, "{end:?}");
    Ok(late)
}
