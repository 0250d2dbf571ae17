//! Deadlines, without any waiting: the state machine gets its stamps from the test.

use agent::engine::stream::{BodyEnd, Read, Rules, Stream};
use common::ids::Nanos;
use common::trace::{FailureKind, Trace};

use super::support::{RULES, UNSENT, token, written};

const LIMITS: Rules = Rules { total_timeout: Nanos(1000), idle_timeout: Nanos(100), ..RULES };

fn begun() -> Stream {
    let mut stream = written(LIMITS);
    stream.on_head(Nanos(20), 200, Some(b"text/event-stream"));
    stream
}

fn read(stream: &mut Stream, at: u64, text: &str) {
    stream.on_read(Read { at: Nanos(at), number: at }, text.as_bytes());
}

fn ended(trace: &Trace) -> (Option<FailureKind>, u64) {
    (trace.facts.outcome.failure().map(|f| f.kind), trace.clocks.finished.0)
}

#[test]
fn total_counts_from_the_first_byte_written() {
    let mut stream = Stream::new(LIMITS, UNSENT, Nanos(5), false, 0);
    assert_eq!(stream.deadline(), None, "connecting has a limit of its own");
    stream.on_connected(Nanos(7));
    assert_eq!(stream.deadline(), Some(Nanos(1007)), "until the first byte is written");
    stream.on_written(Nanos(10));
    assert_eq!(stream.deadline(), Some(Nanos(1010)));
    stream.on_time(Nanos(1009));
    assert!(!stream.is_decided());
    stream.on_time(Nanos(1010));
    assert_eq!(ended(&stream.finish(None)), (Some(FailureKind::TimeoutTotal), 1010));
}

#[test]
fn an_engine_that_queues_may_be_silent() {
    let mut stream = begun();
    read(&mut stream, 900, ": ping\n\n");
    assert_eq!(stream.deadline(), Some(Nanos(1010)), "idle starts at the first content");
}

#[test]
fn idle_counts_from_content_to_content_and_comments_do_not_reset_it() {
    let mut stream = begun();
    read(&mut stream, 500, &token("a"));
    assert_eq!(stream.deadline(), Some(Nanos(600)));
    read(&mut stream, 550, &token("b"));
    assert_eq!(stream.deadline(), Some(Nanos(650)));
    read(&mut stream, 600, ": ping\n\ndata: {\"choices\":[{\"text\":\"\"}]}\n\n");
    assert_eq!(stream.deadline(), Some(Nanos(650)));
    stream.on_time(Nanos(650));
    let trace = stream.finish(None);
    assert_eq!(ended(&trace), (Some(FailureKind::TimeoutIdle), 650));
    assert_eq!(trace.clocks.content.len(), 2);
}

#[test]
fn a_stream_that_keeps_sending_is_cut_too() {
    let mut stream = begun();
    let mut at = 20;
    while !stream.is_decided() {
        at += 30;
        read(&mut stream, at, &token("a"));
    }
    let trace = stream.finish(None);
    assert_eq!(ended(&trace), (Some(FailureKind::TimeoutTotal), 1010));
    assert!(trace.clocks.last_content() < Some(Nanos(1010)));
}

#[test]
fn what_comes_after_a_deadline_is_too_late_even_if_the_timer_did_not_ring() {
    let mut stream = begun();
    read(&mut stream, 500, &token("a"));
    read(&mut stream, 700, &token("b"));
    assert_eq!(ended(&stream.finish(None)), (Some(FailureKind::TimeoutIdle), 700));
}

#[test]
fn the_body_of_a_refusal_is_not_waited_for() {
    let mut stream = written(Rules { total_timeout: Nanos::from_secs(100), ..RULES });
    stream.on_head(Nanos(20), 503, None);
    assert_eq!(stream.deadline(), Some(Nanos(20) + Nanos::from_secs(5)));
    stream.on_time(Nanos::from_secs(6));
    assert_eq!(ended(&stream.finish(None)).0, Some(FailureKind::HttpStatus));
}

#[test]
fn a_replaced_connection_starts_the_request_over() {
    let mut stream = written(LIMITS);
    stream.on_reconnection();
    assert_eq!(stream.deadline(), None);
    stream.on_connected(Nanos(50));
    stream.on_written(Nanos(60));
    assert_eq!(stream.deadline(), Some(Nanos(1060)));
    stream.on_end(Nanos(70), BodyEnd::Truncated);
    let trace = stream.finish(None);
    assert_eq!((trace.clocks.scheduled, trace.facts.reconnections), (UNSENT.scheduled, 1));
    assert_eq!((trace.clocks.connected, trace.clocks.written), (Some(Nanos(50)), Some(Nanos(60))));
}
