//! When arrivals are due: each process at rate 1, and how its positions become nanoseconds.
//!
//! Owns the random numbers of arrivals. It must never let a value depend on the platform: what is more than one
//! correctly rounded operation (a logarithm, a power) comes from `libm`. Golden tests pin the values.

use crate::ids::Nanos;
use crate::schedule::arrivals::{ArrivalPlan, Extent, OfferedRate, Process};
use crate::seed::{Seed, Stream};

/// The instants of a plan that was validated, in order.
pub(super) fn instants(plan: &ArrivalPlan, seed: Seed) -> Vec<Nanos> {
    let mut unit = UnitProcess::new(plan.process, seed);
    let time = TimeChange::of(plan);
    match plan.extent {
        Extent::Requests(n) => (0..n).map(|_| time.instant(unit.next_position())).collect(),
        Extent::Duration(length) => std::iter::repeat_with(|| time.instant(unit.next_position()))
            .take_while(|&instant| instant < length)
            .collect(),
    }
}

/// From a position of the process at rate 1 to an instant: the inverse of the integral of the rate. Applied to a
/// Poisson process of rate 1 it gives exactly the Poisson process of that rate (Cinlar, Introduction to Stochastic
/// Processes, 1975, chapter 4, theorem 7.4).
#[derive(Debug, Clone, Copy)]
enum TimeChange {
    /// One multiplication, so that the shape does not depend on the rate.
    Scale { nanos: f64 },
    /// The rate moves linearly from `from` to `to` within `length` seconds and stays there.
    Ramp { from: f64, to: f64, length: f64 },
}

impl TimeChange {
    fn of(plan: &ArrivalPlan) -> Self {
        match (plan.process, plan.rate) {
            (_, OfferedRate::Infinite | OfferedRate::Closed(_)) => Self::Scale { nanos: 0.0 },
            (Process::Ramp { to }, OfferedRate::PerSecond(from)) => Self::Ramp {
                from: from.per_second(),
                to: to.per_second(),
                length: plan.length().map_or(0.0, Nanos::as_secs_f64),
            },
            (_, OfferedRate::PerSecond(rate)) => Self::Scale { nanos: 1e9 / rate.per_second() },
        }
    }

    fn instant(self, position: f64) -> Nanos {
        match self {
            Self::Scale { nanos } => Nanos((position * nanos).round() as u64),
            Self::Ramp { from, to, length } => {
                let whole = from.midpoint(to) * length;
                let seconds = if position < whole {
                    // from·t + (to − from)·t²/(2·length) = position, solved without cancellation.
                    2.0 * position / (from + (from * from + 2.0 * position * (to - from) / length).sqrt())
                } else {
                    length + (position - whole) / to
                };
                Nanos((seconds * 1e9).round() as u64)
            }
        }
    }
}

/// Positions of arrivals at rate 1, the first at 0.
struct UnitProcess {
    process: Process,
    random: Stream,
    count: u64,
    // Sum of the gaps with Neumaier's compensation: after 10^8 gaps a plain sum is off by more than a gap's jitter.
    sum: f64,
    lost: f64,
}

impl UnitProcess {
    fn new(process: Process, seed: Seed) -> Self {
        Self { process, random: seed.stream("arrival gaps"), count: 0, sum: 0.0, lost: 0.0 }
    }

    fn next_position(&mut self) -> f64 {
        let first = self.count == 0;
        let position = match self.process {
            Process::Constant => self.count as f64,
            Process::Burst { size } => (self.count / u64::from(size) * u64::from(size)) as f64,
            _ if first => 0.0,
            Process::Poisson | Process::Ramp { .. } => {
                let gap = self.random.unit_exponential();
                self.after(gap)
            }
            Process::Gamma { cv } => {
                // A gamma distribution of shape k has a coefficient of variation of 1/√k and a mean of k.
                let shape = 1.0 / (cv * cv);
                let gap = self.random.gamma(shape) / shape;
                self.after(gap)
            }
        };
        self.count += 1;
        position
    }

    fn after(&mut self, gap: f64) -> f64 {
        let sum = self.sum + gap;
        let (large, small) = if self.sum >= gap { (self.sum, gap) } else { (gap, self.sum) };
        self.lost += (large - sum) + small;
        self.sum = sum;
        self.sum + self.lost
    }
}
