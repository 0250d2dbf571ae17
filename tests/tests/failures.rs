//! What an engine or a network can do wrong: each failure has its name and its count, as the engine's log has them.

use std::collections::BTreeMap;

use plimsoll_tests::{
    Coordinator, Engine, Results, arrival_order, brief, by, count, counts, eventually, list, number, text,
};
use serde_json::{Value, json};

/// The engine's fault, every how manieth request has it, what the request is then called, and whose fault that is.
const FAULTS: &[(&str, u32, &str, &str)] = &[
    ("http-500", 29, "http_status", "engine"),
    ("http-429", 31, "http_status", "engine"),
    ("error-event", 23, "error_event", "engine"),
    ("error-first", 37, "error_event", "engine"),
    ("abort", 19, "engine_aborted", "engine"),
    ("no-content", 41, "no_content", "engine"),
    ("truncated", 17, "truncated_stream", "engine"),
    ("clean-eof", 43, "truncated_stream", "engine"),
    ("malformed", 13, "malformed_stream", "engine"),
    ("negative-usage", 47, "malformed_stream", "engine"),
    ("hang", 11, "timeout_total", "engine"),
    ("drip", 53, "timeout_total", "engine"),
    ("stall", 7, "timeout_idle", "engine"),
    ("reset", 5, "reset", "network"),
];

/// Answers eight tokens, one every few milliseconds.
const PACE: [&str; 4] = ["--fixed-ttft-ms", "5", "--fixed-itl-ms", "3"];

fn engine_with(faults: &[String]) -> Engine {
    let mut options = PACE.to_vec();
    faults.iter().for_each(|fault| options.extend(["--fault", fault]));
    Engine::start(&options)
}

fn coordinator(engine: &Engine) -> Coordinator {
    Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "a long way round", "max_tokens": 8})])
        .line("--repeats 1 --ignore-eos --timeout 3s --idle-timeout 1500ms")
}

/// Each trace with what the engine's log says of its request.
fn beside_the_log<'a>(results: &'a Results, log: &'a [Value]) -> Vec<(&'a Value, &'a Value)> {
    let traces = results.traces_of(0);
    log.iter().zip(arrival_order(log)).map(|(entry, index)| (traces[index as usize], entry)).collect()
}

#[test]
fn every_failure_kind_has_its_name_and_its_count_as_in_the_engines_log() {
    let faults: Vec<String> =
        FAULTS.iter().map(|(fault, every, ..)| format!("{fault}:every={every}")).collect();
    let engine = engine_with(&faults);
    let finished =
        coordinator(&engine).line("--rates 80 --requests 240 --local-agents 2").finish().expect_code(0);
    let results = finished.results();
    let summary = results.summary();
    let log = engine.log_of(results.run(), 0);
    assert_eq!(log.len(), 240);

    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    let seen = by(&log, "/fault");
    for (fault, _, kind, class) in FAULTS {
        let of_it: Vec<_> =
            beside_the_log(&results, &log).into_iter().filter(|(_, e)| e["fault"] == *fault).collect();
        assert_eq!(of_it.len() as u64, seen.get(*fault).copied().unwrap_or(0));
        assert!(!of_it.is_empty(), "no request had the fault {fault}");
        for (trace, _) in &of_it {
            assert_eq!(trace["outcome"], *kind, "{fault}: {}", brief(trace));
            assert_eq!(trace["failure_class"], *class);
            assert!(!text(trace, "/failure_message").is_empty());
        }
        *expected.entry((*kind).to_owned()).or_default() += of_it.len() as u64;
    }
    assert_eq!(counts(summary, "/failures_by_kind"), expected);
    assert_eq!(count(summary, "/successful"), seen["null"]);
    // Without a fault of the generator the trial stands, and each loss has its cause.
    assert_eq!(text(summary, "/validity/verdict"), "valid");
    let mut lost = counts(summary, "/slo_lost_by_cause");
    lost.retain(|cause, _| expected.contains_key(cause));
    assert_eq!(lost, expected);
    let shown = finished.ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for (kind, n) in &expected {
        assert!(shown.contains(&format!("{kind} {n}")), "{kind} {n} is not in the report: {shown}");
    }
    what_came_before_the_failure_is_kept(&results, &log);
}

fn what_came_before_the_failure_is_kept(results: &Results, log: &[Value]) {
    for (trace, entry) in beside_the_log(results, log) {
        match entry["fault"].as_str() {
            Some("http-500" | "http-429") => {
                assert_eq!(trace["http_status"], entry["status"]);
                assert!(text(trace, "/error_body").contains("simulated fault"), "{}", brief(trace));
                assert!(trace["first_content_ns"].is_null());
            }
            Some("error-event") => {
                assert!(text(trace, "/error_body").contains("simulated fault"), "{}", brief(trace));
                assert_eq!(list(trace, "/content_ns").len() as u64, count(entry, "/output_tokens"));
            }
            Some("truncated" | "abort" | "stall" | "clean-eof") => {
                assert_eq!(list(trace, "/content_ns").len(), 3, "{}", brief(trace));
            }
            Some("hang" | "no-content" | "error-first") => {
                assert!(trace["first_content_ns"].is_null() && trace["ttft_seconds"].is_null());
                assert_eq!(trace["http_status"], 200);
            }
            _ => {}
        }
    }
}

/// An engine's oddities that are no failures: what they leave unknown is said to be unknown.
#[test]
fn oddities_are_no_failures_and_what_they_hide_is_unknown() {
    let oddities = [
        ("null-usage", 7),
        ("no-usage", 11),
        ("zero-usage", 13),
        ("short-output", 5),
        ("coalesced", 17),
        ("done-no-finish", 19),
        ("crlf", 23),
        ("two-in-one", 29),
    ];
    let engine = engine_with(&oddities.map(|(fault, every)| format!("{fault}:every={every}")));
    let results = coordinator(&engine)
        .line("--rates 80 --requests 120 --slo e2e=60s")
        .finish()
        .expect_code(0)
        .results();
    let summary = results.summary();
    let log = engine.log_of(results.run(), 0);
    let seen = by(&log, "/fault");
    let of = |faults: &[&str]| faults.iter().map(|fault| seen[*fault]).sum::<u64>();
    assert_eq!(results.outcomes(), [("success".to_owned(), 120)].into());
    let unknown = of(&["null-usage", "no-usage", "zero-usage"]);
    let sources = counts(summary, "/token_count_sources");
    assert_eq!(sources["unknown"], unknown);
    assert_eq!(count(summary, "/requests_with_token_counts"), 120 - unknown);
    assert_eq!(count(summary, "/done_without_finish"), of(&["done-no-finish"]));
    assert_eq!(count(summary, "/short_outputs"), of(&["short-output"]));
    assert_eq!(count(summary, "/good"), 120 - of(&["short-output"]), "a short output is not good");
    assert!(count(summary, "/coalesced_streams") >= of(&["coalesced"]));
    let mut tokens = 0;
    for (trace, entry) in beside_the_log(&results, &log) {
        match entry["fault"].as_str() {
            Some("null-usage" | "no-usage" | "zero-usage") => {
                assert!(
                    trace["output_tokens"].is_null() && trace["tpot_seconds"].is_null(),
                    "{}",
                    brief(trace)
                );
                continue;
            }
            Some("coalesced") => {
                assert_eq!(trace["stream_coalesced"], true);
                assert!(trace["tpot_seconds"].is_null(), "{}", brief(trace));
            }
            Some("short-output") => assert_eq!(trace["short_output"], true),
            _ => {}
        }
        assert_eq!(trace["output_tokens"], entry["output_tokens"], "{}", brief(trace));
        tokens += count(trace, "/output_tokens");
    }
    assert_eq!(count(summary, "/output_tokens"), tokens);
}

#[test]
fn an_engine_that_goes_away_is_a_network_failure_and_its_trial_decides_nothing() {
    let engine = engine_with(&[]);
    let running = coordinator(&engine).line("--rates 40 --requests 120 --slo e2e=60s").start();
    eventually("requests at the engine", || (engine.log().len() > 20).then_some(()));
    engine.kill();
    let finished = running.finish().expect_code(4);
    let results = finished.results();
    let outcomes = results.outcomes();
    assert!(outcomes["connect"] > 0 && outcomes["success"] > 0, "{outcomes:?}");
    for trace in results.traces.iter().filter(|t| t["outcome"] == "connect") {
        assert_eq!(trace["failure_class"], "network");
        assert!(trace["connected_ns"].is_null() && trace["written_ns"].is_null(), "{}", brief(trace));
        assert!(text(trace, "/failure_message").contains("refused"), "{}", brief(trace));
    }
    let classes = by(&results.traces, "/failure_class");
    assert!(!classes.contains_key("generator") && !classes.contains_key("limit"), "{classes:?}");
    // Once it was gone it was gone: no success was scheduled after the first refusal.
    let first = |outcome: &str| {
        let of_it = results.traces.iter().filter(|t| t["outcome"] == outcome);
        of_it.map(|t| count(t, "/scheduled_ns")).collect::<Vec<_>>()
    };
    assert!(first("success").iter().max() < first("connect").iter().min());
    let summary = results.summary();
    assert_eq!(text(summary, "/validity/verdict"), "invalid");
    let reasons = list(summary, "/validity/reasons");
    assert_eq!(by(reasons, "/kind"), [("engine_died".to_owned(), 1)].into());
    let told = text(&reasons[0], "/message");
    assert!(told.contains("nothing came from it after") && told.contains("refused"), "{told}");
    assert_eq!(text(&results.report, "/knee/case"), "undecided");
    let said = finished.ended.stderr.lines().last().unwrap_or_default();
    assert!(said.starts_with("coordinator: the engine died during trial 0: "), "{said}");
}

/// Connections that break until the trial's last moment, by an engine that is there afterwards: that is its result.
#[test]
fn an_engine_that_breaks_connections_to_the_end_and_is_there_is_charged_with_it() {
    let engine = engine_with(&["reset:every=5".to_owned()]);
    let finished = coordinator(&engine).line("--rates 40 --requests 60").finish().expect_code(0);
    let results = finished.results();
    assert!(results.outcomes()["reset"] >= 10, "{:?}", results.outcomes());
    assert_eq!(text(results.summary(), "/validity/verdict"), "valid");
}

#[test]
fn waiting_too_long_for_a_permit_is_the_limits_failure_and_the_trial_is_degraded() {
    let engine = Engine::start(&["--fixed-ttft-ms", "300"]);
    let line = "--rates 20 --requests 30 --repeats 1 --max-concurrency 1 --timeout 1s --slo e2e=60s";
    let run = |extra: &str| {
        Coordinator::sweep()
            .relaxed()
            .engine(engine.url())
            .workload(&[json!({"prompt": "one at a time", "max_tokens": 2})])
            .line(line)
            .line(extra)
            .finish()
    };
    let results = run("").expect_code(0).results();
    let summary = results.summary();
    let outcomes = results.outcomes();
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
    assert!(outcomes["client_queue_timeout"] > 0);
    assert_eq!(text(summary, "/validity/verdict"), "degraded");
    let reasons = by(list(summary, "/validity/reasons"), "/kind");
    assert!(reasons.contains_key("client_queue_timeout"), "{reasons:?}");
    let log = engine.log_of(results.run(), 0);
    assert_eq!(log.len() as u64, outcomes["success"], "what timed out in the queue was sent");
    for trace in &results.traces {
        if trace["outcome"] == "client_queue_timeout" {
            assert_eq!(trace["failure_class"], "limit");
            assert!(trace["released_ns"].is_null() && trace["written_ns"].is_null());
        } else if trace["waited_for_permit"] == true {
            assert!(trace["dispatch_lateness_seconds"].is_null(), "a wait is not lateness");
            assert!(number(trace, "/client_queue_seconds") > 0.0);
        }
    }
    // One at a time, as the engine saw it.
    for pair in log.windows(2) {
        assert!(count(&pair[0], "/first_token_ns") <= count(&pair[1], "/arrival_ns"), "two at once");
    }
    assert_eq!(text(&results.report, "/knee/case"), "undecided", "a client-limited trial decides nothing");
    run("--strict").expect_code(4);
}

#[test]
fn connections_that_the_engine_closed_while_idle_are_replaced_and_counted() {
    let engine = engine_with(&["close-idle:every=2".to_owned()]);
    let results = coordinator(&engine)
        .line("--rates 10 --requests 30 --arrival constant")
        .finish()
        .expect_code(0)
        .results();
    let summary = results.summary();
    assert_eq!(results.outcomes(), [("success".to_owned(), 30)].into());
    let closed = by(&engine.log_of(results.run(), 0), "/fault")["close-idle"];
    let replaced = count(summary, "/reconnections");
    // The last closed connection is not used again; one that a slow machine did not see closed in time breaks under
    // its request, and is replaced just so.
    assert!(closed > 10 && (closed - 1..=closed).contains(&replaced), "{closed} closed, {replaced} replaced");
    let marked: u64 = results.traces.iter().map(|t| count(t, "/reconnections")).sum();
    assert_eq!(marked, replaced);
}
