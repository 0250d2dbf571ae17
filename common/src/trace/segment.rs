//! The one format in which traces are kept and sent: segments of blocks of columns.
//!
//! # Invariants
//! - A block holds traces of one (agent, incarnation, trial, epoch) with contiguous sequence numbers.
//! - A block never changes once it is closed: the spool keeps it, the wire carries it and the store appends it byte
//!   for byte.
//! - A block that is damaged or torn is detected (CRC-32C) and ends the readable part of its file.
//!
//! # Format (version 2)
//! ```text
//! file   = "PLIMSEG" 0x02 block*
//! block  = body_len: u32 LE, crc32c(body): u32 LE, body
//! body   = header_len: u16 LE, header, clocks, facts, text
//! header = BlockHeader as postcard
//! column = zstd level 1 of the postcard of a Vec with one element a trace
//! ```
//! Three columns, because a re-analysis with another SLO needs clocks and facts and never the text, which is most of
//! the bytes. Stamps are stored as differences to the scheduled instant and to the stamp before, which keeps most of
//! them in three bytes.

mod clocks;

use std::cell::RefCell;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use zstd::bulk::Decompressor;

use super::{Clocks, Facts, Outline, Text, Trace};
use crate::ids::{AgentName, Epoch, Incarnation, Seq, TrialId};
use clocks::ClockRow;

/// First bytes of a segment file: name and version.
pub const FILE_MAGIC: &[u8; 8] = b"PLIMSEG\x02";

/// A block closes at this many traces.
pub const BLOCK_TRACES: usize = 64;

/// Largest block body that is believed. 64 traces of 8 MiB of text cannot be compressed below it by an honest agent.
pub const MAX_BLOCK_BYTES: usize = 64 << 20;

/// Largest column after decompression: a guard against a block made to fill the memory.
const MAX_COLUMN_BYTES: usize = 1 << 30;

/// The same for the column of facts, which a coordinator unpacks of every block as it comes: 64 of them, each with a
/// message that an agent has cut, are far below.
const MAX_FACTS_BYTES: usize = 16 << 20;

/// The same for clocks that are read while a trial runs, by somebody who looks on: 64 traces of tens of thousands of
/// events are below.
const MAX_PACKED_BYTES: usize = 16 << 20;

const FRAME: usize = 8;

/// Whose traces a block holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockHeader {
    /// The agent that carried the arrivals.
    pub agent: AgentName,
    /// Of that agent's process.
    pub incarnation: Incarnation,
    /// The trial.
    pub trial: TrialId,
    /// Under which they were sent.
    pub epoch: Epoch,
    /// Sequence number of the first trace.
    pub first_seq: Seq,
    /// Number of traces.
    pub count: u32,
    /// Bytes of the three columns as they stand in the block.
    pub columns: [u32; 3],
}

/// Why a block cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// Not a segment file, or one of a later version.
    #[error("not a segment file of version 2")]
    Magic,
    /// The file ends inside a block: a torn tail.
    #[error("the block is incomplete")]
    Torn,
    /// The checksum does not fit.
    #[error("the block's checksum does not fit its content")]
    Checksum,
    /// A length that no honest writer produces.
    #[error("the block claims {0} bytes")]
    TooLarge(usize),
    /// The content is not what the format says.
    #[error("the block's {0} cannot be decoded")]
    Content(&'static str),
}

/// A closed block: its bytes as they stand in a segment, with its header decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    header: BlockHeader,
    bytes: Vec<u8>,
}

/// Whose traces are collected (a [`BlockHeader`] before its block is closed).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockOrigin {
    /// The agent.
    pub agent: AgentName,
    /// Of that agent's process.
    pub incarnation: Incarnation,
    /// The trial.
    pub trial: TrialId,
    /// Under which the requests were sent.
    pub epoch: Epoch,
}

impl Block {
    /// Closes a block over `traces`.
    ///
    /// # Errors
    /// Only when a trace is too large for the format.
    pub fn encode(origin: &BlockOrigin, first_seq: Seq, traces: &[Trace]) -> Result<Self, SegmentError> {
        let clocks: Vec<ClockRow> = traces.iter().map(|t| ClockRow::pack(&t.clocks)).collect();
        let facts: Vec<&Facts> = traces.iter().map(|t| &t.facts).collect();
        let text: Vec<&Text> = traces.iter().map(|t| &t.text).collect();
        let columns = [pack(&clocks, "clocks")?, pack(&facts, "facts")?, pack(&text, "text")?];
        let mut sizes = [0u32; 3];
        for (size, column) in sizes.iter_mut().zip(&columns) {
            *size = u32::try_from(column.len()).map_err(|_| SegmentError::TooLarge(column.len()))?;
        }
        let header = BlockHeader {
            agent: origin.agent.clone(),
            incarnation: origin.incarnation,
            trial: origin.trial,
            epoch: origin.epoch,
            first_seq,
            count: u32::try_from(traces.len()).map_err(|_| SegmentError::TooLarge(traces.len()))?,
            columns: sizes,
        };
        let head = postcard::to_stdvec(&header).map_err(|_| SegmentError::Content("header"))?;
        let body_len = 2 + head.len() + columns.iter().map(Vec::len).sum::<usize>();
        if body_len > MAX_BLOCK_BYTES {
            return Err(SegmentError::TooLarge(body_len));
        }
        let mut bytes = Vec::with_capacity(FRAME + body_len);
        bytes.extend_from_slice(&(body_len as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(head.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&head);
        columns.iter().for_each(|c| bytes.extend_from_slice(c));
        let crc = crc32c::crc32c(&bytes[FRAME..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        Ok(Self { header, bytes })
    }

    /// Checks and takes the block at the start of `bytes`, which may go on after it.
    ///
    /// # Errors
    /// [`SegmentError::Torn`] when `bytes` ends too early; otherwise what is wrong with the block.
    pub fn decode(bytes: &[u8]) -> Result<Self, SegmentError> {
        let frame = bytes.get(..FRAME).ok_or(SegmentError::Torn)?;
        let word = |at: usize| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
        let (body_len, crc) = (word(0) as usize, word(4));
        if !(2..=MAX_BLOCK_BYTES).contains(&body_len) {
            return Err(SegmentError::TooLarge(body_len));
        }
        let body = bytes.get(FRAME..FRAME + body_len).ok_or(SegmentError::Torn)?;
        if crc32c::crc32c(body) != crc {
            return Err(SegmentError::Checksum);
        }
        let head_len = u16::from_le_bytes([body[0], body[1]]) as usize;
        let head = body.get(2..2 + head_len).ok_or(SegmentError::Content("header"))?;
        let header: BlockHeader = postcard::from_bytes(head).map_err(|_| SegmentError::Content("header"))?;
        let columns: usize = header.columns.iter().map(|&c| c as usize).sum();
        let numbered = header.first_seq.0.checked_add(u64::from(header.count)).is_some();
        if 2 + head_len + columns != body_len || header.count == 0 || !numbered {
            return Err(SegmentError::Content("header"));
        }
        Ok(Self { header, bytes: bytes[..FRAME + body_len].to_vec() })
    }

    /// Whose traces these are.
    #[must_use]
    pub fn header(&self) -> &BlockHeader {
        &self.header
    }

    /// The block as it stands in a segment, frame included.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Sequence number after the block's last trace.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        Seq(self.header.first_seq.0 + u64::from(self.header.count))
    }

    fn column(&self, number: usize) -> &[u8] {
        let sizes = self.header.columns.map(|c| c as usize);
        let after: usize = sizes[number..].iter().sum();
        let start = self.bytes.len() - after;
        &self.bytes[start..start + sizes[number]]
    }

    fn unpack<T: DeserializeOwned>(
        &self,
        number: usize,
        name: &'static str,
        most: usize,
    ) -> Result<Vec<T>, SegmentError> {
        let raw = decompressed(self.column(number), most).ok_or(SegmentError::Content(name))?;
        let rows: Vec<T> = postcard::from_bytes(&raw).map_err(|_| SegmentError::Content(name))?;
        if rows.len() == self.header.count as usize { Ok(rows) } else { Err(SegmentError::Content(name)) }
    }

    /// The column of clocks.
    ///
    /// # Errors
    /// When it cannot be decoded.
    pub fn clocks(&self) -> Result<Vec<Clocks>, SegmentError> {
        let rows: Vec<ClockRow> = self.unpack(0, "clocks", MAX_COLUMN_BYTES)?;
        rows.into_iter().map(|r| r.unpack().ok_or(SegmentError::Content("clocks"))).collect()
    }

    /// The column of clocks without its content events: `each` is told of every trace, in order, what is left of its
    /// clocks and the gaps between its content events, nanoseconds. Several times as fast as [`Block::clocks`], of which
    /// the same comes.
    ///
    /// # Errors
    /// When it cannot be decoded; `each` may have been told of some traces then.
    pub fn outlines(&self, each: impl FnMut(Outline, &[u64])) -> Result<(), SegmentError> {
        outlines(self.column(0), MAX_COLUMN_BYTES, self.header.count, each)
    }

    /// The column of clocks as it stands in the block, to be read elsewhere when there is time.
    #[must_use]
    pub fn packed_clocks(&self) -> PackedClocks {
        PackedClocks { column: self.column(0).to_vec(), count: self.header.count }
    }

    /// The column of facts.
    ///
    /// # Errors
    /// When it cannot be decoded.
    pub fn facts(&self) -> Result<Vec<Facts>, SegmentError> {
        self.unpack(1, "facts", MAX_FACTS_BYTES)
    }

    /// The column of texts.
    ///
    /// # Errors
    /// When it cannot be decoded.
    pub fn texts(&self) -> Result<Vec<Text>, SegmentError> {
        self.unpack(2, "text", MAX_COLUMN_BYTES)
    }

    /// Everything.
    ///
    /// # Errors
    /// When a column cannot be decoded.
    pub fn traces(&self) -> Result<Vec<Trace>, SegmentError> {
        let parts = self.clocks()?.into_iter().zip(self.facts()?).zip(self.texts()?);
        Ok(parts.map(|((clocks, facts), text)| Trace { clocks, facts, text }).collect())
    }
}

/// A column of clocks, taken out of its block and still packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedClocks {
    column: Vec<u8>,
    count: u32,
}

impl PackedClocks {
    /// Bytes that it takes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.column.len()
    }

    /// Whether it takes none; a closed block has some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.column.is_empty()
    }

    /// See [`Block::outlines`].
    ///
    /// # Errors
    /// When it cannot be decoded; `each` may have been told of some traces then.
    pub fn outlines(&self, each: impl FnMut(Outline, &[u64])) -> Result<(), SegmentError> {
        outlines(&self.column, MAX_PACKED_BYTES, self.count, each)
    }
}

fn outlines(
    column: &[u8],
    most: usize,
    count: u32,
    each: impl FnMut(Outline, &[u64]),
) -> Result<(), SegmentError> {
    let name = "clocks";
    let raw = decompressed(column, most).ok_or(SegmentError::Content(name))?;
    clocks::outlines(&raw, count, each).ok_or(SegmentError::Content(name))
}

fn pack<T: Serialize>(rows: &[T], name: &'static str) -> Result<Vec<u8>, SegmentError> {
    let raw = postcard::to_stdvec(rows).map_err(|_| SegmentError::Content(name))?;
    zstd::bulk::compress(&raw, 1).map_err(|_| SegmentError::Content(name))
}

/// The content of a column, where it is at most so many bytes.
fn decompressed(column: &[u8], most: usize) -> Option<Vec<u8>> {
    thread_local! {
        // Making one takes about as long as a small column.
        static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    DECOMPRESSOR.with_borrow_mut(|made| {
        let decompressor = match made {
            Some(decompressor) => decompressor,
            None => made.insert(Decompressor::new().ok()?),
        };
        decompressor.decompress(column, column_size(column).min(most)).ok()
    })
}

/// What the zstd frame says of its content's size, believed up to a limit.
fn column_size(compressed: &[u8]) -> usize {
    let said = zstd::zstd_safe::get_frame_content_size(compressed).ok().flatten().unwrap_or(0);
    usize::try_from(said).unwrap_or(usize::MAX).min(MAX_COLUMN_BYTES)
}

/// What a scan of a segment file found.
#[derive(Debug)]
pub struct Scan {
    /// Whole blocks with the offset of each.
    pub blocks: Vec<(u64, Block)>,
    /// Bytes that are whole: what comes after is a torn or damaged tail.
    pub good_len: u64,
    /// Why the scan ended before the end of the file, if it did.
    pub damage: Option<SegmentError>,
}

/// Reads a segment file from its bytes, up to the first block that is not whole. An empty file is whole.
///
/// # Errors
/// [`SegmentError::Magic`] when the file is not a segment file at all.
pub fn scan(file: &[u8]) -> Result<Scan, SegmentError> {
    if file.len() < FILE_MAGIC.len() && FILE_MAGIC.starts_with(file) {
        // Created, but its first bytes were not written whole.
        let damage = (!file.is_empty()).then_some(SegmentError::Torn);
        return Ok(Scan { blocks: Vec::new(), good_len: 0, damage });
    }
    if !file.starts_with(FILE_MAGIC) {
        return Err(SegmentError::Magic);
    }
    let mut scan = Scan { blocks: Vec::new(), good_len: FILE_MAGIC.len() as u64, damage: None };
    while (scan.good_len as usize) < file.len() {
        match Block::decode(&file[scan.good_len as usize..]) {
            Ok(block) => {
                let offset = scan.good_len;
                scan.good_len += block.bytes.len() as u64;
                scan.blocks.push((offset, block));
            }
            Err(e) => {
                scan.damage = Some(e);
                break;
            }
        }
    }
    Ok(scan)
}

#[cfg(test)]
mod tests;
