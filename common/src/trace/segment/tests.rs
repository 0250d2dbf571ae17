//! What a segment must keep, and what damage it must notice.

use proptest::prelude::*;

use super::*;
use crate::ids::{ArrivalIndex, Digest, Nanos};
use crate::trace::{Channel, ContentEvent, Failure, FailureKind, Unsent};

fn origin() -> BlockOrigin {
    BlockOrigin {
        agent: "a".parse().unwrap(),
        incarnation: Incarnation(u64::MAX),
        trial: TrialId(3),
        epoch: Epoch(4),
    }
}

fn trace(index: u64, stamps: &[u64], text: String) -> Trace {
    let unsent = Unsent {
        index: ArrivalIndex(index),
        scheduled: Nanos(index * 7),
        row: 1,
        requested_tokens: 9,
        prompt_tokens: None,
    };
    let mut t = Trace::unsent(unsent, Failure::new(FailureKind::Reset, "gone"), Nanos(stamps.iter().sum()));
    let channels = [Channel::Answer, Channel::Reasoning, Channel::ToolCall];
    t.clocks.released = stamps.first().map(|&s| Nanos(s));
    t.clocks.written = stamps.get(1).map(|&s| Nanos(s));
    t.clocks.content = stamps
        .iter()
        .enumerate()
        .map(|(i, &s)| ContentEvent { at: Nanos(s), channel: channels[i / 3 % 3] })
        .collect();
    t.text.output = Some(text);
    t
}

prop_compose! {
    fn traces()(rows in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u64>(), 0..12), ".{0,30}"), 1..20))
        -> Vec<Trace>
    {
        rows.into_iter().map(|(i, s, t)| {
            let stamps: Vec<u64> = s.into_iter().map(|x| x >> 8).collect();
            trace(i % 1_000_000, &stamps, t)
        }).collect()
    }
}

fn file(blocks: &[Block]) -> Vec<u8> {
    let mut bytes = FILE_MAGIC.to_vec();
    blocks.iter().for_each(|b| bytes.extend_from_slice(b.bytes()));
    bytes
}

proptest! {
    /// Any stamps in any order, any text: what goes in comes out.
    #[test]
    fn a_block_gives_back_what_it_took(traces in traces(), seq: u32) {
        let block = Block::encode(&origin(), Seq(u64::from(seq)), &traces).unwrap();
        let read = Block::decode(block.bytes()).unwrap();
        prop_assert_eq!(&read, &block);
        prop_assert_eq!(read.next_seq().0, u64::from(seq) + traces.len() as u64);
        crate::fuzz::outlines_are_those_of_the_clocks(&read);
        prop_assert_eq!(read.traces().unwrap(), traces);
    }

    /// Cut anywhere: the blocks before the cut are all there, and nothing else.
    #[test]
    fn a_torn_tail_is_cut_where_it_begins(traces in traces(), cut: prop::sample::Index) {
        let blocks: Vec<Block> = traces.iter().map(|t| Block::encode(&origin(), Seq(0), std::slice::from_ref(t)).unwrap()).collect();
        let whole = file(&blocks);
        let torn = &whole[..cut.index(whole.len() + 1)];
        let scan = scan(torn).unwrap();
        let mut end = FILE_MAGIC.len();
        let fit = blocks.iter().take_while(|b| { end += b.bytes().len(); end <= torn.len() }).count();
        prop_assert_eq!(scan.blocks.len(), fit);
        prop_assert_eq!(scan.damage.is_none(), scan.good_len as usize == torn.len());
    }

    /// One flipped bit is noticed wherever it is.
    #[test]
    fn a_flipped_bit_is_noticed(traces in traces(), at: prop::sample::Index, bit in 0u8..8) {
        let block = Block::encode(&origin(), Seq(0), &traces).unwrap();
        let mut bytes = file(std::slice::from_ref(&block));
        let at = FILE_MAGIC.len() + at.index(block.bytes().len());
        bytes[at] ^= 1 << bit;
        let scan = scan(&bytes).unwrap();
        prop_assert!(scan.blocks.is_empty() && scan.damage.is_some());
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = scan(&bytes);
        let _ = Block::decode(&bytes);
    }
}

#[test]
fn another_file_is_not_a_segment() {
    assert_eq!(scan(b"PLIMSEG\x01").unwrap_err(), SegmentError::Magic);
    assert_eq!(scan(b"PLIMSEG\x03").unwrap_err(), SegmentError::Magic);
    assert_eq!(scan(b"hello").unwrap_err(), SegmentError::Magic);
    assert!(scan(b"").unwrap().damage.is_none());
}

/// The bytes of version 2, pinned: a change here needs a new version.
#[test]
fn the_format_is_pinned() {
    let block = Block::encode(&origin(), Seq(5), &[trace(1, &[7, 8, 9], "hi".into())]).unwrap();
    let head = postcard::to_stdvec(block.header()).unwrap();
    assert_eq!(head[..2], [1, b'a']);
    let raw = postcard::to_stdvec(&[ClockRow::pack(&block.clocks().unwrap()[0])]).unwrap();
    let facts = postcard::to_stdvec(&block.facts().unwrap()[0]).unwrap();
    assert_eq!(
        (facts.len(), Digest::of(&facts).to_string()[..16].to_owned()),
        (37, "c44bde6e1e5dbe63".to_owned())
    );
    assert_eq!(raw, [7, 1, 0, 0, 1, 1, 0, 16, 3, 0, 1, 1, 1, 0, 3]);
}
