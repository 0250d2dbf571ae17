//! Every failure that an engine or a network can cause, over real sockets, by its name.
//!
//! Only kinds and orders are asserted, never how long something took.

use std::time::Duration;

use common::ids::Nanos;
use common::plan::Target;
use common::trace::{FailureKind, Trace};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::support::{
    Rig, SSE_HEAD, chunked, ending, good_response, listen, read_request, target, token, write,
};

/// What an engine does after it has written its answer.
#[derive(Clone, Copy)]
enum Then {
    /// Closes the connection.
    Close,
    /// Resets it.
    Reset,
    /// Keeps it open and says nothing more.
    Hold,
    /// Repeats this for ever, with a pause between.
    Repeat(&'static str, Duration),
}

/// An engine that gives every request the same answer.
async fn engine(answer: String, then: Then) -> u16 {
    let (listener, port) = listen().await;
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                if read_request(&mut socket).await.is_some() {
                    write(&mut socket, &answer).await;
                    finish(socket, then).await;
                }
            });
        }
    });
    port
}

async fn finish(mut socket: TcpStream, then: Then) {
    match then {
        Then::Close => {}
        Then::Reset => {
            // What was written must arrive before the reset does, for a reset overtakes what waits to be sent.
            tokio::time::sleep(Duration::from_millis(50)).await;
            socket.set_zero_linger().unwrap();
        }
        Then::Hold => {
            let _ = socket.read(&mut [0; 16]).await;
        }
        Then::Repeat(text, pause) => {
            use tokio::io::AsyncWriteExt;
            while socket.write_all(text.as_bytes()).await.is_ok() {
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

/// Short enough for a test, long enough for an answer on a busy machine.
fn impatient(port: u16) -> Target {
    Target { total_timeout: Nanos::from_millis(400), ..target(port) }
}

async fn answer_of(answer: String, then: Then) -> Trace {
    Rig::new(target(engine(answer, then).await)).send().await
}

#[track_caller]
fn assert_kind(what: &str, trace: &Trace, kind: FailureKind) {
    let failure = trace.facts.outcome.failure().unwrap_or_else(|| panic!("{what}: a success"));
    assert_eq!(failure.kind, kind, "{what}: {failure:?}");
    let message = &failure.message;
    assert!(!message.is_empty() && !message.contains('\n') && message.len() < 200, "{what}: {message:?}");
    assert!(message.starts_with(|c: char| !c.is_uppercase()), "{what}: {message:?}");
    let c = &trace.clocks;
    let order = [
        Some(c.scheduled),
        c.released,
        c.connected,
        c.written,
        c.headers,
        c.first_content(),
        c.last_content(),
    ];
    let order: Vec<Nanos> = order.into_iter().flatten().chain([c.finished]).collect();
    assert!(order.is_sorted(), "{what}: {c:?}");
}

fn sse(events: &[String]) -> String {
    format!("{SSE_HEAD}{}", events.iter().map(|e| chunked(e)).collect::<String>())
}

fn closed(events: &[String]) -> String {
    sse(events) + "0\r\n\r\n"
}

#[tokio::test]
async fn a_success_has_every_clock_and_count() {
    let t = answer_of(good_response(), Then::Hold).await;
    assert!(t.facts.outcome.is_success(), "{:?}", t.facts.outcome);
    let c = &t.clocks;
    let order = [
        Some(c.scheduled),
        c.released,
        c.connected,
        c.written,
        c.headers,
        c.first_content(),
        Some(c.finished),
    ];
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{c:?}");
    assert_eq!((t.facts.output_tokens.count, t.facts.prompt_tokens), (Some(3), Some(2)));
    assert_eq!((t.facts.http_status, t.facts.done_seen, t.facts.reconnections), (Some(200), true, 0));
    assert_eq!(t.text.output.as_deref(), Some("abc"));
    assert!(t.facts.request_bytes > 0 && t.facts.response_bytes > 0 && !t.facts.synthetic);
}

#[tokio::test]
async fn http_status() {
    let body = "{\"error\":{\"message\":\"sk-secret is wrong\",\"type\":\"auth\"}}";
    let head = format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let t = answer_of(head, Then::Hold).await;
    assert_kind("401", &t, FailureKind::HttpStatus);
    assert_eq!(t.facts.outcome.failure().unwrap().message, "status 401 (auth)");
    assert_eq!(
        t.text.error_body.as_deref(),
        Some("{\"error\":{\"message\":\"[redacted] is wrong\",\"type\":\"auth\"}}")
    );
    assert_eq!(t.facts.http_status, Some(401));
    let cut = "HTTP/1.1 500 Oops\r\ncontent-length: 100\r\n\r\nhalf".to_owned();
    assert_kind("a refusal that is cut", &answer_of(cut, Then::Close).await, FailureKind::HttpStatus);
    let redirect = "HTTP/1.1 302 Found\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n".to_owned();
    assert_kind(
        "redirects are not followed",
        &answer_of(redirect, Then::Hold).await,
        FailureKind::HttpStatus,
    );
}

#[tokio::test]
async fn error_event() {
    let error = "data: {\"error\":{\"message\":\"The request queue is full.\",\"code\":503}}\n\n".to_owned();
    let t = answer_of(closed(&[error, "data: [DONE]\n\n".into()]), Then::Hold).await;
    assert_kind("200 and then an error", &t, FailureKind::ErrorEvent);
    assert_eq!(t.facts.http_status, Some(200));
}

#[tokio::test]
async fn engine_aborted() {
    let abort = ending(1).replace("length", "abort");
    let t = answer_of(closed(&[token("a"), abort]), Then::Hold).await;
    assert_kind("finish reason abort", &t, FailureKind::EngineAborted);
}

#[tokio::test]
async fn no_content() {
    assert_kind(
        "only [DONE]",
        &answer_of(closed(&["data: [DONE]\n\n".into()]), Then::Hold).await,
        FailureKind::NoContent,
    );
    assert_kind("no events", &answer_of(closed(&[]), Then::Hold).await, FailureKind::NoContent);
    let empty = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned();
    assert_kind("empty body", &answer_of(empty, Then::Hold).await, FailureKind::NoContent);
}

#[tokio::test]
async fn truncated_stream() {
    let t = answer_of(sse(&[token("a")]), Then::Close).await;
    assert_kind("no last chunk", &t, FailureKind::TruncatedStream);
    assert_eq!(t.clocks.content.len(), 1);
    let t = answer_of(closed(&[token("a")]), Then::Hold).await;
    assert_kind("no [DONE]", &t, FailureKind::TruncatedStream);
    let short = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 999\r\n\r\n{}",
        token("a")
    );
    assert_kind(
        "content-length not reached",
        &answer_of(short, Then::Close).await,
        FailureKind::TruncatedStream,
    );
    let open = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{}", token("a"));
    assert_kind(
        "until closed, without [DONE]",
        &answer_of(open, Then::Close).await,
        FailureKind::TruncatedStream,
    );
}

#[tokio::test]
async fn malformed_stream() {
    let t = answer_of(closed(&[token("a"), "data: oops\n\n".into()]), Then::Hold).await;
    assert_kind("not JSON", &t, FailureKind::MalformedStream);
    let chunk = format!("{}zz\r\n", sse(&[token("a")]));
    assert_kind("chunk size", &answer_of(chunk, Then::Close).await, FailureKind::MalformedStream);
    assert_kind(
        "no HTTP",
        &answer_of("220 smtp ready\r\n\r\n".into(), Then::Close).await,
        FailureKind::MalformedStream,
    );
    let json =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 14\r\n\r\n{\"choices\":[]}"
            .to_owned();
    // A chunk-like object outside of an event is no event.
    assert_kind("no stream", &answer_of(json, Then::Hold).await, FailureKind::MalformedStream);
    let endless =
        Then::Repeat("x-more: of the same, of the same, of the same, of the same\r\n", Duration::ZERO);
    assert_kind(
        "endless head",
        &answer_of("HTTP/1.1 200 OK\r\n".into(), endless).await,
        FailureKind::MalformedStream,
    );
}

#[tokio::test]
async fn an_endless_line_is_malformed_and_costs_bounded_memory() {
    const MIB: &str = "100000\r\n";
    let (listener, port) = listen().await;
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        read_request(&mut socket).await;
        write(&mut socket, SSE_HEAD).await;
        let chunk = format!("{MIB}{}\r\n", "x".repeat(1 << 20));
        for _ in 0..64 {
            write(&mut socket, &chunk).await;
        }
    });
    assert_kind("endless line", &Rig::new(target(port)).send().await, FailureKind::MalformedStream);
}

#[tokio::test]
async fn reset() {
    assert_kind("closed before a head", &answer_of(String::new(), Then::Close).await, FailureKind::Reset);
    assert_kind(
        "closed within a head",
        &answer_of("HTTP/1.1 200 OK\r\nco".into(), Then::Close).await,
        FailureKind::Reset,
    );
    assert_kind("reset before a head", &answer_of(String::new(), Then::Reset).await, FailureKind::Reset);
    let t = answer_of(sse(&[token("a")]), Then::Reset).await;
    assert_kind("reset after a token", &t, FailureKind::Reset);
    assert_eq!(t.clocks.content.len(), 1);
    let t = answer_of(sse(&[token("a"), ending(1)]), Then::Reset).await;
    assert!(t.facts.outcome.is_success(), "the stream had ended: {:?}", t.facts.outcome);
}

#[tokio::test]
async fn connect() {
    let (listener, port) = listen().await;
    drop(listener);
    let t = Rig::new(target(port)).send().await;
    assert_kind("nobody listens", &t, FailureKind::Connect);
    assert_eq!((t.clocks.connected, t.clocks.written), (None, None));
    let name = Target { base_url: "http://no-such-host.invalid".parse().unwrap(), ..target(1) };
    assert_kind("no such name", &Rig::new(name).send().await, FailureKind::Connect);
}

#[tokio::test]
async fn a_connection_that_is_not_accepted_ends_in_connect() {
    // The kernel accepts for a listener until its queue is full, and then lets connections wait.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut waiting = Vec::new();
    let patience = Duration::from_millis(200);
    while let Ok(Ok(more)) = tokio::time::timeout(patience, TcpStream::connect(("127.0.0.1", port))).await {
        waiting.push(more);
    }
    let t = Rig::new(Target { connect_timeout: Nanos::from_millis(100), ..target(port) }).send().await;
    assert_kind("no answer to connect", &t, FailureKind::Connect);
    assert!(t.facts.outcome.failure().unwrap().message.contains("within 0.1 s"));
}

#[tokio::test]
async fn timeout_total() {
    let busy = Duration::from_millis(20);
    let head = SSE_HEAD.to_owned();
    let (ping, event) = ("3\r\n:\n\n\r\n", "28\r\ndata: {\"choices\":[{\"text\":\"tick\"}]}   \n\n\r\n");
    for (what, answer, then) in [
        ("no head", String::new(), Then::Hold),
        ("half a head", "HTTP/1.1 200 OK\r\n".to_owned(), Then::Hold),
        ("a head that drips", String::from("HTTP/1.1 200 OK\r\n"), Then::Repeat("a: b\r\n", busy)),
        ("heads that are none", String::new(), Then::Repeat("HTTP/1.1 100 Continue\r\n\r\n", busy)),
        ("no events", head.clone(), Then::Hold),
        ("comments", head.clone(), Then::Repeat(ping, busy)),
        ("comments without a pause", head.clone(), Then::Repeat(ping, Duration::ZERO)),
        ("content for ever", head.clone(), Then::Repeat(event, busy)),
        ("content without a pause", head, Then::Repeat(event, Duration::ZERO)),
    ] {
        let t = Rig::new(impatient(engine(answer, then).await)).send().await;
        assert_kind(what, &t, FailureKind::TimeoutTotal);
        assert!(t.clocks.finished.since(t.clocks.written.unwrap()) >= Nanos::from_millis(400), "{what}");
    }
}

#[tokio::test]
async fn timeout_idle() {
    let ping = "3\r\n:\n\n\r\n";
    for (what, then) in [
        ("silence after a token", Then::Hold),
        ("comments after a token", Then::Repeat(ping, Duration::from_millis(20))),
        ("comments without a pause", Then::Repeat(ping, Duration::ZERO)),
    ] {
        let port = engine(sse(&[token("a")]), then).await;
        let t = Rig::new(Target { idle_timeout: Nanos::from_millis(200), ..target(port) }).send().await;
        assert_kind(what, &t, FailureKind::TimeoutIdle);
        assert!(
            t.clocks.finished.since(t.clocks.last_content().unwrap()) >= Nanos::from_millis(200),
            "{what}"
        );
    }
}

#[tokio::test]
async fn cancelled() {
    for (what, answer) in [("before a head", String::new()), ("in a stream", sse(&[token("a")]))] {
        let rig = Rig::new(target(engine(answer, Then::Hold).await));
        let cut = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            rig.cancel.send_replace(true);
        };
        let (t, ()) = tokio::join!(rig.send(), cut);
        assert_kind(what, &t, FailureKind::Cancelled);
    }
    let rig = Rig::new(target(engine(good_response(), Then::Hold).await));
    let (cancel, mut watched) = tokio::sync::watch::channel(false);
    drop(cancel);
    let t = rig.client.send(rig.outgoing(), &mut watched).await;
    assert!(t.facts.outcome.is_success(), "nobody who could cancel is no cancellation");
}
