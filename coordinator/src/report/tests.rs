use std::collections::BTreeSet;

use common::ids::{AgentName, ArrivalIndex, Nanos};
use common::plan::OfferedRate;
use common::stats::NoInterval;
use common::summary::{AgentInput, Sample, TrialInput, summarise};
use common::telemetry::energy::WindowEnergy;
use common::telemetry::window::{AgentWindow, BOUNDARY, Counts, GpuTotals, GpuWindow, TelemetryWindow};
use common::trace::{
    Channel, ContentEvent, EngineTime, EventTokens, Failure, FailureKind, Outcome, OutputTokens, TokenSource,
    Trace, Unsent,
};
use common::validity::{Reason, ReasonKind, ValidityLimits};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn unsent(index: u64, scheduled: Nanos, kind: FailureKind, finished: Nanos) -> Trace {
    let arrival = Unsent {
        index: ArrivalIndex(index),
        scheduled,
        row: index as u32 % 4,
        requested_tokens: 16,
        prompt_tokens: None,
    };
    Trace::unsent(arrival, Failure::new(kind, "no answer"), finished)
}

/// Due at `scheduled`, first text after `ttft`, then `tokens` events 10 ms apart.
fn success(index: u64, scheduled: Nanos, ttft: Nanos, tokens: u64) -> Trace {
    let first = scheduled + ttft;
    let at = |i: u64| first + Nanos::from_millis(10 * i);
    let mut trace = unsent(index, scheduled, FailureKind::NotDispatched, at(tokens));
    let (c, f) = (&mut trace.clocks, &mut trace.facts);
    (c.released, c.connected, c.written) = (Some(scheduled), Some(scheduled), Some(scheduled));
    c.content = (0..tokens).map(|i| ContentEvent { at: at(i), channel: Channel::Answer }).collect();
    f.outcome = Outcome::Success;
    f.output_tokens = OutputTokens { count: Some(tokens), source: TokenSource::Usage };
    trace
}

/// A request that the engine refused.
pub(crate) fn failed(index: u64) -> Trace {
    unsent(index, Nanos(0), FailureKind::Connect, Nanos(1))
}

pub(crate) fn trial(
    number: u32,
    rate: &str,
    repeat: u32,
    traces: &[Trace],
    findings: &[Reason],
) -> TrialReport {
    let rate: OfferedRate = rate.parse().unwrap();
    let n = traces.len() as u64;
    let agents = [AgentInput {
        name: "a1".parse().unwrap(),
        clock: None,
        start_skew: None,
        lost: false,
        health: None,
    }];
    let slos = slos();
    let input = TrialInput {
        scheduled: n,
        offered: rate,
        length: rate.per_second().map(|lambda| Nanos::from_secs_f64(n as f64 / lambda)),
        slos: &slos,
        agents: &agents,
        limits: ValidityLimits::default(),
        findings,
    };
    let samples = traces.iter().map(|t| Sample { agent: 0, clocks: &t.clocks, facts: &t.facts });
    TrialReport {
        trial: TrialId(number),
        rate,
        repeat,
        rerun_of: None,
        seed: Seed(7),
        schedule_sha256: Digest::of(b"schedule"),
        workload_sha256: Digest::of(b"workload"),
        cut: None,
        summary: summarise(input, samples),
        telemetry: None,
    }
}

fn slos() -> SloSet {
    "ttft=1s tpot=50ms p99:e2e=10s".parse().unwrap()
}

pub(super) fn report(trials: Vec<TrialReport>) -> Report {
    let experiment = serde_json::json!({"engine": "sim"});
    Report::new("run-1".parse().unwrap(), experiment, slos(), Target::default(), trials)
}

pub(crate) fn good(n: u64) -> Vec<Trace> {
    (0..n).map(|i| success(i, Nanos::from_millis(10 * i), Nanos::from_millis(20), 8)).collect()
}

fn example() -> Report {
    let mut some_fail = good(20);
    some_fail[3] = unsent(3, Nanos::ZERO, FailureKind::TimeoutTotal, Nanos::from_secs(120));
    some_fail[4] = unsent(4, Nanos::ZERO, FailureKind::HttpStatus, Nanos::from_millis(5));
    some_fail[5] = success(5, Nanos::ZERO, Nanos::from_secs(2), 8);
    let late = [Reason::of_agent(ReasonKind::DispatchLateness, &"a1".parse().unwrap(), "it was late")];
    report(vec![
        trial(0, "4", 0, &good(400), &[]),
        trial(1, "8", 0, &some_fail, &[]),
        trial(2, "4", 1, &good(400), &late),
        trial(3, "inf", 0, &good(3), &[]),
    ])
}

#[test]
fn the_table_reads_at_a_glance() {
    let text = render_table(&example());
    let lines: Vec<&str> = text.lines().collect();
    let expect = |part: &str| assert!(text.contains(part), "{part:?} is missing in\n{text}");
    assert_eq!(lines[0], "SLO ttft=1s tpot=50ms p99:e2e=10s for 99% of requests");
    let row = |rate: &str| {
        let found = lines.iter().find(|l| l.split_whitespace().next() == Some(rate));
        found.unwrap_or_else(|| panic!("no row for {rate} in\n{text}")).split_whitespace().collect::<Vec<_>>()
    };
    let four = row("4");
    assert_eq!(four[3..8], ["100.00", "20.00", "20.00", "10.00", "10.00"], "\n{text}");
    assert_eq!(four[10..], ["0", "late"]);
    assert_eq!(row("inf")[..2], ["inf", "–"]);
    assert_eq!(row("8")[3], "85.00");
    assert!(row("8")[5].ends_with('*'));
    expect("1 of 2");
    expect(
        "Failures:\n  8/s: http_status 1, timeout_total 1; p99 with failures as infinite: TTFT inf, TPOT inf",
    );
    expect("under every cause:\n  8/s: ttft 1\n");
    expect("Validity:\n  trial 2 (4/s, repeat 1) is late: agent a1: it was late");
    expect("Prompts repeat within a trial");
    expect("The knee is 4 requests/s (bracket [4, 8])");
}

#[test]
fn attainment_shows_with_its_interval_or_with_none() {
    // 2 requests a second for 5 minutes, of which every 20th is late; and what takes ever longer.
    let of = |count: u64, rate: u64, ttft: fn(u64) -> u64| -> Vec<Trace> {
        let at = |i: u64| Nanos::from_millis(i * 1000 / rate);
        (0..count).map(|i| success(i, at(i), Nanos::from_millis(ttft(i)), 3)).collect()
    };
    let steady = of(600, 2, |i| if (i * 7).is_multiple_of(20) { 1_500 } else { 20 });
    let grows = of(1_600, 16, |i| i * 4);
    let text = render_table(&report(vec![
        trial(0, "2", 0, &steady, &[]),
        trial(1, "2", 1, &steady, &[]),
        trial(2, "16", 0, &grows, &[]),
        trial(3, "16", 1, &of(1_600, 16, |_| 20), &[]),
        trial(4, "1", 0, &good(5), &[]),
    ]));
    let expect = |part: &str| assert!(text.contains(part), "{part:?} is missing in\n{text}");
    expect("Attainment with its 95% interval:\n  1/s: 100.00%, no interval (too short for ten batches");
    expect("  2/s: 95.00%, 9");
    expect("% (20 batches)\n");
    expect(
        "  16/s: 57.84%, no interval (not every repeat qualifies); min 15.68, max 100.00 over the repeats",
    );
    expect("\nSaturated, requests in flight grew over the trial: 16/s in 1 of 2 trials.\n");
}

#[test]
fn every_failure_kind_shows_in_the_table_with_its_name_and_count() {
    let traces: Vec<Trace> = (FailureKind::ALL.iter().zip(0..))
        .map(|(&kind, i)| unsent(i, Nanos::ZERO, kind, Nanos::from_millis(5)))
        .collect();
    let text = render_table(&report(vec![trial(0, "1", 0, &traces, &[])])).replace("\n    ", " ");
    for kind in FailureKind::ALL {
        assert!(text.contains(&format!("{} 1", kind.name())), "{} is missing in\n{text}", kind.name());
    }
}

#[test]
fn a_broken_trial_shows_no_number() {
    let mut broken = trial(0, "4", 0, &good(3), &[]);
    broken.summary.numbers = None;
    let text = render_table(&report(vec![broken]));
    let row = text.lines().find(|l| l.trim_start().starts_with("4 ")).unwrap();
    assert_eq!(row.matches('–').count(), 10, "{text}");
}

proptest! {
    #[test]
    fn the_table_fits_whatever_the_numbers_are(
        requests in prop::collection::vec((0u64..1u64 << 55, 0u64..1u64 << 60, any::<bool>()), 1..12),
        rate in prop::sample::select(&["0.00001", "0.123456789", "1000000", "999999.999", "inf", "12345.678"][..]),
        message in ".{0,300}",
    ) {
        let of = |(i, (scheduled, ttft, fails)): (usize, (u64, u64, bool))| {
            let (i, scheduled, ttft) = (i as u64, Nanos(scheduled), Nanos(ttft));
            if fails { unsent(i, scheduled, FailureKind::ClientQueueTimeout, ttft) }
            else { success(i, scheduled, ttft, 5) }
        };
        let traces: Vec<Trace> = requests.into_iter().enumerate().map(of).collect();
        let name: AgentName = "x".repeat(64).parse().unwrap();
        let findings = vec![Reason::of_agent(ReasonKind::ReadLateness, &name, message); 5];
        let trials = (0..12).map(|n| trial(n, rate, n, &traces, &findings)).collect();
        for line in render_table(&report(trials)).lines() {
            prop_assert!(line.chars().count() <= table::WIDTH, "{} columns: {}", line.chars().count(), line);
        }
    }
}

#[test]
fn report_json_has_the_names_that_programs_read() {
    let json: Value = serde_json::from_str(&to_json(&example()).unwrap()).unwrap();
    assert_eq!((&json["schema_version"], &json["run_id"]), (&"1".into(), &"run-1".into()));
    assert_eq!(json["experiment"]["engine"], "sim");
    let schedule = Digest::of(b"schedule").to_string();
    assert_eq!(json["experiment"]["trials"][1]["schedule_sha256"], schedule);
    assert!(json["experiment"]["trials"][1]["workload_sha256"].is_string());
    let trial = &json["trials"][1];
    assert_eq!(
        (&trial["trial"], &trial["offered_rate"], &trial["repeat"]),
        (&1.into(), &"8".into(), &0.into())
    );
    assert_eq!((&trial["seed"], &trial["schedule_sha256"]), (&7.into(), &schedule.into()));
    assert_eq!(trial["summary"]["failures_by_kind"]["http_status"], 1);
    assert_eq!(trial["summary"]["p99_with_failures_as_infinite_seconds"]["ttft"], "inf");
    assert_eq!(json["rates"][2]["offered_rate_per_second"], Value::Null);
    assert_eq!(json["knee"]["bracket"]["pass"], 4.0);
}

#[test]
fn a_record_is_never_dropped() {
    let with =
        |experiment| to_value(&Report { experiment, ..report(Vec::new()) }).unwrap()["experiment"].clone();
    assert_eq!(with(Value::Null), serde_json::json!({"trials": []}));
    assert_eq!(with("text".into()), serde_json::json!({"record": "text", "trials": []}));
    assert_eq!(with(serde_json::json!({"trials": 1})), serde_json::json!({"trials": 1}));
}

fn line_of(trace: &Trace) -> Value {
    let agent: AgentName = "a1".parse().unwrap();
    let mut out = Vec::new();
    let row = TraceRow { trial: TrialId(3), agent: &agent, trace, retokenized: Some(4) };
    assert_eq!(write_traces(&mut out, [row, row]).unwrap(), 2);
    let text = String::from_utf8(out).unwrap();
    let (first, second) = text.trim_end().split_once('\n').expect("two lines");
    assert_eq!(first, second);
    serde_json::from_str(first).unwrap()
}

#[test]
fn a_trace_line_says_all_that_the_trace_does() {
    let mut trace = success(5, Nanos::from_millis(100), Nanos::from_millis(20), 3);
    trace.clocks.content[0].channel = Channel::Reasoning;
    trace.text.output = Some("two\nlines".to_owned());
    let ms = |ms| Some(Nanos::from_millis(ms));
    trace.facts.engine_time = EngineTime { queue: ms(2), first_token: ms(6), generation: ms(10) };
    trace.facts.event_tokens = EventTokens { one: 1, many: 2, none: 3, unknown: 4, textless: 5 };
    trace.facts.stream_tokens = Some(2);
    (trace.facts.sent_prompt_tokens, trace.facts.prompt_tokens) = (Some(7), Some(8));
    let line = line_of(&trace);
    for (field, value) in [
        ("trial", Value::from(3)),
        ("agent", "a1".into()),
        ("index", 5.into()),
        ("outcome", "success".into()),
        ("failure_class", Value::Null),
        ("scheduled_ns", 100_000_000.into()),
        ("headers_ns", Value::Null),
        ("first_content_ns", 120_000_000.into()),
        ("first_reasoning_ns", 120_000_000.into()),
        ("first_answer_ns", 130_000_000.into()),
        ("last_content_ns", 140_000_000.into()),
        ("finished_ns", 150_000_000.into()),
        ("ttft_seconds", 0.02.into()),
        ("tpot_seconds", 0.01.into()),
        ("largest_itl_seconds", Value::Null),
        ("output_tokens", 3.into()),
        ("output_tokens_source", "usage".into()),
        ("output", "two\nlines".into()),
        ("stream_tokens", 2.into()),
        ("retokenized_tokens", 4.into()),
        ("prompt_tokens", 8.into()),
        ("sent_prompt_tokens", 7.into()),
        ("engine_queue_seconds", 0.002.into()),
        ("engine_first_token_seconds", 0.006.into()),
        ("engine_generation_seconds", 0.01.into()),
        // Written at 100 ms, finished at 150.
        ("engine_overhead_seconds", 0.032.into()),
    ] {
        assert_eq!(line[field], value, "{field}");
    }
    let tokens = serde_json::json!({"one": 1, "many": 2, "none": 3, "unknown": 4, "textless": 5});
    assert_eq!(line["event_tokens"], tokens);
    assert_eq!(line["content_ns"], serde_json::json!([120_000_000, 130_000_000, 140_000_000]));
    let channels =
        serde_json::json!([{"channel": "reasoning", "events": 1}, {"channel": "answer", "events": 2}]);
    assert_eq!(line["content_channels"], channels);
}

#[test]
fn a_failures_line_names_its_kind_class_and_message() {
    for &kind in FailureKind::ALL {
        let line = line_of(&unsent(0, Nanos::ZERO, kind, Nanos::from_millis(5)));
        assert_eq!(line["outcome"], kind.name());
        assert_eq!(line["failure_class"], serde_json::to_value(kind.class()).unwrap());
        assert_eq!(line["failure_message"], "no answer");
        assert_eq!(line["client_queue_seconds"], Value::Null);
    }
}

/// Every name of an object, at any depth, except names that are data.
fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                found.insert(name.clone());
                if ![
                    "failures_by_kind",
                    "slo_lost_by_cause",
                    "experiment",
                    "finish_reasons",
                    "prompt_length_differences",
                ]
                .contains(&name.as_str())
                {
                    names(value, found);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|v| names(v, found)),
        _ => {}
    }
}

#[test]
fn every_field_is_described() {
    let page = include_str!("../../../docs/report.md");
    let mut found = BTreeSet::new();
    names(&to_value(&example()).unwrap(), &mut found);
    names(&line_of(&good(1)[0]), &mut found);
    let undescribed: Vec<_> = found.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(undescribed.is_empty(), "not in docs/report.md: {undescribed:?}");
    for reason in NoInterval::ALL {
        let name = serde_json::to_value(reason).unwrap();
        assert!(page.contains(&format!("`{}`", name.as_str().unwrap())), "{name}");
    }
    for kind in ReasonKind::ALL {
        let name = serde_json::to_value(kind).unwrap();
        assert!(page.contains(&format!("`{}`", name.as_str().unwrap())), "{name}");
    }
}

/// Two GPUs with this much energy each; `complete` or with a gap.
fn took(joules: f64, tokens: u64, complete: bool) -> TrialTelemetry {
    let gpu = |uuid: &str| GpuWindow {
        uuid: uuid.to_owned(),
        energy: WindowEnergy { joules: Some(joules), ..WindowEnergy::default() },
        complete,
        ..GpuWindow::default()
    };
    let gpus = vec![gpu("GPU-a"), gpu("GPU-b")];
    let totals = GpuTotals::of(&gpus);
    let agent = AgentWindow { agent: "a1".parse().unwrap(), gpus, host: None, engine: None };
    let window =
        TelemetryWindow { boundary: BOUNDARY.to_owned(), window_seconds: 20.0, agents: vec![agent], totals };
    let counts = Counts { output_tokens: Some(tokens), ..Counts::default() };
    TrialTelemetry { efficiency: window.efficiency(&counts), window, engine_beside_client: None }
}

#[test]
fn the_best_rate_meets_the_objectives_and_was_seen_whole() {
    let mut misses = good(400);
    misses[0..20].iter_mut().for_each(|t| *t = success(0, Nanos::ZERO, Nanos::from_secs(2), 8));
    for (index, trace) in (0..).zip(&mut misses) {
        trace.facts.index = ArrivalIndex(index);
    }
    let late = [Reason::of_agent(ReasonKind::DispatchLateness, &"a1".parse().unwrap(), "it was late")];
    let with = |n, rate, repeat, traces: &[Trace], findings: &[Reason], telemetry| TrialReport {
        telemetry: Some(telemetry),
        ..trial(n, rate, repeat, traces, findings)
    };
    let report = report(vec![
        with(0, "1", 0, &good(400), &[], took(1000.0, 1000, true)),
        with(1, "2", 0, &good(400), &[], took(1000.0, 2000, true)),
        // The same once more, the other way round; and a late one, which decides nothing.
        with(2, "2", 1, &good(400), &[], took(3000.0, 2000, true)),
        with(3, "2", 2, &good(400), &late, took(1.0, 2000, true)),
        with(4, "4", 0, &good(400), &[], took(1000.0, 8000, false)),
        with(5, "8", 0, &misses, &[], took(1000.0, 9000, true)),
    ]);
    let energy = report.energy().unwrap();
    let seen: Vec<_> = (energy.rates.iter())
        .map(|r| {
            (r.offered_rate.as_str(), r.trials, r.joules_per_output_token, r.complete, r.meets_objectives)
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("1", 1, Some(2.0), true, Some(true)),
            ("2", 2, Some(2.0), true, Some(true)),
            ("4", 1, Some(0.25), false, Some(true)),
            ("8", 1, Some(2.0 / 9.0), true, Some(false)),
        ]
    );
    // 1 and 2 are alike; neither what was not seen whole nor what misses an objective is better.
    assert_eq!(energy.most_efficient_rate.as_deref(), Some("1"));
    let text = render_table(&report);
    for part in
        ["Energy of 2 GPUs", "J/token", "1/s takes the least energy", "The energy at 4/s was not seen whole"]
    {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn without_a_gpu_there_is_no_energy_and_not_0_of_it() {
    assert_eq!(example().energy(), None);
    assert!(!render_table(&example()).contains("Energy"));
}
