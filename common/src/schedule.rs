//! The schedule: when each arrival is due and which row it carries.
//!
//! It is a pure function of an [`ArrivalPlan`], a seed and the number of rows: the same on every platform and for any
//! number of agents. Arrivals never wait for completions; the first is at 0. Gaps are drawn at rate 1 and scaled, so
//! that the same seed at another rate is the same shape, faster. Golden tests pin the values.

use sha2::{Digest as _, Sha256};

use crate::ids::{ArrivalIndex, Digest, Nanos};
use crate::plan::{ArrivalError, ArrivalPlan, Extent, OfferedRate, Process};
use crate::seed::Seed;

/// One scheduled arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Position in the schedule.
    pub index: ArrivalIndex,
    /// Due this long after the trial's start.
    pub at: Nanos,
    /// Row of the workload that it carries.
    pub row: u32,
}

impl Arrival {
    /// What decides which agent carries the arrival. (With sessions it will be the session.)
    #[must_use]
    pub fn ownership_key(&self) -> u64 {
        self.index.0
    }
}

/// All arrivals of a trial, in order of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Never empty; `index` counts from 0.
    pub arrivals: Vec<Arrival>,
    /// SHA-256 over every arrival (see [`digest`]).
    pub digest: Digest,
}

impl Schedule {
    /// Makes the schedule. `rows` is the number of rows of the workload, at least 1.
    ///
    /// # Errors
    /// When the plan cannot be run (see [`ArrivalPlan::validate`]).
    pub fn generate(plan: &ArrivalPlan, seed: Seed, rows: u32) -> Result<Self, ArrivalError> {
        plan.validate()?;
        let instants = instants(plan, seed);
        let mut order = RowOrder::new(seed, rows);
        let arrivals: Vec<Arrival> = (0u64..)
            .zip(instants)
            .map(|(index, at)| Arrival { index: ArrivalIndex(index), at, row: order.row(index) })
            .collect();
        let digest = digest(&arrivals);
        Ok(Self { arrivals, digest })
    }
}

/// SHA-256 over `plimsoll-schedule-v1` and, for each arrival, index, nanoseconds and row as little-endian integers of
/// 8, 8 and 4 bytes. The same function digests a whole schedule and an agent's slice of it.
#[must_use]
pub fn digest(arrivals: &[Arrival]) -> Digest {
    let mut hash = Sha256::new();
    hash.update(b"plimsoll-schedule-v1");
    for a in arrivals {
        let mut bytes = [0u8; 20];
        bytes[..8].copy_from_slice(&a.index.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&a.at.0.to_le_bytes());
        bytes[16..].copy_from_slice(&a.row.to_le_bytes());
        hash.update(bytes);
    }
    Digest(hash.finalize().into())
}

fn instants(plan: &ArrivalPlan, seed: Seed) -> Vec<Nanos> {
    let mut unit = UnitProcess::new(plan.process, seed);
    // Positions at rate 1 become nanoseconds by one multiplication: the shape does not depend on the rate.
    let scale = match plan.rate {
        OfferedRate::PerSecond(rate) => 1e9 / rate.per_second(),
        OfferedRate::Infinite => 0.0,
    };
    let at = |position: f64| Nanos((position * scale).round() as u64);
    match plan.extent {
        Extent::Requests(n) => (0..n).map(|_| at(unit.next_position())).collect(),
        Extent::Duration(length) => std::iter::repeat_with(|| at(unit.next_position()))
            .take_while(|&instant| instant < length)
            .collect(),
    }
}

/// Positions of arrivals at rate 1, the first at 0.
struct UnitProcess {
    process: Process,
    random: crate::seed::Stream,
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
        let position = match self.process {
            Process::Constant => self.count as f64,
            Process::Burst { size } => (self.count / u64::from(size) * u64::from(size)) as f64,
            Process::Poisson => {
                if self.count > 0 {
                    let gap = self.random.unit_exponential();
                    let sum = self.sum + gap;
                    let (large, small) = if self.sum >= gap { (self.sum, gap) } else { (gap, self.sum) };
                    self.lost += (large - sum) + small;
                    self.sum = sum;
                }
                self.sum + self.lost
            }
        };
        self.count += 1;
        position
    }
}

/// Which row an arrival carries: every row once in a seeded order, then every row once in another.
struct RowOrder {
    random: crate::seed::Stream,
    order: Vec<u32>,
}

impl RowOrder {
    fn new(seed: Seed, rows: u32) -> Self {
        Self { random: seed.stream("row order"), order: (0..rows.max(1)).collect() }
    }

    /// Must be asked for 0, 1, 2, … in turn.
    fn row(&mut self, index: u64) -> u32 {
        let position = (index % self.order.len() as u64) as usize;
        if position == 0 {
            self.random.shuffle(&mut self.order);
        }
        self.order[position]
    }
}

/// Rows for `wanted` warm-up requests of a trial: rows that the trial does not use, while there are any, so that the
/// warm-up does not put the trial's prompts into the engine's prefix cache. The second part says whether a row that
/// the trial uses had to be taken: then its prompt must be changed by the sender.
#[must_use]
pub fn warmup_rows(schedule: &Schedule, rows: u32, wanted: u32) -> Vec<(u32, bool)> {
    let mut used = vec![false; rows as usize];
    for a in &schedule.arrivals {
        if let Some(slot) = used.get_mut(a.row as usize) {
            *slot = true;
        }
    }
    let free = (0..rows).filter(|&r| !used[r as usize]).map(|r| (r, false));
    let taken = (0..rows).rev().cycle().take(if rows == 0 { 0 } else { wanted as usize }).map(|r| (r, true));
    free.chain(taken).take(wanted as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(process: Process, rate: &str, extent: Extent) -> ArrivalPlan {
        ArrivalPlan { process, rate: rate.parse().unwrap(), extent }
    }

    fn at(s: &Schedule) -> Vec<u64> {
        s.arrivals.iter().map(|a| a.at.0).collect()
    }

    /// Golden values, computed by a second implementation (ChaCha8 by its definition, in another language): a recorded
    /// seed must mean the same schedule for ever and on every platform.
    #[test]
    fn schedules_are_pinned() {
        let poisson = plan(Process::Poisson, "4", Extent::Requests(6));
        let s = Schedule::generate(&poisson, Seed(7), 5).unwrap();
        let rows: Vec<u32> = s.arrivals.iter().map(|a| a.row).collect();
        assert_eq!((at(&s), rows), golden_poisson());
        assert_eq!(s.digest.to_string(), GOLDEN_DIGEST);
    }

    fn golden_poisson() -> (Vec<u64>, Vec<u32>) {
        (vec![0, 308283969, 1064989235, 1687277536, 1913833917, 2005280624], vec![3, 2, 0, 4, 1, 0])
    }

    const GOLDEN_DIGEST: &str = "460539d6fac4fa73b7ac25346610882ef7966452b852f889443be58db70c64c3";

    #[test]
    fn constant_and_burst_are_what_they_say() {
        let three = Extent::Requests(5);
        let constant = Schedule::generate(&plan(Process::Constant, "4", three), Seed(1), 1).unwrap();
        assert_eq!(at(&constant), [0, 250_000_000, 500_000_000, 750_000_000, 1_000_000_000]);
        let burst = Schedule::generate(&plan(Process::Burst { size: 2 }, "4", three), Seed(1), 1).unwrap();
        assert_eq!(at(&burst), [0, 0, 500_000_000, 500_000_000, 1_000_000_000]);
        let all = Schedule::generate(&plan(Process::Poisson, "inf", three), Seed(1), 1).unwrap();
        assert_eq!(at(&all), [0; 5]);
        let second = Extent::Duration(Nanos::from_secs(1));
        assert_eq!(
            Schedule::generate(&plan(Process::Constant, "4", second), Seed(1), 1).unwrap().arrivals.len(),
            4
        );
    }

    /// Mean 1/λ and, for exponential gaps, a coefficient of variation of 1.
    #[test]
    fn poisson_gaps_are_exponential() {
        let s = Schedule::generate(&plan(Process::Poisson, "100", Extent::Requests(100_001)), Seed(3), 9)
            .unwrap();
        let gaps: Vec<f64> = s.arrivals.windows(2).map(|w| (w[1].at - w[0].at).as_secs_f64()).collect();
        let n = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / n;
        let cv = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n).sqrt() / mean;
        // 5 standard errors: the mean's is 1/√n, the CV's is about 1/√n too.
        let tolerance = 5.0 / n.sqrt();
        assert!((mean * 100.0 - 1.0).abs() < tolerance, "mean {mean}");
        assert!((cv - 1.0).abs() < tolerance, "cv {cv}");
        // Kolmogorov–Smirnov against 1 − exp(−λt), critical value for α = 0.001.
        let mut sorted = gaps;
        sorted.sort_unstable_by(f64::total_cmp);
        let distance =
            sorted.iter().enumerate().map(|(i, g)| ((i as f64 + 0.5) / n - (1.0 - (-100.0 * g).exp())).abs());
        assert!(distance.fold(0.0, f64::max) < 1.95 / n.sqrt());
    }

    proptest! {
        #[test]
        fn every_schedule_is_ordered_counted_and_repeatable(
            seed: u64, n in 1u64..500, rows in 1u32..40, rate in 0.1f64..1000.0, kind in 0usize..3,
        ) {
            let process = [Process::Poisson, Process::Constant, Process::Burst { size: 7 }][kind];
            let p = plan(process, &rate.to_string(), Extent::Requests(n));
            let s = Schedule::generate(&p, Seed(seed), rows).unwrap();
            prop_assert_eq!(&s, &Schedule::generate(&p, Seed(seed), rows).unwrap());
            prop_assert_eq!(s.arrivals.len() as u64, n);
            prop_assert_eq!(s.arrivals[0].at, Nanos::ZERO);
            prop_assert!(s.arrivals.windows(2).all(|w| w[0].at <= w[1].at && w[0].index < w[1].index));
            // Each row is used as often as any other, to within one.
            let mut uses = vec![0u64; rows as usize];
            s.arrivals.iter().for_each(|a| uses[a.row as usize] += 1);
            prop_assert!(uses.iter().max().unwrap() - uses.iter().min().unwrap() <= 1);
        }

        /// The same seed at another rate is the same shape: instants scale, rows stay.
        #[test]
        fn the_shape_does_not_depend_on_the_rate(seed: u64, n in 2u64..300) {
            let slow = Schedule::generate(&plan(Process::Poisson, "2", Extent::Requests(n)), Seed(seed), 9).unwrap();
            let fast = Schedule::generate(&plan(Process::Poisson, "8", Extent::Requests(n)), Seed(seed), 9).unwrap();
            for (s, f) in slow.arrivals.iter().zip(&fast.arrivals) {
                prop_assert!(s.at.0.abs_diff(f.at.0 * 4) <= 3);
                prop_assert_eq!(s.row, f.row);
            }
        }

        #[test]
        fn warm_up_takes_unused_rows_first(n in 1u64..60, rows in 1u32..40, wanted in 0u32..50) {
            let s = Schedule::generate(&plan(Process::Constant, "2", Extent::Requests(n)), Seed(1), rows).unwrap();
            let warm = warmup_rows(&s, rows, wanted);
            prop_assert_eq!(warm.len(), wanted as usize);
            for (row, taken) in warm {
                prop_assert!(taken || s.arrivals.iter().all(|a| a.row != row));
            }
        }
    }
}
