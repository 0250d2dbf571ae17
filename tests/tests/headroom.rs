//! A load is held against what the agents' hosts can carry, by their calibrations, before anything of it is sent.

use std::path::Path;

use plimsoll_tests::{Coordinator, Engine, Finished, list};
use serde_json::{Value, json};

/// A calibration of `host` by which an event costs 10 ms. What is not looked at is as it may be.
fn calibration(host: &Value) -> String {
    let lateness = json!({ "n": 1, "p50": 0.0, "p99": 0.0, "max": 0.0 });
    let calibration = json!({
        "schema_version": "1", "agent_version": env!("CARGO_PKG_VERSION"), "host": host,
        "taken_unix_seconds": 1, "seconds": 1.0, "quick": true, "load_before": null, "engine_core": null,
        "costs": {
            "request_cpu_seconds": 0.001, "event_cpu_seconds": 0.01, "paced_event_cpu_seconds": 0.01,
            "request_wall_seconds": 0.001, "event_wall_seconds": 0.01
        },
        "ceilings": {
            "requests_per_second": 1.0, "long_requests_per_second": 1.0, "events_per_answer": 128,
            "events_per_second": 1.0, "paced_events_per_second": 1.0, "streams": 0, "more_streams_are_late": true
        },
        "reference": {
            "events_per_answer": 32, "ttft_seconds": 0.02, "gap_seconds": 0.01, "ceiling_requests_per_second": 1.0
        },
        "levels": [],
        "error": {
            "requests_per_second": 1.0, "ttft_seconds": lateness, "read_seconds": lateness, "gap_seconds": lateness
        }
    });
    calibration.to_string()
}

/// One trial at 20/s of 10 tokens, by an agent that reads its calibration from `file`.
fn run(engine: &Engine, file: &Path, options: &str) -> Finished {
    let path = file.to_str().expect("a temporary folder has a name in UTF-8");
    Coordinator::run_one()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({ "prompt": "how much may it carry", "max_tokens": 10 })])
        .line("--rate 20 --requests 10 --ignore-eos")
        .line(options)
        .env("PLIMSOLL_CALIBRATION", path)
        .finish()
}

#[test]
fn a_load_above_the_ceiling_is_refused_unless_told_otherwise() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("calibration.json");
    // Of another host: told, and not held against anything.
    let elsewhere = json!({ "hostname": "h", "cpu_model": "an abacus", "cpus": 1, "kernel": "none" });
    std::fs::write(&file, calibration(&elsewhere)).unwrap();
    let stale = run(&engine, &file, "").expect_code(0);
    let stale = stale.expect_said(&[
        "the calibration of local-1 is stale: it was taken on a CPU an abacus",
        "agent calibrate",
    ]);
    let results = stale.results();
    let here = &list(&results.report, "/experiment/agents")[0];
    let host = json!({
        "hostname": here["hostname"], "cpu_model": here["cpu_model"], "cpus": here["cpus"], "kernel": here["kernel"]
    });
    // Of this host: 20 requests a second of 101 ms take two cores.
    std::fs::write(&file, calibration(&host)).unwrap();
    let before = engine.log().len();
    let refused = run(&engine, &file, "").expect_code(1).expect_said(&[
        "agent local-1 would need 202% of a core for its 20 of 20 requests/s with up to 10 tokens each",
        "its ceiling is 9.9 requests/s",
        "stay below 5.9 requests/s in all",
        "--allow-over-ceiling",
    ]);
    refused.expect_no_results();
    let trials = engine
        .log()
        .split_off(before)
        .into_iter()
        .filter(|e| e["request_id"].as_str().is_some_and(|id| !id.starts_with("check/")));
    assert_eq!(trials.count(), 0, "something of a refused load was sent");
    let allowed = run(&engine, &file, "--allow-over-ceiling").expect_code(0);
    allowed.expect_said(&["warning: agent local-1 would need 202% of a core", "local-1 202% (limit 60%)"]);
    // Nobody knows anything: one line.
    let unknown = Coordinator::run_one()
        .relaxed()
        .engine(engine.url())
        .line("--rate 20 --requests 10 --local-agents 2")
        .finish();
    unknown.expect_code(0).expect_said(&["local-1, local-2 were never calibrated: agent calibrate"]);
}
