//! Segment files: rolling, reading, and an index that says something else than the files.

use common::disk::{Disk, OsDisk, SimDisk};
use common::ids::{Epoch, Incarnation, Nanos, Seq, TrialId};
use common::trace::segment::SegmentError;

use super::{SIM, agent, append, block, read, reopen, run_id, sim};
use crate::store::segments::path_of;
use crate::store::{RunEvent, StoreError};

fn file(number: u32) -> std::path::PathBuf {
    path_of(&std::path::Path::new(SIM).join("runs/r/segments"), number)
}

fn len(disk: &SimDisk, number: u32) -> u64 {
    disk.open(&file(number)).unwrap().len().unwrap()
}

#[test]
fn files_roll_and_are_read_as_one() {
    let (disk, index, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let mut blocks: Vec<_> = (0..20).map(|i| block("x", 0, i * 3, 3)).collect();
    append(&run, &blocks, 600);
    append(&run, &[block("a", 1, 0, 1)], 600);
    assert!(disk.list(&std::path::Path::new(SIM).join("runs/r/segments")).unwrap().len() > 3);
    for run in [run, {
        drop(store);
        reopen(&disk, &index).run(&run_id("r")).unwrap()
    }] {
        let mut reader = run.trial_blocks(TrialId(0), Epoch(1)).unwrap();
        assert_eq!(reader.traces(), 60);
        assert_eq!(reader.next().unwrap().unwrap(), blocks[0]);
        assert_eq!((reader.traces(), read(&run, 0)), (57, blocks.clone()));
        // Another epoch of the trial is another trial's data.
        assert_eq!(run.trial_blocks(TrialId(0), Epoch(2)).unwrap().count(), 0);
    }
    blocks.clear();
}

#[test]
fn a_torn_tail_is_cut_and_whole_blocks_behind_the_index_are_taken() {
    let (disk, index, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    append(&run, &[block("x", 0, 0, 3)], u64::MAX);
    let good = len(&disk, 1) + block("x", 0, 3, 2).bytes().len() as u64;
    disk.open(&file(1)).unwrap().append(block("x", 0, 3, 2).bytes()).unwrap();
    disk.open(&file(1)).unwrap().append(&block("x", 0, 5, 2).bytes()[..40]).unwrap();
    drop((run, store));
    let run = reopen(&disk, &index).run(&run_id("r")).unwrap();
    assert_eq!(read(&run, 0), [block("x", 0, 0, 3), block("x", 0, 3, 2)]);
    assert_eq!(run.mark(&agent("x"), Incarnation(9)).unwrap(), Seq(5));
    assert_eq!(len(&disk, 1), good);
    append(&run, &[block("x", 0, 5, 2)], u64::MAX);
    assert_eq!(read(&run, 0).len(), 3);
}

#[test]
fn an_index_ahead_of_its_segments_is_not_believed() {
    let (disk, index, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    append(&run, &[block("x", 0, 0, 3)], u64::MAX);
    let end = len(&disk, 1);
    append(&run, &[block("x", 0, 3, 2)], u64::MAX);
    disk.open(&file(1)).unwrap().truncate(end + 9).unwrap();
    // A reader notices by itself: the file is too short for what the index names.
    let last = run.trial_blocks(TrialId(0), Epoch(1)).unwrap().last().unwrap();
    assert!(matches!(last, Err(StoreError::Block { source: SegmentError::Torn, .. })), "{last:?}");
    drop((run, store));
    let run = reopen(&disk, &index).run(&run_id("r")).unwrap();
    assert_eq!(read(&run, 0), [block("x", 0, 0, 3)]);
    assert_eq!(run.mark(&agent("x"), Incarnation(9)).unwrap(), Seq(3));
    assert_eq!(run.events().unwrap(), [RunEvent::IndexRebuilt { blocks: 1 }]);
    // What would have been cut is kept beside.
    assert_eq!(disk.read(&file(1).with_extension(format!("seg.cut-{end}"))).unwrap().len(), 9);
    disk.remove(&file(1)).unwrap();
    let missing = run.trial_blocks(TrialId(0), Epoch(1)).unwrap().last().unwrap();
    assert!(matches!(missing, Err(StoreError::Disk { .. })), "{missing:?}");
}

#[test]
fn another_block_than_the_index_names_is_refused() {
    let (disk, _index, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    append(&run, &[block("x", 0, 0, 3)], u64::MAX);
    let mut content = disk.read(&file(1)).unwrap();
    content.truncate(8);
    content.extend_from_slice(block("y", 0, 0, 3).bytes());
    disk.replace(&file(1), &content).unwrap();
    let read = run.trial_blocks(TrialId(0), Epoch(1)).unwrap().last().unwrap();
    assert!(matches!(read, Err(StoreError::WrongBlock { .. })), "{read:?}");
}

/// Damage before the last file is no torn tail: what follows in later files is kept, and the mark stays before the
/// gap, so that the agent may fill it.
#[test]
fn damage_in_the_middle_costs_only_what_is_damaged() {
    let (disk, index, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let blocks: Vec<_> = (0..4).map(|i| block("x", 0, i * 3, 3)).collect();
    append(&run, &blocks, 1);
    let mut content = disk.read(&file(2)).unwrap();
    *content.last_mut().unwrap() ^= 1;
    disk.replace(&file(2), &content).unwrap();
    drop((run, store));
    index.clear();
    let run = reopen(&disk, &index).run(&run_id("r")).unwrap();
    assert_eq!(read(&run, 0), [blocks[0].clone(), blocks[2].clone(), blocks[3].clone()]);
    assert_eq!(run.mark(&agent("x"), Incarnation(9)).unwrap(), Seq(3));
    assert_eq!(disk.read(&file(2)).unwrap(), content);
    append(&run, &blocks[1..], u64::MAX);
    assert_eq!(read(&run, 0), blocks);
}

#[test]
fn a_segment_of_a_later_version_is_not_touched() {
    let (disk, index, store) = sim();
    drop(store.create_run(&run_id("r"), Nanos(1)).unwrap());
    let later = b"PLIMSEG\x03and more".to_vec();
    disk.replace(&file(1), &later).unwrap();
    index.clear();
    let Err(e) = reopen(&disk, &index).run(&run_id("r")) else { panic!("version 3 was read") };
    assert!(e.to_string().contains("not a segment file of version 2"), "{e}");
    assert_eq!(disk.read(&file(1)).unwrap(), later);
}

/// No writer of ours does it, but if a block stands there again, it counts once and no mark goes back.
#[test]
fn a_block_that_stands_there_again_is_passed_over() {
    let (disk, index, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let blocks = [block("x", 0, 0, 3), block("x", 0, 3, 2)];
    append(&run, &blocks, u64::MAX);
    disk.open(&file(1)).unwrap().append(blocks[0].bytes()).unwrap();
    drop((run, store));
    let run = reopen(&disk, &index).run(&run_id("r")).unwrap();
    assert_eq!(read(&run, 0), blocks);
    assert_eq!(run.mark(&agent("x"), Incarnation(9)).unwrap(), Seq(5));
}

/// On the real disk as well, where a process that was killed leaves what it wrote.
#[test]
fn a_torn_tail_is_cut_on_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let open = || crate::store::Store::open(dir.path(), std::sync::Arc::new(OsDisk)).unwrap();
    let run = open().create_run(&run_id("r"), Nanos(1)).unwrap();
    append(&run, &[block("x", 0, 0, 3)], u64::MAX);
    let path = path_of(&run.dir().join("segments"), 1);
    drop(run);
    OsDisk.open(&path).unwrap().append(b"torn").unwrap();
    let run = open().run(&run_id("r")).unwrap();
    assert_eq!(read(&run, 0), [block("x", 0, 0, 3)]);
    assert!(!std::fs::read(&path).unwrap().ends_with(b"torn"));
}
