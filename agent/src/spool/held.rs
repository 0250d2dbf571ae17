//! What a spool still holds of agent processes that are gone: their segments, found, checked and read again.
//!
//! It owns the decision what of a file counts: whole blocks that are what the file's name says, with contiguous
//! numbers, up to the first that is not (a torn tail, mostly). It never changes a segment file: nothing is appended to
//! one again, so a torn tail is left out and not cut off. And of two files of one process, the earlier ends where the
//! later begins: a block that its process gave up may stand whole at the end of a file, but its numbers went to others.
//!
//! For whoever rejoins a coordinator: [`backlogs`] gives what is unsealed of a run, a [`Backlog`] for each process that
//! is gone, which [`crate::session::deliver`] brings to the coordinator under its own incarnation.
//!
//! `model.rs` in the tests guards it, the fuzz target `spool` against any bytes.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use common::disk::{Disk, DiskFile};
use common::ids::{AgentName, Epoch, Incarnation, RunId, Seq, TrialId};
use common::trace::segment::{Block, BlockOrigin, FILE_MAGIC, MAX_BLOCK_BYTES};

use super::blocks::{BlockPlace, Blocks};
use super::place;

/// A segment file: the traces of one trial from one agent process.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The run.
    pub run: RunId,
    /// Agent, process, trial and epoch.
    pub origin: BlockOrigin,
    /// The file.
    pub path: PathBuf,
    /// The coordinator is known to have sealed the trial: the file may go.
    pub sealed: bool,
    /// Bytes of the file.
    pub bytes: u64,
    /// Of them, those that do not count: what a crash or a full disk left of a block.
    pub torn_bytes: u64,
    /// Traces that count.
    pub traces: u64,
    blocks: Blocks,
}

impl Segment {
    /// The number of its first trace, when it has any.
    #[must_use]
    pub fn first(&self) -> Option<Seq> {
        self.blocks.first()
    }

    /// The number after its last trace, when it has any.
    #[must_use]
    pub fn next(&self) -> Option<Seq> {
        self.blocks.next()
    }

    /// Notes, durably, that the coordinator has sealed the trial.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn mark_sealed(&mut self, disk: &dyn Disk) -> io::Result<()> {
        disk.replace(&place::seal_of(&self.path), b"")?;
        self.sealed = true;
        Ok(())
    }

    /// Removes the file, and its run's folder when nothing else is in it.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn remove(&self, disk: &dyn Disk) -> io::Result<()> {
        place::remove(disk, &self.path)
    }

    fn end_at(&mut self, seq: Seq) {
        self.blocks.end_at(seq);
        let (first, next) = (self.first().unwrap_or_default(), self.next().unwrap_or_default());
        self.traces = next.0 - first.0;
    }
}

/// What one agent process has of a run that is not sealed, in the order of its numbers.
#[derive(Debug, Clone)]
pub struct Backlog {
    /// The run.
    pub run: RunId,
    /// The agent.
    pub agent: AgentName,
    /// Its process.
    pub incarnation: Incarnation,
    /// Its segments, earliest first, with at least one trace each.
    pub segments: Vec<Segment>,
}

impl Backlog {
    /// The number after the last trace.
    #[must_use]
    pub fn next(&self) -> Seq {
        self.segments.last().and_then(Segment::next).unwrap_or_default()
    }

    /// Traces in all.
    #[must_use]
    pub fn traces(&self) -> u64 {
        self.segments.iter().map(|s| s.traces).sum()
    }

    /// Blocks from the one that holds `seq`, of one segment, as they stand in its file: about `budget` bytes, at least
    /// one block when there is one; with them the number after the last. A gap after `seq` is passed over: then the
    /// first block says where it begins.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read_from(&self, disk: &dyn Disk, seq: Seq, budget: usize) -> io::Result<(Vec<Vec<u8>>, Seq)> {
        let Some(segment) = self.segments.iter().find(|s| s.next() > Some(seq)) else {
            return Ok((Vec::new(), seq));
        };
        let file = disk.open(&segment.path)?;
        let blocks = segment.blocks.read_from(&*file, seq, budget)?;
        let next = segment.blocks.next_after(seq, blocks.len());
        Ok((blocks, next))
    }

    /// The first number that is held at or after `seq`.
    #[must_use]
    pub fn held_from(&self, seq: Seq) -> Option<Seq> {
        let segment = self.segments.iter().find(|s| s.next() > Some(seq))?;
        segment.first().map(|first| first.max(seq))
    }
}

/// The agents that have a folder in a spool, sorted.
///
/// # Errors
/// When the disk refuses.
pub fn agents(disk: &dyn Disk, spool: &Path) -> io::Result<Vec<AgentName>> {
    let name = |path: &PathBuf| path.file_name()?.to_str()?.parse::<AgentName>().ok();
    let mut agents: Vec<AgentName> = Vec::new();
    for agent in disk.list(spool)?.iter().filter_map(name) {
        // A file in its place has no runs.
        if disk.list(&place::runs_folder(&spool.join(agent.as_str()))).is_ok_and(|runs| !runs.is_empty()) {
            agents.push(agent);
        }
    }
    Ok(agents)
}

/// Every segment in an agent's folder, by run, process, epoch and trial. It reads them whole.
///
/// # Errors
/// When the disk refuses.
pub fn segments(disk: &dyn Disk, dir: &Path, agent: &AgentName) -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for folder in disk.list(&place::runs_folder(dir))? {
        let Some(run) = folder.file_name().and_then(|n| n.to_str()?.parse::<RunId>().ok()) else { continue };
        segments.extend(segments_of(disk, dir, agent, &run)?);
    }
    Ok(segments)
}

/// The segments of one run in an agent's folder, by process, epoch and trial. It reads them whole.
///
/// # Errors
/// When the disk refuses.
pub fn segments_of(disk: &dyn Disk, dir: &Path, agent: &AgentName, run: &RunId) -> io::Result<Vec<Segment>> {
    let paths = disk.list(&place::run_folder(dir, run))?;
    let mut segments = Vec::new();
    for path in &paths {
        let Some((trial, epoch, incarnation)) = place::parse_name(path) else { continue };
        let origin = BlockOrigin { agent: agent.clone(), incarnation, trial, epoch };
        let sealed = paths.contains(&place::seal_of(path));
        segments.push(read(disk, path, run, origin, sealed)?);
    }
    let order = |s: &Segment| (s.origin.incarnation.0, s.origin.epoch, s.origin.trial);
    segments.sort_by_key(order);
    // From the last on: where a segment begins, the one before it has ended.
    let mut begins: BTreeMap<Incarnation, Seq> = BTreeMap::new();
    for segment in segments.iter_mut().rev() {
        let incarnation = segment.origin.incarnation;
        if let Some(begin) = begins.get(&incarnation) {
            segment.end_at(*begin);
        }
        if let Some(first) = segment.first() {
            begins.insert(incarnation, first);
        }
    }
    Ok(segments)
}

/// What is unsealed of a run in an agent's folder, for each process. The caller holds the folder's lock, or is the
/// process that does, and leaves out its own incarnation: a file that is being written is the writer's.
///
/// # Errors
/// When the disk refuses.
pub fn backlogs(disk: &dyn Disk, dir: &Path, agent: &AgentName, run: &RunId) -> io::Result<Vec<Backlog>> {
    let mut backlogs: Vec<Backlog> = Vec::new();
    for segment in segments_of(disk, dir, agent, run)? {
        if segment.sealed || segment.traces == 0 {
            continue;
        }
        let incarnation = segment.origin.incarnation;
        match backlogs.last_mut() {
            Some(last) if last.incarnation == incarnation => last.segments.push(segment),
            _ => {
                let (run, agent) = (run.clone(), agent.clone());
                backlogs.push(Backlog { run, agent, incarnation, segments: vec![segment] });
            }
        }
    }
    Ok(backlogs)
}

/// Which trial a segment is of.
pub(super) fn trial_of(segment: &Segment) -> (TrialId, Epoch) {
    (segment.origin.trial, segment.origin.epoch)
}

fn read(disk: &dyn Disk, path: &Path, run: &RunId, origin: BlockOrigin, sealed: bool) -> io::Result<Segment> {
    let file = disk.open(path)?;
    let bytes = file.len()?;
    let (blocks, good) = walk(&*file, bytes, &origin)?;
    let torn_bytes = bytes - good;
    let traces = blocks.next().unwrap_or_default().0 - blocks.first().unwrap_or_default().0;
    Ok(Segment { run: run.clone(), origin, path: path.to_owned(), sealed, bytes, torn_bytes, traces, blocks })
}

/// The blocks that count, and the bytes up to the last one's end. One block at a time is in memory.
fn walk(file: &dyn DiskFile, len: u64, origin: &BlockOrigin) -> io::Result<(Blocks, u64)> {
    let mut blocks = Blocks::default();
    let mut at = FILE_MAGIC.len() as u64;
    if len < at {
        return Ok((blocks, 0));
    }
    let mut magic = [0; FILE_MAGIC.len()];
    file.read_at(0, &mut magic)?;
    if magic != *FILE_MAGIC {
        return Ok((blocks, 0));
    }
    while let Some(block) = block_at(file, at, len)? {
        let (header, next) = (block.header(), block.next_seq());
        let theirs = (&header.agent, header.incarnation, header.trial, header.epoch);
        let ours = (&origin.agent, origin.incarnation, origin.trial, origin.epoch);
        if theirs != ours || blocks.next().is_some_and(|expected| expected != header.first_seq) {
            break;
        }
        let size = block.bytes().len() as u64;
        let place = BlockPlace { first: header.first_seq, next, offset: at, len: size as u32 };
        blocks.push(place);
        at += size;
    }
    Ok((blocks, at))
}

/// The whole block at `at`, if one is there.
fn block_at(file: &dyn DiskFile, at: u64, len: u64) -> io::Result<Option<Block>> {
    let mut size = [0; 4];
    if len - at < size.len() as u64 {
        return Ok(None);
    }
    file.read_at(at, &mut size)?;
    let framed = u64::from(u32::from_le_bytes(size)) + 8;
    if framed > MAX_BLOCK_BYTES as u64 + 8 || framed > len - at {
        return Ok(None);
    }
    let mut bytes = vec![0; framed as usize];
    file.read_at(at, &mut bytes)?;
    Ok(Block::decode(&bytes).ok())
}
