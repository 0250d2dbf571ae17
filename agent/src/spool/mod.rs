//! The spool: finished traces on disk until the coordinator has sealed their trial.
//!
//! # Invariants
//! - Sequence numbers of one (run, agent, incarnation) are contiguous from 0; a trace gets its number when its block
//!   is written, so that a trace that cannot be written leaves no gap.
//! - What [`Spool::read_from`] gives out has been written and synced before, and so have the names of the file and of
//!   the folders above it.
//! - No number is given out twice, whatever a crash leaves: a process that starts again is another incarnation, and of
//!   a block that was given up nothing counts (see [`held`]).
//! - Dispatching never waits for the disk: the load thread hands traces over by [`SpoolWriter::push`], which does not
//!   block. What the writer cannot take is counted, and a trial with such a count is invalid.
//! - One process at a time has the folder: its [`common::disk::FolderLock`] says so.
//!
//! One segment file for each trial, removed when the trial is sealed. The format is that of the store
//! ([`common::trace::segment`]), so that blocks travel byte for byte. `model.rs` in the tests holds all of it against a
//! list of records, through crashes and faults at every point.
//!
//! - [`held`] is what a folder still holds of processes that are gone; [`command`] is `agent spool`.

mod blocks;
pub mod command;
pub mod held;
mod place;
mod writer;

pub use writer::{SpoolState, SpoolWriter};

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::disk::{Disk, DiskFile};
use common::ids::{RunId, Seq};
use common::simulated::{Sabotage, is_sabotaged};
use common::trace::Trace;
use common::trace::segment::{Block, BlockOrigin, FILE_MAGIC};
use tokio::sync::watch;

use blocks::{BlockPlace, Blocks};

struct Inner {
    file: Box<dyn DiskFile>,
    blocks: Blocks,
    len: u64,
    next: Seq,
    /// A write failed: the file may end in a torn block, or in one that does not count, which must be cut before the
    /// next one.
    torn: bool,
}

/// The spool of one trial. Written by its [`SpoolWriter`], read by the uploader.
pub struct Spool {
    origin: BlockOrigin,
    path: PathBuf,
    first: Seq,
    inner: Mutex<Inner>,
    durable: watch::Sender<Seq>,
    /// All numbers below it are with the coordinator.
    delivered: AtomicU64,
}

impl Spool {
    /// Makes the spool file of a trial of `run` in an agent's folder `dir`. Its first trace gets the number `first`.
    ///
    /// # Errors
    /// When the folder or the file cannot be made, or the file is there: its traces are somebody's.
    pub fn create(
        disk: &dyn Disk,
        dir: &Path,
        run: &RunId,
        origin: BlockOrigin,
        first: Seq,
    ) -> io::Result<Arc<Self>> {
        let folder = place::run_folder(dir, run);
        disk.create_dir_all(&folder)?;
        let path = folder.join(place::file_name(origin.trial, origin.epoch, origin.incarnation));
        let mut file = disk.open(&path)?;
        if file.len()? > FILE_MAGIC.len() as u64 {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is there already, with traces"));
        }
        if !file.is_empty()? {
            file.truncate(0)?;
        }
        file.append(FILE_MAGIC)?;
        file.sync()?;
        place::sync_names(disk, dir, &folder)?;
        let inner =
            Inner { file, blocks: Blocks::default(), len: FILE_MAGIC.len() as u64, next: first, torn: false };
        Ok(Arc::new(Self {
            origin,
            path,
            first,
            inner: Mutex::new(inner),
            durable: watch::Sender::new(first),
            delivered: AtomicU64::new(first.0),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes and syncs one block.
    fn append(&self, traces: &[Trace]) -> io::Result<()> {
        let mut inner = self.lock();
        inner.cut()?;
        let block = Block::encode(&self.origin, inner.next, traces).map_err(io::Error::other)?;
        inner.torn = true;
        inner.file.append(block.bytes())?;
        if !is_sabotaged(Sabotage::SkipSync) {
            inner.file.sync()?;
        }
        inner.torn = false;
        let len = block.bytes().len();
        let place =
            BlockPlace { first: inner.next, next: block.next_seq(), offset: inner.len, len: len as u32 };
        inner.blocks.push(place);
        inner.len += len as u64;
        inner.next = place.next;
        self.durable.send_replace(place.next);
        Ok(())
    }

    /// Removes what is left of a block that was given up: its numbers will be those of other traces.
    fn cut(&self) -> io::Result<()> {
        self.lock().cut()
    }

    /// Blocks from the one that holds `seq`, as they stand in the file: about `budget` bytes, at least one block when
    /// there is one.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read_from(&self, seq: Seq, budget: usize) -> io::Result<Vec<Vec<u8>>> {
        let inner = self.lock();
        inner.blocks.read_from(&*inner.file, seq, budget)
    }

    /// The number after the last block that [`Spool::read_from`] gives for these arguments.
    #[must_use]
    pub fn next_after(&self, seq: Seq, blocks: usize) -> Seq {
        self.lock().blocks.next_after(seq, blocks)
    }

    /// Notes that the coordinator has all numbers below `seq`.
    pub fn note_delivered(&self, seq: Seq) {
        self.delivered.fetch_max(seq.0, Ordering::AcqRel);
    }

    /// Whether the coordinator is known to have all that is in the file. Never while a block that was given up may stand
    /// at its end: its numbers must not go to others.
    #[must_use]
    pub fn is_delivered(&self) -> bool {
        let whole = !self.lock().torn;
        whole && self.delivered.load(Ordering::Acquire) >= self.durable.borrow().0
    }

    /// All numbers below it are known to be with the coordinator.
    #[must_use]
    pub fn delivered(&self) -> Seq {
        Seq(self.delivered.load(Ordering::Acquire))
    }

    /// The trial's first number.
    #[must_use]
    pub fn first(&self) -> Seq {
        self.first
    }

    /// Whose traces these are.
    #[must_use]
    pub fn origin(&self) -> &BlockOrigin {
        &self.origin
    }

    /// All numbers below this are written and synced; changes as they are.
    #[must_use]
    pub fn durable(&self) -> watch::Receiver<Seq> {
        self.durable.subscribe()
    }

    /// Removes the file, and its folder when nothing else is in it: the trial is sealed.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn remove(&self, disk: &dyn Disk) -> io::Result<()> {
        place::remove(disk, &self.path)
    }
}

impl Inner {
    fn cut(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.truncate(self.len)?;
            self.torn = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
