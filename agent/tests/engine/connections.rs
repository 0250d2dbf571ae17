//! When a connection is used again, when it is replaced, and when it must not be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::dialect::Answer;
use common::ids::Nanos;
use common::plan::Target;
use common::trace::{FailureKind, Trace};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::support::{Rig, SSE_HEAD, chunked, good_response, listen, read_request, target, token, write};

/// An engine that counts what it sees.
struct Engine {
    port: u16,
    accepted: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    /// Connections that the client has closed.
    gone: Arc<AtomicUsize>,
    /// Closes all idle connections when it becomes true.
    close: watch::Sender<bool>,
}

impl Engine {
    /// Answers request `n` of the whole engine with `answer(n)`; closes after an answer that is none.
    async fn start(answer: impl Fn(usize) -> Option<String> + Send + Sync + 'static) -> Self {
        let (listener, port) = listen().await;
        let engine = Self {
            port,
            accepted: Arc::default(),
            requests: Arc::default(),
            gone: Arc::default(),
            close: watch::Sender::new(false),
        };
        let (accepted, requests, gone) =
            (engine.accepted.clone(), engine.requests.clone(), engine.gone.clone());
        let close = engine.close.subscribe();
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let (requests, gone, mut close, answer) =
                    (requests.clone(), gone.clone(), close.clone(), answer.clone());
                // Only what is idle now is to be closed, not what comes after.
                close.mark_unchanged();
                tokio::spawn(async move {
                    loop {
                        let asked = tokio::select! {
                            asked = read_request(&mut socket) => asked,
                            _ = close.changed() => return,
                        };
                        if asked.is_none() {
                            gone.fetch_add(1, Ordering::SeqCst);
                            return;
                        }
                        let n = requests.fetch_add(1, Ordering::SeqCst);
                        match answer(n) {
                            Some(text) => write(&mut socket, &text).await,
                            None => return,
                        }
                    }
                });
            }
        });
        engine
    }

    fn seen(&self) -> (usize, usize) {
        (self.accepted.load(Ordering::SeqCst), self.requests.load(Ordering::SeqCst))
    }

    async fn close_idle(&self) {
        self.close.send_replace(true);
        pause().await;
    }

    async fn until_gone(&self, n: usize) {
        while self.gone.load(Ordering::SeqCst) < n {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Lets the other end see what happened.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(30)).await;
}

#[track_caller]
fn assert_success(t: &Trace) {
    assert!(t.facts.outcome.is_success(), "{:?}", t.facts.outcome);
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let engine = Engine::start(|_| Some(good_response())).await;
    let rig = Rig::new(target(engine.port));
    for n in 0..5 {
        let t = rig.send().await;
        assert_success(&t);
        assert_eq!(t.clocks.connected == t.clocks.released, n > 0, "warm from the second on");
        assert_eq!(t.facts.reconnections, 0);
    }
    assert_eq!(engine.seen(), (1, 5));
}

#[tokio::test]
async fn warm_connections_are_opened_once_and_used() {
    let engine = Engine::start(|_| Some(good_response())).await;
    let rig = Rig::new(target(engine.port));
    assert_eq!(rig.client.warm(3).await, Ok(3));
    assert_eq!(rig.client.warm(3).await, Ok(3));
    let (a, b, c) = tokio::join!(rig.send(), rig.send(), rig.send());
    for t in [a, b, c] {
        assert_success(&t);
        assert_eq!(t.clocks.connected, t.clocks.released);
    }
    pause().await;
    assert_eq!(engine.seen(), (3, 3));
    let (listener, port) = listen().await;
    drop(listener);
    assert_eq!(Rig::new(target(port)).client.warm(2).await.unwrap_err().kind, FailureKind::Connect);
}

#[tokio::test]
async fn a_connection_closed_while_idle_is_replaced_and_counted() {
    let engine = Engine::start(|_| Some(good_response())).await;
    let rig = Rig::new(target(engine.port));
    assert_success(&rig.send().await);
    engine.close_idle().await;
    let outgoing = rig.outgoing();
    let scheduled = outgoing.unsent.scheduled;
    let t = rig.client.send(outgoing, &mut rig.cancel.subscribe()).await;
    assert_success(&t);
    assert_eq!((t.facts.reconnections, t.clocks.scheduled), (1, scheduled));
    assert!(t.clocks.connected > t.clocks.released);
    assert_eq!(engine.seen(), (2, 2));
}

#[tokio::test]
async fn a_connection_found_closed_only_after_writing_is_replaced_once() {
    // The second request is read and answered by closing: as if the engine had closed just before it came.
    let engine = Engine::start(|n| (n != 1).then(good_response)).await;
    let rig = Rig::new(target(engine.port));
    assert_success(&rig.send().await);
    let t = rig.send().await;
    assert_success(&t);
    assert_eq!(t.facts.reconnections, 1);
    assert_eq!(engine.seen(), (2, 3));
    assert!(t.clocks.written >= t.clocks.connected && t.clocks.connected > t.clocks.released);
}

#[tokio::test]
async fn it_is_replaced_once_and_no_more() {
    let engine = Engine::start(|n| (n == 0).then(good_response)).await;
    let rig = Rig::new(target(engine.port));
    assert_success(&rig.send().await);
    let t = rig.send().await;
    assert_eq!(t.facts.outcome.failure().map(|f| f.kind), Some(FailureKind::Reset));
    assert_eq!((t.facts.reconnections, engine.seen()), (1, (2, 3)));
    // A fresh connection that is closed on is not retried at all.
    let t = rig.send().await;
    assert_eq!(t.facts.outcome.failure().map(|f| f.kind), Some(FailureKind::Reset));
    assert_eq!((t.facts.reconnections, engine.seen()), (0, (3, 4)));
}

#[tokio::test]
async fn after_a_byte_of_an_answer_nothing_is_sent_again() {
    let engine =
        Engine::start(|n| if n == 0 { Some(good_response()) } else { Some("HTTP/1.1 2".into()) }).await;
    let rig = Rig::new(target(engine.port));
    assert_success(&rig.send().await);
    let (t, ()) = tokio::join!(rig.send(), async {
        pause().await;
        engine.close_idle().await;
    });
    assert_eq!(t.facts.outcome.failure().map(|f| f.kind), Some(FailureKind::Reset));
    assert_eq!((t.facts.reconnections, engine.seen()), (0, (1, 2)));
}

#[tokio::test]
async fn a_refusal_or_an_error_event_with_a_clean_end_leaves_the_connection_usable() {
    let full = "data: {\"error\":{\"code\":503}}\n\n".to_owned();
    let answers = [
        "HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy".to_owned(),
        format!("{SSE_HEAD}{}{}0\r\n\r\n", chunked(&full), chunked("data: [DONE]\n\n")),
        good_response(),
    ];
    let engine = Engine::start(move |n| answers.get(n).cloned()).await;
    let rig = Rig::new(target(engine.port));
    let kinds = [rig.send().await, rig.send().await, rig.send().await]
        .map(|t| t.facts.outcome.failure().map(|f| f.kind));
    assert_eq!(kinds, [Some(FailureKind::HttpStatus), Some(FailureKind::ErrorEvent), None]);
    assert_eq!(engine.seen(), (1, 3));
}

#[tokio::test]
async fn a_connection_is_not_used_again_after_it_failed_or_was_told_to_close() {
    let malformed = format!("{SSE_HEAD}{}", chunked("data: oops\n\n"));
    let closing = good_response().replace("transfer-encoding", "connection: close\r\ntransfer-encoding");
    let unread = format!("{}{}", good_response(), "HTTP/1.1 200 OK\r\n\r\n");
    let broken = good_response().replace("\r\n0\r\n\r\n", "XX\r\n0\r\n\r\n");
    for (what, first) in [
        ("malformed", malformed.clone()),
        ("malformed, but complete", malformed + "0\r\n\r\n"),
        ("connection: close", closing),
        ("more than was asked for", unread),
        ("broken framing after the end mark", broken),
    ] {
        let engine = Engine::start(move |n| Some(if n == 0 { first.clone() } else { good_response() })).await;
        let rig = Rig::new(target(engine.port));
        rig.send().await;
        let t = rig.send().await;
        assert_success(&t);
        assert_eq!(engine.seen(), (2, 2), "{what}");
    }
}

#[tokio::test]
async fn a_body_that_does_not_end_after_the_end_mark_costs_only_the_connection() {
    let open = format!("{SSE_HEAD}{}{}", chunked(&token("a")), chunked("data: [DONE]\n\n"));
    let engine = Engine::start(move |n| Some(if n == 0 { open.clone() } else { good_response() })).await;
    let rig = Rig::new(target(engine.port));
    assert_success(&rig.send().await);
    assert_success(&rig.send().await);
    assert_eq!(engine.seen(), (2, 2));
}

#[tokio::test]
async fn cancelling_and_timing_out_close_the_connection() {
    let engine = Engine::start(|_| Some(format!("{SSE_HEAD}{}", chunked(&token("a"))))).await;
    let rig = Rig::new(Target { idle_timeout: Nanos::from_millis(100), ..target(engine.port) });
    assert_eq!(rig.send().await.facts.outcome.failure().unwrap().kind, FailureKind::TimeoutIdle);
    engine.until_gone(1).await;
    let rig = Rig::new(target(engine.port));
    let (t, ()) = tokio::join!(rig.send(), async {
        pause().await;
        rig.cancel.send_replace(true);
    });
    assert_eq!(t.facts.outcome.failure().unwrap().kind, FailureKind::Cancelled);
    engine.until_gone(2).await;
}

#[tokio::test]
async fn a_request_can_be_spawned_and_dropped() {
    let engine = Engine::start(|_| Some(String::new())).await;
    let rig = Rig::new(target(engine.port));
    let (client, outgoing, mut cancel) = (rig.client.clone(), rig.outgoing(), rig.cancel.subscribe());
    let task = tokio::spawn(async move { client.send(outgoing, &mut cancel).await });
    pause().await;
    task.abort();
    engine.until_gone(1).await;
}

#[tokio::test]
async fn get_gives_status_and_body_and_is_bounded() {
    let big = format!("HTTP/1.1 200 OK\r\ncontent-length: {0}\r\n\r\n{1}", 5 << 20, "x".repeat(5 << 20));
    let (listener, port) = listen().await;
    tokio::spawn(async move {
        let mut answers =
            ["HTTP/1.1 404 No\r\ncontent-length: 2\r\n\r\nno".to_owned(), big, String::new()].into_iter();
        while let Ok((mut socket, _)) = listener.accept().await {
            let asked: Option<String> = read_request(&mut socket).await;
            assert!(asked.unwrap().starts_with("GET /v1/models HTTP/1.1\r\n"));
            write(&mut socket, &answers.next().unwrap()).await;
            let _: TcpStream = socket;
        }
    });
    let rig = Rig::new(target(port));
    assert_eq!(
        rig.client.get("/v1/models").await,
        Ok(Answer { status: 404, server: None, body: b"no".to_vec() })
    );
    assert_eq!(rig.client.get("/v1/models").await.unwrap_err().kind, FailureKind::MalformedStream);
    assert_eq!(rig.client.get("/v1/models").await.unwrap_err().kind, FailureKind::Reset);
}
