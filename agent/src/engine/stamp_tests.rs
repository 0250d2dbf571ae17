//! Each event carries the stamp of the read that brought its last byte, however the reads fall.
//!
//! A scripted socket stands in for the network: it is ready faster than anybody can look, and sets the clock at each
//! read. So the stamp of every event is known from where its last byte lies in the script.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use common::clock::ManualClock;
use common::ids::{ArrivalIndex, Nanos};
use common::trace::{Trace, Unsent};
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::{Connection, Wire};
use super::exchange::{Ended, Exchange};
use super::stream::{Rules, Stream};
use super::trial_clock::TrialClock;

/// One answer, in the reads that the script says.
struct Script {
    clock: Arc<ManualClock>,
    bytes: Vec<u8>,
    at: usize,
    /// Size of each read; after the last one, the end of file.
    sizes: Vec<usize>,
    reads: usize,
    /// Have every read preceded by one that has to wait.
    waits: bool,
    waited: bool,
    /// No answer comes before the request.
    asked: bool,
}

impl AsyncRead for Script {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.asked {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if this.waits && !std::mem::replace(&mut this.waited, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.waited = false;
        this.clock.advance(Nanos(1000));
        let size = this.sizes.get(this.reads).copied().unwrap_or(0).min(into.remaining());
        assert!(size > 0 || this.at == this.bytes.len(), "the script's reads must fit into one read");
        into.put_slice(&this.bytes[this.at..this.at + size]);
        this.at += size;
        this.reads += 1;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().asked = true;
        Poll::Ready(Ok(bytes.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// How the body is framed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Framing {
    /// One HTTP chunk for so many events.
    Chunked(usize),
    Length,
    UntilClosed,
}

/// The bytes of an answer of `n` text events, and where each of them ends.
pub(super) fn answer(n: usize, framing: Framing) -> (Vec<u8>, Vec<usize>) {
    let events: Vec<String> =
        (0..n).map(|i| format!("data: {{\"choices\":[{{\"text\":\"{i} \"}}]}}\n\n")).collect();
    let done = String::from("data: [DONE]\n\n");
    let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n".to_vec();
    let mut ends = Vec::new();
    let per_chunk = match framing {
        Framing::Chunked(k) => {
            bytes.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
            Some(k)
        }
        Framing::Length => {
            let length = events.iter().map(String::len).sum::<usize>() + done.len();
            bytes.extend_from_slice(format!("content-length: {length}\r\n\r\n").as_bytes());
            None
        }
        Framing::UntilClosed => {
            bytes.extend_from_slice(b"\r\n");
            None
        }
    };
    let all: Vec<&String> = events.iter().chain([&done]).collect();
    for chunk in all.chunks(per_chunk.unwrap_or(1)) {
        let length: usize = chunk.iter().map(|e| e.len()).sum();
        if per_chunk.is_some() {
            bytes.extend_from_slice(format!("{length:x}\r\n").as_bytes());
        }
        for event in chunk {
            bytes.extend_from_slice(event.as_bytes());
            ends.push(bytes.len());
        }
        if per_chunk.is_some() {
            bytes.extend_from_slice(b"\r\n");
        }
    }
    if per_chunk.is_some() {
        bytes.extend_from_slice(b"0\r\n\r\n");
    }
    (bytes, ends)
}

/// The instant of the read that brings the byte before `end`: reads are 1000 apart.
fn stamp(sizes: &[usize], end: usize) -> Nanos {
    let mut sum = 0;
    let before = sizes.iter().take_while(|&&size| {
        sum += size;
        sum < end
    });
    Nanos((before.count() as u64 + 1) * 1000)
}

/// A request that nothing ends but its answer.
pub(super) fn patient() -> Stream {
    let forever = Nanos::from_secs(1000);
    let rules = Rules {
        sends_done: true,
        ignore_eos: false,
        keep_text: true,
        total_timeout: forever,
        idle_timeout: forever,
    };
    let unsent = Unsent {
        index: ArrivalIndex(0),
        scheduled: Nanos(0),
        row: 0,
        requested_tokens: 1,
        prompt_tokens: None,
    };
    Stream::new(rules, unsent, Nanos(0), false, 0)
}

/// The trace of an answer that comes in reads of these sizes.
pub(super) fn run(bytes: &[u8], sizes: &[usize], waits: bool) -> Trace {
    let manual = Arc::new(ManualClock::at(Nanos::ZERO));
    let clock = TrialClock::new(manual.clone(), Nanos::ZERO);
    let mut stream = patient();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let script = Script {
            clock: manual,
            bytes: bytes.to_vec(),
            at: 0,
            sizes: sizes.to_vec(),
            reads: 0,
            waits,
            waited: false,
            asked: false,
        };
        let connection = Connection::plain(script, &clock);
        let request = Wire { head: b"POST / HTTP/1.1\r\n\r\n".to_vec(), body: Bytes::from_static(b"{}") };
        let interrupt = pin!(std::future::pending());
        let mut exchange = Exchange { clock: &clock, stream: &mut stream, interrupt };
        assert!(matches!(exchange.run(connection, request, false).await, Ended::Over(_)));
    });
    stream.finish(None)
}

fn check(n: usize, framing: Framing, cuts: &[usize], waits: bool) {
    let (bytes, ends) = answer(n, framing);
    let mut cuts: Vec<usize> = cuts.iter().map(|c| c % bytes.len()).filter(|&c| c > 0).collect();
    cuts.push(bytes.len());
    cuts.sort_unstable();
    cuts.dedup();
    let sizes: Vec<usize> =
        cuts.iter().scan(0, |last, &cut| Some(cut - std::mem::replace(last, cut))).collect();
    let trace = run(&bytes, &sizes, waits);
    assert!(trace.facts.outcome.is_success(), "{:?}", trace.facts.outcome);
    let expected: Vec<Nanos> = ends.iter().map(|&end| stamp(&sizes, end)).collect();
    let seen: Vec<Nanos> = trace.clocks.content.iter().map(|e| e.at).collect();
    assert_eq!(seen, expected[..n], "{framing:?} in reads of {sizes:?}");
    assert_eq!(trace.clocks.finished, expected[n]);
    let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(trace.clocks.headers, Some(stamp(&sizes, head)));
    let shared = expected[..n].windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!(trace.facts.coalesced_events as usize, shared);
    let text: String = (0..n).map(|i| format!("{i} ")).collect();
    assert_eq!(trace.text.output, Some(text));
}

fn framings() -> impl Strategy<Value = Framing> {
    prop_oneof![(1usize..5).prop_map(Framing::Chunked), Just(Framing::Length), Just(Framing::UntilClosed)]
}

proptest! {
    #[test]
    fn every_event_has_the_stamp_of_its_own_read(
        n in 1usize..20,
        framing in framings(),
        cuts in proptest::collection::vec(any::<u16>().prop_map(usize::from), 0..60),
        waits in any::<bool>(),
    ) {
        check(n, framing, &cuts, waits);
    }
}

#[test]
fn one_segment_for_each_event_always_ready() {
    for framing in [Framing::Chunked(1), Framing::Length, Framing::UntilClosed] {
        let (bytes, ends) = answer(50, framing);
        let trailer = bytes.len() - ends[50];
        let cuts: Vec<usize> = ends.iter().map(|end| end + trailer.min(2)).collect();
        check(50, framing, &cuts, false);
        check(50, framing, &(0..bytes.len()).collect::<Vec<_>>(), false);
    }
}

#[test]
fn many_events_in_one_segment() {
    for framing in [Framing::Chunked(1), Framing::Chunked(7), Framing::Length, Framing::UntilClosed] {
        check(50, framing, &[], false);
        check(50, framing, &[900, 1800], true);
    }
}
