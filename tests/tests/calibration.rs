//! `agent calibrate`: what it finds keeps to its schema and to itself, whatever else this machine does.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use plimsoll_tests::Process;
use plimsoll_tests::binary;
use plimsoll_tests::schema::{CALIBRATION, keeps_to, parsed, validator};
use serde_json::Value;

fn calibrate(spool: &Path, options: &[&str]) -> plimsoll_tests::Ended {
    let mut command = Command::new(binary("agent"));
    command.args(["calibrate", "--quick", "--spool"]).arg(spool).args(options);
    // Some ten seconds of load, and more where others have the cores.
    Process::start(command).wait_within(Duration::from_secs(240))
}

fn number(value: &Value, pointer: &str) -> f64 {
    value
        .pointer(pointer)
        .and_then(Value::as_f64)
        .unwrap_or_else(|| panic!("no number {pointer} in {value:#}"))
}

#[test]
fn a_calibration_keeps_to_its_schema_and_to_itself() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let ended = calibrate(&spool, &["--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.story());
    let found = parsed(&ended.stdout);
    keeps_to(&validator(CALIBRATION), &found, "agent calibrate --json");
    let kept = std::fs::read_to_string(spool.join("calibration.json")).unwrap();
    assert_eq!(parsed(&kept), found);
    // Nothing else is left, and an agent's command does not take it for an agent.
    let left: Vec<_> = std::fs::read_dir(&spool).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["calibration.json"]);
    // By CPU time, which a neighbour blurs less than wall time: events cost something.
    assert!(number(&found, "/costs/event_cpu_seconds") > 0.0, "{found:#}");
    assert!(number(&found, "/costs/paced_event_cpu_seconds") > 0.0);
    let per_request = number(&found, "/costs/request_cpu_seconds")
        + number(&found, "/reference/events_per_answer") * number(&found, "/costs/paced_event_cpu_seconds");
    let ceiling = number(&found, "/reference/ceiling_requests_per_second");
    assert!((ceiling * per_request - 1.0).abs() < 1e-6, "{found:#}");
    let rates: Vec<f64> =
        (0..3).map(|n| number(&found, &format!("/levels/{n}/requests_per_second"))).collect();
    assert!(rates.windows(2).all(|pair| pair[0] < pair[1]), "{rates:?}");
    // Every request of the level has its part in the error: the engine's books and the agent's are of the same requests.
    assert_eq!(
        found.pointer("/error/ttft_seconds/n"),
        found.pointer("/levels/1/dispatch_lateness_seconds/n")
    );
    // What is stamped after it was written, on one clock, is never early.
    assert!(number(&found, "/error/read_seconds/p50") > 0.0);
    assert!(number(&found, "/error/ttft_seconds/p50") >= number(&found, "/error/read_seconds/p50"));
}

#[test]
fn a_calibration_that_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let ended = calibrate(&file, &[]);
    assert_eq!(ended.code, Some(1), "{}", ended.story());
    assert!(ended.stderr.contains("agent calibrate: "), "{}", ended.story());
    let ended = calibrate(folder.path(), &["--fast"]);
    assert_eq!(ended.code, Some(2), "{}", ended.story());
}
