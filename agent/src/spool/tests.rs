//! The spool on a simulated disk; `model` holds it against a list of records.

mod model;

use std::sync::atomic::{AtomicU64, Ordering};

use common::clock::SystemClock;
use common::disk::SimDisk;
use common::ids::{ArrivalIndex, Epoch, Incarnation, Nanos, TrialId};
use common::trace::segment::scan;
use common::trace::{Failure, FailureKind, Unsent};
use proptest::prelude::*;

use super::*;

fn origin() -> BlockOrigin {
    BlockOrigin {
        agent: "a".parse().unwrap(),
        incarnation: Incarnation(1),
        trial: TrialId(0),
        epoch: Epoch(1),
    }
}

pub(super) fn trace(index: u64) -> Trace {
    let unsent = Unsent {
        index: ArrivalIndex(index),
        scheduled: Nanos(index),
        row: 0,
        requested_tokens: 1,
        prompt_tokens: None,
    };
    Trace::unsent(unsent, Failure::new(FailureKind::Reset, "x"), Nanos(index + 1))
}

const DIR: &str = "/spool/a";

fn run_id() -> RunId {
    "r".parse().unwrap()
}

fn create(disk: &SimDisk, first: u64) -> Arc<Spool> {
    Spool::create(disk, Path::new(DIR), &run_id(), origin(), Seq(first)).unwrap()
}

fn indices(blocks: &[Vec<u8>]) -> Vec<u64> {
    let facts = blocks.iter().flat_map(|b| Block::decode(b).unwrap().facts().unwrap());
    facts.map(|f| f.index.0).collect()
}

proptest! {
    /// Whatever the sizes of the blocks and the reader's budget: reading on from each answer's end gives every trace
    /// once, in order, and the file holds the same.
    #[test]
    fn reading_on_gives_every_trace_once(sizes in prop::collection::vec(1u64..70, 1..8), first in 0u64..1000, budget in 1usize..4000) {
        let disk = SimDisk::default();
        let spool = create(&disk, first);
        let mut n = 0;
        for size in sizes {
            spool.append(&(n..n + size).map(trace).collect::<Vec<_>>()).unwrap();
            n += size;
        }
        let (mut at, mut seen) = (spool.first(), Vec::new());
        loop {
            let blocks = spool.read_from(at, budget).unwrap();
            if blocks.is_empty() { break }
            at = spool.next_after(at, blocks.len());
            seen.extend(indices(&blocks));
        }
        prop_assert_eq!(at, Seq(first + n));
        prop_assert_eq!(&seen, &(0..n).collect::<Vec<_>>());
        let file = scan(&disk.read(&spool.path).unwrap()).unwrap();
        prop_assert!(file.damage.is_none());
        prop_assert_eq!(file.blocks.iter().flat_map(|(_, b)| b.facts().unwrap()).count() as u64, n);
    }
}

#[tokio::test]
async fn the_writer_keeps_order_and_counts() {
    let disk = SimDisk::default();
    let spool = create(&disk, 7);
    let mut writer =
        SpoolWriter::start(spool.clone(), Arc::new(SystemClock), || panic!("nothing is lost")).unwrap();
    assert!((0..200).all(|i| writer.push(trace(i))));
    assert_eq!(writer.finish().await, SpoolState { traces: 200, next_seq: Seq(207), lost: 0 });
    assert_eq!(*spool.durable().borrow(), Seq(207));
    assert_eq!(indices(&spool.read_from(Seq(7), usize::MAX).unwrap()), (0..200).collect::<Vec<_>>());
    spool.remove(&disk).unwrap();
    assert!(disk.list(&Path::new(DIR).join("runs")).unwrap().is_empty());
}

/// A steady trickle must not keep a block open: each trace would put the end off.
#[tokio::test]
async fn a_trickle_does_not_keep_a_block_open() {
    let disk = SimDisk::default();
    let spool = create(&disk, 0);
    let mut writer =
        SpoolWriter::start(spool.clone(), Arc::new(SystemClock), || panic!("nothing is lost")).unwrap();
    let durable = spool.durable();
    // Fewer than a block, closer together than a block stays open, for longer than that.
    let pushed = (0..60).find(|&i| {
        assert!(writer.push(trace(i)));
        std::thread::sleep(std::time::Duration::from_millis(20));
        *durable.borrow() > Seq(0)
    });
    assert!(pushed.is_some(), "nothing was written before the block was full");
    let _ = writer.finish().await;
}

/// A full disk loses traces, says how many, leaves no gap in the numbers and no torn block in the file.
#[tokio::test]
async fn a_full_disk_is_counted_and_leaves_no_gap() {
    let disk = SimDisk::default();
    let spool = create(&disk, 0);
    spool.append(&[trace(0)]).unwrap();
    let full = disk.read(&spool.path).unwrap().len() as u64 + 30;
    disk.set_capacity(full);
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let mut writer = SpoolWriter::start(spool.clone(), Arc::new(SystemClock), move || {
        _ = count.fetch_add(1, Ordering::SeqCst)
    })
    .unwrap();
    assert!(writer.push(trace(1)));
    let state = writer.finish().await;
    assert_eq!(state, SpoolState { traces: 1, next_seq: Seq(1), lost: 1 });
    assert_eq!(told.load(Ordering::SeqCst), 1);
    disk.set_capacity(u64::MAX);
    spool.append(&[trace(2)]).unwrap();
    let file = scan(&disk.read(&spool.path).unwrap()).unwrap();
    assert!(file.damage.is_none(), "the torn block was cut");
    assert_eq!(indices(&spool.read_from(Seq(0), usize::MAX).unwrap()), [0, 2]);
}

/// A block whose sync failed may be whole in the file. When it is given up, its numbers go to others: it must not stand
/// there for whoever reads the file later.
#[test]
fn a_block_that_was_given_up_does_not_stay() {
    let disk = SimDisk::default();
    let spool = create(&disk, 0);
    let mut writer =
        writer::Writer::new(spool.clone(), Arc::new(SystemClock), std::time::Duration::ZERO, || ());
    let whole = disk.read(&spool.path).unwrap();
    writer.take(trace(0));
    disk.set_syncs_failing(true);
    writer.close();
    assert_eq!(writer.state(), SpoolState { traces: 0, next_seq: Seq(0), lost: 1 });
    // The disk took no cut either; the next block tries again.
    disk.set_syncs_failing(false);
    writer.take(trace(1));
    disk.cut_next_append(9);
    writer.close();
    assert_eq!(indices(&spool.read_from(Seq(0), usize::MAX).unwrap()), [1]);
    disk.set_capacity(disk.read(&spool.path).unwrap().len() as u64 + 20);
    writer.take(trace(2));
    writer.close();
    let file = disk.read(&spool.path).unwrap();
    assert!(file.starts_with(&whole) && scan(&file).unwrap().damage.is_none(), "the torn block was cut");
    assert_eq!(writer.state(), SpoolState { traces: 1, next_seq: Seq(1), lost: 2 });
}

/// Somebody's traces are never overwritten.
#[test]
fn a_file_with_traces_is_not_made_anew() {
    let disk = SimDisk::default();
    let spool = create(&disk, 0);
    drop(create(&disk, 0));
    spool.append(&[trace(0)]).unwrap();
    let refused = Spool::create(&disk, Path::new(DIR), &run_id(), origin(), Seq(0)).err().unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
}

/// Of two files of one process the earlier ends where the later begins.
#[test]
fn numbers_of_a_later_file_do_not_count_in_an_earlier_one() {
    let disk = SimDisk::default();
    let first = create(&disk, 0);
    (0..3).for_each(|i| first.append(&[trace(i)]).unwrap());
    let later = BlockOrigin { trial: TrialId(1), epoch: Epoch(2), ..origin() };
    let second = Spool::create(&disk, Path::new(DIR), &run_id(), later, Seq(2)).unwrap();
    second.append(&[trace(9)]).unwrap();
    let agent = "a".parse().unwrap();
    let backlog = held::backlogs(&disk, Path::new(DIR), &agent, &run_id()).unwrap().pop().unwrap();
    assert_eq!(backlog.segments.iter().map(|s| s.traces).collect::<Vec<_>>(), [2, 1]);
    let mut seen = Vec::new();
    let mut at = Seq(0);
    while at < backlog.next() {
        let (blocks, next) = backlog.read_from(&disk, at, 1).unwrap();
        (seen, at) = ([seen, indices(&blocks)].concat(), next);
    }
    assert_eq!(seen, [0, 1, 9]);
}
