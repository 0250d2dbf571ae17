//! The scripted engines themselves, over sockets: gauges follow the streams that are open, a client that goes away ends
//! its generation, and the log says so.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use common::clock::{Clock, SystemClock};
use common::ids::Nanos;
use common::plan::Api;
use common::workload::RowBody;
use engines::{Logged, Options, Scenario, Scripted, State};
use serde_json::{Value, json};

use crate::cases::{Case, PLAIN, dialect, theirs};

/// Slow enough that a test is in the middle of a stream when it looks.
const PACE: Options = Options { pace: Duration::from_millis(20), split: None };

/// Waits for `found`; generously, for a machine may be busy.
#[track_caller]
fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begin = SystemClock.monotonic();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(SystemClock.monotonic().since(begin) < Nanos::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn connect(engine: &Scripted) -> TcpStream {
    TcpStream::connect(engine.url().trim_start_matches("http://")).unwrap()
}

fn send(mut stream: &TcpStream, method: &str, path: &str, body: &str) {
    let request =
        format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).unwrap();
}

/// Status and body of an answer with a length.
fn whole(mut stream: &TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_ascii_lowercase();
            let length = length.lines().find_map(|l| l.strip_prefix("content-length: ")).map(str::to_owned);
            if body.len() >= length.unwrap().parse::<usize>().unwrap() {
                return (head[9..12].parse().unwrap(), body.to_owned());
            }
        }
        let mut some = [0; 4096];
        let n = stream.read(&mut some).unwrap();
        assert!(n > 0, "it closed: {text}");
        bytes.extend_from_slice(&some[..n]);
    }
}

fn get(engine: &Scripted, path: &str) -> (u16, String) {
    let stream = connect(engine);
    send(&stream, "GET", path, "");
    whole(&stream)
}

/// The value of a gauge, whatever its labels.
fn gauge(page: &str, name: &str) -> Option<f64> {
    let line =
        page.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// A body for a long stream, also of an engine that ends when it likes.
fn long(name: &str, scenario: Scenario) -> String {
    let engine = engines::named(name).unwrap();
    let body = |number: usize| {
        let mut body = json!({
            "model": engines::MODEL, "prompt": scenario.prompt(&format!("at length {number}")), "max_tokens": 200,
            "stream": true, "temperature": 0,
        });
        if !dialect(&*engine).refuses("ignore_eos") {
            body["ignore_eos"] = json!(true);
        }
        body.to_string()
    };
    let tokens = |body: &str| {
        let reply = engine.generate(engines::Api::Completions, body.as_bytes(), &State::default());
        reply.expected().generated
    };
    (0..100).map(body).find(|body| tokens(body) >= 45).unwrap()
}

/// Begins a stream and reads its first bytes.
fn begin(engine: &Scripted, body: &str) -> TcpStream {
    let mut stream = connect(engine);
    send(&stream, "POST", "/v1/completions", body);
    assert!(stream.read(&mut [0; 64]).unwrap() > 0);
    stream
}

fn last(engine: &Scripted) -> Logged {
    engine.requests().into_iter().rfind(|r| r.method == "POST").unwrap()
}

#[test]
fn the_running_gauge_follows_the_streams_that_are_open() {
    let mut seen = 0;
    for name in engines::all().iter().map(|e| e.name()) {
        let dialect = dialect(&*engines::named(name).unwrap());
        let Some(metrics) = dialect.traits().metrics else { continue };
        let (running, waiting) = (metrics.running.unwrap(), metrics.waiting.unwrap());
        seen += 1;
        let engine = Scripted::with(engines::named(name).unwrap(), PACE);
        let now = |gauge_name: &str| {
            let (status, page) = get(&engine, metrics.path);
            assert_eq!(status, 200, "{name}");
            gauge(&page, gauge_name).unwrap_or_else(|| panic!("{name} has no {gauge_name}: {page}"))
        };
        assert_eq!((now(running), now(waiting)), (0.0, 0.0), "{name}");
        let streams: Vec<TcpStream> = (0..3).map(|_| begin(&engine, &long(name, Scenario::Normal))).collect();
        eventually("three streams", || (now(running) == 3.0).then_some(()));
        for stream in &streams {
            stream.shutdown(Shutdown::Both).unwrap();
        }
        eventually("no stream", || (now(running) == 0.0).then_some(()));
        let log = engine.requests();
        let left = log.iter().filter(|r| r.method == "POST" && r.left_after.is_some()).count();
        assert_eq!(left, 3, "{name}: the log does not say that the clients went away");
    }
    assert_eq!(seen, 8);
}

#[test]
fn an_engine_that_is_deaf_goes_on_for_nobody() {
    let engine = Scripted::with(engines::Vllm, PACE);
    let stream = begin(&engine, &long("vllm", Scenario::Deaf));
    stream.shutdown(Shutdown::Both).unwrap();
    drop(stream);
    // One that begins and is left after it ends before it: a step or two against two hundred.
    let other = begin(&engine, &long("vllm", Scenario::Normal));
    other.shutdown(Shutdown::Both).unwrap();
    eventually("the other to end", || (engine.state().running() == 1).then_some(()));
    assert!(!engine.requests()[0].over, "it ended with its client");
    eventually("the end of it", || (engine.state().running() == 0).then_some(()));
}

#[test]
fn the_log_has_each_request_as_it_came() {
    let engine = Scripted::start(engines::Sglang);
    get(&engine, "/server_info?x=1");
    let stream = connect(&engine);
    let body = json!({"prompt": "a b", "max_tokens": 2, "stream": true}).to_string();
    send(&stream, "POST", "/v1/completions", &body);
    eventually("the answer", || engine.requests().get(1).is_some_and(|r| r.over).then_some(()));
    let log = engine.requests();
    assert_eq!((log[0].method.as_str(), log[0].path.as_str()), ("GET", "/server_info?x=1"));
    assert_eq!(log[1].body, Some(serde_json::from_str(&body).unwrap()));
    assert_eq!((log[1].left_after, log[1].expected.outcome.name()), (None, "success"));
    assert_eq!(log[1].headers["host"], "x");
}

#[test]
fn a_connection_is_used_again_unless_the_engine_closes_it() {
    let engine = Scripted::start(engines::LlamaCpp);
    let stream = connect(&engine);
    for _ in 0..3 {
        send(&stream, "GET", "/health", "");
        assert_eq!(whole(&stream), (200, r#"{"status":"ok"}"#.to_owned()));
    }
    send(&stream, "GET", "/version", "");
    assert_eq!(whole(&stream).0, 404);
    let mut stream = stream;
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0, "llama.cpp closes after an error");
}

#[test]
fn a_reset_waits_until_nothing_runs() {
    for (engine, path, busy, idle) in [
        (Scripted::with(engines::Vllm, PACE), "/reset_prefix_cache", "\"success\":false", "\"success\":true"),
        (Scripted::with(engines::Sglang, PACE), "/flush_cache", "failed", "flushed"),
    ] {
        let running = begin(&engine, &long("vllm", Scenario::Normal));
        let post = || {
            let stream = connect(&engine);
            send(&stream, "POST", path, "");
            whole(&stream).1
        };
        assert!(post().contains(busy), "{path}: {}", last(&engine).path);
        running.shutdown(Shutdown::Both).unwrap();
        eventually("a reset", || post().contains(idle).then_some(()));
    }
}

#[test]
fn the_same_seed_gives_the_same_text_and_another_another_where_there_are_seeds() {
    for engine in engines::all() {
        let dialect = dialect(&*engine);
        let state = State::default();
        let text = |seed: u64| {
            let flavour = crate::cases::Flavour { extra: json!({"temperature": 1, "seed": seed}), ..PLAIN };
            let case =
                Case::new(dialect, Api::Completions, Scenario::Normal, flavour, RowBody::Prompt("hi".into()));
            let reply = engine.generate(theirs(Api::Completions), &case.prepared.body, &state);
            reply.expected().output.clone()
        };
        let has_seed = !dialect.ignores("seed");
        assert_eq!(text(1) == text(1), has_seed, "{dialect}");
        assert_ne!(text(1), text(2), "{dialect}");
    }
}

#[test]
fn what_an_engine_cannot_read_it_refuses_in_its_own_words() {
    for engine in engines::all() {
        let name = engine.name();
        for body in ["{nope", "{}", r#"{"prompt":3,"messages":3}"#] {
            for api in [engines::Api::Completions, engines::Api::Chat] {
                let reply = engine.generate(api, body.as_bytes(), &State::default());
                assert!(reply.status() >= 400, "{name} takes {body}");
                assert_eq!(reply.expected().outcome.name(), "http_status", "{name}");
                assert!(!reply.body().is_empty(), "{name}");
            }
        }
    }
    let refused = |engine: &dyn engines::Engine, body: Value| {
        let reply =
            engine.generate(engines::Api::Completions, body.to_string().as_bytes(), &State::default());
        (reply.status(), String::from_utf8(reply.body()).unwrap())
    };
    let (status, said) = refused(&engines::Vllm, json!({"prompt": "a", "model": "nope", "stream": true}));
    assert_eq!(status, 404);
    assert_eq!(
        said,
        r#"{"error":{"message":"The model `nope` does not exist. Valid aliases: tiny.","type":"NotFoundError","param":"model","code":404}}"#
    );
    let (status, said) = refused(&engines::Transformers, json!({"prompt": "a", "ignore_eos": true}));
    assert_eq!(
        (status, said.as_str()),
        (422, r#"{"detail":"Unexpected fields in the request: {'ignore_eos'}"}"#)
    );
    let long = vec![7; 2000];
    let (status, said) = refused(&engines::Sglang, json!({"prompt": long, "stream": true}));
    assert_eq!(status, 400);
    assert!(
        said.contains("The input (2000 tokens) is longer than the model's context length (1024 tokens).")
    );
    // SGLang takes any model's name.
    assert_eq!(refused(&engines::Sglang, json!({"prompt": "a", "model": "nope", "stream": true})).0, 200);
}

#[test]
fn a_scenario_ends_as_its_name_says() {
    use Scenario as S;
    for engine in engines::all() {
        for api in [Api::Completions, Api::Chat] {
            for scenario in engine.scenarios(theirs(api)) {
                let outcome = match scenario {
                    S::Overload | S::TooLong => "http_status",
                    S::QueueFull | S::ErrorFirst | S::ErrorLater | S::ErrorComment | S::ErrorField => {
                        "error_event"
                    }
                    S::BadJson | S::BadCounts | S::NotAStream => "malformed_stream",
                    S::Swallowed | S::Cut | S::PingThenCut | S::NoDone => "truncated_stream",
                    S::DoneOnly | S::AbortQueued => "no_content",
                    S::Abort => "engine_aborted",
                    _ => "success",
                };
                // Some answers end before anything can go wrong.
                let ends = |number: usize| {
                    let prompt = RowBody::Prompt(scenario.prompt(&format!("try {number}")));
                    let case = Case::new(dialect(&*engine), api, scenario, PLAIN, prompt);
                    let reply = engine.generate(theirs(api), &case.prepared.body, &State::default());
                    reply.expected().outcome.name()
                };
                let ends: Vec<&str> = (0..8).map(ends).collect();
                let as_it_should = ends.iter().filter(|&&end| end == outcome).count();
                assert!(as_it_should >= 4, "{} {api} {scenario:?}: {ends:?}", engine.name());
            }
        }
    }
}

#[test]
fn scenarios_are_what_a_prompt_asks_for() {
    let played: usize = engines::all().iter().map(|e| e.scenarios(engines::Api::Chat).len()).sum();
    assert!(played > 120, "{played}");
    for &scenario in Scenario::ALL {
        let apis = [engines::Api::Completions, engines::Api::Chat];
        let mut played = engines::all().into_iter().flat_map(|e| apis.map(|api| e.scenarios(api))).flatten();
        assert!(played.any(|s| s == scenario), "nobody plays {scenario:?}");
    }
}
