//! Where the blocks of a segment file stand, and reading them by sequence number.

use std::io;

use common::disk::DiskFile;
use common::ids::Seq;

/// Where a block stands in its file, and which numbers it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockPlace {
    pub(super) first: Seq,
    /// The number after its last.
    pub(super) next: Seq,
    pub(super) offset: u64,
    /// Bytes, frame included.
    pub(super) len: u32,
}

/// The blocks of a file, in order; their numbers are contiguous.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Blocks(Vec<BlockPlace>);

impl Blocks {
    pub(super) fn push(&mut self, place: BlockPlace) {
        self.0.push(place);
    }

    pub(super) fn first(&self) -> Option<Seq> {
        self.0.first().map(|p| p.first)
    }

    pub(super) fn next(&self) -> Option<Seq> {
        self.0.last().map(|p| p.next)
    }

    /// Forgets blocks from the number `seq` on.
    pub(super) fn end_at(&mut self, seq: Seq) {
        self.0.retain(|p| p.next <= seq);
    }

    fn from(&self, seq: Seq) -> &[BlockPlace] {
        &self.0[self.0.partition_point(|p| p.next <= seq)..]
    }

    /// Blocks from the one that holds `seq`: about `budget` bytes, at least one block when there is one.
    pub(super) fn read_from(&self, file: &dyn DiskFile, seq: Seq, budget: usize) -> io::Result<Vec<Vec<u8>>> {
        let (mut blocks, mut size) = (Vec::new(), 0);
        for place in self.from(seq) {
            size += place.len as usize;
            if !blocks.is_empty() && size > budget {
                break;
            }
            let mut bytes = vec![0; place.len as usize];
            file.read_at(place.offset, &mut bytes)?;
            blocks.push(bytes);
        }
        Ok(blocks)
    }

    /// The number after the last of so many blocks from the one that holds `seq`.
    pub(super) fn next_after(&self, seq: Seq, blocks: usize) -> Seq {
        self.from(seq).iter().take(blocks).next_back().map_or(seq, |p| p.next)
    }
}
