//! Conservation: every scheduled arrival ends as exactly one trace.
//!
//! Pure functions over the facts of a trial's blocks. They decide what counts when there is more than one trace for
//! an arrival, and say where there is none:
//!
//! - A synthetic trace (the coordinator's word for an agent that is gone) gives way to a real one.
//! - Two real traces for one arrival are both kept: the engine was asked twice, so the trial is invalid.
//!
//! It must never look at text or clocks, and never mend anything. The tests below are its guard, among them one that
//! compares it with a map.

use common::ids::ArrivalIndex;
use common::trace::Facts;
use common::trace::segment::{Block, SegmentError};

use super::error::StoreError;

/// Arrivals that are listed by number; of more only the count is given.
const LISTED: usize = 20;

/// What a trial's traces say about each arrival of its schedule.
#[derive(Debug, Clone)]
pub struct Ledger {
    arrivals: Vec<Seen>,
    superseded: u64,
    unscheduled: Listing,
}

/// What was seen of one arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Synthetic,
    Real,
    RealAgain,
}

/// Arrivals with their number: the first few by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// How many.
    pub count: u64,
    /// The first of them, at most 20.
    pub first: Vec<ArrivalIndex>,
}

impl Listing {
    fn add(&mut self, index: ArrivalIndex) {
        self.count += 1;
        if self.first.len() < LISTED {
            self.first.push(index);
        }
    }
}

/// Whether a trial is conserved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conservation {
    /// Arrivals of the schedule.
    pub scheduled: u64,
    /// Arrivals of the schedule with a trace.
    pub recorded: u64,
    /// Of them, those with a synthetic trace only.
    pub synthetic: u64,
    /// Synthetic traces that do not count, because a real one came or the same was said before.
    pub superseded: u64,
    /// Arrivals without a trace.
    pub missing: Listing,
    /// Arrivals with two real traces or more.
    pub duplicated: Listing,
    /// Traces for arrivals that the schedule does not have.
    pub unscheduled: Listing,
}

impl Conservation {
    /// Every arrival has exactly one trace that counts, and nothing else is there.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.missing.count == 0 && self.duplicated.count == 0 && self.unscheduled.count == 0
    }
}

impl Ledger {
    /// An empty ledger for a schedule of `scheduled` arrivals: one byte for each.
    #[must_use]
    pub fn new(scheduled: u64) -> Self {
        let arrivals = vec![Seen::Nothing; usize::try_from(scheduled).unwrap_or(usize::MAX)];
        Self { arrivals, superseded: 0, unscheduled: Listing::default() }
    }

    /// Enters one trace.
    pub fn enter(&mut self, index: ArrivalIndex, synthetic: bool) {
        let slot = usize::try_from(index.0).ok().and_then(|i| self.arrivals.get_mut(i));
        let Some(seen) = slot else {
            self.unscheduled.add(index);
            return;
        };
        let (now, superseded) = match (*seen, synthetic) {
            (Seen::Nothing, true) => (Seen::Synthetic, false),
            (before, true) => (before, true),
            (Seen::Nothing, false) => (Seen::Real, false),
            (Seen::Synthetic, false) => (Seen::Real, true),
            (Seen::Real | Seen::RealAgain, false) => (Seen::RealAgain, false),
        };
        *seen = now;
        self.superseded += u64::from(superseded);
    }

    /// Enters all traces of a block. Only its facts are read.
    ///
    /// # Errors
    /// When they cannot be decoded.
    pub fn enter_block(&mut self, block: &Block) -> Result<(), SegmentError> {
        block.facts()?.iter().for_each(|f| self.enter(f.index, f.synthetic));
        Ok(())
    }

    /// The verdict.
    #[must_use]
    pub fn conservation(&self) -> Conservation {
        let mut c = Conservation {
            scheduled: self.arrivals.len() as u64,
            superseded: self.superseded,
            unscheduled: self.unscheduled.clone(),
            ..Conservation::default()
        };
        for (index, seen) in (0..).map(ArrivalIndex).zip(&self.arrivals) {
            match seen {
                Seen::Nothing => c.missing.add(index),
                Seen::Synthetic => c.synthetic += 1,
                Seen::Real => {}
                Seen::RealAgain => c.duplicated.add(index),
            }
        }
        c.recorded = c.scheduled - c.missing.count;
        c
    }

    /// For a second pass over the same blocks: which traces count.
    #[must_use]
    pub fn selection(self) -> Selection {
        Selection(self)
    }
}

/// Says of each trace of a trial, in a pass over all of them, whether it counts.
#[derive(Debug, Clone)]
pub struct Selection(Ledger);

impl Selection {
    /// Whether the trace with these facts counts: a real one always, a synthetic one once and only where no real one
    /// is. To be asked once for each trace.
    pub fn counts(&mut self, facts: &Facts) -> bool {
        if !facts.synthetic {
            return true;
        }
        let slot = usize::try_from(facts.index.0).ok().and_then(|i| self.0.arrivals.get_mut(i));
        match slot {
            Some(seen @ Seen::Synthetic) => {
                // Taken: the next one for this arrival repeats it.
                *seen = Seen::Real;
                true
            }
            Some(_) => false,
            // Kept like every other trace that conservation complains about.
            None => true,
        }
    }
}

/// Reads the facts of a trial's blocks and holds them against its schedule of `scheduled` arrivals.
///
/// # Errors
/// The first block that cannot be read.
pub fn conservation(
    scheduled: u64,
    blocks: impl IntoIterator<Item = Result<Block, StoreError>>,
) -> Result<Conservation, StoreError> {
    let mut ledger = Ledger::new(scheduled);
    for block in blocks {
        ledger.enter_block(&block?).map_err(StoreError::Facts)?;
    }
    Ok(ledger.conservation())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn ledger(scheduled: u64, traces: &[(u64, bool)]) -> Ledger {
        let mut ledger = Ledger::new(scheduled);
        traces.iter().for_each(|&(index, synthetic)| ledger.enter(ArrivalIndex(index), synthetic));
        ledger
    }

    fn listing(indexes: &[u64]) -> Listing {
        let first = indexes.iter().take(LISTED).map(|&i| ArrivalIndex(i)).collect();
        Listing { count: indexes.len() as u64, first }
    }

    #[test]
    fn one_trace_for_each_arrival_holds() {
        let c = ledger(3, &[(2, false), (0, false), (1, true)]).conservation();
        assert!(c.holds());
        assert_eq!((c.recorded, c.synthetic, c.superseded), (3, 1, 0));
        assert!(ledger(0, &[]).conservation().holds());
    }

    #[test]
    fn a_real_trace_replaces_a_synthetic_one_whichever_came_first() {
        for order in [[(0, true), (0, false)], [(0, false), (0, true)]] {
            let c = ledger(1, &order).conservation();
            assert!(c.holds());
            assert_eq!((c.recorded, c.synthetic, c.superseded), (1, 0, 1));
        }
    }

    #[test]
    fn what_breaks_conservation_is_named() {
        let c = ledger(4, &[(1, false), (1, false), (1, true), (3, false), (9, false)]).conservation();
        assert!(!c.holds());
        assert_eq!((c.scheduled, c.recorded), (4, 2));
        assert_eq!(c.missing, listing(&[0, 2]));
        assert_eq!(c.duplicated, listing(&[1]));
        assert_eq!(c.unscheduled, listing(&[9]));
    }

    #[test]
    fn a_long_listing_is_cut_and_counted() {
        let c = ledger(1000, &[]).conservation();
        assert_eq!((c.missing.count, c.missing.first.len()), (1000, LISTED));
    }

    proptest! {
        /// Against a map of what each arrival got.
        #[test]
        fn it_agrees_with_a_map(scheduled in 0u64..12, traces in prop::collection::vec((0u64..14, any::<bool>()), 0..40)) {
            let mut map: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            for &(index, synthetic) in &traces {
                let entry = map.entry(index).or_default();
                if synthetic { entry.1 += 1 } else { entry.0 += 1 }
            }
            let c = ledger(scheduled, &traces).conservation();
            let inside = |i: &u64| *i < scheduled;
            let missing: Vec<u64> = (0..scheduled).filter(|i| !map.contains_key(i)).collect();
            let doubled: Vec<u64> = map.iter().filter(|(i, n)| inside(i) && n.0 > 1).map(|(i, _)| *i).collect();
            prop_assert_eq!(&c.missing, &listing(&missing));
            prop_assert_eq!(&c.duplicated, &listing(&doubled));
            prop_assert_eq!(c.recorded, scheduled - missing.len() as u64);
            // Everything that was entered is accounted for.
            let real: u64 = map.iter().filter(|(i, _)| inside(i)).map(|(_, n)| n.0).sum();
            prop_assert_eq!(real + c.synthetic + c.superseded + c.unscheduled.count, traces.len() as u64);
        }
    }
}
