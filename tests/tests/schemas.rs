//! The schemas of `docs/schemas`: what a run leaves keeps to them, they name what the program names, and they can say
//! no.

use common::ids::{ArrivalIndex, Nanos};
use common::knee::{Knee, TrialRef, pool_rates};
use common::slo::{SloSet, Target};
use common::stats::NoInterval;
use common::summary::{AgentInput, Sample, TrialInput, TrialSummary, summarise};
use common::trace::{Channel, ContentEvent, Failure, FailureKind, Outcome, Trace, Unsent};
use common::validity::{ReasonKind, ValidityLimits, Verdict};
use jsonschema::Validator;
use plimsoll_tests::schema::{
    CALIBRATION, CAPTURE, EXPERIMENT, EXPORT, REPORT, SPOOL, TELEMETRY, TRACES, keeps_to, parsed, validator,
};
use plimsoll_tests::{Coordinator, Engine, Finished, Signal, by, counts, eventually, has, list, text};
use serde_json::{Map, Value, json};

/// Everything that a run left, and its report computed again for other objectives.
#[track_caller]
fn all_keeps_to_the_schemas(finished: &Finished) {
    let results = finished.results();
    let (report, traces) = (validator(REPORT), validator(TRACES));
    keeps_to(&report, &results.report, "report.json");
    keeps_to(&validator(EXPERIMENT), &results.report["experiment"], "the experiment record");
    assert!(!results.traces.is_empty());
    for line in &results.traces {
        keeps_to(&traces, line, "a line of traces.jsonl");
    }
    let telemetry = validator(TELEMETRY);
    for line in finished.telemetry() {
        keeps_to(&telemetry, &line, "a line of telemetry.jsonl");
    }
    let again = finished.reported_again("--format json --slo e2e=1us --slo p50:tpot=70ms --slo-target 50%");
    let again = parsed(&again);
    assert_eq!(again["slos"], json!(["e2e=1us", "p50:tpot=70ms"]));
    keeps_to(&report, &again, "the report for other objectives");
    let lines = finished.reported_again("--format jsonl");
    assert_eq!(lines.lines().count(), results.traces.len());
    for line in lines.lines() {
        keeps_to(&traces, &parsed(line), "a line of --format jsonl");
    }
}

#[test]
fn the_schemas_are_schemas_and_agree_with_each_other() {
    let schemas = [
        ("report", REPORT),
        ("traces", TRACES),
        ("experiment", EXPERIMENT),
        ("telemetry", TELEMETRY),
        ("capture", CAPTURE),
        ("spool", SPOOL),
        ("calibration", CALIBRATION),
        ("export", EXPORT),
    ];
    for (name, schema) in schemas {
        let schema = parsed(schema);
        jsonschema::meta::validate(&schema).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(schema["$id"], format!("plimsoll/{name}/1"));
        // One file is enough to validate with: nothing is looked for elsewhere.
        for reference in references(&schema) {
            let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{name}: {reference}"));
            assert!(schema.pointer(pointer).is_some(), "{name}: {reference} leads nowhere");
        }
    }
    // What stands in several schemas is the same in each.
    let report = parsed(REPORT);
    let mut shared = 0;
    for schema in [TRACES, EXPERIMENT, TELEMETRY, CAPTURE, SPOOL, CALIBRATION].map(parsed) {
        for (name, definition) in schema["$defs"].as_object().unwrap() {
            if let Some(same) = report["$defs"].get(name) {
                assert_eq!(same, definition, "{name} differs");
                shared += 1;
            }
        }
    }
    assert!(shared > 10);
    let mut experiment = parsed(EXPERIMENT);
    let fields = experiment.as_object_mut().unwrap();
    fields.retain(|name, _| !["$schema", "$id", "$defs"].contains(&name.as_str()));
    assert_eq!(report["$defs"]["experiment"], experiment);
}

fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str).map(str::to_owned);
            own.into_iter().chain(fields.values().flat_map(references)).collect()
        }
        Value::Array(values) => values.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn the_schemas_name_what_the_program_names() {
    let (report, traces) = (parsed(REPORT), parsed(TRACES));
    assert_eq!(report["$defs"]["verdict"]["enum"], json!(Verdict::ALL));
    assert_eq!(report["$defs"]["no_interval"]["enum"], json!(NoInterval::ALL));
    assert_eq!(report["$defs"]["failure_kind"]["enum"], json!(FailureKind::ALL));
    assert_eq!(traces["$defs"]["failure_kind"]["enum"], json!(FailureKind::ALL));
    // Each kind of a reason with its verdict, and each kind of failure with its class.
    let mut named = 0;
    for branch in list(&report, "/$defs/reason/oneOf") {
        for kind in list(branch, "/properties/kind/enum") {
            let kind = ReasonKind::ALL.iter().find(|k| json!(k) == *kind).unwrap();
            assert_eq!(branch["properties"]["verdict"]["const"], json!(kind.verdict()));
            named += 1;
        }
    }
    assert_eq!(named, ReasonKind::ALL.len());
    let branches = list(&traces, "/$defs/class_of_outcome/oneOf");
    for kind in FailureKind::ALL {
        let names = |outcome: &Value| {
            outcome["const"] == kind.name()
                || outcome["enum"].as_array().is_some_and(|kinds| kinds.contains(&json!(kind)))
        };
        let with: Vec<_> = branches.iter().filter(|b| names(&b["properties"]["outcome"])).collect();
        assert_eq!(with.len(), 1, "{}", kind.name());
        assert_eq!(with[0]["properties"]["failure_class"]["const"], json!(kind.class()));
    }
}

fn engine(options: &str) -> Engine {
    Engine::start(&options.split_whitespace().collect::<Vec<_>>())
}

#[test]
fn failures_keep_to_the_schemas() {
    let faults = "http-500:every=29 error-event:every=23 abort:every=19 no-content:every=31 truncated:every=17 \
                  malformed:every=13 hang:every=11 stall:every=7 reset:every=5 no-usage:every=37 \
                  short-output:every=41 coalesced:every=43 done-no-finish:every=47";
    let faults: String = faults.split_whitespace().map(|fault| format!(" --fault {fault}")).collect();
    let engine = engine(&format!("--fixed-ttft-ms 5 --fixed-itl-ms 3{faults}"));
    let finished = Coordinator::run_one()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "all that can go wrong", "max_tokens": 8})])
        .line("--arrival gamma --cv 1.5 --rate 80 --requests 160 --ignore-eos --local-agents 2")
        .line("--timeout 1500ms --idle-timeout 700ms --header x-berth:3")
        .finish()
        .expect_code(0);
    let kinds = counts(finished.results().summary(), "/failures_by_kind");
    assert!(kinds.len() >= 8, "{kinds:?}");
    all_keeps_to_the_schemas(&finished);
}

#[test]
fn a_sweep_with_objectives_keeps_to_the_schemas() {
    // Two at a time are near 95 a second: at 200 the queue for a permit grows.
    let engine = engine("--fixed-ttft-ms 12 --fixed-itl-ms 3");
    let finished = Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "two at a time", "max_tokens": 4})])
        .line("--arrival burst --burst-size 2 --rates 60,200 --requests 140 --repeats 1 --logprobs")
        .line("--slo ttft=1s --slo itl=100ms --slo p99:ttft=1s --slo-target 95% --max-concurrency 2")
        .line("--ignore-eos --stop-after-knee")
        .finish()
        .expect_code(0);
    let results = finished.results();
    let reasons = results.trials().iter().flat_map(|t| list(t, "/summary/validity/reasons"));
    assert!(by(reasons, "/kind").contains_key("client_queue_grew"), "{:#}", results.report);
    assert!(results.trials().iter().any(|t| has(t, "/summary/saturation")));
    assert!(has(&results.report, "/rates/0/objectives/0/value/median"));
    all_keeps_to_the_schemas(&finished);
}

#[test]
fn a_rate_of_inf_without_objectives_and_texts_keeps_to_the_schemas() {
    let engine = engine("--fixed-ttft-ms 5");
    let finished = Coordinator::run_one()
        .relaxed()
        .engine(engine.url())
        .line("--rate inf --requests 30 --max-tokens 3 --slo none --no-text")
        .finish()
        .expect_code(0);
    assert!(!has(&finished.results().report, "/rates/0/good"));
    all_keeps_to_the_schemas(&finished);
}

#[test]
fn a_run_whose_text_is_counted_keeps_to_the_schemas() {
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
    });
    let engine = engine("--fixed-ttft-ms 2 --fault no-usage:every=2");
    let finished = Coordinator::run_one()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt_token_ids": [3, 1, 4], "max_tokens": 3})])
        .line("--rate inf --requests 20 --slo none --api completions")
        .file("--tokenizer", "tokenizer.json", &tokenizer.to_string())
        .finish()
        .expect_code(0);
    assert!(has(&finished.results().report, "/experiment/tokenizer/sha256"));
    assert!(has(finished.results().summary(), "/token_count_sources/retokenized_text"));
    all_keeps_to_the_schemas(&finished);
}

#[test]
fn an_interrupted_run_with_metadata_keeps_to_the_schemas() {
    let engine = engine("--fixed-ttft-ms 50");
    let said = json!({
        "engine": {"name": "sim", "revision": "1"}, "hardware": {"gpu": "none", "rack": 7},
        "team": ["harbour"], "note": "open to what the user says",
    });
    let mut running = Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .file("--metadata", "said.json", &said.to_string())
        .line("--arrival ramp --rate-end 40 --rates 20 --duration 60s --repeats 2 --max-tokens 4")
        .start();
    eventually("requests at the engine", || (engine.log().len() > 12).then_some(()));
    running.signal(Signal::INT);
    let finished = running.finish().expect_code(130);
    let results = finished.results();
    assert!(results.outcomes()["not_dispatched"] > 0);
    assert_eq!(text(&results.report, "/experiment/note"), "open to what the user says");
    assert!(!list(&results.report, "/experiment/missing").contains(&json!("engine.name")));
    all_keeps_to_the_schemas(&finished);
}

/// One request a second, each short; every twentieth is late.
fn steady(requests: u64) -> Vec<Trace> {
    let of = |i: u64| {
        let scheduled = Nanos::from_secs(i);
        let first = scheduled + Nanos::from_millis(if (i * 7).is_multiple_of(20) { 1500 } else { 20 });
        let end = first + Nanos::from_millis(30);
        let arrival =
            Unsent { index: ArrivalIndex(i), scheduled, row: 0, requested_tokens: 2, prompt_tokens: None };
        let mut trace = Trace::unsent(arrival, Failure::new(FailureKind::NotDispatched, ""), end);
        let c = &mut trace.clocks;
        (c.released, c.connected, c.written) = (Some(scheduled), Some(scheduled), Some(scheduled));
        c.content = [first, end].map(|at| ContentEvent { at, channel: Channel::Answer }).into();
        trace.facts.outcome = Outcome::Success;
        trace
    };
    (0..requests).map(of).collect()
}

/// A report of one trial with these traces; everything else is `like`'s.
fn made(like: &Value, scheduled: u64, traces: &[Trace]) -> (TrialSummary, Value) {
    let slos: SloSet = "ttft=1s p99:ttft=2s".parse().expect("objectives");
    let rate = "1".parse().expect("a rate");
    let agents = [AgentInput {
        name: "a1".parse().expect("a name"),
        clock: None,
        start_skew: None,
        lost: false,
        health: None,
    }];
    let input = TrialInput {
        scheduled,
        offered: rate,
        length: Some(Nanos::from_secs(scheduled)),
        slos: &slos,
        agents: &agents,
        limits: ValidityLimits::default(),
        findings: &[],
    };
    let samples = traces.iter().map(|t| Sample { agent: 0, clocks: &t.clocks, facts: &t.facts });
    let summary = summarise(input, samples);
    let rates = pool_rates([TrialRef { rate, summary: &summary, cut: None }]);
    let mut report = like.clone();
    report["trials"][0]["summary"] = json!(summary);
    report["knee"] = json!(Knee::find(&rates, &slos, Target::default()));
    report["rates"] = json!(rates);
    (summary, report)
}

/// Fields that are not always there.
const OPTIONAL: &[&str] = &["/experiment/skipped_trials"];
/// The same, and open besides: the user's to add to, or of a form that is described elsewhere.
const OPEN: &[&str] = &["/experiment/engine", "/experiment/model", "/experiment/probe", "/experiment/launch"];
/// Objects whose names are data.
const NAMES_ARE_DATA: &[&str] = &[
    "failures_by_kind",
    "slo_lost_by_cause",
    "token_count_sources",
    "finish_reasons",
    "extra_body",
    "prompt_length_differences",
    "absent",
    "reasons",
    "xid_codes",
    "signals",
];

/// Every object whose shape is ours, and of each list the first.
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.push(at.to_owned());
            for (name, value) in fields
                .iter()
                .filter(|(name, value)| !(value.is_object() && NAMES_ARE_DATA.contains(&name.as_str())))
            {
                objects(value, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(values) => {
            if let Some(first) = values.first() {
                objects(first, &format!("{at}/0"), found);
            }
        }
        _ => {}
    }
}

/// `value` with a change to the object at `place`.
fn changed(value: &Value, place: &str, change: impl FnOnce(&mut Map<String, Value>)) -> Value {
    let mut changed = value.clone();
    let object = changed.pointer_mut(place).and_then(Value::as_object_mut);
    change(object.unwrap_or_else(|| panic!("no object {place}")));
    changed
}

/// Without any one of its fields, and with one more in any of its objects, `value` is refused. Says how many there are.
fn every_field_counts(schema: &Validator, value: &Value) -> usize {
    let (mut places, mut fields) = (Vec::new(), 0);
    objects(value, "", &mut places);
    places.retain(|place| !OPEN.iter().any(|open| place.starts_with(open)));
    for place in &places {
        for name in value.pointer(place).and_then(Value::as_object).into_iter().flat_map(Map::keys) {
            let without = changed(value, place, |object| _ = object.remove(name));
            let field = format!("{place}/{name}");
            let is_optional = OPTIONAL.contains(&field.as_str()) || OPEN.contains(&field.as_str());
            assert_eq!(schema.is_valid(&without), is_optional, "without {field}");
            fields += 1;
        }
        let with = changed(value, place, |object| _ = object.insert("stowaway".into(), json!(1)));
        assert_eq!(schema.is_valid(&with), place == "/experiment", "with one more field in {place:?}");
    }
    fields
}

#[test]
fn a_closed_loop_keeps_to_the_schemas_and_they_can_say_no() {
    let engine = engine("--fixed-ttft-ms 5");
    let finished = Coordinator::run_one()
        .relaxed()
        .engine(engine.url())
        .line("--arrival closed --concurrency 2 --requests 20 --max-tokens 4 --slo ttft=1s --slo p99:ttft=1s")
        .finish()
        .expect_code(0);
    all_keeps_to_the_schemas(&finished);

    let results = finished.results();
    let (schema, report) = (validator(REPORT), &results.report);
    assert!(every_field_counts(&schema, report) > 300);
    for (place, wrong) in [
        ("/schema_version", json!("2")),
        ("/run_id", json!("../up")),
        ("/slos/0", json!("ttft<1s")),
        ("/slo_target", json!(0)),
        ("/knee/case", json!("somewhere")),
        ("/knee/case", json!("bracket")),
        ("/rates/0/offered_rate", json!("open 2")),
        ("/rates/0/slo_attainment", json!(1.5)),
        ("/rates/0/slo_attainment_interval", json!({"none": "no_reason"})),
        ("/rates/0/slo_lost_by_cause", json!({"bad_luck": 1})),
        ("/rates/0/request_throughput_per_second/max", json!("infinite")),
        ("/trials/0/seed", json!(-1)),
        ("/trials/0/schedule_sha256", json!("00")),
        ("/trials/0/summary/requests", json!(null)),
        ("/trials/0/summary/conservation/missing", json!(1)),
        ("/trials/0/summary/validity/verdict", json!("good")),
        ("/trials/0/summary/validity/verdict", json!("late")),
        (
            "/trials/0/summary/validity",
            json!({"verdict": "late", "reasons": [
                {"verdict": "late", "kind": "bad_luck", "agent": null, "message": "it was late"}
            ]}),
        ),
        ("/trials/0/summary/failures_by_kind", json!({"bad_luck": 1})),
        ("/trials/0/summary/failures_by_kind", json!({"reset": 0})),
        ("/trials/0/summary/token_count_sources", json!({"guess": 1})),
        ("/trials/0/summary/token_evidence/counts_differ", json!(null)),
        ("/trials/0/summary/token_evidence/prompt_length_differences", json!({"0": 1})),
        ("/trials/0/summary/token_evidence/prompt_length_differences", json!({"1": 0})),
        ("/trials/0/summary/latency_seconds/ttft/p99", json!("inf")),
        ("/trials/0/summary/intervals/ttft_mean", json!({"low": 1.0})),
        ("/experiment/plan/api", json!("embeddings")),
        ("/experiment/plan/arrival", json!({"process": "burst"})),
        ("/experiment/plan/duration_seconds", json!(1.0)),
        ("/experiment/workload/sha256", json!(null)),
        ("/experiment/tokenizer", json!({"file": "tokenizer.json", "sha256": "00"})),
    ] {
        let mut other = report.clone();
        *other.pointer_mut(place).unwrap_or_else(|| panic!("no {place}")) = wrong.clone();
        assert!(!schema.is_valid(&other), "{wrong} is accepted as {place}");
    }

    let (schema, trace) = (validator(TRACES), &results.traces[0]);
    assert!(every_field_counts(&schema, trace) > 50);
    for (field, wrong) in [
        ("outcome", json!("bad_luck")),
        ("outcome", json!("reset")),
        ("failure_class", json!("engine")),
        ("itl_evidence", json!("likely")),
        ("output_tokens_source", json!("guess")),
        ("event_tokens", json!({"one": 1})),
        ("retokenized_tokens", json!(0)),
        ("engine_overhead_seconds", json!(-1)),
        ("content_channels", json!([{"channel": "aside", "events": 1}])),
        ("first_content_ns", json!(null)),
        ("ttft_seconds", json!("inf")),
        ("output_hash", json!("0")),
    ] {
        let other = changed(trace, "", |line| _ = line.insert(field.into(), wrong.clone()));
        assert!(!schema.is_valid(&other), "{wrong} is accepted as {field}");
    }
    what_no_run_here_shows(report);
}

/// A trial whose books do not balance has no numbers; one that is long enough has intervals.
fn what_no_run_here_shows(like: &Value) {
    let schema = validator(REPORT);
    let traces = steady(600);
    let (summary, long) = made(like, 600, &traces);
    let intervals = &summary.numbers.as_ref().expect("the books balance").intervals;
    assert!(intervals.slo_attainment.ends().is_some() && intervals.ttft_mean.ends().is_some());
    keeps_to(&schema, &long, "a report with intervals");
    every_field_counts(&schema, &long);

    for (scheduled, traces) in [(601, traces.clone()), (600, [traces.as_slice(), &traces[..1]].concat())] {
        let (summary, broken) = made(like, scheduled, &traces);
        assert!(summary.numbers.is_none());
        keeps_to(&schema, &broken, "a report of a broken trial");
        every_field_counts(&schema, &broken);
        // No number comes back alone, nor with all the others.
        let numbers = &long["trials"][0]["summary"];
        let mut one = broken.clone();
        one["trials"][0]["summary"]["successful"] = numbers["successful"].clone();
        assert!(!schema.is_valid(&one));
        let mut all = long.clone();
        for kept in ["conservation", "validity"] {
            all["trials"][0]["summary"][kept] = broken["trials"][0]["summary"][kept].clone();
        }
        assert!(!schema.is_valid(&all));
    }
}
