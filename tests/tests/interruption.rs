//! Ctrl-C: what is under way is finished or cut, and what was measured is reported.

use plimsoll_tests::{
    Coordinator, Engine, Results, Running, Signal, by, count, counts, eventually, list, text,
};
use serde_json::json;

const INTERRUPTED: i32 = 130;

/// A trial that would take a minute, under way: the engine has seen some of it.
fn under_way(engine: &Engine) -> Running {
    let coordinator = Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "hold fast", "max_tokens": 4})])
        .line("--rates 20,21 --duration 60s --repeats 1 --local-agents 2")
        .start();
    eventually("requests at the engine", || (engine.log().len() > 12).then_some(()));
    coordinator
}

/// What holds however it was interrupted.
fn reported(results: &Results, engine: &Engine) {
    assert_eq!(results.trials().len(), 1, "a further trial was begun");
    let summary = results.summary();
    assert_eq!(text(summary, "/validity/verdict"), "invalid");
    let reasons = by(list(summary, "/validity/reasons"), "/kind");
    assert!(reasons.contains_key("interrupted"), "{reasons:?}");
    assert_eq!(text(&results.report, "/knee/case"), "undecided");
    // What was sent is what the engine saw; the rest is said to be unsent.
    let seen = engine.log_of(results.run(), 0).len() as u64;
    let unsent = results.outcomes()["not_dispatched"];
    assert_eq!(count(summary, "/requests") - unsent, seen);
    assert!(unsent > seen, "{unsent} of {seen} were not sent: it did not end at the signal");
    for trace in results.traces.iter().filter(|t| t["outcome"] == "not_dispatched") {
        assert_eq!(trace["failure_class"], "generator");
        assert!(trace["written_ns"].is_null() && trace["ttft_seconds"].is_null());
    }
}

#[test]
fn the_first_signal_drains_what_is_in_flight_and_reports() {
    for signal in [Signal::INT, Signal::TERM] {
        let engine = Engine::start(&["--fixed-ttft-ms", "600"]);
        let mut coordinator = under_way(&engine);
        coordinator.signal(signal);
        let finished = coordinator.finish().expect_code(INTERRUPTED).expect_said(&["stopping"]);
        let results = finished.results();
        reported(&results, &engine);
        let outcomes = results.outcomes();
        assert_eq!(outcomes.len(), 2, "in flight and not finished: {outcomes:?}");
        let log = engine.log_of(results.run(), 0);
        assert_eq!(by(&log, "/outcome"), [("finished".to_owned(), outcomes["success"])].into());
        assert!(finished.ended.stdout.contains("invalid"), "{}", finished.ended.stdout);
        assert!(finished.ended.stdout.contains("report.json"), "{}", finished.ended.stdout);
    }
}

#[test]
fn the_second_signal_cuts_what_is_in_flight() {
    // Every third answer never comes; the first two, for the agents' probing requests, do.
    let engine = Engine::start(&["--fixed-ttft-ms", "1", "--fault", "hang:every=3"]);
    let mut coordinator = under_way(&engine);
    coordinator.signal(Signal::INT);
    coordinator.process.expect_said("stopping");
    coordinator.signal(Signal::INT);
    let finished = coordinator.finish().expect_code(INTERRUPTED).expect_said(&["cutting"]);
    let results = finished.results();
    reported(&results, &engine);
    let log = engine.log_of(results.run(), 0);
    let hung = by(&log, "/fault")["hang"];
    let failures = counts(results.summary(), "/failures_by_kind");
    assert_eq!(failures["cancelled"], hung, "{failures:?}");
    for trace in results.traces.iter().filter(|t| t["outcome"] == "cancelled") {
        assert_eq!(trace["failure_class"], "generator");
    }
    eventually("the engine to see them go", || {
        let cancelled = by(&engine.log_of(results.run(), 0), "/outcome");
        (cancelled.get("cancelled") == Some(&hung)).then_some(())
    });
}

#[test]
fn a_signal_before_the_first_trial_ends_the_run_without_results() {
    // The probe is never answered.
    let engine = Engine::start(&["--fault", "hang"]);
    let mut coordinator = Coordinator::sweep().relaxed().engine(engine.url()).line("--rates 5").start();
    eventually("the probe at the engine", || (!engine.log().is_empty()).then_some(()));
    coordinator.signal(Signal::INT);
    coordinator.finish().expect_code(INTERRUPTED).expect_no_results();
}
