//! A store that is damaged between a coordinator's death and the resumption.

use std::path::{Path, PathBuf};

use plimsoll_tests::by;

use super::{ENGINE, Row, Undisturbed, shown, whole};
use crate::world::{World, ended, expect_said, killed};

pub(super) const SCENARIOS: &[Row] = &[
    (
        "index-removed",
        "kill -9 of the coordinator in its second trial; its index is removed",
        false,
        index_removed,
    ),
    (
        "index-garbled",
        "kill -9 of the coordinator in its second trial; its index is garbled",
        true,
        index_garbled,
    ),
    (
        "segment-damaged",
        "kill -9 of the coordinator in a trial; the end of its traces is damaged",
        false,
        segment_damaged,
    ),
    (
        "segment-torn",
        "kill -9 of the coordinator in a trial; the end of its traces is cut off",
        false,
        segment_torn,
    ),
    ("segment-and-index", "the end of its traces damaged, and its index removed", false, segment_and_index),
];

/// A fleet whose coordinator was killed in its second trial.
fn killed_in_the_second() -> World {
    let world = World::with_agents(ENGINE);
    let running = world.sweep();
    world.under_way(80 + 30);
    let _ = killed(running);
    world
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path => found.push(path),
        }
    }
    found.sort();
    found
}

#[track_caller]
fn change(path: &Path, how: impl FnOnce(&mut Vec<u8>)) {
    let fail = |e: std::io::Error| -> ! { panic!("{}: {e}", path.display()) };
    let mut bytes = std::fs::read(path).unwrap_or_else(|e| fail(e));
    how(&mut bytes);
    std::fs::write(path, bytes).unwrap_or_else(|e| fail(e));
}

/// The last file of traces.
#[track_caller]
fn last_segment(world: &World) -> PathBuf {
    let run = world.run().unwrap_or_else(|| panic!("there is no run"));
    files(&run.join("segments")).pop().unwrap_or_else(|| panic!("there are no traces"))
}

fn resumed(world: World, undisturbed: &Undisturbed) -> String {
    let ended = ended(world.resume());
    expect_said(&ended, &["recover"]);
    let (results, found) = whole(&world, ended, undisturbed);
    assert_eq!(found.invalid.len(), 1, "{found:?}");
    assert!(found.synthetic.is_empty(), "the spools had it: {found:?}");
    assert!(by(results.traces_of(1), "/outcome")["success"] > 10, "{found:?}");
    world.close();
    shown(&found)
}

fn index_removed(undisturbed: &Undisturbed) -> String {
    let world = killed_in_the_second();
    let index = world.data().join("index");
    std::fs::remove_dir_all(&index).unwrap_or_else(|e| panic!("{}: {e}", index.display()));
    resumed(world, undisturbed)
}

fn index_garbled(undisturbed: &Undisturbed) -> String {
    let world = killed_in_the_second();
    for path in files(&world.data().join("index")) {
        change(&path, |bytes| bytes.iter_mut().step_by(7).for_each(|b| *b ^= 0x5a));
    }
    resumed(world, undisturbed)
}

fn segment_damaged(undisturbed: &Undisturbed) -> String {
    let world = killed_in_the_second();
    change(&last_segment(&world), |bytes| {
        bytes.iter_mut().rev().take(300).step_by(9).for_each(|b| *b ^= 0x5a)
    });
    resumed(world, undisturbed)
}

fn segment_torn(undisturbed: &Undisturbed) -> String {
    let world = killed_in_the_second();
    change(&last_segment(&world), |bytes| bytes.truncate(bytes.len() - 300));
    resumed(world, undisturbed)
}

fn segment_and_index(undisturbed: &Undisturbed) -> String {
    let world = killed_in_the_second();
    let index = world.data().join("index");
    std::fs::remove_dir_all(&index).unwrap_or_else(|e| panic!("{}: {e}", index.display()));
    change(&last_segment(&world), |bytes| {
        bytes.iter_mut().rev().take(300).step_by(9).for_each(|b| *b ^= 0x5a)
    });
    resumed(world, undisturbed)
}
