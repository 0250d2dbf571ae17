//! The store: one data directory with many runs.
//!
//! ```text
//! LOCK                                  held by the one coordinator that uses the directory
//! index/                                runs, events, marks and places of blocks (sled)
//! index.broken-1/                       an index that did not open, moved aside
//! runs/<run_id>/                        plan, workloads, reports
//! runs/<run_id>/segments/00000001.seg   traces
//! runs/<run_id>/telemetry/AGENT-N.tel   what was recorded beside them
//! ```
//! It owns these paths and what they mean. It exists so that nothing an agent was told is stored can be lost: traces
//! are synced in a segment file before the index names them, and the index can be made anew from the segments (all
//! but the log of events). It must never serve two coordinators, and never believe an index that is ahead of the
//! segments.
//!
//! The tests in `store/tests/` guard the layout, the lock and the rebuilding; the property test of `ingest` guards
//! crashes.

mod error;
mod events;
mod index;
mod keys;
mod memory;
mod mend;
mod recovery;
mod run;
mod seal;
mod segments;
mod series;
mod sled;
mod slowness;
mod telemetry;
mod watched;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use common::disk::{Disk, FolderLock};
use common::ids::{Nanos, RunId};

pub use error::{IndexError, StoreError};
pub use events::RunEvent;
pub use index::{Index, IndexBatch, Pair};
pub use keys::{RunRecord, RunState};
pub use memory::{Failing, MemoryIndex};
pub use run::RunStore;
pub use seal::{Conservation, Ledger, Listing, Selection, conservation};
pub use segments::TrialBlocks;
pub use series::AgentSeries;
pub use slowness::Slowness;
pub use telemetry::TelemetrySink;
pub use watched::{DiskWatch, Standing};

pub use recovery::Marks;
pub(crate) use segments::SegmentWriter;
pub(crate) use watched::WatchedOut;

use self::sled::SledIndex;
use error::At;
use run::RunInner;
use watched::{WatchedDisk, WatchedIndex};

/// An open data directory. Clones share it; it is released when the last clone and the last [`RunStore`] are gone.
#[derive(Clone)]
pub struct Store(Arc<Shared>);

/// What runs share. The lock comes last: it is released after the index is closed.
struct Shared {
    data_dir: PathBuf,
    disk: Arc<dyn Disk>,
    index: Arc<dyn Index>,
    slowness: Slowness,
    watch: DiskWatch,
    /// Runs that are in use. Opening a run cuts its torn tail, which must not happen below a writer: so a run that is
    /// open is shared, not opened again.
    open: Mutex<BTreeMap<RunId, Weak<RunInner>>>,
    _lock: Option<FolderLock>,
}

impl Store {
    /// Opens a data directory, made when missing. It waits for the disk.
    ///
    /// # Errors
    /// When the directory cannot be used, another coordinator uses it, or its index can neither be opened nor made.
    pub fn open(data_dir: &Path, disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        Self::open_watched(data_dir, disk, &DiskWatch::default())
    }

    /// The same under watch.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_watched(data_dir: &Path, disk: Arc<dyn Disk>, watch: &DiskWatch) -> Result<Self, StoreError> {
        let lock = watch.during(data_dir, || FolderLock::take(data_dir))?;
        let path = data_dir.join("index");
        let index = watch.reading(&path, || SledIndex::open(&path))?;
        let index = WatchedIndex(Arc::new(index), watch.clone(), path);
        let disk = Arc::new(WatchedDisk(disk, watch.clone()));
        Self::assemble(data_dir, disk, Arc::new(index), (watch.clone(), Slowness::default()), Some(lock))
    }

    /// A store on any disk and index, without a lock, for tests and simulations.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn with_index(
        data_dir: &Path,
        disk: Arc<dyn Disk>,
        index: Arc<dyn Index>,
    ) -> Result<Self, StoreError> {
        Self::slow(data_dir, disk, index, Slowness::default())
    }

    /// The same on a disk that takes its time.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn slow(
        data_dir: &Path,
        disk: Arc<dyn Disk>,
        index: Arc<dyn Index>,
        slowness: Slowness,
    ) -> Result<Self, StoreError> {
        Self::assemble(data_dir, disk, index, (DiskWatch::default(), slowness), None)
    }

    fn assemble(
        data_dir: &Path,
        disk: Arc<dyn Disk>,
        index: Arc<dyn Index>,
        (watch, slowness): (DiskWatch, Slowness),
        lock: Option<FolderLock>,
    ) -> Result<Self, StoreError> {
        let runs = data_dir.join("runs");
        disk.create_dir_all(&runs).at(&runs)?;
        recovery::check_format(&*index)?;
        recovery::adopt_runs(&*disk, &*index, &runs)?;
        Ok(Self(Arc::new(Shared {
            data_dir: data_dir.to_owned(),
            disk,
            index,
            slowness,
            watch,
            open: Mutex::default(),
            _lock: lock,
        })))
    }

    /// The data directory.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.0.data_dir
    }

    /// Who watches its disk: for what lies beside the runs.
    #[must_use]
    pub fn watch(&self) -> &DiskWatch {
        &self.0.watch
    }

    /// Makes a run. It waits for the disk.
    ///
    /// # Errors
    /// [`StoreError::RunExists`], or what disk and index say.
    pub fn create_run(&self, run: &RunId, created: Nanos) -> Result<RunStore, StoreError> {
        if self.0.index.get(&keys::run(run))?.is_some() {
            return Err(StoreError::RunExists(run.clone()));
        }
        let record = RunRecord { created: Some(created), state: RunState::Running };
        let mut batch = IndexBatch::default();
        batch.put(keys::run(run), keys::encode(&record));
        // With a cursor from the start, a missing one means that the index was lost.
        batch.put(keys::cursor(run), keys::encode(&recovery::START));
        self.0.index.commit(&batch)?;
        self.run(run)
    }

    /// Opens a run: cuts a torn tail of its segments and indexes what is whole but not indexed yet. A run that is
    /// open already is shared. It waits for the disk.
    ///
    /// # Errors
    /// [`StoreError::NoSuchRun`], or what disk and index say.
    pub fn run(&self, run: &RunId) -> Result<RunStore, StoreError> {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inner) = open.get(run).and_then(Weak::upgrade) {
            return Ok(RunStore(inner));
        }
        if self.0.index.get(&keys::run(run))?.is_none() {
            let known = self.known()?;
            return Err(StoreError::NoSuchRun { run: run.clone(), path: self.0.data_dir.clone(), known });
        }
        let inner = Arc::new(RunInner::open(self.0.clone(), run)?);
        open.retain(|_, weak| weak.strong_count() > 0);
        open.insert(run.clone(), Arc::downgrade(&inner));
        Ok(RunStore(inner))
    }

    /// Forgets a run: its entries in the index, then its folder. A run that is in use cannot be removed. It waits for
    /// the disk.
    ///
    /// # Errors
    /// [`StoreError::NoSuchRun`], [`StoreError::RunInUse`], or what disk and index say.
    pub fn remove_run(&self, run: &RunId) -> Result<(), StoreError> {
        let open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.get(run).is_some_and(|weak| weak.strong_count() > 0) {
            return Err(StoreError::RunInUse(run.clone()));
        }
        if self.0.index.get(&keys::run(run))?.is_none() {
            let known = self.known()?;
            return Err(StoreError::NoSuchRun { run: run.clone(), path: self.0.data_dir.clone(), known });
        }
        // The folder first: a run without a folder is seen to be empty, but a folder without a run would be adopted
        // at the next start.
        let dir = self.0.data_dir.join("runs").join(run.as_str());
        self.0.disk.remove_dir_all(&dir).at(&dir)?;
        let mut batch = IndexBatch::default();
        for prefix in keys::all_of(run) {
            self.0.index.scan(&prefix)?.into_iter().for_each(|(key, _)| batch.remove(key));
        }
        Ok(self.0.index.commit(&batch)?)
    }

    /// Every run, oldest first; those whose age is not known come before.
    ///
    /// # Errors
    /// When the index fails.
    pub fn runs(&self) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
        let mut runs = Vec::new();
        for (key, value) in self.0.index.scan(keys::RUNS)? {
            if let Some(run) = keys::run_of(&key) {
                runs.push((run, keys::decode::<RunRecord>(&value, "a run")?));
            }
        }
        runs.sort_by_key(|(_, record)| record.created);
        Ok(runs)
    }

    /// The end of a message: the latest runs by name.
    fn known(&self) -> Result<String, StoreError> {
        let runs = self.runs()?;
        let latest: Vec<&str> = runs.iter().rev().take(5).map(|(run, _)| run.as_str()).collect();
        Ok(match latest.as_slice() {
            [] => "; it holds no runs".to_owned(),
            names => format!("; the latest are {}", names.join(", ")),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
