//! `coordinator export`: tables that agree with the report, and the snippets of docs/exports.md reading them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plimsoll_tests::schema::{EXPORT, keeps_to, validator};
use plimsoll_tests::{Coordinator, Engine, Finished, binary, count, list, number, text};
use serde_json::{Value, json};

/// Names the folder that `make export-readers` makes.
const READERS: &str = "PLIMSOLL_EXPORT_READERS";

fn sweep() -> Finished {
    let engine = Engine::start(&["--fixed-ttft-ms", "20", "--fixed-itl-ms", "5"]);
    Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "here, \"we\"\ngo", "max_tokens": 16})])
        .line("--rates 10,30 --requests 60 --repeats 1 --local-agents 2 --dialect vllm")
        .finish()
        .expect_code(0)
}

fn export(finished: &Finished, options: &str) -> Output {
    let mut command = Command::new(binary("coordinator"));
    command.args(["export", "latest", "--data"]).arg(finished.data()).args(options.split_whitespace());
    command.current_dir(finished.folder()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

#[track_caller]
fn exported(finished: &Finished, options: &str) -> String {
    let said = export(finished, options);
    assert!(said.status.success(), "{options}: {}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8_lossy(&said.stderr).into_owned()
}

/// Lines of JSON.
#[track_caller]
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn each_table_has_the_rows_of_the_run() {
    let finished = sweep();
    let results = finished.results();
    let notes = exported(&finished, "--what all --format jsonl --out out");
    // No GPU was there: no file, and it is said.
    assert!(notes.contains("note: power: nothing of it was recorded"), "{notes}");
    let out = finished.folder().join("out");
    assert!(!out.join("power.jsonl").exists());
    let traces = lines(&out.join("traces.jsonl"));
    assert_eq!(traces.len(), results.traces.len());
    for (row, trace) in traces.iter().zip(&results.traces) {
        let mut expected = trace.clone();
        let trial = &results.trials()[count(trace, "/trial") as usize];
        expected["validity"] = trial["summary"]["validity"]["verdict"].clone();
        expected["offered_rate"] = trial["offered_rate"].clone();
        expected["cut"] = json!(false);
        assert_eq!(row, &expected);
    }
    let events = lines(&out.join("events.jsonl"));
    let stamps: Vec<&Value> = results.traces.iter().flat_map(|t| list(t, "/content_ns")).collect();
    assert!(events.iter().map(|e| &e["at_ns"]).eq(stamps.iter().copied()));
    assert!(events.iter().all(|e| e["gap_ns"].is_null() == (e["event"] == 0) && e["channel"] == "answer"));
    let recorded = finished.telemetry();
    for (table, kind) in [("host", "host"), ("engine", "engine")] {
        let rows = lines(&out.join(format!("{table}.jsonl")));
        let expected = recorded.iter().filter(|line| line["kind"] == kind).count();
        assert!(rows.len() == expected && expected > 0, "{table}: {} of {expected}", rows.len());
    }
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(out.join("export.json")).expect("a manifest")).expect("JSON");
    keeps_to(&validator(EXPORT), &manifest, "export.json");
    assert_eq!((text(&manifest, "/run_id"), text(&manifest, "/schema_version")), (results.run(), "1"));
    let rows = list(&manifest, "/tables").iter().find(|t| t["table"] == "events").map(|t| count(t, "/rows"));
    assert_eq!(rows, Some(events.len() as u64));
}

#[test]
fn what_cannot_be_exported_says_why_and_leaves_nothing() {
    let finished = sweep();
    std::fs::write(finished.folder().join("taken"), "a file").expect("a file");
    let said = export(&finished, "--out taken");
    assert!(!said.status.success());
    let told = String::from_utf8_lossy(&said.stderr);
    assert!(told.contains("coordinator: taken: "), "{told}");
    // A disk that is full: what is written beside the file goes to one.
    let full = finished.folder().join("full");
    std::fs::create_dir(&full).expect("a folder");
    for (format, file) in [("csv", "events.csv"), ("parquet", "events.parquet"), ("jsonl", "events.jsonl")] {
        std::os::unix::fs::symlink("/dev/full", full.join(format!("{file}.part"))).expect("a link");
        let said = export(&finished, &format!("--what events --format {format} --out full"));
        let told = String::from_utf8_lossy(&said.stderr);
        assert!(!said.status.success() && told.contains(&format!("full/{file}: ")), "{told}");
        assert!(told.contains("No space left"), "{told}");
        let left: Vec<_> = std::fs::read_dir(&full).expect("a folder").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// The Python snippets of the page, in their order.
fn snippets() -> Vec<String> {
    let page = include_str!("../../docs/exports.md");
    let blocks = page.split("```python\n").skip(1);
    blocks.map(|block| block.split("```").next().expect("its end").to_owned()).collect()
}

fn python() -> Option<PathBuf> {
    let Some(folder) = std::env::var_os(READERS).filter(|f| !f.is_empty()).map(PathBuf::from) else {
        println!("skipped: {READERS} is not set; `make test` installs what reads exports and runs this test");
        return None;
    };
    let python = folder.join("venv/bin/python");
    assert!(python.is_file(), "{READERS} is set and {} is missing: `make export-readers`", python.display());
    Some(python)
}

#[test]
fn what_the_docs_show_reads_the_numbers_of_the_report() {
    let Some(python) = python() else { return };
    let finished = sweep();
    let _ = exported(&finished, "--format csv --out tables --what all");
    let _ = exported(&finished, "--format parquet --out tables --what all");
    let results = finished.results();
    let snippets = snippets();
    assert_eq!(snippets.len(), 3, "DuckDB, pandas and polars");
    for snippet in snippets {
        let mut command = Command::new(&python);
        command.arg("-c").arg(&snippet).current_dir(finished.folder().join("tables"));
        let said = command.output().expect("python");
        let table = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success(), "{snippet}\n{}", String::from_utf8_lossy(&said.stderr));
        let mut rows = table.lines().filter(|line| !line.is_empty());
        assert_eq!(rows.next(), Some("trial,requests,p50,p99,goodput"), "{snippet}");
        let rows: Vec<Vec<f64>> =
            rows.map(|row| row.split(',').map(|v| v.parse().expect("a number")).collect()).collect();
        assert_eq!(rows.len(), results.trials().len(), "{table}");
        for (row, trial) in rows.iter().zip(results.trials()) {
            let summary = &trial["summary"];
            let expected = [
                count(trial, "/trial") as f64,
                count(summary, "/requests") as f64,
                number(summary, "/latency_seconds/ttft/p50"),
                number(summary, "/latency_seconds/ttft/p99"),
                number(summary, "/goodput_requests_per_second"),
            ];
            let near = row.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-9 * b.abs());
            assert!(near, "{row:?} is not {expected:?}:\n{snippet}");
        }
    }
}
