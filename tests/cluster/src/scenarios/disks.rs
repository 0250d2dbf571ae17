//! Disks that are full: an agent's spool, and the coordinator's data directory.

use std::io::Write;
use std::path::{Path, PathBuf};

use plimsoll_tests::limit_files;

use super::{ENGINE, Row, Undisturbed, shown, whole};
use crate::judge::{Log, judge};
use crate::stage::run as run_program;
use crate::world::{World, ended, expect_code, expect_said};

pub(super) const SCENARIOS: &[Row] = &[
    ("spool-full", "an agent's disk is full, in a trial", true, spool_full),
    (
        "spool-full-for-a-moment",
        "an agent's disk is full for a moment, in a trial",
        false,
        spool_full_for_a_moment,
    ),
    (
        "data-full",
        "the coordinator's disk is full, in a trial; then there is room, and `resume`",
        false,
        data_full,
    ),
    (
        "data-stalled",
        "the coordinator's disk does not answer any more, in a trial; later it does, and `resume`",
        false,
        data_stalled,
    ),
    (
        "coordinator-files",
        "the coordinator's host lets it open no more files, in a trial; then `resume`",
        false,
        coordinator_files,
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

/// Enough traces for more than the page that a file has begun: that much is written to a full disk, too.
const MANY: &str = "--rates 150 --requests 1500 --repeats 1";

fn spool_full(_: &Undisturbed) -> String {
    let (mut world, spool) = with_small_spool();
    let running = world.sweep_of(MANY);
    world.under_way(100);
    fill(&spool);
    let ended = expect_code(ended(running), 4);
    let results = world.results(&ended);
    let found = judge(&results, &world.log(), Log::Whole);
    // Whoever cannot keep traces still sends: the engine's load is the plan's.
    assert_eq!(world.log().len(), 1500, "not everything was sent");
    let said = world.agent(2).stderr();
    assert!(said.contains(&spool.display().to_string()), "it does not say which disk: {said}");
    assert!(said.to_lowercase().contains("no space"), "it does not say what is wrong: {said}");
    assert!(ended.stdout.contains("agent-2"), "the report does not name the agent: {}", ended.story());
    let lost: u64 = found.synthetic.values().sum();
    world.close();
    format!("exit 4; all was sent; {}; {lost} traces lost; the agent names the path", shown(&found))
}

fn spool_full_for_a_moment(_: &Undisturbed) -> String {
    let (mut world, spool) = with_small_spool();
    let running = world.sweep_of(MANY);
    world.under_way(100);
    let filler = fill(&spool);
    world.agent(2).expect_said("trying again");
    empty(&filler);
    let ended = expect_code(ended(running), 0);
    let found = judge(&world.results(&ended), &world.log(), Log::Whole);
    assert!(found.invalid.is_empty(), "{found:?}");
    world.close();
    shown(&found)
}

fn data_full(undisturbed: &Undisturbed) -> String {
    let mut world = World::new(ENGINE);
    let data = world.data();
    world.small_disk(&data, "24m");
    world.start_agents();
    let mut running = world.sweep();
    world.under_way(20);
    let filler = fill(&data);
    // While the trial goes on: there is time to make room.
    running.expect_said("nothing can be stored in");
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

/// What is kept of the run is written to a pipe that nobody reads: such a call comes back as little as one to a disk
/// that hangs, and can be ended.
fn data_stalled(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents(ENGINE);
    let mut running = world.sweep();
    world.under_way(20);
    let run = world.run().unwrap_or_else(|| panic!("there is no run"));
    let draft = run.join("run.json.new");
    run_program("mkfifo", &[&draft.display().to_string()]);
    running.expect_said("no answer from the disk for 5 s");
    let stalled = expect_code(ended(running), 1);
    expect_said(&stalled, &["the run ends here", &run.join("run.json").display().to_string()]);
    std::fs::remove_file(&draft).unwrap_or_else(|e| panic!("{}: {e}", draft.display()));
    let (_, found) = whole(&world, ended(world.resume()), undisturbed);
    world.close();
    format!("said after 5 s, exit 1 after 90 s, names the path; resumed: {}", shown(&found))
}

/// Before its first trace is stored: the file of traces cannot be made, nor one for what is kept.
fn coordinator_files(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents("--fixed-ttft-ms 1500");
    let mut running = world.sweep();
    world.under_way(8);
    limit_files(running.pid(), 0);
    running.expect_said("nothing can be stored in");
    let out_of_files = expect_code(ended(running), 1);
    let said = out_of_files.stderr.to_lowercase();
    assert!(said.contains("too many open files"), "it does not say why: {}", out_of_files.story());
    let lines = said.lines().filter(|line| line.contains("too many open files")).count();
    let (_, found) = whole(&world, ended(world.resume()), undisturbed);
    world.close();
    format!("exit 1, says why ({lines} lines); resumed: {}", shown(&found))
}
