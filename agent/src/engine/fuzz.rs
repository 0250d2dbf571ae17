//! Checks of the measured path against any bytes: see [`common::fuzz`].

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use common::clock::ManualClock;
use common::fuzz::Target;
use common::ids::{ArrivalIndex, Nanos};
use common::trace::{Trace, Unsent};
use tokio::io::AsyncWriteExt;

use super::connection::{Connection, Wire};
use super::events::{Meaning, both_readings, classify, error_in};
use super::exchange::{Ended, Exchange};
use super::sse;
use super::stream::{Rules, Stream};
use super::trial_clock::TrialClock;

const STREAM: &[u8] = b"\xef\xbb\xbf: hi\r\ndata: {\"choices\":[{\"index\":0,\"text\":\"a\",\"token_ids\":[1]}]}\r\n\r\n\
    data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"r\",\"tool_calls\":[{\"function\":{\"arguments\":\"{\"}}]},\
    \"logprobs\":{\"content\":[{\"token\":\"x\"}]},\"finish_reason\":\"stop\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\
    \"prompt_tokens_details\":{\"cached_tokens\":4}},\"timings\":{\"prompt_ms\":1.5}}\n\nevent: error\ndata: \
    {\"error\":{\"type\":\"server_error\",\"code\":500}}\n\nerror: {\"http_status_code\":500}\n\ndata: a\ndata: b\n\n\
    data: null\n\ndata: [DONE]\n\n";

type Event = [Vec<u8>; 4];

/// The events of a body that comes in pieces; none when one is too long.
fn events(pieces: &[&[u8]]) -> Option<Vec<Event>> {
    let (mut decoder, mut events) = (sse::Decoder::default(), Vec::new());
    let mut collect = |e: sse::Event<'_>| {
        events.push([e.name, e.data, e.comment, e.error].map(<[u8]>::to_vec));
        ControlFlow::Continue(())
    };
    for piece in pieces {
        let _ = decoder.push(piece, &mut collect).ok()?;
    }
    decoder.finish(&mut collect).ok()?;
    Some(events)
}

/// The SSE decoder: any split of the bytes gives the same events, which hold no more than came.
pub const SSE: Target = Target {
    name: "sse",
    valid: || vec![STREAM.to_vec(), b"data: x\r\rdata:y\r\n\r\n".to_vec()],
    check: |bytes| {
        let Some(whole) = events(&[bytes]) else { return };
        let singles: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(events(&singles).as_ref(), Some(&whole), "byte for byte");
        let middle = bytes.first().map_or(0, |&b| usize::from(b) * bytes.len() / 256);
        let (head, tail) = bytes.split_at(middle);
        assert_eq!(events(&[head, tail]).as_ref(), Some(&whole), "in two pieces");
        let held: usize = whole.iter().flatten().map(Vec::len).sum();
        assert!(held <= bytes.len(), "{held} bytes of events from {}", bytes.len());
    },
};

/// What an event means: texts are no longer than the event, and labels are identifiers.
pub const EVENTS: Target = Target {
    name: "events",
    valid: || {
        let texts = events(&[STREAM]).unwrap_or_default();
        texts.into_iter().map(|[_, data, ..]| data).collect()
    },
    check: |bytes| {
        if let Some((in_place, whole)) = both_readings(bytes) {
            assert_eq!(Ok(in_place), whole, "read in place and by serde");
        }
        let label = error_in(bytes).label;
        assert!(label.len() <= 129 && label.is_ascii(), "{label:?}");
        for name in [&b""[..], b"error", b"other"] {
            let event = sse::Event { name, data: bytes, comment: b"", error: bytes };
            match classify(event) {
                Ok(Meaning::Chunk(chunk)) => {
                    let held = chunk.answer.len() + chunk.reasoning.len() + chunk.tool_arguments.len();
                    // One character may be written in fewer bytes than it has, but never in fewer than a third.
                    assert!(held <= 3 * bytes.len(), "{held} bytes of text from {}", bytes.len());
                }
                Ok(Meaning::Error(e)) => assert!(e.label.len() <= 129),
                Ok(Meaning::Done | Meaning::Nothing) => {}
                Err(e) => assert!(e.to_string().len() < 200, "an error that quotes the stream: {e}"),
            }
        }
    },
};

/// What a server sends over a connection ends in exactly one trace, whose books agree.
pub const HTTP: Target = Target {
    name: "http",
    valid: || {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
        let begin = format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n", STREAM.len());
        let chunked = [begin.as_bytes(), STREAM, b"\r\n0\r\ntrailer: x\r\n\r\n"];
        let length = [format!("{head}content-length: {}\r\n\r\n", STREAM.len()).as_bytes(), STREAM].concat();
        let refused = b"HTTP/1.1 503 Busy\r\ncontent-length: 23\r\n\r\n{\"error\":{\"code\":\"full\"}}";
        let odd = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 204 None\r\nconnection: close\r\n\r\n";
        vec![
            chunked.concat(),
            length,
            [format!("{head}\r\n").as_bytes(), STREAM].concat(),
            refused.to_vec(),
            odd.to_vec(),
        ]
    },
    check: |bytes| {
        let trace = answer(bytes);
        assert!(trace.facts.response_bytes as usize <= bytes.len());
        assert!(trace.clocks.content.len() <= bytes.len());
        if trace.facts.outcome.is_success() {
            assert!(!trace.clocks.content.is_empty() && trace.clocks.headers.is_some());
        }
        let text = trace.text.output.as_deref().map_or(0, str::len);
        assert!(text <= 3 * bytes.len(), "{text} bytes of text from {}", bytes.len());
    },
};

/// The trace of a request that is answered with these bytes and the end of the connection.
#[expect(clippy::expect_used, reason = "a check fails by a panic")]
fn answer(bytes: &[u8]) -> Trace {
    let clock = TrialClock::new(Arc::new(ManualClock::at(Nanos(5))), Nanos::ZERO);
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
    let mut stream = Stream::new(rules, unsent, Nanos(0), false, 0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let (ours, mut theirs) = tokio::io::duplex(bytes.len() + 4096);
        // In two reads, cut somewhere.
        let middle = bytes.first().map_or(0, |&b| usize::from(b) * bytes.len() / 256);
        theirs.write_all(&bytes[..middle]).await.expect("there is room");
        let rest = async {
            tokio::task::yield_now().await;
            // The client may have closed already.
            let _ = theirs.write_all(&bytes[middle..]).await;
            let _ = theirs.shutdown().await;
        };
        let connection = Connection::plain(ours, &clock);
        let request = Wire { head: b"POST / HTTP/1.1\r\n\r\n".to_vec(), body: Bytes::from_static(b"{}") };
        let interrupt = pin!(std::future::pending());
        let mut exchange = Exchange { clock: &clock, stream: &mut stream, interrupt };
        let (ended, ()) = tokio::join!(exchange.run(connection, request, false), rest);
        assert!(matches!(ended, Ended::Over(_)), "it ended without a verdict");
    });
    stream.finish(None)
}
