//! A search for the knee of an engine whose capacity is known: the bracket holds it, it is printed and in the report, and
//! a search that was stopped goes on where it was.

use plimsoll_tests::schema::{EXPERIMENT, REPORT, keeps_to, validator};
use plimsoll_tests::{Coordinator, Engine, Finished, Signal, by, count, eventually, has, list, number, text};
use serde_json::{Value, json};

/// Two sequences at once, 10 steps of 2 ms each: 100 requests a second and no more.
fn engine() -> Engine {
    Engine::start(&["--slots", "2", "--step-ms", "2", "--step-per-seq-ms", "0", "--prefill-base-ms", "0"])
}

fn search(engine: &Engine) -> Coordinator {
    Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "sound the depth", "max_tokens": 10})])
        .line("--find-knee --ignore-eos --slo ttft=300ms --arrival constant --confidence 50% --budget 10m")
}

/// A search that a minute is enough for: what it decides need not be certain, nor narrow.
fn short(engine: &Engine) -> Coordinator {
    search(engine).line("--min-rate 40 --max-rate 640 --requests 200 --slo-target 80% --bracket-width 100%")
}

fn rejoined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What holds of every search.
fn report_of(finished: &Finished) -> Value {
    let results = finished.results();
    keeps_to(&validator(REPORT), &results.report, "the report of a search");
    keeps_to(&validator(EXPERIMENT), &results.report["experiment"], "the record of a search");
    let search = &results.report["search"];
    let printed = rejoined(&finished.ended.stdout);
    assert!(printed.contains(&rejoined(text(search, "/text"))), "{printed}");
    search.clone()
}

/// What holds of a [`short`] one: 80 a second are less than the engine can do, and 160 more.
/// Arrivals are evenly spaced, so that each trial of a rate is as the others.
fn finds_it(finished: &Finished) {
    let search = report_of(finished);
    assert_eq!(search["case"], "bracket", "{search:#}");
    // A host that stands still for a moment may leave a rate undecided: then the bracket is wider, and holds it all the same.
    assert_ne!(search["ended"], "early");
    let (pass, fail) = (number(&search, "/bracket/pass"), number(&search, "/bracket/fail"));
    // Just above its capacity the engine carries 200 requests before its queue is too long.
    assert!((40.0..=120.0).contains(&pass) && (100.0..=160.0).contains(&fail), "{search:#}");
}

#[test]
fn the_bracket_holds_what_the_engine_can_do() {
    let finished = short(&engine()).finish().expect_code(0).expect_said(&[
        "search       from 40/s, to 640/s",
        "at most",
        "no rate has failed yet",
    ]);
    finds_it(&finished);
}

#[test]
fn a_hopeless_trial_is_ended_and_judged_by_what_was_sent_before() {
    let finished =
        search(&engine()).line("--min-rate 300 --max-rate 600 --requests 900").finish().expect_code(0);
    let search = report_of(&finished);
    assert_eq!((&search["case"], &search["ended"]), (&json!("below"), &json!("lowest_fails")), "{search:#}");
    let results = finished.results();
    let cut: Vec<&Value> = results.trials().iter().filter(|t| has(t, "/cut")).collect();
    assert!(!cut.is_empty(), "none was ended: {}", finished.story());
    for trial in cut {
        let (summary, planned) = (&trial["summary"], count(trial, "/cut/planned"));
        assert!(count(summary, "/requests") < planned && planned == 900);
        let reasons = by(list(summary, "/validity/reasons"), "/kind");
        assert_eq!(reasons.get("cut_by_search"), Some(&1), "{reasons:?}");
        assert!(!has(summary, "/failures_by_kind/not_dispatched"), "{summary:#}");
        // Every arrival of the schedule has its trace all the same.
        let traces = results.traces_of(count(trial, "/trial"));
        assert_eq!(traces.len() as u64, planned);
        let mut sent = traces.iter().take(count(summary, "/requests") as usize);
        assert!(sent.all(|t| t["outcome"] == "success"), "what counts was sent");
    }
}

#[test]
fn a_search_that_was_stopped_goes_on_where_it_was() {
    let engine = engine();
    let mut running = short(&engine).start();
    running.process.expect_said("trial 1 (of a search)");
    let seen = engine.log().len();
    eventually("requests of trial 1", || (engine.log().len() > seen + 5).then_some(()));
    running.signal(Signal::INT);
    let stopped = running.finish().expect_code(130);
    let early = stopped.results();
    assert_eq!(early.report["search"]["ended"], "early");
    assert!(
        text(&early.report["search"], "/would_narrow").contains("resume"),
        "{:#}",
        early.report["search"]
    );
    let resumed = Coordinator::resume(&stopped).finish().expect_code(0).expect_said(&["again for trial 1"]);
    finds_it(&resumed);
    let results = resumed.results();
    // Trial 0 stands, trial 1 was sent again with its schedule, and the next rate is the one that would have come.
    let of = |place: usize, field: &str| results.trials()[place][field].clone();
    assert_eq!((of(0, "trial"), of(1, "trial"), of(2, "rerun_of")), (json!(0), json!(1), json!(1)));
    assert_eq!(of(1, "schedule_sha256"), of(2, "schedule_sha256"));
    assert_eq!(
        (of(0, "offered_rate"), of(1, "offered_rate"), of(3, "offered_rate")),
        (json!("40"), json!("80"), json!("160"))
    );
    Coordinator::resume(&resumed).finish().expect_code(1).expect_said(&["is finished"]);
}

#[test]
fn what_cannot_be_searched_for_is_refused_before_anything_is_sent() {
    let engine = engine();
    for (options, says) in [
        ("--find-knee", "--slo"),
        ("--find-knee --rates 1,2 --slo ttft=1s", "cannot be used with"),
        ("--find-knee --slo ttft=1s --min-rate 9 --max-rate 3", "is not below --max-rate 3"),
        ("--find-knee --slo ttft=1s --budget 10s", "the first trial alone takes"),
    ] {
        let refused = Coordinator::sweep().engine(engine.url()).line(options).finish();
        refused.expect_code(2).expect_said(&[says]);
    }
    assert!(engine.log().is_empty());
}
