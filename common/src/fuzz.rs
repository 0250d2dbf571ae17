//! Checks of what reads bytes from outside, and the inputs to begin with.
//!
//! One [`Target`] is one check: its body is written once and run twice, by libFuzzer (`fuzz/`, `make fuzz`) and by a
//! property test in the crate that owns the code ([`crate::fuzz_twin`]), which takes any bytes and also valid inputs
//! that were flipped, cut, repeated and spliced. A check fails by a panic. It must never depend on anything but its
//! bytes. Compiled for tests and with the feature `fuzz` only.

use std::path::Path;

use crate::ids::{ArrivalIndex, Epoch, Incarnation, Nanos, Seq, TrialId};
use crate::plan::Api;
use crate::telemetry::series::{self, Frame};
use crate::trace::segment::{Block, BlockHeader, BlockOrigin, FILE_MAGIC, scan};
use crate::trace::{Channel, ContentEvent, Failure, FailureKind, Outline, Trace, Unsent};
use crate::workload::Workload;

/// One check.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Names the fuzz target and the folder of its inputs.
    pub name: &'static str,
    /// Inputs that are right.
    pub valid: fn() -> Vec<Vec<u8>>,
    /// Panics where something is wrong with what is made of these bytes.
    pub check: fn(&[u8]),
}

impl Target {
    /// The inputs to begin with: those that are right, and those that are kept in `fuzz/seeds`, among them whatever
    /// a fuzzer once found.
    #[must_use]
    pub fn inputs(&self) -> Vec<Vec<u8>> {
        let mut inputs = (self.valid)();
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds")).join(self.name);
        let disk = crate::disk::OsDisk;
        let kept = crate::disk::Disk::list(&disk, &folder).unwrap_or_default();
        inputs.extend(kept.iter().filter_map(|path| crate::disk::Disk::read(&disk, path).ok()));
        inputs
    }
}

/// A property test that is the same check as the fuzz target.
#[macro_export]
macro_rules! fuzz_twin {
    ($name:ident, $target:expr, $cases:expr) => {
        #[test]
        fn $name() {
            use ::proptest::prelude::*;
            let inputs = $target.inputs();
            assert!(!inputs.is_empty(), "there is nothing to begin with");
            inputs.iter().for_each(|input| ($target.check)(input));
            ::proptest::proptest!(
                ::proptest::test_runner::Config::with_cases($cases),
                |(bytes in prop::collection::vec(any::<u8>(), 0..400), script in prop::collection::vec(any::<u8>(), 0..48))| {
                    ($target.check)(&bytes);
                    ($target.check)(&$crate::fuzz::mutate(&inputs, &script));
                }
            );
        }
    };
}

/// Longest input that is made.
const MAX_INPUT: usize = 1 << 16;

/// One of the inputs, changed as `script` says: bits flipped, bytes set, pieces cut out, repeated, or taken from another
/// input.
#[must_use]
pub fn mutate(inputs: &[Vec<u8>], script: &[u8]) -> Vec<u8> {
    let pick = |n: u8| inputs.get(usize::from(n) % inputs.len().max(1)).cloned().unwrap_or_default();
    let mut bytes = pick(script.first().copied().unwrap_or(0));
    for op in script.get(1..).unwrap_or_default().chunks_exact(4) {
        let at = usize::from(u16::from_le_bytes([op[1], op[2]])) % (bytes.len() + 1);
        let (length, end) = (usize::from(op[3]) + 1, bytes.len());
        match op[0] % 6 {
            0 => bytes
                .get_mut(at..)
                .and_then(<[u8]>::first_mut)
                .into_iter()
                .for_each(|b| *b ^= 1 << (op[3] % 8)),
            1 => bytes.get_mut(at..).and_then(<[u8]>::first_mut).into_iter().for_each(|b| *b = op[3]),
            2 => drop(bytes.drain(at..end.min(at + length))),
            3 => bytes.truncate(at),
            4 => {
                let piece = bytes[at..end.min(at + length)].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let other = pick(op[3]);
                let from = at % (other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
        bytes.truncate(MAX_INPUT);
    }
    bytes
}

/// A whole block over any body: with a length and a checksum that fit it.
#[must_use]
pub fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn origin() -> BlockOrigin {
    #[expect(clippy::unwrap_used, reason = "a name that is one")]
    let agent = "a".parse().unwrap();
    BlockOrigin { agent, incarnation: Incarnation(7), trial: TrialId(0), epoch: Epoch(1) }
}

fn trace(index: u64) -> Trace {
    let unsent = Unsent {
        index: ArrivalIndex(index),
        scheduled: Nanos(index * 7),
        row: 0,
        requested_tokens: 9,
        prompt_tokens: Some(3),
    };
    let mut trace = Trace::unsent(unsent, Failure::new(FailureKind::Reset, "gone"), Nanos(index * 7 + 50));
    trace.clocks.released = Some(Nanos(index * 7 + 1));
    let events = [(20, Channel::Reasoning), (30, Channel::Answer), (30, Channel::Answer)];
    trace.clocks.content =
        events.map(|(after, channel)| ContentEvent { at: Nanos(index * 7 + after), channel }).to_vec();
    trace.text.output = Some("hold fast".to_owned());
    trace
}

/// Blocks of agent `a` in trial 0, epoch 1, incarnation 7, whose numbers follow each other from 0.
#[must_use]
pub fn blocks() -> Vec<Vec<u8>> {
    let block = |(first, end): (u64, u64)| {
        let traces: Vec<Trace> = (first..end).map(trace).collect();
        Block::encode(&origin(), Seq(first), &traces).map(|b| b.bytes().to_vec()).unwrap_or_default()
    };
    [(0, 1), (1, 4), (4, 6)].map(block).to_vec()
}

/// A segment file of [`blocks`].
#[must_use]
pub fn segment_file() -> Vec<u8> {
    [FILE_MAGIC.to_vec(), blocks().concat()].concat()
}

/// Valid inputs for whoever reads segment files: one as it is, and the bodies of blocks for [`in_a_segment`].
#[must_use]
pub fn segment_inputs() -> Vec<Vec<u8>> {
    let bodies = blocks().into_iter().map(|block| block[8..].to_vec());
    std::iter::once(segment_file()).chain(bodies).collect()
}

/// A segment file whose second of three blocks has this body, under a checksum that fits.
#[must_use]
pub fn in_a_segment(body: &[u8]) -> Vec<u8> {
    let [first, second, _] = blocks().try_into().unwrap_or_default();
    [&FILE_MAGIC[..], &first, &framed(body), &second].concat()
}

/// The segment format: of files, of blocks with a checksum that fits, and of columns.
pub const SEGMENT: Target = Target {
    name: "segment",
    valid: || {
        let mut valid = vec![segment_file(), Vec::new()];
        valid.extend(blocks().into_iter().flat_map(|b| [b[8..].to_vec(), b]));
        if let Ok(facts) = postcard::to_stdvec(&[trace(1).facts]) {
            valid.push(facts);
        }
        valid
    },
    check: |bytes| {
        if let Ok(scan) = scan(bytes) {
            assert!(scan.good_len as usize <= bytes.len());
            let whole: usize = scan.blocks.iter().map(|(_, b)| b.bytes().len()).sum();
            assert!(whole <= scan.good_len as usize);
            assert_eq!(scan.damage.is_none(), scan.good_len as usize == bytes.len());
            scan.blocks.iter().for_each(|(_, block)| block_is_sound(block));
        }
        let _ = Block::decode(bytes);
        if let Ok(block) = Block::decode(&framed(bytes)) {
            block_is_sound(&block);
        }
        // The same bytes as each column's content.
        let Ok(column) = zstd::bulk::compress(bytes, 1) else { return };
        let header = BlockHeader {
            agent: origin().agent,
            incarnation: Incarnation(7),
            trial: TrialId(0),
            epoch: Epoch(1),
            first_seq: Seq(0),
            count: u32::from(bytes.first().copied().unwrap_or(1)).max(1),
            columns: [column.len() as u32; 3],
        };
        let Ok(head) = postcard::to_stdvec(&header) else { return };
        let body = [&(head.len() as u16).to_le_bytes()[..], &head, &column, &column, &column].concat();
        if let Ok(block) = Block::decode(&framed(&body)) {
            block_is_sound(&block);
        }
    },
};

/// Both ways to read the column of clocks say the same, also that it cannot be read.
pub(crate) fn outlines_are_those_of_the_clocks(block: &Block) {
    let mut outlines = Vec::new();
    let read = block.outlines(|outline, gaps| outlines.push((outline, gaps.to_vec())));
    let Ok(clocks) = block.clocks() else { return assert!(read.is_err()) };
    let expected = clocks.iter().map(|c| (Outline::from(c), c.chunk_gaps().map(|gap| gap.0).collect()));
    assert!(read.is_ok() && outlines == expected.collect::<Vec<(Outline, Vec<u64>)>>());
}

/// What can be read of a block is what it says, and is written and read again as it was.
fn block_is_sound(block: &Block) {
    let count = block.header().count as usize;
    assert!(block.clocks().is_ok_and(|c| c.len() == count) || block.clocks().is_err());
    outlines_are_those_of_the_clocks(block);
    assert!(block.facts().is_ok_and(|c| c.len() == count) || block.facts().is_err());
    let Ok(traces) = block.traces() else { return };
    assert_eq!(traces.len(), count);
    let h = block.header();
    let origin =
        BlockOrigin { agent: h.agent.clone(), incarnation: h.incarnation, trial: h.trial, epoch: h.epoch };
    let again = Block::encode(&origin, h.first_seq, &traces).and_then(|b| Block::decode(b.bytes()));
    let again = again.and_then(|b| b.traces()).unwrap_or_default();
    // By their words: a number that is none is not equal to itself.
    assert_eq!(format!("{again:?}"), format!("{traces:?}"), "not read as it was written");
}

/// The frames of telemetry: of files, and of frames whose checksum fits.
pub const TELEMETRY: Target = Target {
    name: "telemetry",
    valid: || {
        use crate::telemetry::{HostSample, Record};
        let frame = Frame {
            agent: origin().agent,
            incarnation: Incarnation(7),
            first_seq: Seq(3),
            records: vec![Record::Host(HostSample::default())],
        };
        let content = postcard::to_stdvec(&frame).unwrap_or_default();
        let bytes = series::encode(&frame).unwrap_or_default();
        vec![[&series::FILE_MAGIC[..], &bytes, &bytes].concat(), bytes, content]
    },
    check: |bytes| {
        if let Ok(scan) = series::scan(bytes) {
            assert!(scan.good_len as usize <= bytes.len());
            scan.frames.iter().for_each(|(_, frame)| frame_is_sound(frame));
        }
        let _ = series::decode(bytes);
        let body = zstd::bulk::compress(bytes, 1).unwrap_or_default();
        if let Ok((frame, length)) = series::decode(&framed(&body)) {
            assert_eq!(length, body.len() + 8);
            frame_is_sound(&frame);
        }
    },
};

fn frame_is_sound(frame: &Frame) {
    let again = series::encode(frame).and_then(|bytes| series::decode(&bytes));
    assert_eq!(format!("{:?}", again.map(|(f, _)| f)), format!("{:?}", Ok::<_, ()>(frame)));
}

/// Workload files.
pub const WORKLOAD: Target = Target {
    name: "workload",
    valid: || {
        let lines = [
            &b"{\"prompt\": \"hello\", \"max_tokens\": 16}\n\n{\"prompt\": \"\\u00e4\", \"id\": [1, {}]}\n"[..],
            b"\xef\xbb\xbf{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"max_tokens\": 1}\r\n",
            b"{\"prompt_token_ids\": [1, 2, 4294967295], \"max_tokens\": 4294967295}",
        ];
        lines.map(<[u8]>::to_vec).to_vec()
    },
    check: |bytes| match Workload::parse(bytes) {
        Ok(workload) => {
            assert!(!workload.rows.is_empty());
            let lines = bytes.split(|&b| b == b'\n').count();
            assert!(workload.rows.iter().all(|r| r.line as usize <= lines && r.max_tokens != Some(0)));
            assert!(workload.rows.windows(2).all(|pair| pair[0].line < pair[1].line));
            for api in [Api::Chat, Api::Completions] {
                let _ = workload.check_api(api);
            }
            let _ = (workload.natural_api(), workload.first_with_token_ids());
        }
        Err(e) => assert!(e.to_string().len() < bytes.len() + 400, "an error longer than what it is about"),
    },
};

/// Every check of this crate.
pub const TARGETS: &[Target] = &[SEGMENT, TELEMETRY, WORKLOAD];

#[cfg(test)]
mod tests {
    use super::*;

    fuzz_twin!(segments_of_any_bytes, SEGMENT, 512);
    fuzz_twin!(telemetry_of_any_bytes, TELEMETRY, 512);
    fuzz_twin!(workloads_of_any_bytes, WORKLOAD, 512);

    /// A check must be able to fail: each valid input is understood, and the mutations change it.
    #[test]
    fn valid_inputs_are_valid_and_mutations_change_them() {
        assert_eq!(scan(&segment_file()).map(|s| (s.blocks.len(), s.damage)), Ok((3, None)));
        assert!((WORKLOAD.valid)().iter().all(|bytes| Workload::parse(bytes).is_ok()));
        assert_eq!(series::scan(&(TELEMETRY.valid)()[0]).map(|s| s.frames.len()), Ok(2));
        let inputs = [b"hello world".to_vec(), b"other".to_vec()];
        let changed: std::collections::BTreeSet<Vec<u8>> =
            (0..6u8).map(|op| mutate(&inputs, &[0, op, 3, 0, 1])).collect();
        assert_eq!(changed.len(), 6, "{changed:?}");
        assert_eq!(mutate(&inputs, &[1]), b"other");
    }
}
