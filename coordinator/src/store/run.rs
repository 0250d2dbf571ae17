//! One run in the store: its log of events, its marks, its blocks and its files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use common::disk::Disk;
use common::ids::{AgentName, Epoch, Incarnation, RunId, Seq, TrialId};
use common::trace::segment::Block;

use super::Shared;
use super::error::{At, IndexError, StoreError};
use super::events::RunEvent;
use super::index::{Index, IndexBatch};
use super::keys::{self, BlockEntry, Cursor, RunRecord};
use super::recovery::{self, Marks};
use super::segments::{SegmentWriter, TrialBlocks};
use super::slowness::Slowness;
use super::watched::DiskWatch;

/// A run of an open store. Clones share it. Every call waits for the disk: from async code, call it where blocking is
/// allowed.
#[derive(Clone)]
pub struct RunStore(pub(super) Arc<RunInner>);

pub(super) struct RunInner {
    store: Arc<Shared>,
    run: RunId,
    dir: PathBuf,
    /// Number of the next event. Held while one is appended, so that the log has an order.
    next_event: Mutex<u64>,
    /// None while a writer has it.
    writer: Mutex<Option<SegmentWriter>>,
}

fn segments_of(dir: &Path) -> PathBuf {
    dir.join("segments")
}

impl RunInner {
    pub(super) fn open(store: Arc<Shared>, run: &RunId) -> Result<Self, StoreError> {
        let runs = store.data_dir.join("runs");
        let dir = runs.join(run.as_str());
        let segments = segments_of(&dir);
        store.disk.create_dir_all(&segments).at(&segments)?;
        for parent in [&dir, &runs, &store.data_dir] {
            store.disk.sync_dir(parent).at(parent)?;
        }
        // The data directory's own name: it may be as new as the run.
        if let Some(above) = store.data_dir.parent() {
            match store.disk.sync_dir(above) {
                // A folder that may not be read is not one in which we have made another.
                Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {}
                synced => synced.at(above)?,
            }
        }
        let end = recovery::recover(&*store.disk, &*store.index, run, &segments)?;
        let last = store.index.scan(&keys::events(run))?.last().and_then(|(key, _)| keys::event_number(key));
        Ok(Self {
            run: run.clone(),
            next_event: Mutex::new(last.map_or(0, |n| n + 1)),
            writer: Mutex::new(Some(SegmentWriter::new(store.disk.clone(), segments, end))),
            dir,
            store,
        })
    }
}

impl RunStore {
    /// Its name.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.0.run
    }

    /// Its folder, for the plan, workloads and reports.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// When it was made and what became of it.
    ///
    /// # Errors
    /// When the index fails.
    pub fn record(&self) -> Result<RunRecord, StoreError> {
        let value = self
            .index()
            .get(&keys::run(self.id()))?
            .ok_or(IndexError::Value { what: "no record of a run" })?;
        Ok(keys::decode(&value, "a run")?)
    }

    /// Appends to the log, durably. Append first, then act.
    ///
    /// # Errors
    /// When the index fails; the event may be in the log all the same.
    pub fn append_event(&self, event: &RunEvent) -> Result<(), StoreError> {
        let mut next = self.0.next_event.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = IndexBatch::default();
        batch.put(keys::event(self.id(), *next), keys::encode(event));
        if let Some(state) = event.state() {
            let record = RunRecord { state, ..self.record()? };
            batch.put(keys::run(self.id()), keys::encode(&record));
        }
        self.index().commit(&batch)?;
        *next += 1;
        Ok(())
    }

    /// The log, oldest first.
    ///
    /// # Errors
    /// When the index fails or holds an event of a later version.
    pub fn events(&self) -> Result<Vec<RunEvent>, StoreError> {
        let pairs = self.index().scan(&keys::events(self.id()))?;
        let events = pairs.iter().map(|(_, value)| keys::decode(value, "an event"));
        Ok(events.collect::<Result<_, IndexError>>()?)
    }

    /// An epoch above every one that the run has used, be it in the log or in a stored block (the log is lost when
    /// the index is rebuilt).
    ///
    /// # Errors
    /// When the index fails.
    pub fn next_epoch(&self) -> Result<Epoch, StoreError> {
        let prefix = keys::blocks(self.id());
        let blocks = self.index().scan(&prefix)?;
        let stored = blocks.iter().filter_map(|(key, _)| keys::epoch_of(&prefix, key)).max();
        let logged = self.events()?.iter().filter_map(RunEvent::epoch).max();
        Ok(stored.max(logged).map_or(Epoch(1), |e| Epoch(e.0.saturating_add(1))))
    }

    /// The next sequence number expected of an agent process: everything below it is stored.
    ///
    /// # Errors
    /// When the index fails.
    pub fn mark(&self, agent: &AgentName, incarnation: Incarnation) -> Result<Seq, StoreError> {
        let value = self.index().get(&keys::mark(self.id(), agent, incarnation))?;
        Ok(value.map(|v| keys::decode(&v, "a mark")).transpose()?.unwrap_or_default())
    }

    /// The marks of all agent processes that have stored something.
    pub fn marks(&self) -> Result<Marks, StoreError> {
        Ok(recovery::load_marks(self.index(), self.id())?)
    }

    /// The blocks of a trial under one epoch, read one after the other.
    ///
    /// # Errors
    /// When the index or the folder cannot be read. Each block brings its own errors.
    pub fn trial_blocks(&self, trial: TrialId, epoch: Epoch) -> Result<TrialBlocks, StoreError> {
        self.blocks(self.named(&keys::trial_blocks(self.id(), trial, epoch))?)
    }

    /// Keys and places of the blocks whose keys begin so.
    pub(super) fn named(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, BlockEntry)>, StoreError> {
        let pairs = self.index().scan(prefix)?.into_iter();
        let named =
            pairs.map(|(key, value)| Ok((key, keys::decode::<BlockEntry>(&value, "a block's place")?)));
        Ok(named.collect::<Result<Vec<_>, IndexError>>()?)
    }

    /// These blocks, read one after the other.
    pub(super) fn blocks(&self, named: Vec<(Vec<u8>, BlockEntry)>) -> Result<TrialBlocks, StoreError> {
        TrialBlocks::new(self.disk(), segments_of(self.dir()), self.id().clone(), named)
    }

    /// Writes a file into the run's folder, whole and durably, and says where it is.
    ///
    /// # Errors
    /// When the disk refuses; an older file of that name then stays.
    pub fn write_file(&self, name: &str, content: &[u8]) -> Result<PathBuf, StoreError> {
        let path = self.dir().join(name);
        self.0.store.disk.replace(&path, content).at(&path)?;
        Ok(path)
    }

    /// Reads a file of the run's folder.
    ///
    /// # Errors
    /// When it is missing or cannot be read.
    pub fn read_file(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let path = self.dir().join(name);
        self.0.store.disk.read(&path).at(&path)
    }

    /// What the index must say after blocks were appended: their places, the new marks, the end of the segments.
    pub(crate) fn naming(
        &self,
        blocks: &[&Block],
        places: &[BlockEntry],
        marks: &Marks,
        end: Cursor,
    ) -> IndexBatch {
        let mut batch = IndexBatch::default();
        for (block, place) in blocks.iter().zip(places) {
            batch.put(keys::block(self.id(), block.header()), keys::encode(place));
        }
        for ((agent, incarnation), mark) in marks {
            batch.put(keys::mark(self.id(), agent, *incarnation), keys::encode(mark));
        }
        batch.put(keys::cursor(self.id()), keys::encode(&end));
        batch
    }

    pub(super) fn disk(&self) -> Arc<dyn Disk> {
        self.0.store.disk.clone()
    }

    /// Who watches its disk.
    pub(crate) fn watch(&self) -> &DiskWatch {
        &self.0.store.watch
    }

    pub(crate) fn slowness(&self) -> &Slowness {
        &self.0.store.slowness
    }

    pub(crate) fn index(&self) -> &dyn Index {
        &*self.0.store.index
    }

    /// Takes the one writer of the run's segments.
    pub(crate) fn take_writer(&self) -> Result<SegmentWriter, StoreError> {
        let mut writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.take().ok_or_else(|| StoreError::HasWriter(self.id().clone()))
    }

    /// Gives it back, so that the run can be written again.
    pub(crate) fn return_writer(&self, writer: SegmentWriter) {
        *self.0.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
    }
}
