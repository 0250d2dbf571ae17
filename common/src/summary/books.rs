//! The books: which arrivals have a trace. One bit an arrival.

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
