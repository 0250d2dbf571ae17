//! A sweep around an engine's capacity: it finds the knee, says so, and gives the exit code that was asked for.

use plimsoll_tests::{Coordinator, Engine, Finished, count, has, list, number, text};
use serde_json::json;

/// What somebody reads through a pipe: plain text that fits the page. A path is as long as it is.
fn is_plain(finished: &Finished) {
    for said in [&finished.ended.stdout, &finished.ended.stderr] {
        assert!(!said.contains('\u{1b}'), "escape codes in a pipe: {said:?}");
    }
    let wide: Vec<&str> = finished
        .ended
        .stdout
        .lines()
        .filter(|line| !line.starts_with("wrote ") && line.chars().count() > 100)
        .collect();
    assert!(wide.is_empty(), "wider than 100 columns: {wide:#?}");
}

fn rejoined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Two sequences at once, 20 steps of 5 ms each: near 20 requests a second and no more.
fn slow_engine() -> Engine {
    Engine::start(&["--slots", "2", "--step-ms", "5", "--step-per-seq-ms", "0", "--prefill-base-ms", "0"])
}

fn sweep(engine: &Engine, rates: &str) -> Coordinator {
    Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "sound the depth", "max_tokens": 20})])
        .line(&format!("--rates {rates} --duration 2s --repeats 1 --ignore-eos --slo ttft=700ms"))
}

#[test]
fn the_knee_lies_between_the_rates_that_pass_and_fail_and_the_gate_fails() {
    let engine = slow_engine();
    let finished = sweep(&engine, "3,5,60").line("--gate").finish().expect_code(3).expect_said(&["gate"]);
    let results = finished.results();
    let knee = &results.report["knee"];
    assert_eq!(knee["case"], "bracket");
    assert_eq!((number(knee, "/bracket/pass"), number(knee, "/bracket/fail")), (5.0, 60.0));
    assert_eq!(number(knee, "/target"), 0.99);
    // Rates are in order of the rate, trials in the order of sending; each trial's attainment agrees.
    let rates: Vec<f64> =
        list(&results.report, "/rates").iter().map(|r| number(r, "/offered_rate_per_second")).collect();
    assert_eq!(rates, [3.0, 5.0, 60.0]);
    let attained = |rate| number(results.trial_at(rate), "/summary/slo_attainment");
    assert!(attained("3") >= 0.99 && attained("5") >= 0.99 && attained("60") < 0.9);
    // An engine beyond its capacity is slower than the load, and finishes after it.
    let beyond = &results.trial_at("60")["summary"];
    assert!(number(beyond, "/achieved_rate_per_second") < 0.7 * number(beyond, "/scheduled_rate_per_second"));
    assert!(number(beyond, "/duration_seconds") > 2.0);
    assert!(number(beyond, "/in_flight/peak") > number(&results.trial_at("5")["summary"], "/in_flight/peak"));
    assert!(count(beyond, "/slo_lost_by_cause/ttft") > 0);

    let out = &finished.ended.stdout;
    let starts = |prefix: &str| out.lines().filter(|l| l.trim_start().starts_with(prefix)).count();
    assert_eq!(starts("offered achieved goodput"), 1, "{out}");
    for rate in ["3 ", "5 ", "60 "] {
        assert!(starts(rate) >= 1, "no row of {rate}: {out}");
    }
    assert!(rejoined(out).contains(text(knee, "/text")), "the knee is not printed: {out}");
    for file in ["report.json", "traces.jsonl"] {
        let wrote = out.lines().filter_map(|l| l.strip_prefix("wrote ")).find(|path| path.ends_with(file));
        assert!(std::path::Path::new(wrote.unwrap_or_default()).is_file(), "no path of {file}: {out}");
    }
    is_plain(&finished);
}

#[test]
fn the_gate_passes_when_every_rate_does() {
    let engine = slow_engine();
    let finished = sweep(&engine, "2,4").line("--gate").env("NO_COLOR", "1").finish().expect_code(0);
    let results = finished.results();
    let knee = &results.report["knee"];
    assert_eq!(knee["case"], "at_or_above_highest");
    assert!(number(knee, "/bracket/pass") == 4.0 && !has(knee, "/bracket/fail"));
    is_plain(&finished);
}

#[test]
fn a_knee_below_every_rate_and_none_without_objectives() {
    let engine = slow_engine();
    let below = sweep(&engine, "60").finish().expect_code(0);
    assert_eq!(below.results().report["knee"]["case"], "below_lowest");
    is_plain(&below);
    let none = Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .line("--rates inf --requests 10 --repeats 1 --slo none --max-tokens 4")
        .finish()
        .expect_code(0);
    let results = none.results();
    assert_eq!(results.report["knee"]["case"], "no_slo");
    let summary = results.summary();
    assert!(!has(summary, "/slo_attainment") && !has(summary, "/good"));
    assert!(!has(summary, "/offered_rate_per_second") && !has(summary, "/achieved_rate_per_second"));
    assert!(results.traces.iter().all(|t| t["scheduled_ns"] == 0), "at rate inf all arrive at 0");
    is_plain(&none);
}
