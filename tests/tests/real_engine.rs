//! A real llama.cpp server: what is counted is what the server itself counts.
//!
//! Skipped, and said to be, where no real engine is set up.

use plimsoll_tests::{
    Coordinator, Finished, LlamaServer, Results, brief, count, counts, eventually, list, text,
};
use serde_json::{Value, json};

/// Agents, each of which sends one probing request before the first trial.
const AGENTS: u64 = 2;

/// The server's own totals.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Totals {
    predicted: u64,
    prompt: u64,
}

impl Totals {
    fn of(server: &LlamaServer) -> Self {
        Self {
            predicted: server.counter("tokens_predicted_total"),
            prompt: server.counter("prompt_tokens_total") + server.counter("prompt_tokens_cached_total"),
        }
    }
}

/// Rows that ask for different numbers of tokens, the first for the fewest.
fn sweep(server: &LlamaServer, fewest: u64) -> Coordinator {
    let row = |n: u64| json!({"prompt": format!("{n} ba ke lo mi nu"), "max_tokens": fewest + 5 * n});
    Coordinator::sweep()
        .relaxed()
        .engine(server.url())
        .workload(&(0..8).map(row).collect::<Vec<_>>())
        .line("--rates 10,20 --requests 24 --repeats 1 --logprobs")
        .args(["--local-agents".to_owned(), AGENTS.to_string()])
}

/// Runs it, and holds the sum over its traces, and over the probing requests, against the server's totals. A probing
/// request carries the first row, and must be one whose answer has all the tokens that were asked for.
fn counted(server: &LlamaServer, coordinator: Coordinator) -> (Finished, Results) {
    let before = Totals::of(server);
    let finished = coordinator.finish().expect_code(0);
    let results = finished.results();
    let sum = |field: &str| results.traces.iter().map(|t| count(t, field)).sum::<u64>();
    let first = results.traces.iter().find(|t| t["row"] == 0).expect("an arrival with the first row");
    let expected = Totals {
        predicted: before.predicted + sum("/output_tokens") + AGENTS * count(first, "/requested_tokens"),
        prompt: before.prompt + sum("/prompt_tokens") + AGENTS * count(first, "/prompt_tokens"),
    };
    let mut last = before;
    eventually(&format!("the server's totals to be {expected:?}; before {before:?}, last {last:?}"), || {
        last = Totals::of(server);
        (last == expected).then_some(())
    });
    (finished, results)
}

fn all_counted_by_usage(results: &Results) {
    for trial in results.trials() {
        let summary = &trial["summary"];
        assert_eq!(summary["successful"], summary["requests"], "{summary:#}");
        assert_eq!(counts(summary, "/token_count_sources")["usage"], count(summary, "/requests"));
    }
}

#[test]
fn tokens_are_events_are_usage_are_the_servers_counters_and_the_gaps_are_proven() {
    let Some(server) = LlamaServer::start("ascii", 4) else { return };
    let (finished, results) =
        counted(&server, sweep(&server, 6).line("--ignore-eos --slo ttft=20s --slo itl=20s"));
    all_counted_by_usage(&results);
    for trace in &results.traces {
        let tokens = count(trace, "/output_tokens");
        assert_eq!(tokens, count(trace, "/requested_tokens"), "{}", brief(trace));
        assert_eq!(tokens, list(trace, "/content_ns").len() as u64, "{}", brief(trace));
        assert_eq!(trace["itl_evidence"], "proven", "{}", brief(trace));
    }
    for trial in results.trials() {
        let summary = &trial["summary"];
        assert_eq!(summary["itl_proven_requests"], summary["successful"]);
        let gaps = count(summary, "/output_tokens") - count(summary, "/successful");
        assert_eq!(count(summary, "/latency_seconds/itl/n"), gaps);
    }
    let knee = &results.report["knee"];
    assert_eq!(knee["case"], "at_or_above_highest", "{knee:#}");
    let shown = finished.ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(text(knee, "/text")) && shown.contains("The knee is"), "{shown}");
}

#[test]
fn answers_that_end_by_themselves_are_counted_as_the_server_counts_them() {
    let Some(server) = LlamaServer::start("eos", 4) else { return };
    // At this temperature the end token comes at any place.
    let random = "{\"temperature\": 1.5, \"seed\": 3}";
    // An answer of one token cannot be shorter.
    let (_, results) = counted(&server, sweep(&server, 1).file("--extra-body", "random.json", random));
    all_counted_by_usage(&results);
    let ended: Vec<_> = results.traces.iter().filter(|t| t["finish_reason"] == "stop").collect();
    assert!(ended.len() > 10, "only {} answers ended by themselves", ended.len());
    for trace in ended {
        assert!(count(trace, "/output_tokens") <= count(trace, "/requested_tokens"));
        // The end token has no text.
        let events = list(trace, "/content_ns").len() as u64;
        assert_eq!(count(trace, "/output_tokens"), events + 1, "{}", brief(trace));
        assert_eq!(trace["short_output"], false, "only what was to go on can be too short");
    }
}

#[test]
fn tokens_that_the_server_holds_back_are_counted_and_their_gaps_are_not_proven() {
    let Some(server) = LlamaServer::start("utf8", 4) else { return };
    let (_, results) = counted(&server, sweep(&server, 6).line("--ignore-eos"));
    all_counted_by_usage(&results);
    let held_back = |t: &&Value| count(t, "/output_tokens") != list(t, "/content_ns").len() as u64;
    let traces: Vec<_> = results.traces.iter().filter(held_back).collect();
    assert!(!traces.is_empty(), "the server held no token back");
    for trace in traces {
        assert_ne!(trace["itl_evidence"], "proven", "{}", brief(trace));
        assert!(trace["largest_itl_seconds"].is_null(), "{}", brief(trace));
    }
}
