//! An engine that means harm, or is broken as if it did: whatever it sends without end is read no further than a bound,
//! and ends in a named failure.
//!
//! The engine counts what it could write until the client closed. Some megabytes of that lay in the kernel's buffers and
//! were never read; the bounds allow for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use agent::engine::stream::Read;
use common::ids::Nanos;
use common::plan::Target;
use common::trace::{FailureKind, Trace};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

use super::support::{RULES, Rig, SSE_HEAD, chunked, ending, read_request, target, token, written};

const MIB: u64 = 1 << 20;
/// What the kernel may hold on both sides of a connection.
const KERNEL: u64 = 12 * MIB;
/// More than any bound: what an engine offers.
const GIGABYTE: u64 = 1 << 30;
/// Until a client that has closed is seen to have closed.
const PATIENCE: Duration = Duration::from_secs(60);

/// What an engine does with a connection.
#[derive(Clone)]
struct Offer {
    begin: Vec<u8>,
    /// Repeated until the client closes or a gigabyte is written.
    repeat: Vec<u8>,
    /// Between two of them.
    pause: Duration,
}

impl Offer {
    fn new(begin: impl Into<Vec<u8>>, repeat: impl Into<Vec<u8>>) -> Self {
        Self { begin: begin.into(), repeat: repeat.into(), pause: Duration::ZERO }
    }
}

/// A running engine, and what it has done.
struct Rogue {
    port: u16,
    requests: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
    serving: JoinHandle<()>,
}

/// Gives every request the same, one connection after the other.
fn engine(offer: Offer) -> Rogue {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(64 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(16).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (requests, written): (Arc<AtomicU64>, Arc<AtomicU64>) = Default::default();
    let (asked, wrote) = (Arc::clone(&requests), Arc::clone(&written));
    let serving = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        if read_request(&mut socket).await.is_none() {
            return;
        }
        asked.fetch_add(1, Relaxed);
        if socket.write_all(&offer.begin).await.is_err() {
            return;
        }
        while wrote.load(Relaxed) < GIGABYTE && socket.write_all(&offer.repeat).await.is_ok() {
            wrote.fetch_add(offer.repeat.len() as u64, Relaxed);
            tokio::time::sleep(offer.pause).await;
        }
    });
    Rogue { port, requests, written, serving }
}

/// A request to such an engine: its trace, and how much was written until it closed.
async fn faced(offer: Offer, change: impl FnOnce(Target) -> Target) -> (Trace, u64) {
    let rogue = engine(offer);
    let trace = Rig::new(change(target(rogue.port))).send().await;
    let closed = tokio::time::timeout(PATIENCE, rogue.serving).await;
    closed.expect("the connection is closed when the verdict has fallen").unwrap();
    assert_eq!(rogue.requests.load(Relaxed), 1, "nothing is tried again");
    (trace, rogue.written.load(Relaxed))
}

#[track_caller]
fn ended(what: &str, (trace, written): &(Trace, u64), kind: FailureKind, says: &str, bound: u64) {
    let failure = trace.facts.outcome.failure().unwrap_or_else(|| panic!("{what}: a success"));
    assert_eq!(failure.kind, kind, "{what}: {failure:?}");
    assert!(failure.message.contains(says), "{what}: no {says:?} in {:?}", failure.message);
    assert!(*written <= bound + KERNEL, "{what}: {written} bytes were taken of it");
    let kept = trace.text.error_body.as_deref().map_or(0, str::len);
    assert!(kept <= 16 << 10, "{what}: {kept} bytes of it are kept");
}

async fn check(what: &str, offer: Offer, kind: FailureKind, says: &str, bound: u64) {
    ended(what, &faced(offer, |target| target).await, kind, says, bound);
}

/// An HTTP chunk of so many bytes.
fn chunk(bytes: usize, byte: &str) -> String {
    chunked(&byte.repeat(bytes))
}

#[tokio::test]
async fn heads_without_end() {
    let malformed = FailureKind::MalformedStream;
    let ok = "HTTP/1.1 200 OK\r\n";
    let field = format!("x-more: {}\r\n", "of the same ".repeat(10));
    check("fields", Offer::new(ok, field), malformed, "head", MIB).await;
    check("a field", Offer::new(format!("{ok}x-more: "), "a".repeat(1024)), malformed, "head", MIB).await;
    check("a status line", Offer::new("HTTP/1.1 200 ", "O".repeat(1024)), malformed, "head", MIB).await;
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(100);
    check("interim heads", Offer::new("", interim), malformed, "256 KiB", MIB).await;
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(100);
    check("early hints", Offer::new("", hints), malformed, "256 KiB", MIB).await;
}

#[tokio::test]
async fn events_without_end() {
    let malformed = FailureKind::MalformedStream;
    let bound = 8 * MIB;
    check("a line", Offer::new(SSE_HEAD, chunk(64 << 10, "x")), malformed, "4 MiB", bound).await;
    let data = chunked(&format!("data: {}\n", "x".repeat(64 << 10)));
    check("an event of many lines", Offer::new(SSE_HEAD, data), malformed, "4 MiB", bound).await;
    let one = format!("{SSE_HEAD}{}", chunked("data: {\"choices\":[{\"text\":\""));
    check("a text", Offer::new(one, chunk(64 << 10, "x")), malformed, "4 MiB", bound).await;
    let nested = format!("{SSE_HEAD}{}", chunked("data: {\"choices\":"));
    let nesting = format!("{}{}", chunk(1 << 20, "["), chunked("\n\n"));
    check("a nest", Offer::new(nested, nesting), malformed, "", bound).await;
    let lying = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 1073741824\r\n\r\n";
    check("a gigabyte in one event", Offer::new(lying, "x".repeat(64 << 10)), malformed, "4 MiB", bound)
        .await;
}

#[tokio::test]
async fn nothing_without_end() {
    let malformed = FailureKind::MalformedStream;
    let bound = 12 * MIB;
    for (what, nothing) in [
        ("comments", ": still here\n\n"),
        ("empty events", "data: {}\n\n"),
        ("empty choices", "data: {\"choices\":[{\"text\":\"\"}]}\n\n"),
        ("fields that nobody knows", "id: 3\nretry: 4\nnope: 5\n"),
        ("line ends", "\n"),
    ] {
        let offer = Offer::new(SSE_HEAD, chunked(&nothing.repeat((32 << 10) / nothing.len())));
        check(what, offer, malformed, "8 MiB", bound).await;
    }
    let after_a_token = format!("{SSE_HEAD}{}", chunked(&token("a")));
    let offer = Offer::new(after_a_token, chunked(&": still here\n\n".repeat(2000)));
    check("comments after a token", offer, malformed, "8 MiB", bound).await;
    check(
        "blanks in a chunk's size",
        Offer::new(format!("{SSE_HEAD}5"), " ".repeat(4096)),
        malformed,
        "",
        bound,
    )
    .await;
}

#[tokio::test]
async fn framing_without_end() {
    let malformed = FailureKind::MalformedStream;
    let extension = Offer::new(format!("{SSE_HEAD}5;x="), "y".repeat(4096));
    check("a chunk's extension", extension, malformed, "chunk", MIB).await;
    let extensions = Offer::new(SSE_HEAD, "1;a=bcdefghijkl\r\n\n\r\n".repeat(100));
    check("extensions of many chunks", extensions, malformed, "chunk", MIB).await;
    let trailers = Offer::new(format!("{SSE_HEAD}0\r\n"), "x-more: of the same\r\n".repeat(100));
    check("trailers", trailers, malformed, "chunk", MIB).await;
    let size = Offer::new(format!("{SSE_HEAD}1"), "0".repeat(64));
    check("a chunk's size", size, malformed, "chunk", MIB).await;
}

#[tokio::test]
async fn trailers_without_end_after_the_end_take_nothing_from_a_success() {
    let done = format!("{SSE_HEAD}{}{}0\r\n", chunked(&token("a")), chunked(&ending(1)));
    let (trace, written) = faced(Offer::new(done, "x-more: of the same\r\n".repeat(100)), |t| t).await;
    assert!(trace.facts.outcome.is_success(), "{:?}", trace.facts.outcome);
    assert!(written <= MIB + KERNEL, "{written}");
}

#[tokio::test]
async fn what_is_compressed_is_never_taken_apart() {
    // A gzip member that holds zeros without end: a kilobyte of it for a megabyte.
    let bomb = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3].repeat(400);
    for coding in ["gzip", "br", "zstd", "deflate", "identity, gzip"] {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: {coding}\r\n\r\n"
        );
        let what = faced(Offer::new(head, bomb.clone()), |target| target).await;
        ended(coding, &what, FailureKind::MalformedStream, "compressed", MIB);
        let named = what.0.facts.outcome.failure().unwrap().message.clone();
        assert!(named.contains(coding.rsplit(' ').next().unwrap()), "{named}");
    }
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n";
    check("in transfer", Offer::new(head, bomb.clone()), FailureKind::MalformedStream, "gzip", MIB).await;
    let refusal = "HTTP/1.1 500 Oops\r\ncontent-encoding: gzip\r\n\r\n";
    let what = faced(Offer::new(refusal, bomb), |target| target).await;
    ended("a refusal", &what, FailureKind::HttpStatus, "status 500", MIB);
    assert_eq!(what.0.text.error_body, None, "it is no text");
}

#[tokio::test]
async fn refusals_without_end() {
    let status = FailureKind::HttpStatus;
    let head = "HTTP/1.1 503 Service Unavailable\r\n\r\n";
    check("a refusal", Offer::new(head, "sorry ".repeat(1000)), status, "status 503", MIB).await;
    let away = "HTTP/1.1 307 Temporary Redirect\r\nlocation: /v1/completions\r\n\r\n";
    check("a redirect to itself", Offer::new(away, "sorry ".repeat(1000)), status, "status 307", MIB).await;
}

#[tokio::test]
async fn a_drip_is_ended_by_the_deadline() {
    let drip = |begin: &str, drop: &str| Offer {
        pause: Duration::from_millis(10),
        ..Offer::new(begin.to_owned(), drop.to_owned())
    };
    let hasty = |target: Target| Target { total_timeout: Nanos::from_millis(400), ..target };
    let total = FailureKind::TimeoutTotal;
    for (what, offer) in [
        ("a head", drip("", "H")),
        ("a field", drip("HTTP/1.1 200 OK\r\nx: ", "y")),
        ("a body", drip(SSE_HEAD, "1\r\nx\r\n")),
        ("a chunk's size", drip(SSE_HEAD, "0")),
        ("blanks in it", drip(&format!("{SSE_HEAD}1"), " ")),
        ("line ends", drip(SSE_HEAD, "1\r\n\n\r\n")),
    ] {
        // The first byte of a head tells that it is no HTTP, and sixteen digits that it is no size.
        let faced = faced(offer, hasty).await;
        let kind = faced.0.facts.outcome.failure().map(|f| f.kind);
        let told_early =
            matches!(what, "a head" | "a chunk's size") && kind == Some(FailureKind::MalformedStream);
        if !told_early {
            ended(what, &faced, total, "not finished", MIB);
        }
    }
}

#[tokio::test]
async fn a_content_length_that_lies() {
    let sse = |length: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{length}\r\n{}", token("a"))
    };
    let truncated = FailureKind::TruncatedStream;
    // What comes after the body is another answer's beginning, or nothing; it is not this one's.
    let length = format!("content-length: {}\r\n", token("a").len());
    let (trace, taken) = faced(Offer::new(sse(&length), token("b")), |target| target).await;
    ended("too short", &(trace.clone(), taken), truncated, "[DONE]", MIB);
    assert_eq!(trace.clocks.content.len(), 1);
    for length in [
        "content-length: 99999999999999999999999\r\n",
        "content-length: -1\r\n",
        "content-length: 5\r\ncontent-length: 6\r\n",
    ] {
        check(length, Offer::new(sse(length), "x"), FailureKind::MalformedStream, "head", MIB).await;
    }
    let huge = Offer::new(sse("content-length: 9223372036854775807\r\n"), "\n");
    let huge = Offer { pause: Duration::from_millis(10), ..huge };
    let hasty = |target: Target| Target { total_timeout: Nanos::from_millis(400), ..target };
    ended("too long", &faced(huge, hasty).await, FailureKind::TimeoutTotal, "", MIB);
}

#[tokio::test]
async fn what_is_not_measured_is_bounded_too() {
    let malformed = FailureKind::MalformedStream;
    let ok = "HTTP/1.1 200 OK\r\n\r\n";
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for (what, offer, says) in [
        ("a body", Offer::new(ok, "x".repeat(64 << 10)), "2 MiB"),
        ("chunks", Offer::new(chunks, chunk(64 << 10, "x")), "2 MiB"),
        ("framing", Offer::new(format!("{chunks}1"), " ".repeat(4096)), "framing"),
        ("heads", Offer::new("", "HTTP/1.1 100 Continue\r\n\r\n".repeat(100)), "256 KiB"),
        (
            "a bomb",
            Offer::new("HTTP/1.1 200 OK\r\ncontent-encoding: br\r\n\r\n", "x".repeat(4096)),
            "compressed",
        ),
    ] {
        let rogue = engine(offer);
        let failure = Rig::new(target(rogue.port)).client.get("/metrics").await.expect_err(what);
        assert_eq!(failure.kind, malformed, "{what}: {failure:?}");
        assert!(failure.message.contains(says), "{what}: {failure:?}");
        tokio::time::timeout(PATIENCE, rogue.serving).await.expect("the connection is closed").unwrap();
        assert!(rogue.written.load(Relaxed) <= 4 * MIB + KERNEL, "{what}");
    }
}

#[test]
fn a_response_ends_after_a_gigabyte_even_of_content() {
    let mut stream = written(RULES);
    stream.on_head(Nanos(20), 200, Some(b"text/event-stream"));
    let mut read = Read { at: Nanos(21), number: 1 };
    for number in 1..=1024 {
        // A token in each mebibyte: of nothing else there is too much.
        stream.on_wire(read.at, number * MIB);
        stream.on_read(read, token("a").as_bytes());
        assert!(!stream.is_decided(), "after {number} MiB");
        read = Read { at: read.at + Nanos(1), number: read.number + 1 };
    }
    stream.on_wire(read.at, 1025 * MIB);
    let trace = stream.finish(None);
    let failure = trace.facts.outcome.failure().unwrap();
    assert_eq!((failure.kind, failure.message.contains("1 GiB")), (FailureKind::MalformedStream, true));
    assert_eq!(trace.clocks.content.len(), 1024);
}
