//! Opening a data directory: the lock, clear errors, an index that does not open.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::disk::OsDisk;
use common::ids::{Epoch, Incarnation, Nanos, Seq, TrialId};

use super::{agent, append, block, read, run_id, sim};
use crate::store::{RunEvent, RunState, Store, StoreError};

fn open(dir: &Path) -> Result<Store, StoreError> {
    Store::open(dir, Arc::new(OsDisk))
}

#[test]
fn a_second_coordinator_is_told_who_has_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let Err(e) = open(dir.path()) else { panic!("two stores on one directory") };
    let message = e.to_string();
    for part in [&dir.path().display().to_string(), &format!("process {}", std::process::id()), "--data"] {
        assert!(message.contains(part), "{message}");
    }
    // A run that is still in use keeps the directory.
    let run = store.create_run(&run_id("a"), Nanos(1)).unwrap();
    drop(store);
    assert!(matches!(open(dir.path()), Err(StoreError::InUse { .. })));
    drop(run);
    open(dir.path()).unwrap();
}

#[test]
fn what_is_no_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(matches!(open(&file), Err(StoreError::NotADirectory { .. })));
    let Err(e) = open(&file.join("below")) else { panic!("a directory below a file") };
    assert!(e.to_string().contains("choose another with --data"), "{e}");
    assert_eq!(fs::read(&file).unwrap(), b"x");
}

#[test]
fn runs_of_one_directory_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("made/on/the/way")).unwrap();
    // "ab" begins as "a" does.
    let (a, b) = (run_id("a"), run_id("ab"));
    for (run, created, count) in [(&a, 2, 3), (&b, 1, 5)] {
        let run = store.create_run(run, Nanos(created)).unwrap();
        append(&run, &[block("x", 0, 0, count)], u64::MAX);
        run.append_event(&RunEvent::TrialPrepared { trial: TrialId(0), epoch: Epoch(count as u32) }).unwrap();
        run.write_file("plan.json", run.id().as_str().as_bytes()).unwrap();
    }
    assert!(matches!(store.create_run(&a, Nanos(3)), Err(StoreError::RunExists(_))));
    let names: Vec<_> = store.runs().unwrap().into_iter().map(|(run, _)| run).collect();
    assert_eq!(names, [b.clone(), a.clone()]);
    for (run, count) in [(&a, 3), (&b, 5)] {
        let store = store.run(run).unwrap();
        assert_eq!(read(&store, 0), [block("x", 0, 0, count)]);
        assert_eq!(store.mark(&agent("x"), Incarnation(9)).unwrap(), Seq(count));
        assert_eq!(store.events().unwrap().len(), 1);
        assert_eq!(store.next_epoch().unwrap(), Epoch(count as u32 + 1));
        assert_eq!(store.read_file("plan.json").unwrap(), run.as_str().as_bytes());
    }
    let Err(e) = store.run(&run_id("c")) else { panic!("there is no run c") };
    assert!(e.to_string().contains("there is no run c in") && e.to_string().contains("a, ab"), "{e}");
}

#[test]
fn the_log_survives_and_moves_the_state() {
    let dir = tempfile::tempdir().unwrap();
    let id = run_id("r");
    let events = [
        RunEvent::TrialPrepared { trial: TrialId(0), epoch: Epoch(1) },
        RunEvent::TrialStarted { trial: TrialId(0), epoch: Epoch(1) },
        RunEvent::RunInterrupted { reason: "ctrl-c".to_owned() },
    ];
    {
        let run = open(dir.path()).unwrap().create_run(&id, Nanos(7)).unwrap();
        assert_eq!(run.record().unwrap().state, RunState::Running);
        events[..2].iter().for_each(|e| run.append_event(e).unwrap());
    }
    let run = open(dir.path()).unwrap().run(&id).unwrap();
    run.append_event(&events[2]).unwrap();
    assert_eq!(run.events().unwrap(), events);
    let record = run.record().unwrap();
    assert_eq!((record.created, record.state), (Some(Nanos(7)), RunState::Interrupted));
}

/// Overwrites every file of the index in the way that `damage` says.
fn break_index(dir: &Path, damage: impl Fn(Vec<u8>) -> Vec<u8>) {
    let mut broken = 0;
    for entry in fs::read_dir(dir.join("index")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::write(&path, damage(fs::read(&path).unwrap())).unwrap();
            broken += 1;
        }
    }
    assert!(broken > 0, "nothing was broken");
}

#[test]
fn a_broken_index_is_moved_aside_and_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let id = run_id("r");
    let blocks = [block("x", 0, 0, 3), block("x", 0, 3, 4)];
    {
        let run = open(dir.path()).unwrap().create_run(&id, Nanos(7)).unwrap();
        append(&run, &blocks, u64::MAX);
    }
    let garbage = |old: Vec<u8>| vec![0xa5u8; old.len().max(64)];
    let cut = |old: Vec<u8>| old[..old.len() / 3].to_vec();
    for (n, damage) in [&garbage as &dyn Fn(Vec<u8>) -> Vec<u8>, &cut].into_iter().enumerate() {
        break_index(dir.path(), damage);
        let store = open(dir.path()).unwrap();
        assert!(dir.path().join(format!("index.broken-{}", n + 1)).is_dir());
        let run = store.run(&id).unwrap();
        assert_eq!(read(&run, 0), blocks);
        assert_eq!(run.mark(&agent("x"), Incarnation(9)).unwrap(), Seq(7));
        assert_eq!(run.events().unwrap(), [RunEvent::IndexRebuilt { blocks: 2 }]);
        let record = run.record().unwrap();
        assert_eq!((record.created, record.state), (None, RunState::Rebuilt));
        // The log is lost, but an epoch that was used is not used again.
        assert_eq!(run.next_epoch().unwrap(), Epoch(2));
    }
}

#[test]
fn an_index_of_another_format_is_left_alone() {
    let (disk, index, store) = sim();
    drop(store);
    let mut batch = crate::store::IndexBatch::default();
    batch.put(b"v".to_vec(), vec![9]);
    crate::store::Index::commit(&index, &batch).unwrap();
    let opened = Store::with_index(Path::new(super::SIM), Arc::new(disk), Arc::new(index));
    let Err(e) = opened else { panic!("format 9 was read") };
    assert!(e.to_string().contains("format 9"), "{e}");
}
