//! The writer's thread, through its handle.

use std::sync::Arc;
use std::time::Duration;

use common::disk::OsDisk;
use common::ids::{ArrivalIndex, Epoch, Incarnation, Nanos, Seq, TrialId};

use crate::ingest::{Ack, IngestError, start};
use crate::store::tests::{agent, block, reopen, run_id, sim};
use crate::store::{Failing, Store, StoreError, conservation};

const INC: Incarnation = Incarnation(9);

#[tokio::test]
async fn duplicates_gaps_and_confusion_are_answered_and_counted() {
    let (_disk, _index, store) = sim();
    let ingest = start(&store.create_run(&run_id("r"), Nanos(1)).unwrap()).unwrap();
    assert_eq!(ingest.submit(vec![block("x", 0, 3, 2)]).await.unwrap(), Ack::ResumeFrom(Seq(0)));
    assert_eq!(ingest.submit(vec![block("x", 0, 0, 3)]).await.unwrap(), Ack::UpTo(Seq(3)));
    assert_eq!(
        ingest.submit(vec![block("x", 0, 0, 3), block("x", 0, 3, 2)]).await.unwrap(),
        Ack::UpTo(Seq(5))
    );
    assert_eq!(ingest.submit(vec![block("x", 0, 0, 3)]).await.unwrap(), Ack::UpTo(Seq(5)));
    for bad in [vec![], vec![block("x", 0, 4, 2)], vec![block("x", 0, 5, 1), block("y", 0, 0, 1)]] {
        assert!(matches!(ingest.submit(bad).await, Err(IngestError::Confused(_))));
    }
    assert_eq!(ingest.mark(&agent("x"), INC), Seq(5));
    assert_eq!(ingest.mark(&agent("y"), INC), Seq(0));
    let counters = ingest.counters();
    assert_eq!((counters.traces, counters.duplicates, counters.gaps, counters.confused), (5, 6, 1, 3));
    assert_eq!((counters.groups, counters.failures), (2, 0));
}

/// What was lost with a damaged store and is kept nowhere must not hold up what comes after it.
#[tokio::test]
async fn a_mark_is_moved_over_what_cannot_come_and_never_back() {
    let (_disk, _index, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let ingest = start(&run).unwrap();
    assert_eq!(ingest.submit(vec![block("x", 0, 5, 2)]).await.unwrap(), Ack::ResumeFrom(Seq(0)));
    ingest.skip_to(&agent("x"), INC, Seq(5)).await.unwrap();
    assert_eq!(ingest.submit(vec![block("x", 0, 5, 2)]).await.unwrap(), Ack::UpTo(Seq(7)));
    ingest.skip_to(&agent("x"), INC, Seq(3)).await.unwrap();
    assert_eq!(ingest.mark(&agent("x"), INC), Seq(7));
    ingest.close().await.unwrap();
    // It is durable, and of this process only.
    assert_eq!(run.mark(&agent("x"), INC).unwrap(), Seq(7));
    assert_eq!(run.mark(&agent("y"), INC).unwrap(), Seq(0));
}

#[tokio::test]
async fn a_run_has_one_writer_at_a_time() {
    let (_disk, _index, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let first = start(&run).unwrap();
    assert!(matches!(start(&store.run(&run_id("r")).unwrap()), Err(StoreError::HasWriter(_))));
    first.submit(vec![block("x", 0, 0, 3)]).await.unwrap();
    first.close().await.unwrap();
    first.close().await.unwrap();
    assert_eq!(first.submit(vec![block("x", 0, 3, 1)]).await, Err(IngestError::Closed));
    let second = start(&run).unwrap();
    assert_eq!(second.mark(&agent("x"), INC), Seq(3));
    assert_eq!(second.submit(vec![block("x", 0, 3, 1)]).await.unwrap(), Ack::UpTo(Seq(4)));
}

#[tokio::test]
async fn waiting_ends_when_the_traces_are_stored_or_the_writer_ends() {
    let (_disk, _index, store) = sim();
    let ingest = start(&store.create_run(&run_id("r"), Nanos(1)).unwrap()).unwrap();
    let waiting = tokio::spawn({
        let ingest = ingest.clone();
        async move { ingest.wait_for(&agent("x"), INC, Seq(4)).await }
    });
    ingest.submit(vec![block("x", 0, 0, 3)]).await.unwrap();
    let early =
        tokio::time::timeout(Duration::from_millis(30), ingest.wait_for(&agent("x"), INC, Seq(4))).await;
    assert!(early.is_err(), "three traces are not four");
    ingest.submit(vec![block("x", 0, 3, 1)]).await.unwrap();
    waiting.await.unwrap().unwrap();
    ingest.wait_for(&agent("x"), INC, Seq(0)).await.unwrap();
    let never = tokio::spawn({
        let ingest = ingest.clone();
        async move { ingest.wait_for(&agent("x"), INC, Seq(5)).await }
    });
    ingest.close().await.unwrap();
    assert_eq!(never.await.unwrap(), Err(IngestError::Closed));
    ingest.wait_for(&agent("x"), INC, Seq(4)).await.unwrap();
}

#[tokio::test]
async fn a_full_disk_is_told_to_every_submitter_and_does_not_last() {
    let (disk, index, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let ingest = start(&run).unwrap();
    ingest.submit(vec![block("x", 0, 0, 3)]).await.unwrap();
    // Room for a part of a block: a torn tail.
    let used = disk_use(&run);
    disk.set_capacity(used + 20);
    for name in ["x", "y", "z"] {
        let first = if name == "x" { 3 } else { 0 };
        let refused = ingest.submit(vec![block(name, 0, first, 2)]).await.unwrap_err();
        let IngestError::Disk { path, full: true, .. } = &refused else { panic!("{refused}") };
        assert!(
            path.ends_with("runs/r/segments/00000001.seg") && refused.to_string().contains("free some space")
        );
    }
    assert_eq!((ingest.mark(&agent("x"), INC), ingest.mark(&agent("y"), INC)), (Seq(3), Seq(0)));
    disk.set_capacity(u64::MAX);
    assert_eq!(ingest.submit(vec![block("y", 0, 0, 2)]).await.unwrap(), Ack::UpTo(Seq(2)));
    assert_eq!(ingest.submit(vec![block("x", 0, 3, 2)]).await.unwrap(), Ack::UpTo(Seq(5)));
    assert_eq!(ingest.counters().failures, 3);
    ingest.close().await.unwrap();
    drop((run, ingest, store));
    let run = reopen(&disk, &index).run(&run_id("r")).unwrap();
    let blocks: Vec<_> = run.trial_blocks(TrialId(0), Epoch(1)).unwrap().map(Result::unwrap).collect();
    assert_eq!(blocks, [block("x", 0, 0, 3), block("x", 0, 3, 2), block("y", 0, 0, 2)]);
}

fn disk_use(run: &crate::store::RunStore) -> u64 {
    let blocks = run.trial_blocks(TrialId(0), Epoch(1)).unwrap();
    8 + blocks.map(|b| b.unwrap().bytes().len() as u64).sum::<u64>()
}

#[tokio::test]
async fn an_index_that_refuses_delays_the_acknowledgement_and_stores_nothing_twice() {
    let (_disk, index, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let ingest = start(&run).unwrap();
    index.set_failing(Some(Failing::Everything));
    for _ in 0..3 {
        let refused = ingest.submit(vec![block("x", 0, 0, 3)]).await.unwrap_err();
        assert!(matches!(refused, IngestError::Index(_)), "{refused}");
        assert_eq!(ingest.mark(&agent("x"), INC), Seq(0));
    }
    index.set_failing(None);
    assert_eq!(ingest.submit(vec![block("x", 0, 0, 3)]).await.unwrap(), Ack::UpTo(Seq(3)));
    assert_eq!((ingest.counters().traces, ingest.counters().failures), (3, 3));
}

/// 60 agents at once on a real disk and sled: each gets its own answers, and conservation holds over all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_agents_share_the_writer() {
    const AGENTS: u64 = 60;
    const BLOCKS: u64 = 8;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Arc::new(OsDisk)).unwrap();
    let ingest = start(&store.create_run(&run_id("r"), Nanos(1)).unwrap()).unwrap();
    let agents: Vec<_> = (0..AGENTS)
        .map(|a| {
            let ingest = ingest.clone();
            tokio::spawn(async move {
                let name = format!("agent-{a}");
                for b in 0..BLOCKS {
                    let sent = block(&name, 0, b * 2, 2);
                    assert_eq!(ingest.submit(vec![sent]).await.unwrap(), Ack::UpTo(Seq(b * 2 + 2)));
                }
            })
        })
        .collect();
    for agent in agents {
        agent.await.unwrap();
    }
    let counters = ingest.counters();
    assert_eq!(counters.traces, AGENTS * BLOCKS * 2);
    assert!(counters.groups < AGENTS * BLOCKS * 3 / 4, "a sync was hardly shared: {counters:?}");
    ingest.close().await.unwrap();
    drop((ingest, store));

    let run = Store::open(dir.path(), Arc::new(OsDisk)).unwrap().run(&run_id("r")).unwrap();
    assert_eq!(run.trial_blocks(TrialId(0), Epoch(1)).unwrap().traces(), AGENTS * BLOCKS * 2);
    // Every agent sent the same arrivals here, so conservation has much to say.
    let c = conservation(BLOCKS * 2 + 1, run.trial_blocks(TrialId(0), Epoch(1)).unwrap()).unwrap();
    assert_eq!((c.recorded, c.duplicated.count), (BLOCKS * 2, BLOCKS * 2));
    assert_eq!(c.missing.first, [ArrivalIndex(BLOCKS * 2)]);
}
