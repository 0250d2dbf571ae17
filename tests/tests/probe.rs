//! `coordinator probe` against every scripted engine: what it is, and what it can do.

use std::time::Duration;

use engines::{Options, Scripted};
use plimsoll_tests::{Coordinator, list, text};
use serde_json::{Value, json};

/// The finding of each capability, in the order of [`CAPABILITIES`]: y, n or ? (could not be found out).
const EXPECTED: &[(&str, &str)] = &[
    ("vllm", "yyyyyyyy"),
    ("sglang", "yyyyyyyy"),
    ("llamacpp", "yyyyyyny"),
    ("tabbyapi", "y?yynnn?"),
    ("tensorrt-llm", "yyyyyyny"),
    ("lmdeploy", "y?nyynny"),
    ("dynamo", "yyyyyyyy"),
    ("ollama", "y?nnynn?"),
    ("tgi", "y?nnynny"),
    ("mistralrs", "n?nnnnn?"),
    ("transformers", "y?nnynn?"),
    ("serve_py", "y?n?y?n?"),
];

const CAPABILITIES: [&str; 8] = [
    "usage",
    "token_counts",
    "logprobs",
    "ignore_eos",
    "seed",
    "token_id_prompts",
    "cache_reset",
    "abort_on_disconnect",
];

/// With a pause between writes, so that an answer can be seen to run.
fn engine(name: &str) -> Scripted {
    let pace = Options { pace: Duration::from_millis(2), ..Options::default() };
    let engine = engines::named(name).unwrap_or_else(|| panic!("no engine {name}"));
    Scripted::with(engine, pace)
}

fn probe(engine: &Scripted, options: &str) -> Value {
    let finished =
        Coordinator::probe().engine(engine.url()).line("--format json").line(options).finish().expect_code(0);
    serde_json::from_str(&finished.ended.stdout).unwrap_or_else(|e| panic!("{e}: {}", finished.story()))
}

#[test]
fn each_engine_is_recognised_and_what_it_can_do_is_found_by_trying() {
    let all: Vec<&str> = engines::all().iter().map(|e| e.name()).collect();
    assert_eq!(EXPECTED.iter().map(|(name, _)| *name).collect::<Vec<_>>(), all);
    for (name, expected) in EXPECTED {
        let engine = engine(name);
        let probe = probe(&engine, "");
        let dialect = if *name == "serve_py" { "openai" } else { name };
        assert_eq!(probe["dialect"], dialect, "{probe:#}");
        assert_eq!(probe["recognised_by"].is_null(), *name == "serve_py", "{probe:#}");
        assert!(list(&probe, "/models").contains(&json!(engines::MODEL)), "{probe:#}");
        assert_eq!(probe["ready"]["status"], 200, "{name}: {probe:#}");
        let found: String = (CAPABILITIES.iter())
            .map(|capability| match text(&probe, &format!("/capabilities/{capability}/verdict")) {
                "yes" => 'y',
                "no" => 'n',
                _ => '?',
            })
            .collect();
        assert_eq!(found, *expected, "{name}: {:#}", probe["capabilities"]);
        // Within a few requests, none of which the engine refused as malformed.
        let asked = engine.requests();
        let sent = asked.iter().filter(|r| r.method == "POST" && r.path.starts_with("/v1/")).count() as u64;
        assert_eq!(probe["requests"].as_u64(), Some(sent), "{name}");
        assert!(sent <= 11, "{name}: {sent} requests");
    }
}

#[test]
fn nothing_that_generates_is_asked_but_the_requests_that_are_counted() {
    let engine = engine("sglang");
    let brief = probe(&engine, "--brief");
    assert_eq!(brief["requests"], 1, "{brief:#}");
    let asked: Vec<String> = engine.requests().iter().map(|r| r.path.clone()).collect();
    // SGLang generates a token for whoever asks whether it is healthy.
    assert!(asked.iter().all(|path| !path.starts_with("/health")), "{asked:?}");
    assert!(!brief["settings"].is_null() && !brief["engine_version"].is_null(), "{brief:#}");
    assert_eq!(list(&brief, "/models"), [json!(engines::MODEL)]);
}

#[test]
fn a_sweep_stores_what_the_probe_found_and_speaks_the_dialect() {
    let engine = engine("transformers");
    // It refuses fields that it does not know, and never sends the end mark.
    let finished = Coordinator::sweep()
        .args(["--late-budget", "1s", "--warmup", "0"])
        .engine(engine.url())
        .workload(&[json!({"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 8})])
        .line("--rates 20 --requests 20 --repeats 1")
        .finish()
        .expect_code(0)
        .expect_said(&["transformers serve, transformers:"]);
    let results = finished.results();
    assert_eq!(results.outcomes()["success"], 20, "{:?}", results.outcomes());
    let record = &results.report["experiment"];
    assert_eq!(record["probe"]["dialect"], "transformers");
    assert_eq!(record["plan"]["dialect"], "transformers");
    assert_eq!(record["engine"]["name"], "transformers serve");
    let missing = list(record, "/missing");
    assert!(
        !missing.contains(&json!("engine.name")) && !missing.contains(&json!("model.name")),
        "{missing:?}"
    );
}

#[test]
fn the_dialect_can_be_told_and_what_the_engine_cannot_do_is_refused_before_the_first_trial() {
    let engine = engine("transformers");
    let sweep = |options: &str| {
        Coordinator::sweep()
            .relaxed()
            .engine(engine.url())
            .workload(&[json!({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8})])
            .line("--rates 20 --requests 5 --repeats 1")
            .line(options)
            .finish()
    };
    let refused = sweep("--ignore-eos").expect_code(1);
    assert!(refused.ended.stderr.contains("transformers serve refuses ignore_eos"), "{}", refused.story());
    refused.expect_no_results();
    // As any server: it sends what this one refuses, and waits for an end mark that never comes.
    let told = sweep("--ignore-eos --dialect openai").expect_code(1);
    assert!(told.ended.stderr.contains("http_status: status 422"), "{}", told.story());
    let unknown = sweep("--dialect vlm").expect_code(2);
    assert!(unknown.ended.stderr.contains("is no dialect; known are vllm, sglang"), "{}", unknown.story());
}

#[test]
fn an_engine_that_is_not_there_is_an_error_that_says_so() {
    let engine = engine("vllm");
    let url = engine.url().to_owned();
    drop(engine);
    let finished = Coordinator::probe().engine(&url).finish().expect_code(1);
    assert!(finished.ended.stderr.contains("connection refused"), "{}", finished.story());
    assert_eq!(finished.ended.stdout, "");
}
