//! Bringing index and segments together again.
//!
//! It owns the decision what a segment file still holds after a crash, and what the index must say about it. It must
//! never let the index name a block that is not on the disk, and never cut a block that the index names.
//!
//! - Indexed up to the cursor, segments longer: what is whole is indexed, a torn tail is cut.
//! - Segments shorter than the cursor: the index is ahead, which no crash of ours makes. The run's part of the index
//!   is thrown away and made anew.
//! - No cursor: the index was lost. Everything is scanned; what would be cut then is copied aside first, because it
//!   may be damage in the middle of data that was acknowledged.
//!
//! The property test of `ingest` and `store/tests/` guard these.

use std::collections::BTreeMap;
use std::path::Path;

use common::disk::{Disk, DiskFile};
use common::ids::{AgentName, Incarnation, RunId, Seq};
use common::trace::segment::{Block, FILE_MAGIC, SegmentError};

use super::error::{At, IndexError, StoreError};
use super::events::RunEvent;
use super::index::{Index, IndexBatch};
use super::keys::{self, BlockEntry, Cursor, RunRecord, RunState};
use super::segments::{MAX_FRAMED, numbers, path_of, read_block};

/// Where a run's segments begin.
pub(super) const START: Cursor = Cursor { file: 1, offset: 0 };

/// Changes per batch: some 100 KB of index at once. Few in tests, so that crashes fall between batches.
const BATCH_CHANGES: usize = if cfg!(test) { 3 } else { 1024 };

/// Marks: the next sequence number expected of each agent process.
pub type Marks = BTreeMap<(AgentName, Incarnation), Seq>;

/// Notes the format in a new index, and refuses another one.
pub(super) fn check_format(index: &dyn Index) -> Result<(), IndexError> {
    match index.get(keys::VERSION)?.as_deref() {
        Some([keys::FORMAT]) => Ok(()),
        Some([found]) => Err(IndexError::Format { found: *found, known: keys::FORMAT }),
        Some(_) => Err(IndexError::Value { what: "a format" }),
        None => {
            let mut batch = IndexBatch::default();
            batch.put(keys::VERSION.to_vec(), vec![keys::FORMAT]);
            index.commit(&batch)
        }
    }
}

/// Takes up runs whose folder is there but not their record: the index was lost. (A record is made before its
/// folder.) Their segments are scanned when they are opened.
pub(super) fn adopt_runs(disk: &dyn Disk, index: &dyn Index, runs: &Path) -> Result<(), StoreError> {
    for path in disk.list(runs).at(runs)? {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let Ok(run) = name.parse::<RunId>() else { continue };
        if index.get(&keys::run(&run))?.is_some() {
            continue;
        }
        tracing::warn!(%run, "the run is not in the index: it is taken up from its folder");
        let mut batch = IndexBatch::default();
        let record = RunRecord { created: None, state: RunState::Rebuilt };
        batch.put(keys::run(&run), keys::encode(&record));
        index.commit(&batch)?;
    }
    Ok(())
}

/// The marks of a run.
pub(super) fn load_marks(index: &dyn Index, run: &RunId) -> Result<Marks, IndexError> {
    let prefix = keys::marks(run);
    let mut marks = Marks::new();
    for (key, value) in index.scan(&prefix)? {
        let process = keys::mark_of(&prefix, &key).ok_or(IndexError::Value { what: "a mark" })?;
        marks.insert(process, keys::decode(&value, "a mark")?);
    }
    Ok(marks)
}

/// Brings the index of `run` up to its segments in `dir`, and cuts a torn tail. Says where the segments end.
pub(super) fn recover(
    disk: &dyn Disk,
    index: &dyn Index,
    run: &RunId,
    dir: &Path,
) -> Result<Cursor, StoreError> {
    let files = numbers(disk, dir)?;
    let found = index.get(&keys::cursor(run))?;
    let cursor = found.map(|v| keys::decode::<Cursor>(&v, "a cursor")).transpose()?;
    let usable = match cursor {
        Some(cursor) if is_ahead(disk, dir, cursor, files.contains(&cursor.file))? => {
            tracing::error!(
                %run, file = cursor.file, offset = cursor.offset,
                "segments end before the index says: data is missing; the run's index is made anew from what is there"
            );
            None
        }
        other => other,
    };
    let mut recovery = Recovery {
        disk,
        index,
        run,
        dir,
        marks: Marks::new(),
        batch: IndexBatch::default(),
        end: usable.unwrap_or(START),
        lost: usable.is_none(),
        blocks: 0,
    };
    match usable {
        Some(_) => recovery.marks = load_marks(index, run)?,
        None => recovery.forget()?,
    }
    let last = files.last().copied();
    for number in files.range(recovery.end.file..) {
        recovery.file(*number, Some(*number) == last)?;
    }
    recovery.finish()
}

/// Whether the cursor names bytes that are not there.
fn is_ahead(disk: &dyn Disk, dir: &Path, cursor: Cursor, present: bool) -> Result<bool, StoreError> {
    if cursor.offset == 0 || !present {
        return Ok(cursor.offset > 0);
    }
    let path = path_of(dir, cursor.file);
    Ok(disk.open(&path).and_then(|f| f.len()).at(&path)? < cursor.offset)
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    index: &'a dyn Index,
    run: &'a RunId,
    dir: &'a Path,
    marks: Marks,
    batch: IndexBatch,
    /// Up to where everything is in `batch` or committed.
    end: Cursor,
    /// There was no cursor to trust.
    lost: bool,
    /// Found and not indexed before.
    blocks: u64,
}

impl Recovery<'_> {
    /// Removes what the index says of the run's segments.
    fn forget(&mut self) -> Result<(), StoreError> {
        for prefix in [keys::blocks(self.run), keys::marks(self.run)] {
            for (key, _) in self.index.scan(&prefix)? {
                self.batch.remove(key);
            }
        }
        self.batch.put(keys::cursor(self.run), keys::encode(&START));
        Ok(())
    }

    /// Goes through a file from the cursor on.
    fn file(&mut self, number: u32, last: bool) -> Result<(), StoreError> {
        let path = path_of(self.dir, number);
        let mut file = self.disk.open(&path).at(&path)?;
        let len = file.len().at(&path)?;
        let mut offset = if number == self.end.file { self.end.offset } else { 0 };
        if offset == len {
            self.end = Cursor { file: number, offset };
            return Ok(());
        }
        // A process that was killed leaves bytes, and names, that are not synced. They are indexed below, so they must
        // be safe.
        file.sync().at(&path)?;
        self.disk.sync_dir(self.dir).at(self.dir)?;
        let mut damage = None;
        if offset == 0 {
            match magic(&*file, &path, len)? {
                Magic::Good => offset = FILE_MAGIC.len() as u64,
                Magic::Torn => damage = Some(SegmentError::Torn),
                // Nothing of the file was ever indexed: a first write that was torn in its last byte.
                Magic::OtherVersion if !self.lost => damage = Some(SegmentError::Torn),
                Magic::OtherVersion => {
                    return Err(StoreError::Block { path, offset: 0, source: SegmentError::Magic });
                }
            }
        }
        while damage.is_none() && offset < len {
            match next_block(&*file, &path, offset, len) {
                Ok(block) => {
                    let entry = BlockEntry {
                        file: number,
                        offset,
                        length: block.bytes().len() as u32,
                        count: block.header().count,
                    };
                    offset += block.bytes().len() as u64;
                    self.take(&block, entry, Cursor { file: number, offset })?;
                }
                Err(StoreError::Block { source, .. }) => damage = Some(source),
                Err(other) => return Err(other),
            }
        }
        self.end = Cursor { file: number, offset };
        match damage {
            Some(reason) if last => self.cut(&mut *file, &path, offset, len, &reason),
            Some(reason) => {
                // Synced before the next file was begun, so this is no torn tail. What follows it in this file cannot
                // be found; the later files can. Missing traces show in the conservation of their trial.
                tracing::error!(file = %path.display(), offset, %reason, "a segment file is damaged: its rest is skipped");
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn take(&mut self, block: &Block, entry: BlockEntry, end: Cursor) -> Result<(), StoreError> {
        let header = block.header();
        let process = (header.agent.clone(), header.incarnation);
        let mark = self.marks.get(&process).copied().unwrap_or_default();
        if block.next_seq() > mark {
            self.blocks += 1;
            self.batch.put(keys::block(self.run, header), keys::encode(&entry));
            if header.first_seq <= mark {
                self.batch.put(keys::mark(self.run, &process.0, process.1), keys::encode(&block.next_seq()));
                self.marks.insert(process, block.next_seq());
            } else {
                // After damage. The block is kept, but the mark stays before the gap, so that an agent that still has
                // the missing ones sends them again; what it repeats takes the same keys.
                tracing::error!(
                    run = %self.run, agent = %header.agent, expected = %mark, found = %header.first_seq,
                    "traces are missing in the segments"
                );
            }
        }
        self.end = end;
        if self.batch.changes.len() >= BATCH_CHANGES { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        let mut batch = std::mem::take(&mut self.batch);
        batch.put(keys::cursor(self.run), keys::encode(&self.end));
        Ok(self.index.commit(&batch)?)
    }

    fn cut(
        &self,
        file: &mut dyn DiskFile,
        path: &Path,
        from: u64,
        len: u64,
        reason: &SegmentError,
    ) -> Result<(), StoreError> {
        tracing::warn!(file = %path.display(), from, bytes = len - from, %reason, "a torn tail is cut");
        if self.lost {
            let aside = path.with_extension(format!("seg.cut-{from}"));
            let mut copy = self.disk.open(&aside).at(&aside)?;
            copy.truncate(0).at(&aside)?;
            let mut at = from;
            while at < len {
                let mut part = vec![0; (len - at).min(1 << 20) as usize];
                file.read_at(at, &mut part).at(path)?;
                copy.append(&part).at(&aside)?;
                at += part.len() as u64;
            }
            copy.sync().at(&aside)?;
        }
        file.truncate(from).at(path)
    }

    fn finish(mut self) -> Result<Cursor, StoreError> {
        if self.lost {
            let number =
                self.index.scan(&keys::events(self.run))?.last().and_then(|(k, _)| keys::event_number(k));
            let event = RunEvent::IndexRebuilt { blocks: self.blocks };
            let number = number.map_or(0, |n| n + 1);
            self.batch.put(keys::event(self.run, number), keys::encode(&event));
            tracing::warn!(run = %self.run, blocks = self.blocks, "the run's index was made anew from its segments");
        }
        if !self.batch.is_empty() {
            self.commit()?;
        }
        Ok(self.end)
    }
}

enum Magic {
    Good,
    /// The file was begun, but its first bytes did not reach the disk.
    Torn,
    OtherVersion,
}

fn magic(file: &dyn DiskFile, path: &Path, len: u64) -> Result<Magic, StoreError> {
    let mut first = FILE_MAGIC[..FILE_MAGIC.len().min(len as usize)].to_vec();
    file.read_at(0, &mut first).at(path)?;
    let name = FILE_MAGIC.len() - 1;
    Ok(if first == FILE_MAGIC {
        Magic::Good
    } else if first.len() == FILE_MAGIC.len() && first[..name] == FILE_MAGIC[..name] {
        Magic::OtherVersion
    } else {
        Magic::Torn
    })
}

/// The block at `offset`, of which the length is not known yet.
fn next_block(file: &dyn DiskFile, path: &Path, offset: u64, len: u64) -> Result<Block, StoreError> {
    let torn = || StoreError::Block { path: path.to_owned(), offset, source: SegmentError::Torn };
    let mut word = [0; 4];
    if len - offset < 8 {
        return Err(torn());
    }
    file.read_at(offset, &mut word).at(path)?;
    let framed = u64::from(u32::from_le_bytes(word)) + 8;
    if framed > MAX_FRAMED {
        let source = SegmentError::TooLarge(framed as usize);
        return Err(StoreError::Block { path: path.to_owned(), offset, source });
    }
    let block = read_block(file, path, offset, framed)?;
    // No honest agent counts that far, and the number after it must exist.
    if block.header().first_seq.0.checked_add(u64::from(block.header().count)).is_none() {
        return Err(StoreError::Block {
            path: path.to_owned(),
            offset,
            source: SegmentError::Content("sequence number"),
        });
    }
    Ok(block)
}
