//! `--upload after`: nothing of a trial's traces is with the coordinator before the trial is drained, and what is
//! reported is the same.

use std::path::{Path, PathBuf};

use plimsoll_tests::schema::parsed;
use plimsoll_tests::{Agent, Coordinator, Engine, Results, by, count, eventually, free_port, list, text};

/// Bytes of the traces that lie in a coordinator's data directory; a file without any has a few.
fn stored(data: &Path) -> u64 {
    let mut folders: Vec<PathBuf> = vec![data.to_owned()];
    let mut bytes = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "seg") {
                bytes += entry.metadata().map_or(0, |m| m.len().saturating_sub(64));
            }
        }
    }
    bytes
}

/// A sweep of one agent; what of its traces lay with the coordinator while the agent held some and was sending.
fn swept(upload: &str) -> (Results, u64) {
    let engine = Engine::start(&["--fixed-ttft-ms", "5"]);
    let address = free_port().to_string();
    let running = Coordinator::run_one()
        .relaxed()
        .engine(engine.url())
        .line("--rate 20 --requests 100 --max-tokens 4")
        .args(["--agents", "1", "--listen", &address, "--upload", upload])
        .start();
    let agent = Agent::start("one", &address, &[]);
    let held = || {
        let listed = parsed(&agent.spool("ls --json").stdout);
        list(&listed, "/segments").iter().map(|s| count(s, "/traces")).sum::<u64>()
    };
    // Of a hundred over five seconds. Those that come during the trial come within a part of a second: they are waited for,
    // so that it is seen that this would notice them.
    let before = eventually("traces in the spool of an agent that sends", || {
        let stored = stored(running.data());
        let enough = if during(upload) { stored > 0 } else { engine.log().len() < 90 };
        (held() >= 20 && enough).then_some(stored)
    });
    let finished = running.finish().expect_code(0);
    let results = finished.results();
    let seen = by(&engine.log_of(results.run(), 0), "/outcome");
    assert_eq!(seen.values().sum::<u64>(), 100, "{seen:?}");
    (results, before)
}

fn during(upload: &str) -> bool {
    upload == "during"
}

#[test]
fn traces_that_wait_for_the_drain_are_not_with_the_coordinator_before_and_give_the_same_report() {
    let (after, early) = swept("after");
    assert_eq!(early, 0, "traces came before the drain");
    let (during, early) = swept("during");
    assert!(early > 0, "what comes during a trial is not seen either");
    for results in [&after, &during] {
        let summary = results.summary();
        assert_eq!(text(summary, "/validity/verdict"), "valid", "{:#}", summary["validity"]);
        assert_eq!((count(summary, "/requests"), count(summary, "/successful")), (100, 100));
    }
    let plan = |results: &Results| results.report["experiment"]["plan"]["upload"].clone();
    assert_eq!((plan(&after), plan(&during)), ("after".into(), "during".into()));
    // What was scheduled, sent and answered.
    let same = |results: &Results| {
        let traces = results.traces_of(0).into_iter();
        let mut facts: Vec<String> = traces
            .map(|t| format!("{} {} {} {}", t["index"], t["row"], t["outcome"], t["output_tokens"]))
            .collect();
        facts.sort();
        (results.trials()[0]["schedule_sha256"].clone(), facts)
    };
    assert_eq!(same(&after), same(&during));
}
