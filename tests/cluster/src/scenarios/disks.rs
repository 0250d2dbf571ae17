//! Disks that are full: an agent's spool, and the coordinator's data directory.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::{ENGINE, Row, Undisturbed, judged, shown, whole};
use crate::world::{World, ended};

pub(super) const SCENARIOS: &[Row] = &[
    ("spool-full", "an agent's disk is full, in a trial", true, spool_full),
    (
        "spool-full-for-a-moment",
        "an agent's disk is full for 1 s, in a trial",
        false,
        spool_full_for_a_moment,
    ),
    (
        "data-full",
        "the coordinator's disk is full, in a trial; then there is room, and `resume`",
        true,
        data_full,
    ),
];

/// Takes all room that is left. What it gives is the file to remove.
fn fill(folder: &Path) -> PathBuf {
    let path = folder.join("filler");
    let mut file = std::fs::File::create(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    for size in [1 << 16, 1 << 12] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    path
}

fn empty(filler: &Path) {
    std::fs::remove_file(filler).unwrap_or_else(|e| panic!("{}: {e}", filler.display()));
}

/// A fleet of which agent 2 has a disk of 1 MiB.
fn with_small_spool() -> (World, PathBuf) {
    let mut world = World::new(ENGINE);
    let spool = world.members[1].spool.clone();
    world.small_disk(&spool, "1m");
    world.start_agents();
    (world, spool)
}

fn spool_full(undisturbed: &Undisturbed) -> String {
    let (mut world, spool) = with_small_spool();
    let running = world.sweep();
    world.under_way(20);
    fill(&spool);
    let ended = ended(running);
    let (_, found) = judged(&world, &ended, undisturbed);
    let said = world.agent(2).stderr();
    assert!(said.contains(&spool.display().to_string()), "it does not say which disk: {said}");
    assert!(said.to_lowercase().contains("no space"), "it does not say what is wrong: {said}");
    assert!(!found.invalid.is_empty(), "{found:?}: {}", ended.story());
    world.close();
    format!("exit {}; {}; the agent names the path", ended.code.unwrap_or(-1), shown(&found))
}

fn spool_full_for_a_moment(undisturbed: &Undisturbed) -> String {
    let (world, spool) = with_small_spool();
    let running = world.sweep();
    world.under_way(20);
    let filler = fill(&spool);
    std::thread::sleep(std::time::Duration::from_secs(1));
    empty(&filler);
    let (_, found) = whole(&world, ended(running), undisturbed);
    assert!(found.invalid.is_empty(), "{found:?}");
    world.close();
    shown(&found)
}

fn data_full(undisturbed: &Undisturbed) -> String {
    let mut world = World::new(ENGINE);
    let data = world.data();
    world.small_disk(&data, "24m");
    world.start_agents();
    let running = world.sweep();
    world.under_way(20);
    let filler = fill(&data);
    let full = ended(running);
    assert!(full.code != Some(0), "{}", full.story());
    let said = full.stderr.to_lowercase();
    assert!(said.contains("no space"), "it does not say what is wrong: {}", full.story());
    assert!(
        full.stderr.contains(&data.display().to_string()),
        "it does not say which disk: {}",
        full.story()
    );
    empty(&filler);
    let (_, found) = whole(&world, ended(world.resume()), undisturbed);
    world.close();
    format!("exit {}, names the path; resumed: {}", full.code.unwrap_or(-1), shown(&found))
}
