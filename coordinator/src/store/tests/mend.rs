//! Damage in the open trial is forgotten, and nothing else is.

use std::path::Path;

use common::disk::{Disk, SimDisk};
use common::ids::{Epoch, Incarnation, Seq, TrialId};

use super::super::{MemoryIndex, RunStore};
use super::{SIM, agent, append, block, read, reopen, run_id, sim};

const OPEN: (TrialId, Epoch) = (TrialId(1), Epoch(2));

/// Flips a byte in the middle of the block that is `number` blocks before the end of the only file.
fn damage(disk: &SimDisk, blocks: &[common::trace::segment::Block], number: usize) {
    let path = Path::new(SIM).join("runs/r/segments/00000001.seg");
    let mut bytes = disk.read(&path).unwrap();
    let behind: usize = blocks.iter().rev().take(number).map(|b| b.bytes().len()).sum();
    let at = bytes.len() - behind - blocks[blocks.len() - 1 - number].bytes().len() / 2;
    bytes[at] ^= 0x5a;
    disk.replace(&path, &bytes).unwrap();
}

fn mark(run: &RunStore, name: &str) -> Seq {
    run.mark(&agent(name), Incarnation(9)).unwrap()
}

/// A sealed trial of 2 blocks, and an open one of 4, by two agents in turn.
fn filled() -> (SimDisk, MemoryIndex, Vec<common::trace::segment::Block>) {
    let (disk, index, store) = sim();
    let run = store.create_run(&run_id("r"), common::ids::Nanos(1)).unwrap();
    let blocks = vec![
        block("a", 0, 0, 4),
        block("b", 0, 0, 4),
        block("a", 1, 4, 4),
        block("b", 1, 4, 4),
        block("a", 1, 8, 4),
        block("b", 1, 8, 4),
    ];
    append(&run, &blocks, u64::MAX);
    (disk, index, blocks)
}

#[test]
fn what_is_whole_is_left_alone() {
    let (disk, index, _) = filled();
    let run = reopen(&disk, &index).run(&run_id("r")).unwrap();
    assert!(run.mend(OPEN.0, OPEN.1).unwrap().is_empty());
    assert_eq!((mark(&run, "a"), mark(&run, "b")), (Seq(12), Seq(12)));
    assert_eq!(run.take_writer().unwrap().end().file, 1, "a file was begun for nothing");
}

#[test]
fn a_damaged_block_is_asked_for_again_and_what_lies_behind_it_is_kept() {
    for lose_index in [false, true] {
        let (disk, index, blocks) = filled();
        // The open trial's first block of agent b: one of each agent lies behind it.
        damage(&disk, &blocks, 2);
        let run = reopen(&disk, &index).run(&run_id("r")).unwrap();
        let problems = run.mend(OPEN.0, OPEN.1).unwrap();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].to_string().contains("00000001.seg"), "{}", problems[0]);
        assert_eq!((mark(&run, "a"), mark(&run, "b")), (Seq(12), Seq(4)));
        assert_eq!(read(&run, 1), [blocks[2].clone(), blocks[4].clone(), blocks[5].clone()]);
        assert_eq!(read(&run, 0), blocks[..2]);
        assert!(run.mend(OPEN.0, OPEN.1).unwrap().is_empty(), "it is mended");
        // The agent sends again from its mark on.
        append(&run, &[blocks[3].clone(), blocks[5].clone()], u64::MAX);
        drop(run);
        let index = if lose_index { MemoryIndex::default() } else { index };
        let run = reopen(&disk, &index).run(&run_id("r")).unwrap();
        assert_eq!(mark(&run, "b"), Seq(12));
        assert_eq!(
            read(&run, 1),
            [blocks[2].clone(), blocks[4].clone(), blocks[3].clone(), blocks[5].clone()]
        );
        assert_eq!(read(&run, 0), blocks[..2]);
    }
}

#[test]
fn damage_of_a_sealed_trial_is_not_touched() {
    let (disk, index, blocks) = filled();
    damage(&disk, &blocks, 5);
    let run = reopen(&disk, &index).run(&run_id("r")).unwrap();
    assert!(run.mend(OPEN.0, OPEN.1).unwrap().is_empty());
    assert_eq!((mark(&run, "a"), mark(&run, "b")), (Seq(12), Seq(12)));
    assert!(run.trial_blocks(TrialId(0), Epoch(1)).unwrap().any(|block| block.is_err()));
}
