//! The schedule: when each arrival is due and which row it carries.
//!
//! It is a pure function of an [`ArrivalPlan`], a seed and the number of rows: the same on every platform and for any
//! number of agents. Arrivals never wait for completions; the first is at 0. Gaps are drawn at rate 1 and scaled, so
//! that the same seed at another rate is the same shape, faster. Golden tests pin the values.

pub(crate) mod arrivals;
mod process;

use sha2::{Digest as _, Sha256};

use crate::ids::{ArrivalIndex, Digest, Nanos};
use crate::seed::Seed;
use arrivals::{ArrivalError, ArrivalPlan};
use process::instants;

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
mod tests;
