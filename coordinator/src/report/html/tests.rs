use common::ids::{AgentName, ArrivalIndex, Nanos, TrialId};
use common::metrics::RequestMetrics;
use common::trace::{Failure, FailureKind, Outcome, Trace};
use common::validity::{Reason, ReasonKind};
use serde_json::{Value, json};

use super::points::{Collector, Points, room};
use super::*;
use crate::report::table::row;
use crate::report::tests::{failed, good, report, trial};
use crate::report::{Report, to_value};

fn page(report: &Report, points: &Points) -> String {
    let mut out = Vec::new();
    write_page(&mut out, report, points).unwrap();
    String::from_utf8(out).unwrap()
}

fn plain(report: &Report) -> String {
    page(report, &Points::default())
}

/// The content of the element with this beginning.
fn inside<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = page.split_once(begin).unwrap_or_else(|| panic!("no {begin} in the page"));
    rest.split_once(end).unwrap_or_else(|| panic!("no {end} after {begin}")).0
}

fn sweep() -> Report {
    let mut fails = good(400);
    fails.iter_mut().take(40).for_each(|t| t.facts.outcome = failed(0).facts.outcome);
    report(vec![
        trial(0, "4", 0, &good(400), &[]),
        trial(1, "8", 0, &fails, &[]),
        trial(2, "inf", 0, &good(3), &[]),
    ])
}

fn collected(trial: u32, traces: &[Trace], window: f64, room: usize) -> super::points::TrialPoints {
    let agent: AgentName = "a1".parse().unwrap();
    let mut collector = Collector::new(TrialId(trial), traces.len() as u64, window, room);
    for trace in traces {
        collector.take(&agent, &RequestMetrics::of_trace(trace), &trace.facts);
    }
    collector.finish()
}

#[test]
fn the_report_in_the_page_is_report_json() {
    let report = sweep();
    let page = plain(&report);
    let embedded = inside(&page, "<script type=\"application/json\" id=\"report\">", "</script>");
    assert_eq!(serde_json::from_str::<Value>(embedded).unwrap(), to_value(&report).unwrap());
    assert_eq!(inside(&page, "id=\"knee-text\">", "</p>"), text(&report.knee.text));
}

#[test]
fn a_row_of_the_page_is_the_row_of_the_table() {
    let report = sweep();
    let page = plain(&report);
    let rows: Vec<&str> =
        inside(&page, "<table class=\"rates\">", "</table>").split("<tr>").skip(2).collect();
    assert_eq!(rows.len(), report.rates.len());
    for (shown, rate) in rows.iter().zip(&report.rates) {
        let cells: Vec<&str> = shown.split("<td").skip(1).map(|cell| inside(cell, ">", "</td>")).collect();
        let expected = row(rate);
        assert_eq!(cells[..11], expected[..11], "{shown}");
        assert!(cells[11].contains(expected[11].split('\n').next().unwrap()), "{shown}");
    }
    // Rate inf has no achieved rate: undefined, and not 0.
    assert_eq!(row(&report.rates[2])[1], "–");
}

#[test]
fn a_spoiled_run_opens_with_its_verdict_and_without_a_knee() {
    let agent: AgentName = "a1".parse().unwrap();
    let late = [Reason::of_agent(ReasonKind::DispatchLateness, &agent, "its sends were 7 ms late")];
    let invalid = [Reason::of_agent(ReasonKind::AgentLost, &agent, "it is gone")];
    let only_late = report(vec![trial(0, "4", 0, &good(400), &late)]);
    // Of two valid repeats the knee would be known; a trial that stands and is invalid makes the run invalid.
    let one_invalid = report(vec![trial(0, "4", 0, &good(400), &[]), trial(1, "4", 1, &good(400), &invalid)]);
    for (report, verdict, why) in
        [(only_late, "late", "its sends were 7 ms late"), (one_invalid, "invalid", "it is gone")]
    {
        let page = plain(&report);
        let opening = inside(&page, "<section id=\"verdict\">", "</section>");
        assert!(opening.contains(&format!("This run is {verdict}")) && opening.contains(why), "{opening}");
        let before_data = inside(&page, "<main>", "<script");
        assert!(!before_data.contains("The knee is") && !before_data.contains("at-knee\""), "{opening}");
        assert!(!page.contains("id=\"knee-text\""));
        let (at, table) = (page.find("This run is").unwrap(), page.find("<table").unwrap());
        assert!(at < table, "the verdict comes first");
    }
    // A trial that was sent again, and is valid then, spoils nothing.
    let again =
        crate::report::TrialReport { rerun_of: Some(TrialId(0)), ..trial(1, "4", 0, &good(400), &[]) };
    let mended = report(vec![trial(0, "4", 0, &good(400), &invalid), again]);
    let opening = plain(&mended);
    assert!(opening.contains("id=\"knee-text\"") && opening.contains("Trials that do not count: 1 of 2."));
}

#[test]
fn what_engines_and_users_say_is_text() {
    let hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><!--";
    let mut trial = trial(0, "4", 0, &good(400), &[Reason::new(ReasonKind::ClockBound, hostile)]);
    trial.summary.numbers.as_mut().unwrap().failures_by_kind.insert(hostile.into(), 1);
    trial.summary.numbers.as_mut().unwrap().slo_lost_by_cause.insert(hostile.into(), 1);
    let mut report = report(vec![trial]);
    report.experiment = json!({
        "engine": {"name": hostile, "revision": hostile}, "model": {"name": hostile}, "hardware": {"gpu": hostile},
        "workload": {"source": hostile}, "command_line": [hostile], "missing": [hostile], hostile: {hostile: [hostile]},
        "serving": {hostile: hostile}, "launch": {"log": {"tail": hostile}},
    });
    let mut points = Points::default();
    let mut shown = collected(0, &good(4), 1.0, 100);
    shown.lines = vec![super::lines::Line {
        what: "power_watts",
        of: hostile.into(),
        seconds: vec![1.0],
        values: vec![1.0],
        samples: 1,
    }];
    points.trials.push(shown);
    let page = page(&report, &points);
    assert_eq!(page.matches("<script").count(), 3, "two of data and one of code");
    assert_eq!(page.matches("</script>").count(), 3);
    assert!(!page.contains("<img") && !page.contains("<!--") && page.matches("alert(2)").count() > 5);
}

/// The policy lets nothing run but what is in the page, and nothing be fetched.
#[test]
fn the_page_needs_nothing_from_anywhere() {
    let page = plain(&sweep());
    let policy = inside(&page, "Content-Security-Policy\" content=\"", "\"");
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    for (element, directive) in [("style", "style-src"), ("script", "script-src")] {
        let content = inside(&page, &format!("<{element}>"), &format!("</{element}>"));
        assert!(policy.contains(&format!("{directive} '{}'", digest(content))), "{policy}");
    }
    for attribute in [" style=\"", " src=", "href=\"http", "@import", "url(", " onclick"] {
        assert!(!page.contains(attribute), "{attribute}");
    }
    assert!(page.contains(&text(assets::UPLOT_LICENSE)), "the licence goes with the library");
}

#[test]
fn a_hundred_thousand_requests_fit_and_the_extremes_are_among_them() {
    let n = 100_000;
    let mut traces = good(n);
    // One that took a minute, and one that failed, among many that did not.
    let late = &mut traces[54_321];
    let first = late.clocks.scheduled + Nanos::from_secs(60);
    late.clocks.content.iter_mut().for_each(|event| event.at = event.at + Nanos::from_secs(60));
    late.clocks.finished = first + Nanos::from_secs(1);
    traces[77_777].facts.outcome = Outcome::Failure(Failure::new(FailureKind::Reset, "gone"));
    let report = report(vec![trial(0, "100", 0, &traces, &[])]);
    let room = room(1, 0).unwrap();
    let shown = collected(0, &traces, 1_000.0, room);
    let indices = &shown.columns.index;
    assert!(indices.contains(&54_321) && indices.contains(&77_777));
    assert!(indices.len() <= room && indices.len() > room / 3, "{} of {room}", indices.len());
    let (count, kinds) = (indices.len() as u64, &shown.failures.by_kind);
    assert_eq!(kinds["reset"].iter().sum::<u64>(), 1);
    // Distributions are over all of them, and the page agrees with the report.
    let ttft = &report.trials[0].summary.numbers.as_ref().unwrap().latency_seconds.ttft;
    let at = |p: f64| {
        shown.distributions_seconds["ttft"]
            [super::points::percentiles().iter().position(|q| *q == p).unwrap()]
    };
    assert_eq!(
        [Some(at(50.0)), Some(at(90.0)), Some(at(99.0)), Some(at(100.0))],
        [ttft.p50, ttft.p90, ttft.p99, ttft.max]
    );
    assert_eq!(shown.samples["ttft"], ttft.n);
    let points = Points { requests: n, shown: count, trials: vec![shown], ..Points::default() };
    let page = page(&report, &points);
    assert!(page.len() < 8_000_000, "{} bytes", page.len());
    assert!(page.contains(&format!("Of {n} requests {count} are in the scatters")));
}

#[test]
fn many_trials_share_the_room_and_few_requests_all_stay() {
    let small = collected(0, &good(30), 1.0, 40);
    assert_eq!((small.columns.index.len(), small.stretches), (30, None));
    for trials in [1, 10, 200, 5_000] {
        let all: usize = (0..trials).filter_map(|number| room(trials, number)).sum();
        assert!(all <= 16_000, "{trials} trials have room for {all}");
    }
    // Two traces of one arrival are both to be seen.
    let mut twice = good(2);
    twice[1].facts.index = ArrivalIndex(0);
    assert_eq!(collected(0, &twice, 1.0, 40).columns.index, [0, 0]);
}
