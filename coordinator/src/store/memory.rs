//! An index in memory that loses what was not made durable, for tests and simulations.
//!
//! It keeps the contract of [`Index`] as meanly as a database may: when told to fail, a commit may be seen or not,
//! and after a crash of those that failed any number survive, in order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::seed::Stream;

use super::error::IndexError;
use super::index::{Index, IndexBatch, Pair};

/// An index in memory. Clones share their content.
#[derive(Debug, Clone, Default)]
pub struct MemoryIndex(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    now: BTreeMap<Vec<u8>, Vec<u8>>,
    /// As of the last commit that returned.
    durable: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Applied since, by commits that failed.
    pending: Vec<IndexBatch>,
    failing: Option<Failing>,
}

/// Where calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// Every call, without an effect.
    Everything,
    /// Commits, after they were applied and before they are durable.
    Flushes,
}

fn apply(map: &mut BTreeMap<Vec<u8>, Vec<u8>>, batch: &IndexBatch) {
    for (key, value) in &batch.changes {
        match value {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
    }
}

fn told_to_fail() -> IndexError {
    IndexError::Io { path: PathBuf::from("in memory"), reason: "told to fail".to_owned(), full: false }
}

impl MemoryIndex {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn working(&self) -> Result<MutexGuard<'_, State>, IndexError> {
        let state = self.state();
        if state.failing == Some(Failing::Everything) { Err(told_to_fail()) } else { Ok(state) }
    }

    /// Power loss: of the batches that are not durable the first few survive. It works again after it.
    pub fn crash(&self, random: &mut Stream) {
        let mut state = self.state();
        let kept = random.below(state.pending.len() as u64 + 1) as usize;
        let pending = std::mem::take(&mut state.pending);
        pending.iter().take(kept).for_each(|batch| apply(&mut state.durable, batch));
        state.now = state.durable.clone();
        state.failing = None;
    }

    /// Lets calls fail, or work again.
    pub fn set_failing(&self, failing: Option<Failing>) {
        self.state().failing = failing;
    }

    /// Loses everything, as a database that does not open.
    pub fn clear(&self) {
        *self.state() = State::default();
    }
}

impl Index for MemoryIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        Ok(self.working()?.now.get(key).cloned())
    }

    fn scan(&self, prefix: &[u8]) -> Result<Vec<Pair>, IndexError> {
        let state = self.working()?;
        let from = state.now.range(prefix.to_vec()..);
        Ok(from.take_while(|(k, _)| k.starts_with(prefix)).map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    fn commit(&self, batch: &IndexBatch) -> Result<(), IndexError> {
        let mut state = self.working()?;
        apply(&mut state.now, batch);
        if state.failing == Some(Failing::Flushes) {
            state.pending.push(batch.clone());
            return Err(told_to_fail());
        }
        state.pending.clear();
        state.durable = state.now.clone();
        Ok(())
    }
}
