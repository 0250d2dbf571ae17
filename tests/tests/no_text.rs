//! `--no-text`: what was asked and answered is kept nowhere, only how long it was and its hash.

use std::path::PathBuf;

use plimsoll_tests::{Coordinator, Engine, Finished, count, files_with, text};
use serde_json::json;

const MARKER: &str = "barquentine";

fn run(engine: &Engine, options: &str) -> Finished {
    Coordinator::run_one()
        .relaxed()
        .engine(engine.url())
        .secret(
            "--workload",
            &format!("{}\n", json!({"prompt": format!("a {MARKER} under sail"), "max_tokens": 12})),
        )
        .line("--rate 40 --requests 20 --ignore-eos")
        .line(options)
        .env("RUST_LOG", "debug")
        .finish()
        .expect_code(0)
}

#[test]
fn neither_prompt_nor_output_is_kept_anywhere() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1", "--fault", "http-400:every=7"]);
    let with = run(&engine, "");
    let kept = with.results();
    let success = kept.traces.iter().find(|t| t["outcome"] == "success").unwrap();
    let output = text(success, "/output");
    // The search finds what is there: in the files of traces, compressed or not, and in the kept workload.
    let found = |finished: &Finished, what: &str| -> Vec<PathBuf> { files_with(finished.data(), what) };
    assert!(found(&with, MARKER).iter().any(|path| path.ends_with("workload.jsonl")));
    let holders = found(&with, output);
    assert!(holders.iter().any(|path| path.ends_with("traces.jsonl")), "{holders:?}");
    assert!(holders.iter().any(|path| path.extension().is_some_and(|e| e == "seg")), "{holders:?}");

    let without = run(&engine, "--no-text");
    let results = without.results();
    // The engine gives the same prompt the same answer: its hash and length are what is left of it.
    let same = results.traces.iter().find(|t| t["outcome"] == "success").unwrap();
    assert_eq!(same["output_hash"], success["output_hash"]);
    assert_eq!(count(same, "/output_chars"), output.chars().count() as u64);
    for trace in &results.traces {
        assert!(trace["output"].is_null() && trace["error_body"].is_null(), "{trace}");
    }
    for what in [MARKER, output] {
        let holders = found(&without, what);
        assert!(holders.is_empty(), "{what:?} is in {holders:?}");
        assert!(!without.story().contains(what), "{what:?} was said: {}", without.story());
    }
}
