//! The books: which arrivals have a trace, and which rows of the workload were carried. One bit for each.

use std::collections::HashSet;

use crate::ids::ArrivalIndex;
use crate::validity::Conservation;

#[derive(Debug)]
pub(super) struct Books {
    seen: Vec<u64>,
    distinct: u64,
    state: Conservation,
}

impl Books {
    pub(super) fn new(scheduled: u64) -> Self {
        let words = usize::try_from(scheduled.div_ceil(64)).unwrap_or(0);
        Self {
            seen: vec![0; words],
            distinct: 0,
            state: Conservation { scheduled, ..Conservation::default() },
        }
    }

    /// Enters a trace, which belongs to the trial only if its agent does.
    pub(super) fn enter(&mut self, index: ArrivalIndex, agent_known: bool) {
        self.state.recorded += 1;
        let word = usize::try_from(index.0 / 64).ok().and_then(|w| self.seen.get_mut(w));
        let bit = 1 << (index.0 % 64);
        match word.filter(|_| agent_known && index.0 < self.state.scheduled) {
            None => self.state.unknown += 1,
            Some(word) if *word & bit != 0 => self.state.duplicates += 1,
            Some(word) => {
                *word |= bit;
                self.distinct += 1;
            }
        }
    }

    pub(super) fn close(&self) -> Conservation {
        Conservation { missing: self.state.scheduled - self.distinct, ..self.state }
    }
}

/// Rows up to here have a bit, 16 MiB in all. No workload has more; a row that an agent made up may be above.
const NEAR_ROWS: u32 = 1 << 27;

/// The rows of the workload that were carried.
#[derive(Debug, Default)]
pub(super) struct Rows {
    near: Vec<u64>,
    far: HashSet<u32>,
}

impl Rows {
    /// Enters a row, and says whether it was there before.
    pub(super) fn repeats(&mut self, row: u32) -> bool {
        if row >= NEAR_ROWS {
            return !self.far.insert(row);
        }
        let (word, bit) = ((row / 64) as usize, 1 << (row % 64));
        if word >= self.near.len() {
            self.near.resize(word + 1, 0);
        }
        let before = self.near[word];
        self.near[word] |= bit;
        before & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_repeats_when_it_comes_again() {
        let rows = [0, 63, 64, 5_000, NEAR_ROWS - 1, NEAR_ROWS, u32::MAX];
        let mut seen = Rows::default();
        assert!(rows.iter().all(|&row| !seen.repeats(row)));
        assert!(rows.iter().all(|&row| seen.repeats(row)));
        assert!(!seen.repeats(1));
    }
}
