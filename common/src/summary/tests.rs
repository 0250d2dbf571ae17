use super::fixture::*;
use super::*;
use crate::stats::NoInterval;
use crate::trace::{FailureKind, ItlEvidence, OutputTokens, TokenSource, Trace};
use crate::validity::{ReasonKind, Verdict};
use proptest::prelude::*;

fn slos(text: &str) -> SloSet {
    text.parse().unwrap()
}

/// The specification, section 4: in 2 s, two successes of 3 and 5 tokens and one failure; only the first meets its
/// SLOs.
#[test]
fn the_worked_example() {
    let traces = [
        success(0, 0, 100, 500, 3),
        success(1, 500, 1100, 1500, 5),
        failure(2, 1000, 200, FailureKind::HttpStatus),
    ];
    let summary = trial("1.5", &slos("ttft=1s"), &traces);
    assert_eq!(summary.requests, 3);
    assert_eq!(summary.validity.verdict, Verdict::Valid);
    let n = summary.numbers.unwrap();
    assert_eq!(n.duration_seconds, 2.0);
    assert_eq!(n.output_token_throughput_per_second, Some(4.0));
    assert_eq!(n.request_throughput_per_second, Some(1.0));
    assert_eq!(n.goodput_requests_per_second, Some(0.5));
    assert_eq!(n.slo_attainment, Some(1.0 / 3.0));
    assert_eq!((n.successful, n.failed, n.good), (2, 1, Some(1)));
    assert_eq!(n.failures_by_kind, [("http_status".to_owned(), 1)].into());
    assert_eq!(n.slo_lost_by_cause, [("http_status".to_owned(), 1), ("ttft".to_owned(), 1)].into());
    assert_eq!(n.scheduled_rate_per_second, Some(1.5));
    assert_eq!(n.achieved_rate_per_second, Some(1.0));
    assert_eq!(n.token_count_sources, [("usage".to_owned(), 2)].into());
    assert_eq!(n.finish_reasons, [("length".to_owned(), 2)].into());
    // (0.5 + 1.5 + 0.2) / 2, and the failure lies within the second success.
    assert_eq!((n.in_flight.mean, n.in_flight.peak), (Some(1.1), 2));
    assert_eq!(n.latency_seconds.e2e.mean, Some(1.0));
    assert_eq!(n.in_flight.littles_law, Some(1.0));
    assert_eq!(n.input_token_throughput_per_second, None, "no prompt count was known: that is not 0");
    assert_eq!(n.total_token_throughput_per_second, None);
}

#[test]
fn broken_books_are_not_summarised() {
    let (none, agents) = (SloSet::default(), agents(&["a1", "a2"]));
    let two = [success(0, 0, 1, 2, 3), success(1, 0, 1, 2, 3)];
    let summarised = |scheduled, traces: &[(u16, &Trace)]| {
        let traces =
            traces.iter().map(|(agent, t)| Sample { agent: *agent, clocks: &t.clocks, facts: &t.facts });
        summarise(input(scheduled, &none, &agents), traces)
    };
    let all = [(0, &two[0]), (1, &two[1])];
    assert!(summarised(2, &all).numbers.is_some());
    for (scheduled, traces, kind) in [
        (3, &all[..], ReasonKind::Conservation),
        (1, &all[..], ReasonKind::Conservation),
        (2, &[(0, &two[0]), (1, &two[1]), (0, &two[1])][..], ReasonKind::DuplicateTraces),
        (2, &[(0, &two[0]), (0, &two[0])][..], ReasonKind::Conservation),
        (2, &[(0, &two[0]), (7, &two[1])][..], ReasonKind::Conservation),
        (2, &[][..], ReasonKind::Conservation),
    ] {
        let summary = summarised(scheduled, traces);
        assert!(summary.numbers.is_none());
        assert_eq!(summary.validity.verdict, Verdict::Invalid);
        assert_eq!(summary.validity.reasons[0].kind, kind);
        let json = serde_json::to_value(&summary).unwrap();
        assert!(json.get("successful").is_none(), "{json}");
        assert_eq!(json["requests"], scheduled);
        assert_eq!(serde_json::from_value::<TrialSummary>(json).unwrap(), summary);
    }
}

#[test]
fn every_failure_kind_shows_with_its_name_and_count() {
    let mut traces = Vec::new();
    for (i, &kind) in FailureKind::ALL.iter().enumerate() {
        for _ in 0..=i {
            traces.push(failure(traces.len() as u64, 0, 10, kind));
        }
    }
    let n = trial("10", &slos("ttft=1s"), &traces).numbers.unwrap();
    let expected: BTreeMap<String, u64> =
        FailureKind::ALL.iter().zip(1..).map(|(kind, count)| (kind.name().to_owned(), count)).collect();
    assert_eq!(n.failures_by_kind, expected);
    assert_eq!(n.slo_lost_by_cause, expected);
    assert_eq!((n.successful, n.slo_attainment), (0, Some(0.0)));
    assert_eq!(n.output_token_throughput_per_second, Some(0.0), "no success, no tokens: that is known");
    assert_eq!(n.p99_with_failures_as_infinite_seconds.ttft, Some(Value::Infinite));
    assert_eq!(
        n.latency_seconds.ttft,
        Distribution { p99_thin: true, p999_thin: true, ..Distribution::default() }
    );
}

#[test]
fn without_an_objective_there_is_no_goodput_and_without_a_rate_no_rates() {
    let n = trial("inf", &SloSet::default(), &[success(0, 0, 10, 20, 3)]).numbers.unwrap();
    assert_eq!((n.good, n.goodput_requests_per_second, n.slo_attainment), (None, None, None));
    assert!(n.slo_lost_by_cause.is_empty());
    assert_eq!((n.offered_rate_per_second, n.scheduled_rate_per_second), (None, None));
    assert_eq!((n.achieved_rate_per_second, n.in_flight.littles_law), (None, None));
    assert_eq!(n.request_throughput_per_second, Some(50.0));
}

#[test]
fn counts_of_the_successes() {
    let mut traces = vec![success(0, 0, 10, 40, 4), success(1, 0, 10, 40, 4), success(2, 0, 10, 40, 4)];
    traces[0].facts.itl_evidence = ItlEvidence::Proven;
    traces[1].facts.finish_reason = None;
    traces[1].facts.row = 0;
    traces[1].facts.output_tokens = OutputTokens { count: None, source: TokenSource::Unknown };
    traces[1].facts.prompt_tokens = Some(7);
    traces[1].facts.cached_tokens = Some(5);
    traces[2].facts.short_output = true;
    traces[2].facts.reconnections = 1;
    traces[2].facts.stream_coalesced = true;
    traces[2].facts.coalesced_events = 3;
    let n = trial("10", &slos("e2e=1s"), &traces).numbers.unwrap();
    assert_eq!((n.itl_proven_requests, n.latency_seconds.itl.n, n.latency_seconds.chunk_gap.n), (1, 3, 9));
    assert_eq!((n.done_without_finish, n.short_outputs, n.reconnections), (1, 1, 1));
    assert_eq!((n.coalesced_streams, n.coalesced_events, n.content_events), (1, 3, 12));
    assert_eq!((n.repeated_prompts, n.cached_tokens, n.input_tokens), (1, Some(5), 7));
    assert_eq!((n.requests_with_token_counts, n.output_tokens), (2, 8));
    assert_eq!((n.requests_with_prompt_token_counts, n.requests_with_cached_token_counts), (1, 1));
    assert_eq!(n.token_count_sources, [("unknown".to_owned(), 1), ("usage".to_owned(), 2)].into());
    assert_eq!(n.slo_lost_by_cause, [("short_output".to_owned(), 1)].into());
    assert_eq!((n.successful, n.good), (3, Some(2)));
}

#[test]
fn an_objective_over_the_trial_counts_failures_and_the_undefined_as_infinite() {
    let mut traces: Vec<Trace> = (0..99).map(|i| success(i, 0, 10, 110, 11)).collect();
    traces.push(failure(99, 0, 10, FailureKind::Reset));
    let set = slos("p50:ttft=10ms p98:ttft=10ms p99:ttft=1s p98:tpot=10ms");
    let results = |traces: &[Trace]| {
        let n = trial("10", &set, traces).numbers.unwrap();
        n.objectives.iter().map(|o| (o.objective.to_string(), o.met, o.infinite)).collect::<Vec<_>>()
    };
    let row = |text: &str, met, infinite| (text.to_owned(), met, infinite);
    let expected = [
        row("p50:ttft=10ms", true, 1),
        row("p98:tpot=10ms", true, 1),
        row("p98:ttft=10ms", true, 1),
        row("p99:ttft=1s", false, 1),
    ];
    let mut got = results(&traces);
    got.sort();
    assert_eq!(got, expected);
    for trace in &mut traces[..2] {
        trace.facts.output_tokens.count = Some(1);
    }
    assert!(results(&traces).contains(&row("p98:tpot=10ms", false, 3)));
}

#[test]
fn a_client_queue_that_grows_is_seen_and_one_that_only_stands_is_not() {
    let traces = |wait: fn(u64) -> u64| {
        let mut traces: Vec<Trace> = (0..400).map(|i| success(i, i * 10, 500, 600, 3)).collect();
        for (i, t) in traces.iter_mut().enumerate() {
            t.clocks.released = Some(t.clocks.scheduled + Nanos::from_millis(wait(i as u64)));
            t.facts.waited_for_permit = true;
        }
        traces
    };
    let verdict = |traces: &[Trace]| trial("100", &slos("ttft=1s"), traces).validity;
    let grows = verdict(&traces(|i| i));
    assert_eq!((grows.verdict, grows.reasons[0].kind), (Verdict::Degraded, ReasonKind::ClientQueueGrew));
    assert!(verdict(&traces(|i| 200 + i * 37 % 150)).is_valid());
    assert!(verdict(&traces(|i| 400 - i)).is_valid());
    assert!(verdict(&traces(|_| 0)).is_valid());
    assert!(verdict(&traces(|i| i)[..20]).is_valid(), "20 requests cannot tell");
}

/// 1,200 requests, 10 a second, each 0.1 to 0.3 s long without a pattern; every 25th misses the objective.
fn steady() -> Vec<Trace> {
    let of = |i: u64| {
        let ttft = if (i * 7919).is_multiple_of(25) { 250 } else { 50 + i * 7919 % 101 };
        success(i, i * 100, ttft, ttft + 50, 5)
    };
    (0..1_200).map(of).collect()
}

#[test]
fn a_steady_trial_has_intervals_that_hold_its_numbers() {
    let summary = trial("10", &slos("ttft=200ms"), &steady());
    let n = summary.numbers.clone().unwrap();
    let (i, l) = (&n.intervals, &n.latency_seconds);
    for (name, interval, value) in [
        ("ttft_mean", i.ttft_mean, l.ttft.mean),
        ("e2e_mean", i.e2e_mean, l.e2e.mean),
        ("tpot_mean", i.tpot_mean, l.tpot.mean),
        ("slo_attainment", i.slo_attainment, n.slo_attainment),
    ] {
        let (low, high) = interval.ends().unwrap_or_else(|| panic!("{name}: {interval:?}"));
        let value = value.unwrap();
        // The tpot is the same for all but rounding, and so are its ends.
        assert!(low <= value + 1e-12 && value <= high + 1e-12, "{name}: {value} is not in [{low}, {high}]");
    }
    assert_eq!(i.e2e_p99.reason(), Some(NoInterval::TooFewRequests), "12 beyond a p99 are too few");
    assert_eq!(i.slo_attainment_batches.iter().map(|b| b.scheduled).sum::<u64>(), 1_200);
    assert_eq!(i.slo_attainment_batches.iter().map(|b| b.good).sum::<u64>(), n.good.unwrap());
    assert_eq!(n.saturated, Some(false));
    assert!(n.in_flight.littles_law_relative_difference.unwrap().abs() < 0.02, "{:?}", n.in_flight);

    let json = serde_json::to_value(&summary).unwrap();
    let names: Vec<&String> = json["intervals"]["e2e_mean"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["batches", "high", "lag1", "low"]);
    assert_eq!(json["intervals"]["e2e_p99"], serde_json::json!({"none": "too_few_requests"}));
    assert_eq!(serde_json::from_value::<TrialSummary>(json).unwrap(), summary);
}

#[test]
fn why_there_is_no_interval_is_said() {
    let reason = |n: &Numbers| (n.intervals.e2e_mean.reason(), n.intervals.slo_attainment.reason());
    let numbers = |rate: &str, slo: &str, traces: &[Trace]| trial(rate, &slos(slo), traces).numbers.unwrap();
    let traces = steady();
    use NoInterval::*;
    assert_eq!(reason(&numbers("inf", "ttft=1s", &traces)), (Some(NoLength), Some(NoLength)));
    assert_eq!(reason(&numbers("10", "ttft=1s", &traces)), (None, Some(TooFewMissed)));
    assert_eq!(reason(&numbers("10", "", &traces)), (None, Some(Undefined)));
    assert_eq!(reason(&numbers("10", "ttft=1s", &traces[..100])), (Some(TooShort), Some(TooShort)));
    let failed: Vec<Trace> = (0..400).map(|i| failure(i, i * 100, 5, FailureKind::Reset)).collect();
    assert_eq!(reason(&numbers("10", "ttft=1s", &failed)), (Some(Undefined), Some(Undefined)));

    let slos = slos("ttft=200ms");
    let agents = agents(&["a1"]);
    let length = Some(Nanos::from_secs(120));
    let input = TrialInput { offered: "10".parse().unwrap(), length, ..input(1_200, &slos, &agents) };
    let mut ramp = Summariser::new(input).not_stationary();
    samples(&traces).for_each(|s| ramp.add(s));
    let n = ramp.finish().numbers.unwrap();
    assert_eq!(reason(&n), (Some(NotStationary), Some(NotStationary)));
    assert_eq!((n.saturated, n.saturation), (None, None));
    assert!(n.intervals.slo_attainment_batches.is_empty());
}

#[test]
fn an_engine_that_falls_behind_is_seen() {
    // Each takes 5 ms longer than the one before: 6 s after a minute.
    let traces: Vec<Trace> = (0..1_200).map(|i| success(i, i * 50, 20 + i * 5, 30 + i * 5, 3)).collect();
    let n = trial("20", &slos("ttft=1s"), &traces).numbers.unwrap();
    assert_eq!(n.saturated, Some(true));
    let s = n.saturation.unwrap();
    assert!(s.last_quarter > 2.0 * s.second_quarter && s.noise < s.last_quarter - s.second_quarter, "{s:?}");
    assert_ne!(n.intervals.e2e_mean.reason(), None, "what only grows has no mean");
}

#[test]
fn each_agent_has_its_share_lateness_and_clock() {
    let mut agents = agents(&["a1", "a2", "a3"]);
    agents[1].clock = Some(Estimate {
        offset_ns: -1_500_000,
        bound_ns: 6_000_000,
        drift: Some(crate::offset::Drift { ppb: 40_000, bound_ppb: 5_000 }),
    });
    let none = SloSet::default();
    let mut traces: Vec<Trace> = (0..4).map(|i| success(i, 0, 10, 20, 3)).collect();
    traces[3].clocks.released = Some(Nanos::from_millis(4));
    traces[2] = failure(2, 0, 5, FailureKind::Reset);
    let of =
        |i: usize| Sample { agent: u16::from(i > 0), clocks: &traces[i].clocks, facts: &traces[i].facts };
    let summary = summarise(input(4, &none, &agents), (0..4).map(of));
    let shares: Vec<_> = summary.agents.iter().map(|a| (a.requests, a.share, a.failed)).collect();
    assert_eq!(shares, [(1, Some(0.25), 0), (3, Some(0.75), 1), (0, Some(0.0), 0)]);
    assert_eq!(
        summary.agents[1].dispatch_lateness_seconds.n, 3,
        "a failed request was sent late or not, too"
    );
    // The agent's model says where the coordinator's clock is: 1.5 ms behind, so the agent's is before it.
    let a2 = &summary.agents[1];
    assert_eq!((a2.clock_offset_seconds, a2.clock_bound_seconds), (Some(0.0015), Some(0.006)));
    assert_eq!((a2.clock_drift_ppm, a2.clock_drift_bound_ppm), (Some(-40.0), Some(5.0)));
    let kinds: Vec<_> = summary.validity.reasons.iter().map(|r| r.kind).collect();
    assert_eq!(kinds, [ReasonKind::ClockBound, ReasonKind::DispatchLateness]);
    assert!(summary.validity.reasons.iter().all(|r| r.message.starts_with("agent a2: ")));
}

#[test]
fn a_summary_has_the_names_that_programs_read() {
    let summary = trial("4", &slos("ttft=1s p99:ttft=2s"), &[success(0, 0, 10, 20, 3)]);
    let json = serde_json::to_value(&summary).unwrap();
    for name in [
        "requests",
        "successful",
        "failed",
        "failures_by_kind",
        "duration_seconds",
        "offered_rate_per_second",
        "scheduled_rate_per_second",
        "achieved_rate_per_second",
        "request_throughput_per_second",
        "output_token_throughput_per_second",
        "input_token_throughput_per_second",
        "requests_with_token_counts",
        "token_count_sources",
        "goodput_requests_per_second",
        "slo_attainment",
        "slo_lost_by_cause",
        "in_flight",
        "finish_reasons",
        "latency_seconds",
        "agents",
        "validity",
    ] {
        assert!(json.get(name).is_some(), "{name} is missing");
    }
    for metric in [
        "ttft",
        "service_ttft",
        "tpot",
        "itl",
        "chunk_gap",
        "e2e",
        "client_queue",
        "connect",
        "dispatch_lateness",
    ] {
        let distribution = json["latency_seconds"][metric].as_object().expect(metric);
        for field in ["n", "mean", "p50", "p90", "p95", "p99", "p999", "max"] {
            assert!(distribution.contains_key(field), "{metric}.{field}");
        }
    }
    assert_eq!(json["validity"], serde_json::json!({"verdict": "valid", "reasons": []}));
    assert_eq!(serde_json::from_value::<TrialSummary>(json).unwrap(), summary);
}

/// Scheduled, delay until written, E2E, and a failure kind or none.
type Any = (u64, u64, u64, Option<FailureKind>);

fn any_trace((index, (scheduled, delay, length, kind)): (usize, Any)) -> Trace {
    let index = index as u64;
    let mut trace = match kind {
        None => success(index, scheduled, delay, delay + length, 1 + length % 7),
        Some(kind) => failure(index, scheduled, delay + length, kind),
    };
    if let Some(written) = &mut trace.clocks.written {
        *written = *written + Nanos::from_millis(delay);
    }
    trace
}

proptest! {
    #[test]
    fn the_numbers_agree_with_each_other(
        requests in prop::collection::vec(
            (0u64..2_000, 0u64..300, 0u64..900, prop::option::weighted(0.2, prop::sample::select(FailureKind::ALL))),
            1..60,
        ),
        slo in prop::sample::select(&["ttft=100ms", "ttft=50ms tpot=40ms", "e2e=1s itl=1s"][..]),
    ) {
        let traces: Vec<Trace> = requests.into_iter().enumerate().map(any_trace).collect();
        let total = traces.len() as u64;
        let n = trial("20", &slos(slo), &traces).numbers.expect("the books balance");
        let good = n.good.unwrap();
        prop_assert_eq!(n.successful + n.failed, total);
        prop_assert_eq!(n.failures_by_kind.values().sum::<u64>(), n.failed);
        prop_assert!(good <= n.successful);
        let attainment = n.slo_attainment.unwrap();
        prop_assert!((0.0..=1.0).contains(&attainment));
        prop_assert!(n.slo_lost_by_cause.values().sum::<u64>() >= total - good, "every other request has a cause");
        prop_assert!(n.slo_lost_by_cause.values().all(|&lost| lost <= total - good));
        prop_assert_eq!(n.latency_seconds.e2e.n, n.successful);
        prop_assert_eq!(n.latency_seconds.ttft.n, n.successful);

        let interval = |t: &Trace| Some((t.clocks.written.or(t.clocks.released)?.0, t.clocks.finished.0));
        let intervals: Vec<_> = traces.iter().filter_map(interval).collect();
        let window = traces.iter().map(|t| t.clocks.finished.0).max().unwrap() as f64;
        let sojourns: f64 = intervals.iter().map(|(from, to)| (to - from) as f64).sum();
        if let Some(mean) = n.in_flight.mean {
            prop_assert!((mean - sojourns / window).abs() < 1e-9, "{} is not {}/{}", mean, sojourns, window);
            prop_assert!(mean <= n.in_flight.peak as f64 + 1e-9);
            let goodput = n.goodput_requests_per_second.unwrap();
            prop_assert!((goodput * n.duration_seconds - good as f64).abs() < 1e-6);
        }
        // The peak is reached when something starts.
        let at = |now: u64| intervals.iter().filter(|(from, to)| *from <= now && now < *to).count() as u64;
        prop_assert_eq!(n.in_flight.peak, intervals.iter().map(|(from, _)| at(*from)).max().unwrap_or(0));
    }
}
