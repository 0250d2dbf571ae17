//! The null engine as a process: its stream through the agent's own client, and what it makes of other bytes.

// A test says what it expected; clippy's own exception does not reach the helpers of a test crate.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agent::engine::{Access, Client, ClientConfig, Outgoing, Requests, TrialClock};
use agent::null_engine::Arrival;
use common::clock::SystemClock;
use common::ids::{ArrivalIndex, Nanos};
use common::plan::{Api, Target};
use common::trace::{TokenSource, Trace};
use common::workload::{Row, RowBody};
use tokio::sync::watch;

/// A null engine, until it is dropped.
struct Engine {
    process: Child,
    address: SocketAddr,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Engine {
    fn start(options: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_agent"))
            .arg("null-engine")
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("null engine on http://").expect(&line).parse().unwrap();
        Self { process, address }
    }

    /// Answers to `requests` of so many tokens, all asked for at once.
    fn ask(&self, api: Api, tokens: u32, requests: u64) -> Vec<Trace> {
        let base_url = format!("http://{}", self.address).parse().unwrap();
        let target = Target { api, ignore_eos: true, default_max_tokens: tokens, ..Target::plain(base_url) };
        let row = Row { body: RowBody::Prompt("What is the mark for?".into()), max_tokens: None, line: 1 };
        let prepared = Requests::new(&target).prepare(&row);
        let config = ClientConfig {
            target,
            access: Access::from(None),
            agent: "a".parse().unwrap(),
            run: "r".parse().unwrap(),
            trial: "0".into(),
        };
        // Its zero is the clock's own: stamps can be held against the engine's.
        let clock = TrialClock::new(Arc::new(SystemClock), Nanos::ZERO);
        let client = Client::new(config, clock.clone()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_operator, cancel) = watch::channel(false);
            let mut running = Vec::new();
            for number in 0..requests {
                let now = clock.now();
                let unsent = prepared.unsent(ArrivalIndex(number), now, 0);
                let request =
                    Outgoing { unsent, released: now, waited_for_permit: false, body: prepared.body.clone() };
                let (client, mut cancel) = (client.clone(), cancel.clone());
                running.push(tokio::spawn(async move { client.send(request, &mut cancel).await }));
            }
            let mut traces = Vec::new();
            for request in running {
                traces.push(request.await.unwrap());
            }
            traces
        })
    }

    /// Sends these bytes and reads until the engine has nothing more to say.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut socket = self.connect();
        socket.write_all(bytes).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket
    }

    fn arrivals(&self) -> Vec<Arrival> {
        let answer = self.raw(b"GET /arrivals HTTP/1.1\r\nconnection: close\r\n\r\n");
        let (head, lines) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("x-dropped: 0"), "{head}");
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Whole and as asked for, whatever the shape and however it leaves.
#[test]
fn every_answer_is_whole() {
    for options in [&[][..], &["--split"], &["--interval-ms", "0.2", "--ttft-ms", "1"]] {
        let engine = Engine::start(options);
        for (api, tokens) in [(Api::Completions, 1), (Api::Completions, 1500), (Api::Chat, 128)] {
            for trace in engine.ask(api, tokens, 8) {
                let facts = &trace.facts;
                assert!(
                    facts.outcome.is_success() && facts.done_seen,
                    "{options:?} {api} {tokens}: {facts:?}"
                );
                assert_eq!(trace.clocks.content.len(), tokens as usize, "{options:?} {api}");
                assert_eq!(facts.output_tokens.count, Some(u64::from(tokens)));
                assert_eq!(facts.output_tokens.source, TokenSource::Usage);
                assert_eq!(facts.finish_reason.as_deref(), Some("length"));
                assert_eq!(trace.text.output.unwrap().matches(" t").count(), tokens as usize);
            }
        }
        assert_eq!(engine.arrivals().len(), 24);
    }
}

/// What the engine says it did lies inside what the client saw, on the one clock of this host.
#[test]
fn its_instants_lie_between_the_clients() {
    let (ttft, interval) = (Nanos::from_millis(20), Nanos::from_millis(3));
    let engine = Engine::start(&["--ttft-ms", "20", "--interval-ms", "3"]);
    let traces = engine.ask(Api::Completions, 5, 4);
    let arrivals = engine.arrivals();
    assert_eq!(arrivals.len(), traces.len());
    for trace in traces {
        let id = format!("r/0/{}", trace.facts.index);
        let arrival = arrivals.iter().find(|a| *a.id == *id).unwrap();
        let clocks = &trace.clocks;
        assert_eq!(arrival.events, 5);
        assert!(clocks.written.unwrap().0 <= arrival.read_ns);
        assert!(arrival.read_ns + ttft.0 <= arrival.first_ns, "an event left before it was due");
        // From the request and not from the first: an event that is late makes the next no later.
        let last_due = arrival.read_ns + ttft.0 + 4 * interval.0;
        assert!(last_due <= arrival.last_ns, "an event left before it was due");
        assert!(arrival.first_ns <= clocks.first_content().unwrap().0);
        assert!(arrival.last_ns <= clocks.last_content().unwrap().0);
        assert!(clocks.content.windows(2).all(|pair| pair[0].at <= pair[1].at));
    }
    assert!(
        engine.raw(b"POST /reset HTTP/1.1\r\nconnection: close\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n")
    );
    assert!(engine.arrivals().is_empty());
}

/// A request that cannot be answered is told why, its connection is closed, and others are served on.
#[test]
fn malformed_requests_are_refused() {
    let engine = Engine::start(&[]);
    let cases: [(&[u8], &str); 8] = [
        (b"hello\r\n\r\n", "400"),
        (b"GET /health HTTP/1.0\r\n\r\n", "505"),
        (b"GET /elsewhere HTTP/1.1\r\n\r\n", "404"),
        (b"PUT /health HTTP/1.1\r\n\r\n", "405"),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length: 3\r\n\r\n{}}", "400"),
        (b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", "411"),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length: 987654321\r\n\r\n", "413"),
        (&[b'a'; 20_000], "431"),
    ];
    for (bytes, status) in cases {
        let answer = engine.raw(bytes);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
        assert!(answer.contains("connection: close\r\n") && answer.contains("\"message\""), "{answer}");
        assert!(engine.ask(Api::Chat, 2, 1)[0].facts.outcome.is_success());
    }
    let models = engine.raw(b"GET /v1/models HTTP/1.1\r\nconnection: close\r\n\r\n");
    assert!(models.contains(r#""id":"null""#), "{models}");
}

/// Requests that are sent without waiting, in pieces, or with their body after a word from the engine.
#[test]
fn requests_are_told_apart_however_they_come() {
    let engine = Engine::start(&["--events", "3"]);
    let body = br#"{"prompt":"x"}"#;
    let head = |close: &str| {
        format!("POST /v1/completions HTTP/1.1\r\ncontent-length: {}\r\n{close}\r\n", body.len()).into_bytes()
    };
    let one = [head(""), body.to_vec()].concat();
    let last = [head("connection: close\r\n"), body.to_vec()].concat();
    let answer = engine.raw(&[one.repeat(2000), last.clone()].concat());
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 2001);
    assert_eq!(answer.matches(r#""completion_tokens":3"#).count(), 2001);
    let mut socket = engine.connect();
    let (before, after) = last.split_at(50);
    for piece in [before, after] {
        socket.write_all(piece).unwrap();
        // So that they are two segments; whether they are read as such is not what is asserted.
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let mut socket = engine.connect();
    socket.write_all(&head("connection: close\r\nexpect: 100-continue\r\n")).unwrap();
    let mut word = [0; 25];
    socket.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(body).unwrap();
    answer.clear();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

/// A client that does not read holds up nobody, and gets every byte when it does.
#[test]
fn a_client_that_does_not_read_holds_up_nobody() {
    for options in [&[][..], &["--split"]] {
        let engine = Engine::start(options);
        let mut slow = engine.connect();
        let body = r#"{"prompt":"x","max_tokens":100000,"stream":true}"#;
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        slow.write_all(format!("{head}{body}").as_bytes()).unwrap();
        assert!(engine.ask(Api::Completions, 16, 4).iter().all(|t| t.facts.outcome.is_success()));
        let mut answer = String::new();
        slow.read_to_string(&mut answer).unwrap();
        assert_eq!(answer.matches("data: {").count(), 100_001);
        assert!(answer.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"));
        assert_eq!(engine.arrivals().iter().map(|a| a.events).max(), Some(100_000));
    }
}

/// Once the last answer's clock has run out, it waits: a timer that stays readable would have it spin, on a core where a
/// client may want to run. How long it is looked at changes only how sure the answer is.
#[test]
fn with_nothing_to_do_it_does_nothing() {
    let engine = Engine::start(&["--ttft-ms", "5"]);
    engine.ask(Api::Completions, 4, 2);
    let used = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", engine.process.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        // In hundredths of a second, as the kernel counts for everybody.
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = used();
    std::thread::sleep(Duration::from_millis(500));
    assert!(used() - before < 5, "{} hundredths of a second in half a second", used() - before);
}

#[test]
fn a_signal_ends_it_and_its_file_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("arrivals.jsonl");
    let mut engine = Engine::start(&["--arrivals", file.to_str().unwrap()]);
    engine.ask(Api::Completions, 4, 3);
    let id = rustix::process::Pid::from_child(&engine.process);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(engine.process.wait().unwrap().code(), Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 3);
    let nowhere = Command::new(env!("CARGO_BIN_EXE_agent"))
        .args(["null-engine", "--arrivals", "/nowhere/at/all"])
        .output()
        .unwrap();
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("--arrivals /nowhere/at/all"), "{nowhere:?}");
}
