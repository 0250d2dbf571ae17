//! Whether the client queue grew over the trial.
//!
//! Waits of requests that follow each other depend on each other, so no test that assumes otherwise is used. The
//! length of the schedule is cut into 16 equal batches by `scheduled`. The queue grew when each of the four batches
//! of the last quarter waited longer than every one of the second quarter, on average at least twice as long, and by
//! more than a millisecond. A queue that grows steadily from the start has a ratio of 2.3; a steady one passes the
//! comparison of batches by chance about once in 70 times, and the ratio far less often.

use crate::ids::Nanos;
use crate::trace::{Facts, FailureKind, Outline};
use crate::validity::QueueGrowth;

const BATCHES: usize = 16;
/// A batch of fewer requests says nothing.
const MIN_REQUESTS: u64 = 4;
const MIN_GROWTH_SECONDS: f64 = 1e-3;

#[derive(Debug)]
pub(super) struct QueueTrend {
    length: Option<Nanos>,
    batches: [Batch; BATCHES],
}

#[derive(Debug, Clone, Copy, Default)]
struct Batch {
    requests: u64,
    waited_seconds: f64,
}

impl Batch {
    fn mean(self) -> f64 {
        self.waited_seconds / self.requests as f64
    }
}

impl QueueTrend {
    /// Without a length (rate `inf`) all arrivals are one instant and there is no trend to see.
    pub(super) fn new(length: Option<Nanos>) -> Self {
        Self { length: length.filter(|&l| l > Nanos::ZERO), batches: [Batch::default(); BATCHES] }
    }

    pub(super) fn add(&mut self, clocks: &Outline, facts: &Facts) {
        let Some(length) = self.length else { return };
        let gave_up = facts.outcome.failure().is_some_and(|f| f.kind == FailureKind::ClientQueueTimeout);
        let wait = match clocks.released {
            Some(released) if facts.waited_for_permit => released.since(clocks.scheduled),
            Some(_) => Nanos::ZERO,
            // It waited at least until it gave up.
            None if gave_up => clocks.finished.since(clocks.scheduled),
            None => return,
        };
        let position = u128::from(clocks.scheduled.0) * BATCHES as u128 / u128::from(length.0);
        // A Poisson schedule of N arrivals may end a little after N/λ.
        let batch = usize::try_from(position).unwrap_or(BATCHES).min(BATCHES - 1);
        if let Some(batch) = self.batches.get_mut(batch) {
            batch.requests += 1;
            batch.waited_seconds += wait.as_secs_f64();
        }
    }

    pub(super) fn growth(&self) -> Option<QueueGrowth> {
        let (second, last) = (&self.batches[BATCHES / 4..BATCHES / 2], &self.batches[BATCHES * 3 / 4..]);
        if second.iter().chain(last).any(|b| b.requests < MIN_REQUESTS) {
            return None;
        }
        let highest = second.iter().map(|b| b.mean()).fold(0.0, f64::max);
        let lowest = last.iter().map(|b| b.mean()).fold(f64::INFINITY, f64::min);
        let growth = QueueGrowth { second_quarter: mean(second), last_quarter: mean(last) };
        let by = growth.last_quarter - growth.second_quarter;
        let grew =
            lowest > highest && growth.last_quarter >= 2.0 * growth.second_quarter && by > MIN_GROWTH_SECONDS;
        grew.then_some(growth)
    }
}

fn mean(batches: &[Batch]) -> f64 {
    let requests: u64 = batches.iter().map(|b| b.requests).sum();
    batches.iter().map(|b| b.waited_seconds).sum::<f64>() / requests as f64
}
