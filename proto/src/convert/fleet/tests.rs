use super::*;
use common::ids::Digest;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_slice_page_gives_back_what_it_took(rows in prop::collection::vec(any::<(u64, u64, u32)>(), 0..50)) {
        let arrivals: Vec<Arrival> =
            rows.into_iter().map(|(i, at, row)| Arrival { index: ArrivalIndex(i), at: Nanos(at), row }).collect();
        let page = v1::SlicePage::from(arrivals.as_slice());
        prop_assert_eq!(Vec::<Arrival>::try_from(page).unwrap(), arrivals);
    }
}

fn order() -> TrialOrder {
    TrialOrder {
        run: "r-1".parse().unwrap(),
        trial: TrialId(2),
        epoch: Epoch(3),
        target: common::plan::Target {
            base_url: "http://h:1/x/v1".parse().unwrap(),
            replicas: vec!["https://h:2/v1".parse().unwrap()],
            dialect: common::dialect::Dialect::OPENAI,
            model: Some("m".into()),
            api: common::plan::Api::Chat,
            ignore_eos: true,
            logprobs: true,
            token_counts: false,
            extra_body: serde_json::from_str(r#"{"top_p":0.5,"stop":["a"]}"#).unwrap(),
            headers: vec![("x-a".into(), "b".into())],
            default_max_tokens: 7,
            connect_timeout: Nanos(1),
            total_timeout: Nanos(2),
            idle_timeout: Nanos(3),
            keep_text: true,
        },
        workload: Digest::of(b"w"),
        workload_bytes: 9,
        schedule: Digest::of(b"s"),
        slice: Digest::of(b"t"),
        slice_count: 4,
        permits: Some(5),
        warmup: vec![(1, true), (2, false)],
        warm_connections: 6,
        closed: true,
        upload: Upload::After,
    }
}

#[test]
fn an_order_survives_the_wire() {
    let order = order();
    assert_eq!(TrialOrder::try_from(v1::Prepare::from(&order)).unwrap(), order);
}

/// What is wrong is said with message and field.
#[test]
fn errors_name_message_and_field() {
    let broken = |change: fn(&mut v1::Prepare)| {
        let mut wire = v1::Prepare::from(&order());
        change(&mut wire);
        TrialOrder::try_from(wire).unwrap_err().to_string()
    };
    assert_eq!(broken(|p| p.target = None), "Prepare.target: missing");
    assert!(broken(|p| p.run_id = "../x".into()).starts_with("Prepare.run_id: "));
    assert!(broken(|p| p.slice_sha256.clear()).starts_with("Prepare.slice_sha256: "));
    assert!(broken(|p| p.target.as_mut().unwrap().api = 0).starts_with("Target.api: "));
    assert!(broken(|p| p.target.as_mut().unwrap().base_url = "x".into()).starts_with("Target.base_url: "));
    assert!(
        broken(|p| p.target.as_mut().unwrap().replica_urls = vec!["x".into()])
            .starts_with("Target.replica_urls: ")
    );
    assert!(broken(|p| p.target.as_mut().unwrap().extra_body_json = "[]".into()).starts_with("Target.extra"));
}

/// Every field that a peer fills has an end, and the error names it.
#[test]
fn fields_that_are_too_long_are_refused_by_name() {
    let hello = |change: fn(&mut v1::Hello)| {
        let mut hello =
            v1::Hello { name: "a".into(), host: Some(v1::HostFacts::default()), ..v1::Hello::default() };
        change(&mut hello);
        Introduction::try_from(hello).map(|i| i.host.hostname).map_err(|e| e.to_string())
    };
    assert!(hello(|_| {}).is_ok());
    let long = |text: Result<String, String>, field: &str| {
        let text = text.unwrap_err();
        assert!(text.starts_with(field) && text.contains("more than"), "{text}");
    };
    long(hello(|h| h.agent_version = "1".repeat(MAX_NAME + 1)), "Hello.agent_version: ");
    let held = vec![v1::HeldSpool::default(); MAX_LIST + 1];
    let collected = v1::Collected { run_id: "r".into(), held, ..v1::Collected::default() };
    let collected = CollectReport::try_from(collected).map(|c| c.run.to_string());
    long(collected.map_err(|e| e.to_string()), "Collected.held: ");
    long(hello(|h| h.host.as_mut().unwrap().hostname = "h".repeat(MAX_NAME + 1)), "HostFacts.hostname: ");
    long(hello(|h| h.host.as_mut().unwrap().kernel = "k".repeat(MAX_CARD_TEXT + 1)), "HostFacts.kernel: ");
    long(
        hello(|h| {
            let stale = Some("s".repeat(MAX_TEXT + 1));
            h.calibration = Some(v1::Calibration { request_cpu_seconds: 1e-5, stale, ..Default::default() });
        }),
        "Calibration.stale: ",
    );
    for (request_cpu_seconds, paced_event_cpu_seconds) in
        [(f64::NAN, 0.1), (-1.0, 0.1), (0.0, 0.0), (1e9, 0.0)]
    {
        let costs = v1::Calibration { request_cpu_seconds, paced_event_cpu_seconds, stale: None };
        assert!(CalibrationCard::try_from(costs.clone()).is_err(), "{costs:?}");
    }
    let name = hello(|h| h.name = "\u{1b}[2J".repeat(100_000)).unwrap_err();
    assert!(name.starts_with("Hello.name: ") && name.len() < 2 * MAX_NAME && !name.contains('\u{1b}'));
    assert_eq!(hello(|h| h.host.as_mut().unwrap().hostname = "a\u{1b}b".into()).unwrap(), "a\u{fffd}b");
    let ready = v1::Ready {
        slice_sha256: Digest::of(b"").to_string(),
        clock: Some(v1::ClockEstimate::default()),
        warnings: vec![String::new(); MAX_WARNINGS + 1],
        ..v1::Ready::default()
    };
    assert!(ReadyReport::try_from(ready).unwrap_err().to_string().starts_with("Ready.warnings: "));
    for seconds in [f64::NAN, f64::INFINITY, -1.0] {
        let health = v1::Health { steal_seconds: Some(seconds), ..v1::Health::default() };
        let drained = v1::Drained {
            manifest: Some(v1::Manifest::default()),
            clock: Some(v1::ClockEstimate::default()),
            health: Some(health),
            ..v1::Drained::default()
        };
        assert!(DrainReport::try_from(drained).unwrap_err().to_string().starts_with("Drained.health: "));
    }
    let mut prepare = v1::Prepare::from(&order());
    prepare.warmup = vec![v1::WarmupRow::default(); MAX_WARMUP_ROWS + 1];
    assert!(TrialOrder::try_from(prepare).unwrap_err().to_string().starts_with("Prepare.warmup: "));
}
