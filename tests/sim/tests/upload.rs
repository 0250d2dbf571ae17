//! Traces that wait for the drain, in runs that nothing disturbs.

// Clippy allows it in tests; to it a helper beside them is none.
#![allow(clippy::unwrap_used)]

use common::fleet::Upload;
use serde_json::Value;
use sim::world::{run, upload};

/// What the first seed reports whose traces are delivered then. That none came early is judged in every run.
fn report(when: Upload) -> Value {
    let seed = (0..).find(|seed| upload(*seed) == when).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let found = run(seed, folder.path(), true);
    assert_eq!(found.broken, Vec::<String>::new());
    serde_json::from_str(&std::fs::read_to_string(folder.path().join("report.json")).unwrap()).unwrap()
}

#[test]
fn a_run_whose_traces_wait_for_the_drain_is_whole() {
    for when in [Upload::After, Upload::During] {
        let report = report(when);
        assert_eq!(report["experiment"]["plan"]["upload"], when.name());
        let trials = report["trials"].as_array().unwrap();
        assert_eq!(trials.len(), 2);
        for trial in trials {
            let books = &trial["summary"]["conservation"];
            assert_eq!(books["scheduled"], books["recorded"], "{books:#}");
        }
    }
}
