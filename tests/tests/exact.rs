//! What is measured, held against an engine whose every answer is known: counts, latencies, shares and instants.

use plimsoll_tests::{
    Coordinator, Engine, Results, arrival_order, brief, by, count, counts, list, number, text,
};
use serde_json::{Value, json};

const REQUESTS: u64 = 100;
const TOKENS: u64 = 128;

/// 200 requests at two rates on two agents, against an engine that answers 128 tokens after 20 ms.
#[test]
fn every_request_is_counted_timed_and_shared_out_as_the_engine_saw_it() {
    let engine = Engine::start(&["--fixed-ttft-ms", "20"]);
    let finished = Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "the cargo is grain", "max_tokens": TOKENS})])
        .line("--rates 20,40 --requests 100 --repeats 1 --local-agents 2 --ignore-eos --slo e2e=30s")
        .finish()
        .expect_code(0);
    let results = finished.results();
    assert_eq!(results.trials().len(), 2);
    for trial in results.trials() {
        let log = engine.log_of(results.run(), count(trial, "/trial"));
        counts_are_exact(trial, &log);
        identities_are_unique(&results, trial, &log);
        latencies_are_those_of_the_engine(&results, trial, &log);
        shares_are_fair(trial, &log);
        arrivals_follow_the_schedule(&results, trial, &log);
    }
    the_same_shape_at_twice_the_rate(&results);
}

fn counts_are_exact(trial: &Value, log: &[Value]) {
    let summary = &trial["summary"];
    assert_eq!(log.len() as u64, REQUESTS, "the engine saw others than were scheduled");
    for key in ["requests", "successful", "requests_with_token_counts", "good"] {
        assert_eq!(summary[key], REQUESTS, "{key} in {summary:#}");
    }
    assert_eq!(summary["output_tokens"], REQUESTS * TOKENS);
    let sent: u64 = log.iter().map(|entry| count(entry, "/output_tokens")).sum();
    assert_eq!(summary["output_tokens"], sent);
    let prompts: u64 = log.iter().map(|entry| count(entry, "/prompt_tokens")).sum();
    assert_eq!(summary["input_tokens"], prompts);
    let usage_only = counts(summary, "/token_count_sources");
    assert_eq!(usage_only.get("usage"), Some(&REQUESTS));
    assert_eq!(usage_only.values().sum::<u64>(), REQUESTS);
    assert_eq!(counts(summary, "/finish_reasons"), [("length".to_owned(), REQUESTS)].into());
    assert_eq!(number(summary, "/slo_attainment"), 1.0);
}

fn identities_are_unique(results: &Results, trial: &Value, log: &[Value]) {
    let traces = results.traces_of(count(trial, "/trial"));
    for trace in &traces {
        assert_eq!(trace["output_tokens"], TOKENS, "{}", brief(trace));
        assert_eq!(trace["output_tokens_source"], "usage");
    }
    let mut seen = arrival_order(log);
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..REQUESTS), "the engine saw the arrivals {seen:?}");
    // Who sent it, as the engine saw it, is who recorded it.
    for (entry, index) in log.iter().zip(arrival_order(log)) {
        assert_eq!(entry["agent"], traces[index as usize]["agent"], "arrival {index}");
        assert_eq!(entry["max_tokens"], TOKENS);
        assert_eq!(entry["outcome"], "finished");
    }
}

/// The engine's instants lie between the client's, on the same host: its time to the first token is within the
/// measured one, which may exceed it by what a busy machine adds.
fn latencies_are_those_of_the_engine(results: &Results, trial: &Value, log: &[Value]) {
    let traces = results.traces_of(count(trial, "/trial"));
    let mut engine: Vec<f64> = Vec::new();
    let mut measured: Vec<f64> = Vec::new();
    for (entry, index) in log.iter().zip(arrival_order(log)) {
        let trace = traces[index as usize];
        let own = (count(entry, "/first_token_ns") - count(entry, "/arrival_ns")) as f64 / 1e9;
        let (ttft, service) = (number(trace, "/ttft_seconds"), number(trace, "/service_ttft_seconds"));
        assert!(own >= 0.020, "the engine answered before its 20 ms: {entry:#}");
        // `written` is stamped when the socket has accepted the first byte: the engine may have it by then.
        assert!(ttft >= service && ttft >= own, "shorter than at the engine ({own}): {}", brief(trace));
        engine.push(own);
        measured.push(ttft);
    }
    let p50 = number(trial, "/summary/latency_seconds/ttft/p50");
    let (own, exact) = (median(&mut engine), median(&mut measured));
    assert!((p50 - exact).abs() < 1e-9, "the report's p50 {p50} is not that of its traces, {exact}");
    assert!(p50 < 1.5 * own, "TTFT p50 {p50} is far above the engine's own {own}");
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

fn shares_are_fair(trial: &Value, log: &[Value]) {
    let by_agent = by(log, "/agent");
    assert_eq!(by_agent.keys().collect::<Vec<_>>(), ["local-1", "local-2"]);
    let (half, sigma) = (REQUESTS as f64 / 2.0, (REQUESTS as f64).sqrt() / 2.0);
    for agent in list(trial, "/summary/agents") {
        let seen = by_agent[text(agent, "/name")];
        assert_eq!(agent["requests"], seen, "the report's share is not what the engine saw");
        assert_eq!(number(agent, "/share"), seen as f64 / REQUESTS as f64);
        assert!((seen as f64 - half).abs() <= 5.0 * sigma, "{seen} of {REQUESTS} is no half: {by_agent:?}");
    }
}

/// One second of the schedule is one second at the engine, and the order is the schedule's, but for what a busy machine
/// delays; and each arrival lies within its own request, which no machine can change.
fn arrivals_follow_the_schedule(results: &Results, trial: &Value, log: &[Value]) {
    let traces = results.traces_of(count(trial, "/trial"));
    let order = arrival_order(log);
    let requests: Vec<(&Value, f64)> = log
        .iter()
        .zip(&order)
        .map(|(entry, index)| (traces[*index as usize], count(entry, "/arrival_ns") as f64))
        .collect();
    let due_and_there = requests.iter().map(|(trace, there)| (number(trace, "/scheduled_ns"), *there));
    let (slope, correlation) = line(&due_and_there.collect::<Vec<_>>());
    assert!((slope - 1.0).abs() < 0.1, "a second of the schedule is {slope} s at the engine");
    assert!(correlation > 0.99, "arrivals do not follow the schedule: correlation {correlation}");
    let (_, ranks) =
        line(&(0u32..).zip(&order).map(|(place, i)| (f64::from(place), *i as f64)).collect::<Vec<_>>());
    assert!(ranks > 0.99, "the order is not the schedule's: rank correlation {ranks}, {order:?}");
    // The engine counts from another instant than the agent, and from the same one for all of its requests: one
    // difference must fit them all.
    for agent in list(trial, "/summary/agents") {
        let own = || requests.iter().filter(|(trace, _)| trace["agent"] == agent["name"]);
        let most = own().map(|(t, there)| there - number(t, "/released_ns")).fold(f64::INFINITY, f64::min);
        let least =
            own().map(|(t, there)| there - number(t, "/first_content_ns")).fold(f64::NEG_INFINITY, f64::max);
        assert!(least < most, "an arrival at the engine lies outside its request: {least} < {most}");
    }
}

/// Slope of the straight line through points, and how well they follow it.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (mean_x, mean_y) = (mean(|p| p.0), mean(|p| p.1));
    let sum = |f: &dyn Fn(f64, f64) -> f64| points.iter().map(|p| f(p.0 - mean_x, p.1 - mean_y)).sum::<f64>();
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    (xy / xx, xy / (xx * yy).sqrt())
}

/// One seed is one shape: at twice the rate every arrival is due at half its time.
fn the_same_shape_at_twice_the_rate(results: &Results) {
    let at = |rate| {
        let traces = results.traces_of(count(results.trial_at(rate), "/trial"));
        traces.iter().map(|t| count(t, "/scheduled_ns")).collect::<Vec<_>>()
    };
    for (slow, fast) in at("20").into_iter().zip(at("40")) {
        assert!(slow.abs_diff(2 * fast) <= 2, "due at {slow} at 20/s and at {fast} at 40/s");
    }
}
