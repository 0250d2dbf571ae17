//! The segment files of a run: where its blocks are appended and read.
//!
//! It owns `segments/00000001.seg` and on. It exists because trace bodies in a database cost up to three times their
//! size (see `ARCHITECTURE.md`). It must never change a block, never append after a torn tail, and never believe the
//! index without looking: an entry is held against the file's length and the block's own header.
//!
//! Only the last file can end in a torn tail: a new one is begun only after the one before it was synced.
//! The property test of `ingest` guards this under crashes, `store/tests/segments.rs` the reading.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::disk::{Disk, DiskFile};
use common::ids::RunId;
use common::simulated::{Sabotage, is_sabotaged};
use common::trace::segment::{Block, FILE_MAGIC, MAX_BLOCK_BYTES, SegmentError};

use super::error::{At, StoreError};
use super::keys::{self, BlockEntry, Cursor};

/// A file above this size is followed by a new one: small enough to copy and to read again after a loss of the index.
const ROLL_BYTES: u64 = 256 << 20;

/// Largest block, frame included.
pub(super) const MAX_FRAMED: u64 = MAX_BLOCK_BYTES as u64 + 8;

/// Files that a reader keeps open: blocks of several agents alternate between the last files of a trial.
const OPEN_FILES: usize = 16;

/// Where file `number` lies.
pub(super) fn path_of(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:08}.seg"))
}

/// The numbers of the segment files in `dir`, ascending. Other files are left alone.
pub(super) fn numbers(disk: &dyn Disk, dir: &Path) -> Result<BTreeSet<u32>, StoreError> {
    let paths = disk.list(dir).at(dir)?;
    let number = |p: &PathBuf| p.file_name()?.to_str()?.strip_suffix(".seg")?.parse::<u32>().ok();
    Ok(paths.iter().filter_map(number).collect())
}

/// Appends to a run's segment files.
pub(crate) struct SegmentWriter {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// End of what is whole and synced.
    end: Cursor,
    /// None before the first append and after an error: the file may then have a torn tail.
    file: Option<Box<dyn DiskFile>>,
    roll_bytes: u64,
}

impl SegmentWriter {
    /// Goes on at `end`; what lies after it in the file is a torn tail.
    pub(super) fn new(disk: Arc<dyn Disk>, dir: PathBuf, end: Cursor) -> Self {
        Self { disk, dir, end, file: None, roll_bytes: ROLL_BYTES }
    }

    /// Rolls at another size, for tests.
    #[cfg(test)]
    pub(crate) fn roll_at(&mut self, bytes: u64) {
        self.roll_bytes = bytes;
    }

    /// End of what is whole and synced.
    pub(crate) fn end(&self) -> Cursor {
        self.end
    }

    /// The file that is written.
    pub(crate) fn path(&self) -> PathBuf {
        path_of(&self.dir, self.end.file)
    }

    /// What is appended from here on lies in another file.
    pub(super) fn begin_file(&mut self) {
        self.file = None;
        self.end = Cursor { file: self.end.file + 1, offset: 0 };
    }

    /// Appends blocks and syncs them; says where each lies.
    ///
    /// # Errors
    /// When the disk refuses: none of them is stored then, and the next call cuts what was written of them.
    pub(crate) fn append(&mut self, blocks: &[&Block]) -> Result<Vec<BlockEntry>, StoreError> {
        if self.end.offset >= self.roll_bytes {
            self.begin_file();
        }
        let path = self.path();
        // Taken, and put back only after success: whatever fails below, the next call opens the file anew and cuts it.
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.open(&path)?,
        };
        let mut offset = self.end.offset;
        if offset == 0 {
            file.append(FILE_MAGIC).at(&path)?;
            offset = FILE_MAGIC.len() as u64;
        }
        let mut entries = Vec::with_capacity(blocks.len());
        for block in blocks {
            file.append(block.bytes()).at(&path)?;
            let length = u32::try_from(block.bytes().len()).unwrap_or(u32::MAX);
            entries.push(BlockEntry { file: self.end.file, offset, length, count: block.header().count });
            offset += block.bytes().len() as u64;
        }
        if !is_sabotaged(Sabotage::SkipSync) {
            file.sync().at(&path)?;
        }
        if self.end.offset == 0 {
            self.disk.sync_dir(&self.dir).at(&self.dir)?;
        }
        self.file = Some(file);
        self.end.offset = offset;
        Ok(entries)
    }

    /// Opens the file that is written and cuts its torn tail.
    fn open(&self, path: &Path) -> Result<Box<dyn DiskFile>, StoreError> {
        let mut file = self.disk.open(path).at(path)?;
        let len = file.len().at(path)?;
        if len < self.end.offset {
            let shrunk = io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{len} bytes where {} were written: somebody else changed the file", self.end.offset),
            );
            return Err(shrunk).at(path);
        }
        if len > self.end.offset {
            tracing::warn!(file = %path.display(), bytes = len - self.end.offset, "a torn tail is cut");
            file.truncate(self.end.offset).at(path)?;
        }
        Ok(file)
    }
}

/// Reads one block, trusting nothing that was not checked.
pub(super) fn read_block(
    file: &dyn DiskFile,
    path: &Path,
    offset: u64,
    length: u64,
) -> Result<Block, StoreError> {
    let damaged = |source| StoreError::Block { path: path.to_owned(), offset, source };
    let len = file.len().at(path)?;
    if length > MAX_FRAMED {
        return Err(damaged(SegmentError::TooLarge(usize::try_from(length).unwrap_or(usize::MAX))));
    }
    if offset.checked_add(length).is_none_or(|end| end > len) {
        return Err(damaged(SegmentError::Torn));
    }
    let mut bytes = vec![0; length as usize];
    file.read_at(offset, &mut bytes).at(path)?;
    Block::decode(&bytes).map_err(damaged)
}

/// The blocks of a trial, ordered by agent, incarnation and sequence number. It holds their places and one block.
pub struct TrialBlocks {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    run: RunId,
    present: BTreeSet<u32>,
    open: BTreeMap<u32, Box<dyn DiskFile>>,
    entries: std::vec::IntoIter<(Vec<u8>, BlockEntry)>,
}

impl TrialBlocks {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        run: RunId,
        entries: Vec<(Vec<u8>, BlockEntry)>,
    ) -> Result<Self, StoreError> {
        let present = numbers(&*disk, &dir)?;
        Ok(Self { disk, dir, run, present, open: BTreeMap::new(), entries: entries.into_iter() })
    }

    /// Number of traces that are still to come.
    #[must_use]
    pub fn traces(&self) -> u64 {
        self.entries.as_slice().iter().map(|(_, e)| u64::from(e.count)).sum()
    }

    /// The same blocks for several readers: the first few to the first reader, as many to the next one, and after the last
    /// one to the first again.
    #[must_use]
    pub fn split(self, readers: usize, together: usize) -> Vec<Self> {
        let mut dealt: Vec<Vec<_>> = vec![Vec::new(); readers.max(1)];
        let count = dealt.len();
        for (i, entry) in self.entries.enumerate() {
            dealt[i / together.max(1) % count].push(entry);
        }
        let of = |entries: Vec<_>| Self {
            disk: Arc::clone(&self.disk),
            dir: self.dir.clone(),
            run: self.run.clone(),
            present: self.present.clone(),
            open: BTreeMap::new(),
            entries: entries.into_iter(),
        };
        dealt.into_iter().map(of).collect()
    }

    fn read(&mut self, key: &[u8], entry: BlockEntry) -> Result<Block, StoreError> {
        let path = path_of(&self.dir, entry.file);
        // Opening would make a missing file, and so hide that it is missing.
        if !self.present.contains(&entry.file) {
            return Err(io::Error::from(io::ErrorKind::NotFound)).at(&path);
        }
        if !self.open.contains_key(&entry.file) {
            if self.open.len() >= OPEN_FILES {
                self.open.pop_first();
            }
            self.open.insert(entry.file, self.disk.open(&path).at(&path)?);
        }
        let file =
            self.open.get(&entry.file).ok_or(io::ErrorKind::NotFound).map_err(io::Error::from).at(&path)?;
        let block = read_block(&**file, &path, entry.offset, u64::from(entry.length))?;
        let named = keys::block(&self.run, block.header()) == key && block.header().count == entry.count;
        if named { Ok(block) } else { Err(StoreError::WrongBlock { path, offset: entry.offset }) }
    }
}

impl Iterator for TrialBlocks {
    type Item = Result<Block, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (key, entry) = self.entries.next()?;
        Some(self.read(&key, entry))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}
