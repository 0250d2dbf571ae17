//! Which blocks of a submission are new: a pure function of the mark and the blocks.
//!
//! It must never take a block out of order, and never take one twice. The property test of `ingest` guards both.

use std::ops::Range;

use common::ids::{AgentName, Incarnation, Seq};
use common::simulated::{Sabotage, is_sabotaged};
use common::trace::segment::Block;

/// An agent that does not keep to the protocol. Nothing of its submission is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Confusion {
    /// Nothing was submitted.
    #[error("a submission without blocks; an agent sends only what it has")]
    Empty,
    /// Blocks of several agent processes, which have a mark each.
    #[error("a submission mixes blocks of {first} and {other}; each agent process sends its own")]
    Mixed {
        /// The first block's origin.
        first: String,
        /// Another block's origin.
        other: String,
    },
    /// A block is stored in part, which cannot be: blocks never change once they are closed.
    #[error(
        "{process} sends traces {first} to {next} (excluded) in one block, but {mark} is the next one expected: it \
         has divided its traces differently before; restart that agent"
    )]
    Overlap {
        /// The agent process.
        process: String,
        /// First sequence number of the block.
        first: Seq,
        /// The one after its last.
        next: Seq,
        /// The next one expected.
        mark: Seq,
    },
    /// A sequence number that no counter reaches.
    #[error(
        "{process} sends a block that begins at sequence number {first}, which leaves no number after it"
    )]
    Overflow {
        /// The agent process.
        process: String,
        /// First sequence number of the block.
        first: Seq,
    },
}

/// What becomes of a submission.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Admission {
    /// These of its blocks are new and in order.
    pub(super) take: Range<usize>,
    /// The mark once they are stored.
    pub(super) mark: Seq,
    /// Traces that are stored already.
    pub(super) duplicates: u64,
    /// Something is missing after `take`; the blocks after the gap are not looked at.
    pub(super) gap: bool,
}

/// Names an agent process in a message.
pub(super) fn process_name(agent: &AgentName, incarnation: Incarnation) -> String {
    format!("agent {agent} (incarnation {:016x})", incarnation.0)
}

/// Sorts out the blocks of a submission, given the next sequence number expected of its agent process.
pub(super) fn admit(mark: Seq, blocks: &[Block]) -> Result<Admission, Confusion> {
    let origin = blocks.first().ok_or(Confusion::Empty)?.header();
    let name = |h: &common::trace::segment::BlockHeader| process_name(&h.agent, h.incarnation);
    let mut result = Admission { take: 0..0, mark, duplicates: 0, gap: false };
    for (position, block) in blocks.iter().enumerate() {
        let header = block.header();
        if (&header.agent, header.incarnation) != (&origin.agent, origin.incarnation) {
            return Err(Confusion::Mixed { first: name(origin), other: name(header) });
        }
        let first = header.first_seq;
        // Checked here, because `Block::next_seq` adds without a check and the number comes from the network.
        let next = first.0.checked_add(u64::from(header.count)).map(Seq);
        let next = next.ok_or_else(|| Confusion::Overflow { process: name(header), first })?;
        if result.gap {
            continue;
        }
        if next <= result.mark && !is_sabotaged(Sabotage::NoDedupe) {
            result.duplicates += u64::from(header.count);
        } else if first < result.mark && !is_sabotaged(Sabotage::NoDedupe) {
            return Err(Confusion::Overlap { process: name(header), first, next, mark: result.mark });
        } else if first > result.mark {
            result.gap = true;
        } else {
            if result.take.is_empty() {
                result.take = position..position;
            }
            result.take.end = position + 1;
            result.mark = result.mark.max(next);
        }
    }
    Ok(result)
}
