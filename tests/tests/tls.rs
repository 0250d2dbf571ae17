//! Whole runs against an https engine: what is measured is what is measured without TLS, and an engine that is not
//! trusted, or does not trust, is refused before the first trial with what to do.

use std::path::{Path, PathBuf};

use plimsoll_tests::{
    Agent, CLOCKS, Coordinator, Engine, Finished, Issued, Lab, Results, count, list, opt_number, text,
};
use serde_json::{Value, json};

const ERROR: i32 = 1;

/// An authority, and its certificates of an engine and of a client.
struct Pki {
    lab: Lab,
    engine: Issued,
    client: Issued,
}

impl Pki {
    /// With an engine of this name.
    fn new(engine: &str) -> Self {
        let lab = Lab::new(&format!("authority of {engine}"));
        Self { engine: lab.issue("engine", &[engine]), client: lab.issue("client", &["agent"]), lab }
    }

    fn ca(&self) -> PathBuf {
        self.lab.ca().into()
    }

    /// An engine inside TLS.
    fn engine(&self, options: &[&str]) -> Engine {
        let own = ["--tls-cert", &self.engine.cert, "--tls-key", &self.engine.key];
        Engine::start(&[&own[..], options].concat())
    }
}

fn run(url: &str) -> Coordinator {
    let rows: Vec<Value> =
        (0..8).map(|i| json!({"prompt": format!("tell me {i}"), "max_tokens": 4 + i})).collect();
    Coordinator::run_one().relaxed().engine(url).workload(&rows).line("--rate 40 --requests 40")
}

/// With options that name files.
fn with(coordinator: Coordinator, files: &[(&str, &Path)]) -> Coordinator {
    files.iter().fold(coordinator, |c, (option, path)| c.args([option.as_ref(), path.as_os_str()]))
}

/// What must be the same of every request, whatever it went through, in the order of arrival.
fn told(results: &Results) -> Vec<Value> {
    let mut traces: Vec<&Value> = results.traces_of(0);
    traces.sort_by_key(|trace| count(trace, "/index"));
    let same = |trace: &Value| {
        json!([
            trace["index"],
            trace["row"],
            trace["outcome"],
            trace["output_tokens"],
            trace["prompt_tokens"],
            trace["output_hash"],
            trace["http_status"],
            trace["done_seen"],
            trace["finish_reason"],
        ])
    };
    traces.into_iter().map(same).collect()
}

#[test]
fn a_run_inside_tls_tells_what_a_run_without_it_tells() {
    let pki = Pki::new("127.0.0.1");
    let timing = ["--fixed-ttft-ms", "2", "--fixed-itl-ms", "1"];
    let (plain, inside) = (Engine::start(&timing), pki.engine(&timing));
    assert!(inside.url().starts_with("https://"), "{}", inside.url());
    let plain = run(plain.url()).finish().expect_code(0).results();
    let inside = with(run(inside.url()), &[("--engine-ca", &pki.ca())]).finish().expect_code(0);
    let inside = inside.results();
    assert_eq!(told(&inside), told(&plain));
    for trace in inside.traces_of(0) {
        let clocks: Vec<f64> =
            CLOCKS.iter().filter_map(|clock| opt_number(trace, &format!("/{clock}"))).collect();
        assert!(clocks.len() == CLOCKS.len() && clocks.is_sorted(), "{trace}");
        let content = list(trace, "/content_ns");
        assert_eq!(
            content.len(),
            count(trace, "/output_tokens") as usize,
            "an event for each token: {trace}"
        );
    }
}

#[track_caller]
fn refused(finished: Finished, says: &[&str]) {
    finished
        .expect_code(ERROR)
        .expect_said(&["local-1 cannot use the engine at https://", "tls"])
        .expect_said(says)
        .expect_no_results();
}

#[test]
fn an_engine_that_is_not_who_it_should_be_is_refused_with_what_to_do() {
    let pki = Pki::new("engine.example");
    let engine = pki.engine(&[]);
    // Who vouches for it is looked at before its name is.
    let stranger = Pki::new("other.example");
    let other = with(run(engine.url()), &[("--engine-ca", &stranger.ca())]);
    refused(other.finish(), &["not trusted here", "--engine-ca"]);
    let name = with(run(engine.url()), &[("--engine-ca", &pki.ca())]);
    refused(name.finish(), &["127.0.0.1", "engine.example", "--base-url"]);
    // Those that this host trusts are not asked about one that they do not know, or there are none.
    let public = run(engine.url()).finish();
    assert!(public.ended.stderr.contains("--engine-ca"), "{}", public.story());
    public.expect_code(ERROR).expect_no_results();
}

#[test]
fn an_engine_that_wants_to_know_its_clients_is_told_and_refuses_those_that_say_nothing() {
    let pki = Pki::new("127.0.0.1");
    let ca = pki.lab.ca();
    let engine = pki.engine(&["--tls-client-ca", &ca]);
    let nobody = with(run(engine.url()), &[("--engine-ca", &pki.ca())]);
    refused(nobody.finish(), &["wants a client certificate", "--engine-cert", "--engine-key"]);
    let files = [
        ("--engine-ca", pki.ca()),
        ("--engine-cert", PathBuf::from(&pki.client.cert)),
        ("--engine-key", PathBuf::from(&pki.client.key)),
    ];
    let files: Vec<(&str, &Path)> = files.iter().map(|(option, path)| (*option, path.as_path())).collect();
    let results = with(run(engine.url()), &files).finish().expect_code(0).results();
    assert_eq!(results.outcomes()["success"], 40);
    let key = std::fs::read_to_string(&pki.client.key).expect("the key");
    let secret = key.lines().nth(1).expect("a line of it");
    let said = with(run(engine.url()), &files).env("RUST_LOG", "trace").finish().expect_code(0);
    assert!(!said.story().contains(secret), "the key was said");
}

#[test]
fn files_of_an_agent_that_is_started_by_hand_are_its_own_and_its_environments() {
    let pki = Pki::new("127.0.0.1");
    let engine = pki.engine(&["--fixed-ttft-ms", "1"]);
    let mut coordinator = run(engine.url()).line("--agents 1 --listen 127.0.0.1:0").start();
    let address = coordinator.join_address();
    let ca = pki.lab.ca();
    let _agent = Agent::start_with("far", address, &["--once"], &[("PLIMSOLL_ENGINE_CA", &ca)]);
    let results = coordinator.finish().expect_code(0).results();
    assert!(results.traces_of(0).iter().all(|trace| text(trace, "/agent") == "far"));

    let missing = Agent::start("near", address, &["--engine-ca", "/no/such.pem"]).process.wait();
    assert_eq!(missing.code, Some(1), "{}", missing.story());
    assert!(missing.stderr.contains("--engine-ca /no/such.pem: cannot be read"), "{}", missing.story());
    let half = Agent::start("near", address, &["--engine-cert", &ca]).process.wait();
    assert_eq!(half.code, Some(2), "{}", half.story());
    assert!(half.stderr.contains("--engine-key"), "{}", half.story());
}

#[test]
fn the_engines_metrics_are_read_inside_tls_too() {
    let pki = Pki::new("127.0.0.1");
    let engine = pki.engine(&[]);
    let capture = Coordinator::capture().engine(engine.url()).line("--duration 3s --dialect vllm");
    let finished = with(capture, &[("--engine-ca", &pki.ca())]).finish().expect_code(0);
    let records = finished.telemetry();
    let read = records.iter().filter(|record| text(record, "/kind") == "engine").count();
    assert!(read > 0, "{records:?}");
}
