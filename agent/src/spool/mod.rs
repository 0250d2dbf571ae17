//! The spool: finished traces on disk until the coordinator has sealed their trial.
//!
//! # Invariants
//! - Sequence numbers of one (run, agent, incarnation) are contiguous from 0; a trace gets its number when its block
//!   is written, so that a trace that cannot be written leaves no gap.
//! - What [`Spool::read_from`] gives out has been written and synced before.
//! - Dispatching never waits for the disk: the load thread hands traces over by [`SpoolWriter::push`], which does not
//!   block. What the writer cannot take is counted, and a trial with such a count is invalid.
//!
//! One segment file for each trial, removed when the trial is sealed. The format is that of the store
//! ([`common::trace::segment`]), so that blocks travel byte for byte.

mod writer;

pub use writer::{SpoolState, SpoolWriter};

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::disk::{Disk, DiskFile};
use common::ids::Seq;
use common::trace::Trace;
use common::trace::segment::{Block, BlockOrigin, FILE_MAGIC};
use tokio::sync::watch;

/// Where a block stands in the file.
#[derive(Debug, Clone, Copy)]
struct BlockPlace {
    next: Seq,
    offset: u64,
    len: u32,
}

struct Inner {
    file: Box<dyn DiskFile>,
    places: Vec<BlockPlace>,
    len: u64,
    next: Seq,
    /// A write failed: the file may end in a torn block, which must be cut before the next one.
    torn: bool,
}

/// The spool of one trial. Written by its [`SpoolWriter`], read by the uploader.
pub struct Spool {
    origin: BlockOrigin,
    path: PathBuf,
    first: Seq,
    inner: Mutex<Inner>,
    durable: watch::Sender<Seq>,
}

impl Spool {
    /// Makes the spool file of a trial. Its first trace gets the number `first`.
    ///
    /// # Errors
    /// When the folder or the file cannot be made.
    pub fn create(disk: &dyn Disk, path: &Path, origin: BlockOrigin, first: Seq) -> io::Result<Arc<Self>> {
        let dir = path.parent().unwrap_or(Path::new("."));
        disk.create_dir_all(dir)?;
        disk.remove(path)?;
        let mut file = disk.open(path)?;
        file.append(FILE_MAGIC)?;
        file.sync()?;
        disk.sync_dir(dir)?;
        let inner =
            Inner { file, places: Vec::new(), len: FILE_MAGIC.len() as u64, next: first, torn: false };
        Ok(Arc::new(Self {
            origin,
            path: path.to_owned(),
            first,
            inner: Mutex::new(inner),
            durable: watch::Sender::new(first),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes and syncs one block.
    fn append(&self, traces: &[Trace]) -> io::Result<()> {
        let mut inner = self.lock();
        if inner.torn {
            let len = inner.len;
            inner.file.truncate(len)?;
            inner.torn = false;
        }
        let block = Block::encode(&self.origin, inner.next, traces).map_err(io::Error::other)?;
        inner.torn = true;
        inner.file.append(block.bytes())?;
        inner.file.sync()?;
        inner.torn = false;
        let len = block.bytes().len();
        let place = BlockPlace { next: block.next_seq(), offset: inner.len, len: len as u32 };
        inner.places.push(place);
        inner.len += len as u64;
        inner.next = place.next;
        self.durable.send_replace(place.next);
        Ok(())
    }

    /// Blocks from the one that holds `seq`, as they stand in the file: about `budget` bytes, at least one block when
    /// there is one.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read_from(&self, seq: Seq, budget: usize) -> io::Result<Vec<Vec<u8>>> {
        let inner = self.lock();
        let start = inner.places.partition_point(|p| p.next <= seq);
        let mut blocks = Vec::new();
        let mut size = 0;
        for place in &inner.places[start..] {
            size += place.len as usize;
            if !blocks.is_empty() && size > budget {
                break;
            }
            let mut bytes = vec![0; place.len as usize];
            inner.file.read_at(place.offset, &mut bytes)?;
            blocks.push(bytes);
        }
        Ok(blocks)
    }

    /// The number after the last block that [`Spool::read_from`] gives for these arguments.
    #[must_use]
    pub fn next_after(&self, seq: Seq, blocks: usize) -> Seq {
        let inner = self.lock();
        let start = inner.places.partition_point(|p| p.next <= seq);
        inner.places[start..].iter().take(blocks).next_back().map_or(seq, |p| p.next)
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
        disk.remove(&self.path)?;
        match self.path.parent() {
            Some(dir) if disk.list(dir)?.is_empty() => disk.remove_dir_all(dir),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
