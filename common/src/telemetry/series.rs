//! The one form in which telemetry is sent and kept: frames of records.
//!
//! # Invariants
//! - A frame holds records of one (agent, incarnation) with contiguous sequence numbers, in the order in which they
//!   were taken; these numbers are the telemetry's own and have nothing to do with those of traces.
//! - A frame never changes once it is encoded: the wire carries it and the store appends it byte for byte.
//! - A frame that is damaged or torn is detected (CRC-32C) and ends the readable part of its file.
//!
//! # Format (version 1)
//! ```text
//! file  = "PLIMTEL" 0x01 frame*
//! frame = body_len: u32 LE, crc32c(body): u32 LE, body
//! body  = zstd level 1 of Frame as postcard, at most 16 MiB before compression
//! ```
//! Postcard names neither fields nor variants: a change of any type under [`Record`] is another version.

use serde::{Deserialize, Serialize};

use super::Record;
use crate::ids::{AgentName, Incarnation, Seq};

/// First bytes of a telemetry file: name and version.
pub const FILE_MAGIC: &[u8; 8] = b"PLIMTEL\x01";

/// Largest content of a frame before compression: a guard against a frame made to fill the memory. Eight GPUs fill
/// it in about ten minutes; a frame is sent every second or so.
pub const MAX_CONTENT_BYTES: usize = 16 << 20;

/// Largest body that is believed: content that does not compress grows by less.
const MAX_BODY_BYTES: usize = MAX_CONTENT_BYTES + (1 << 20);

const HEAD: usize = 8;

/// Records of one agent, as they were taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// The agent that took them.
    pub agent: AgentName,
    /// Of that agent's process.
    pub incarnation: Incarnation,
    /// Number of the first record within the agent's process, from 0.
    pub first_seq: Seq,
    /// The records, at least one.
    pub records: Vec<Record>,
}

impl Frame {
    /// Number after the frame's last record.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        Seq(self.first_seq.0.saturating_add(self.records.len() as u64))
    }

    fn numbered(&self) -> bool {
        !self.records.is_empty() && self.first_seq.0.checked_add(self.records.len() as u64).is_some()
    }
}

/// Why a frame cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeriesError {
    /// Not a telemetry file, or one of a later version.
    #[error("not a telemetry file of version 1")]
    Magic,
    /// The file ends inside a frame: a torn tail.
    #[error("the frame is incomplete")]
    Torn,
    /// The checksum does not fit.
    #[error("the frame's checksum does not fit its content")]
    Checksum,
    /// A length that no honest writer produces, or more records than a frame holds.
    #[error("the frame has {0} bytes, more than it may: send fewer records at once")]
    TooLarge(usize),
    /// The content is not what the format says.
    #[error("the frame's {0} cannot be decoded")]
    Content(&'static str),
}

/// Closes a frame: its bytes as they stand in a file.
///
/// # Errors
/// [`SeriesError::TooLarge`] when it holds more than [`MAX_CONTENT_BYTES`]; [`SeriesError::Content`] when it is empty.
pub fn encode(frame: &Frame) -> Result<Vec<u8>, SeriesError> {
    if !frame.numbered() {
        return Err(SeriesError::Content("numbers"));
    }
    let content = postcard::to_stdvec(frame).map_err(|_| SeriesError::Content("records"))?;
    if content.len() > MAX_CONTENT_BYTES {
        return Err(SeriesError::TooLarge(content.len()));
    }
    let body = zstd::bulk::compress(&content, 1).map_err(|_| SeriesError::Content("compression"))?;
    let body_len = u32::try_from(body.len()).map_err(|_| SeriesError::TooLarge(body.len()))?;
    let mut bytes = Vec::with_capacity(HEAD + body.len());
    bytes.extend_from_slice(&body_len.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// Checks and takes the frame at the start of `bytes`, which may go on after it; with the bytes that it takes.
///
/// # Errors
/// [`SeriesError::Torn`] when `bytes` ends too early; otherwise what is wrong with the frame.
pub fn decode(bytes: &[u8]) -> Result<(Frame, usize), SeriesError> {
    let head = bytes.get(..HEAD).ok_or(SeriesError::Torn)?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (body_len, crc) = (word(0) as usize, word(4));
    if !(1..=MAX_BODY_BYTES).contains(&body_len) {
        return Err(SeriesError::TooLarge(body_len));
    }
    let body = bytes.get(HEAD..HEAD + body_len).ok_or(SeriesError::Torn)?;
    if crc32c::crc32c(body) != crc {
        return Err(SeriesError::Checksum);
    }
    let content = zstd::bulk::Decompressor::new()
        .and_then(|mut d| d.decompress(body, content_size(body)?))
        .map_err(|_| SeriesError::Content("compression"))?;
    let (frame, rest) =
        postcard::take_from_bytes::<Frame>(&content).map_err(|_| SeriesError::Content("records"))?;
    if !rest.is_empty() || !frame.numbered() {
        return Err(SeriesError::Content("numbers"));
    }
    Ok((frame, HEAD + body_len))
}

/// What the zstd frame says of its content's size, believed up to the limit.
fn content_size(body: &[u8]) -> std::io::Result<usize> {
    let said = zstd::zstd_safe::get_frame_content_size(body).ok().flatten();
    said.and_then(|n| usize::try_from(n).ok())
        .filter(|&n| n <= MAX_CONTENT_BYTES)
        .ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

/// The whole frames of a telemetry file, one at a time, with the offset of each. It ends before the first that is not
/// whole: [`Frames::damage`] says why, and [`Frames::good_len`] where.
#[derive(Debug)]
pub struct Frames<'a> {
    file: &'a [u8],
    good_len: usize,
    damage: Option<SeriesError>,
}

impl<'a> Frames<'a> {
    /// The frames of `file`, from its bytes. An empty file is whole.
    ///
    /// # Errors
    /// [`SeriesError::Magic`] when it is not a telemetry file at all.
    pub fn new(file: &'a [u8]) -> Result<Self, SeriesError> {
        if file.starts_with(FILE_MAGIC) {
            return Ok(Self { file, good_len: FILE_MAGIC.len(), damage: None });
        }
        if FILE_MAGIC.starts_with(file) {
            // Created, but its first bytes were not written whole.
            let damage = (!file.is_empty()).then_some(SeriesError::Torn);
            return Ok(Self { file, good_len: 0, damage });
        }
        Err(SeriesError::Magic)
    }

    /// Bytes that are whole as far as was read: once the frames have ended, what comes after is a torn or damaged tail.
    #[must_use]
    pub fn good_len(&self) -> u64 {
        self.good_len as u64
    }

    /// Why the frames ended before the end of the file, if they did.
    #[must_use]
    pub fn damage(&self) -> Option<&SeriesError> {
        self.damage.as_ref()
    }
}

impl Iterator for Frames<'_> {
    type Item = (u64, Frame);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.file.get(self.good_len..).filter(|rest| !rest.is_empty() && self.damage.is_none())?;
        match decode(rest) {
            Ok((frame, len)) => {
                let offset = self.good_len();
                self.good_len += len;
                Some((offset, frame))
            }
            Err(e) => {
                self.damage = Some(e);
                None
            }
        }
    }
}

/// What a scan of a telemetry file found.
#[derive(Debug)]
pub struct Scan {
    /// Whole frames with the offset of each.
    pub frames: Vec<(u64, Frame)>,
    /// Bytes that are whole: what comes after is a torn or damaged tail.
    pub good_len: u64,
    /// Why the scan ended before the end of the file, if it did.
    pub damage: Option<SeriesError>,
}

/// Reads a telemetry file from its bytes into memory, up to the first frame that is not whole ([`Frames`] holds one
/// frame at a time).
///
/// # Errors
/// [`SeriesError::Magic`] when the file is not a telemetry file at all.
pub fn scan(file: &[u8]) -> Result<Scan, SeriesError> {
    let mut rest = Frames::new(file)?;
    let frames = rest.by_ref().collect();
    Ok(Scan { frames, good_len: rest.good_len(), damage: rest.damage })
}

#[cfg(test)]
mod tests;
