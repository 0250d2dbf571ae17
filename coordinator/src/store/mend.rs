//! Mending a run whose last trial is still open: what is damaged of it is forgotten, so that the agents, which keep
//! everything until the seal, send it again.
//!
//! It exists because the marks say that a damaged block is stored, and an agent is never asked for what is stored. The
//! damaged file is left as it is. What is whole behind the damage is copied into a new file: from the damage on the old
//! one could not be read through any more if the index were lost, too.
//!
//! It must never lower a mark of a sealed trial, whose traces nobody has any more, nor lose a block that is whole.
//! `store/tests/mend.rs` guards this.

use std::collections::BTreeMap;

use common::ids::{Epoch, TrialId};

use super::error::{IndexError, StoreError};
use super::index::IndexBatch;
use super::keys::{self, BlockEntry};
use super::recovery::Marks;
use super::run::RunStore;
use super::segments::SegmentWriter;

/// A block's key and place.
type Named = (Vec<u8>, BlockEntry);

impl RunStore {
    /// Looks at every stored block of a trial that is not sealed, and forgets those that are damaged. Gives what is
    /// wrong with each. It waits for the disk.
    ///
    /// # Errors
    /// When the run is being written, or disk or index fail.
    pub fn mend(&self, trial: TrialId, epoch: Epoch) -> Result<Vec<StoreError>, StoreError> {
        let mut writer = self.take_writer()?;
        let mended = self.mend_with(&mut writer, trial, epoch);
        self.return_writer(writer);
        mended
    }

    fn mend_with(
        &self,
        writer: &mut SegmentWriter,
        trial: TrialId,
        epoch: Epoch,
    ) -> Result<Vec<StoreError>, StoreError> {
        let (mut problems, mut batch, mut marks) = (Vec::new(), IndexBatch::default(), Marks::new());
        // Of each file, where its first damage is.
        let mut damage: BTreeMap<u32, u64> = BTreeMap::new();
        let prefix = keys::blocks(self.id());
        let of_trial = self.named(&keys::trial_blocks(self.id(), trial, epoch))?;
        for ((key, place), block) in of_trial.iter().zip(self.blocks(of_trial.clone())?) {
            let Err(e) = block else { continue };
            if !matches!(e, StoreError::Block { .. } | StoreError::WrongBlock { .. }) {
                return Err(e);
            }
            let (process, first) =
                keys::process_of(&prefix, key).ok_or(IndexError::Value { what: "a block's key" })?;
            let mark = marks.entry(process).or_insert(first);
            *mark = first.min(*mark);
            let from = damage.entry(place.file).or_insert(place.offset);
            *from = place.offset.min(*from);
            batch.remove(key.clone());
            problems.push(e);
        }
        if problems.is_empty() {
            return Ok(problems);
        }
        for ((agent, incarnation), mark) in &marks {
            batch.put(keys::mark(self.id(), agent, *incarnation), keys::encode(mark));
        }
        self.index().commit(&batch)?;
        self.copy(writer, self.named(&prefix)?, &damage)?;
        Ok(problems)
    }

    /// Copies what lies behind damage into a new file, in the order in which it lies there.
    fn copy(
        &self,
        writer: &mut SegmentWriter,
        mut named: Vec<Named>,
        damage: &BTreeMap<u32, u64>,
    ) -> Result<(), StoreError> {
        writer.begin_file();
        named.retain(|(_, place)| damage.get(&place.file).is_some_and(|from| place.offset > *from));
        named.sort_by_key(|(_, place)| (place.file, place.offset));
        for block in self.blocks(named)? {
            // Of a sealed trial: it stays where it is, and its report says what is wrong.
            let Ok(block) = block else { continue };
            let places = writer.append(&[&block])?;
            self.index().commit(&self.naming(&[&block], &places, &Marks::new(), writer.end()))?;
        }
        Ok(())
    }
}
