//! Tests of the store, and what they and the tests of `ingest` share.

mod index;
mod kill;
mod mend;
mod open;
mod segments;
mod telemetry;
mod watched;

use std::path::Path;
use std::sync::Arc;

use common::disk::SimDisk;
use common::ids::{AgentName, ArrivalIndex, Epoch, Incarnation, Nanos, RunId, Seq, TrialId};
use common::trace::segment::{Block, BlockOrigin};
use common::trace::{Failure, FailureKind, Trace, Unsent};

use super::{MemoryIndex, Store};

/// Where simulated stores lie.
pub(crate) const SIM: &str = "/sim";

pub(crate) fn run_id(name: &str) -> RunId {
    name.parse().unwrap()
}

pub(crate) fn agent(name: &str) -> AgentName {
    name.parse().unwrap()
}

/// A block of agent `name`, of one epoch for each trial: arrival indexes are the sequence numbers.
pub(crate) fn block(name: &str, trial: u32, first: u64, count: u64) -> Block {
    let origin = BlockOrigin {
        agent: agent(name),
        incarnation: Incarnation(9),
        trial: TrialId(trial),
        epoch: Epoch(trial + 1),
    };
    let traces: Vec<Trace> = (first..first + count)
        .map(|i| {
            let unsent = Unsent {
                index: ArrivalIndex(i),
                scheduled: Nanos(i),
                row: 0,
                requested_tokens: 1,
                prompt_tokens: None,
            };
            Trace::unsent(unsent, Failure::new(FailureKind::Reset, "gone"), Nanos(i + 5))
        })
        .collect();
    Block::encode(&origin, Seq(first), &traces).unwrap()
}

/// A store in memory, with the disk and the index that survive it.
pub(crate) fn sim() -> (SimDisk, MemoryIndex, Store) {
    let (disk, index) = (SimDisk::default(), MemoryIndex::default());
    let store = reopen(&disk, &index);
    (disk, index, store)
}

pub(crate) fn reopen(disk: &SimDisk, index: &MemoryIndex) -> Store {
    Store::with_index(Path::new(SIM), Arc::new(disk.clone()), Arc::new(index.clone())).unwrap()
}

/// Appends blocks as the writer does.
fn append(run: &super::RunStore, blocks: &[Block], roll_at: u64) {
    let mut writer = run.take_writer().unwrap();
    writer.roll_at(roll_at);
    for block in blocks {
        let places = writer.append(&[block]).unwrap();
        let header = block.header();
        let marks = [((header.agent.clone(), header.incarnation), block.next_seq())].into();
        run.index().commit(&run.naming(&[block], &places, &marks, writer.end())).unwrap();
    }
    run.return_writer(writer);
}

fn read(run: &super::RunStore, trial: u32) -> Vec<Block> {
    run.trial_blocks(TrialId(trial), Epoch(trial + 1)).unwrap().collect::<Result<_, _>>().unwrap()
}
