//! The files that a run leaves: every field that is promised, with its type, and a line for every arrival.

use plimsoll_tests::{CLOCKS, Coordinator, Engine, brief, count, list, number, text};
use serde_json::{Value, json};

/// What a field holds.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    Count,
    Number,
    /// A number, or null where it is undefined.
    Maybe,
    Object,
    Array,
    Bool,
}

fn is(value: &Value, kind: Kind) -> bool {
    match kind {
        Kind::Text => value.is_string(),
        Kind::Count => value.is_u64(),
        Kind::Number => value.is_number(),
        Kind::Maybe => value.is_number() || value.is_null(),
        Kind::Object => value.is_object(),
        Kind::Array => value.is_array(),
        Kind::Bool => value.is_boolean(),
    }
}

#[track_caller]
fn all(value: &Value, kind: Kind, keys: &str) {
    for key in keys.split_whitespace() {
        let field = value.get(key).unwrap_or_else(|| panic!("no field {key} in {value:#}"));
        assert!(is(field, kind), "{key} is no {kind:?} but {field}");
    }
}

const LATENCIES: &str = "ttft service_ttft tpot itl chunk_gap e2e client_queue connect dispatch_lateness first_answer \
                         first_reasoning engine_queue engine_first_token engine_time engine_overhead";

fn summary_is_complete(summary: &Value) {
    all(summary, Kind::Count, "requests successful failed requests_with_token_counts good");
    all(
        summary,
        Kind::Number,
        "duration_seconds offered_rate_per_second scheduled_rate_per_second achieved_rate_per_second \
         request_throughput_per_second output_token_throughput_per_second input_token_throughput_per_second \
         goodput_requests_per_second slo_attainment",
    );
    all(
        summary,
        Kind::Object,
        "failures_by_kind token_count_sources slo_lost_by_cause in_flight finish_reasons latency_seconds validity \
         conservation",
    );
    all(summary, Kind::Array, "agents objectives");
    all(&summary["in_flight"], Kind::Number, "mean peak");
    all(&summary["conservation"], Kind::Count, "scheduled recorded missing duplicates unknown");
    all(
        &summary["token_evidence"],
        Kind::Count,
        "events_with_one_token events_with_several_tokens events_without_token events_with_unknown_tokens \
         events_without_text counts_compared counts_differ retokenized_compared retokenized_differ \
         prompt_lengths_compared prompt_lengths_differ requests_with_engine_time",
    );
    all(&summary["validity"], Kind::Text, "verdict");
    all(&summary["validity"], Kind::Array, "reasons");
    all(&summary["latency_seconds"], Kind::Object, LATENCIES);
    for name in LATENCIES.split_whitespace() {
        let distribution = &summary["latency_seconds"][name];
        all(distribution, Kind::Count, "n");
        all(distribution, Kind::Maybe, "mean p50 p90 p95 p99 p999 max");
        if count(distribution, "/n") == 0 {
            continue;
        }
        let points =
            ["p50", "p90", "p95", "p99", "p999", "max"].map(|p| number(distribution, &format!("/{p}")));
        assert!(points.is_sorted() && points[0] >= 0.0, "{name}: {distribution}");
    }
    for agent in list(summary, "/agents") {
        all(agent, Kind::Text, "name");
        all(agent, Kind::Count, "requests failed");
        all(agent, Kind::Number, "share clock_offset_seconds clock_bound_seconds start_skew_seconds");
        all(agent, Kind::Object, "dispatch_lateness_seconds");
        all(agent, Kind::Bool, "lost");
    }
    let shares: f64 = list(summary, "/agents").iter().map(|a| number(a, "/share")).sum();
    assert!((shares - 1.0).abs() < 1e-9, "the shares add up to {shares}");
}

fn trace_is_complete(trace: &Value) {
    all(
        trace,
        Kind::Count,
        "trial index row requested_tokens output_tokens prompt_tokens request_bytes response_bytes data_events \
         coalesced_events reconnections output_chars http_status",
    );
    all(
        trace,
        Kind::Text,
        "agent outcome output_tokens_source itl_evidence finish_reason output_hash output",
    );
    all(trace, Kind::Count, &CLOCKS.join(" "));
    all(
        trace,
        Kind::Number,
        "ttft_seconds service_ttft_seconds e2e_seconds client_queue_seconds connect_seconds",
    );
    all(
        trace,
        Kind::Maybe,
        "dispatch_lateness_seconds tpot_seconds largest_itl_seconds cached_tokens stream_tokens retokenized_tokens \
         sent_prompt_tokens engine_queue_seconds engine_first_token_seconds engine_generation_seconds \
         engine_overhead_seconds",
    );
    all(&trace["event_tokens"], Kind::Count, "one many none unknown textless");
    all(trace, Kind::Bool, "done_seen waited_for_permit short_output stream_coalesced synthetic");
    all(trace, Kind::Array, "content_ns content_channels");
    assert!(trace["failure_class"].is_null() && trace["failure_message"].is_null());
    let ns = |key: &str| count(trace, &format!("/{key}"));
    assert!(CLOCKS.map(ns).is_sorted(), "clocks out of order: {}", brief(trace));
    for (metric, to, from) in [
        ("ttft_seconds", "first_content_ns", "scheduled_ns"),
        ("service_ttft_seconds", "first_content_ns", "written_ns"),
        ("e2e_seconds", "finished_ns", "scheduled_ns"),
        ("connect_seconds", "connected_ns", "released_ns"),
    ] {
        let (said, is) = (number(trace, &format!("/{metric}")), (ns(to) - ns(from)) as f64 / 1e9);
        assert!((said - is).abs() < 1e-9, "{metric} is {said} and not {is}: {}", brief(trace));
    }
    let events = list(trace, "/content_ns");
    assert_eq!(
        (events.first(), events.last()),
        (trace.get("first_content_ns"), trace.get("last_content_ns"))
    );
    if !trace["tpot_seconds"].is_null() {
        let gaps = (count(trace, "/output_tokens") - 1) as f64;
        let is = (ns("last_content_ns") - ns("first_content_ns")) as f64 / 1e9 / gaps;
        assert!((number(trace, "/tpot_seconds") - is).abs() < 1e-9, "{}", brief(trace));
    }
}

#[test]
fn report_and_traces_have_every_field_that_is_promised() {
    let engine = Engine::start(&["--fixed-ttft-ms", "5", "--fixed-itl-ms", "3"]);
    let finished = Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "read the log", "max_tokens": 6}), json!({"prompt": "and the chart"})])
        .line(
            "--rates 20,40 --requests 40 --repeats 2 --local-agents 2 --ignore-eos --logprobs --max-tokens 9",
        )
        .line("--slo ttft=10s --slo p99:e2e=20s --max-concurrency 64 --seed 11")
        .file("--metadata", "experiment.json", "{\"engine\": {\"revision\": \"planted-revision\"}}")
        .finish()
        .expect_code(0);
    let results = finished.results();
    let report = &results.report;
    all(report, Kind::Text, "schema_version run_id");
    all(report, Kind::Object, "experiment knee");
    all(report, Kind::Array, "rates trials slos");
    assert_eq!(report["slos"], json!(["ttft=10s", "p99:e2e=20s"]));
    assert_eq!(results.trials().len(), 4);
    for (trial, recorded) in results.trials().iter().zip(list(report, "/experiment/trials")) {
        all(trial, Kind::Count, "trial repeat seed");
        all(trial, Kind::Text, "offered_rate schedule_sha256 workload_sha256");
        for key in ["trial", "seed", "schedule_sha256", "workload_sha256"] {
            assert_eq!(trial[key], recorded[key], "the record has another {key}");
        }
        summary_is_complete(&trial["summary"]);
        // With log probabilities for every event, every request's gaps are proven.
        assert_eq!(trial["summary"]["itl_proven_requests"], trial["summary"]["successful"]);
        // They are a count of their own beside usage, and the engine tells no lies.
        let evidence = &trial["summary"]["token_evidence"];
        assert_eq!(evidence["events_with_one_token"], trial["summary"]["content_events"]);
        assert_eq!(evidence["counts_compared"], trial["summary"]["successful"]);
        assert_eq!(evidence["counts_differ"], 0);
    }
    for rate in list(report, "/rates") {
        all(rate, Kind::Text, "offered_rate");
        all(rate, Kind::Count, "repeats trials_used requests failed good");
        all(rate, Kind::Number, "offered_rate_per_second slo_attainment");
        all(&rate["achieved_rate_per_second"], Kind::Number, "median min max");
        assert_eq!((count(rate, "/repeats"), count(rate, "/requests")), (2, 80));
    }
    assert!(text(report, "/run_id").len() > 8);
    assert!(report["experiment"].to_string().contains("planted-revision"), "--metadata is not in the record");
    results.traces.iter().for_each(trace_is_complete);
    // Repeats of a rate differ, and a repeat has the same schedule's shape at each rate.
    let digests: std::collections::BTreeSet<&str> =
        results.trials().iter().map(|t| text(t, "/schedule_sha256")).collect();
    assert_eq!(digests.len(), 4);
}

#[test]
fn a_prompt_of_token_ids_arrives_as_long_as_it_was_sent() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let finished = Coordinator::run_one()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt_token_ids": [5, 4, 3, 2, 1], "max_tokens": 2})])
        .line("--rate inf --requests 8 --api completions")
        .finish()
        .expect_code(0);
    let results = finished.results();
    for trace in &results.traces {
        assert_eq!(
            (count(trace, "/sent_prompt_tokens"), count(trace, "/prompt_tokens")),
            (5, 5),
            "{}",
            brief(trace)
        );
    }
    let evidence = &results.summary()["token_evidence"];
    assert_eq!(
        (count(evidence, "/prompt_lengths_compared"), count(evidence, "/prompt_lengths_differ")),
        (8, 0)
    );
    assert!(!finished.ended.stdout.contains("prompt_tokens"), "{}", finished.ended.stdout);
}

#[test]
fn reasoning_and_answer_begin_apart() {
    let engine =
        Engine::start(&["--fixed-ttft-ms", "5", "--fixed-itl-ms", "3", "--fault", "reasoning:every=2"]);
    let finished = Coordinator::run_one()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"messages": [{"role": "user", "content": "think, then say"}], "max_tokens": 8})])
        .line("--rate 50 --requests 20 --ignore-eos")
        .finish()
        .expect_code(0);
    let results = finished.results();
    let reasoned: Vec<_> = results.traces.iter().filter(|t| !t["first_reasoning_ns"].is_null()).collect();
    assert!(!reasoned.is_empty() && reasoned.len() < 20, "{} of 20 reasoned", reasoned.len());
    for trace in &reasoned {
        let ns = |key: &str| count(trace, &format!("/{key}"));
        assert!(ns("first_reasoning_ns") <= ns("first_answer_ns"), "{}", brief(trace));
        assert_eq!(ns("first_reasoning_ns"), ns("first_content_ns"), "{}", brief(trace));
    }
    let latency = &results.summary()["latency_seconds"];
    assert_eq!(count(latency, "/first_reasoning/n"), reasoned.len() as u64);
    assert_eq!(count(latency, "/first_answer/n"), 20);
    assert!(number(latency, "/first_answer/mean") >= number(latency, "/ttft/mean"));
}

#[test]
fn results_go_where_they_are_asked_for() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let finished = Coordinator::run_one()
        .relaxed()
        .engine(engine.url())
        .line("--rate inf --requests 8 --max-tokens 2 --out results/here")
        .finish()
        .expect_code(0);
    let folder = finished.folder().join("results/here");
    let results = plimsoll_tests::Results::read(&folder).unwrap();
    assert_eq!(results.trials().len(), 1);
    assert!(finished.ended.stdout.contains("results/here/report.json"), "{}", finished.ended.stdout);
}
