//! One request as a state machine: stamps and bytes go in, a trace comes out.
//!
//! It decides how a request ended, by section 2 of the specification and nothing else. It is pure: whoever drives it
//! brings the stamps and watches its [`Stream::deadline`]. Once the verdict has fallen nothing changes it; bytes that
//! come later are counted and ignored.
//!
//! Guarded by `tests/engine/`: captures, dialects and garbage: recorded and reported streams, in any
//! split, end in the expected trace.

mod verdict;

use std::ops::ControlFlow;

use common::ids::Nanos;
use common::plan::Target;
use common::trace::{Channel, ContentEvent, Failure, FailureKind, Outcome, Trace, Unsent};

use self::verdict::labelled;
use super::events::{self, Chunk, Malformed, Meaning};
use super::evidence::Evidence;
use super::faults;
use super::secret::Secret;
use super::sse;
use super::transcript::{MAX_ERROR_BYTES, Transcript};

/// Content events kept of one request: 16 MiB of stamps. No engine generates that many tokens for one request.
const MAX_CONTENT_EVENTS: usize = 1 << 20;
/// How long the body of an error response is waited for.
const ERROR_BODY_GRACE: Nanos = Nanos::from_secs(5);
/// How much of an error response is read, so that its connection may be used again.
const MAX_ERROR_RESPONSE: u64 = 64 << 10;

/// What a response may bring without any content, of the socket's bytes: twice the longest event. Comments,
/// empty events and the framing of HTTP end here, long before the total timeout where the network is fast.
const MAX_WITHOUT_CONTENT: u64 = 8 << 20;
/// The longest response, of the socket's bytes: a thousand for each content event there may be.
const MAX_RESPONSE: u64 = 1 << 30;

/// What the plan says about judging a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The stream ends with `data: [DONE]`. Only where an engine is known never to send it is a finish reason with
    /// a clean end of the body an end too.
    pub sends_done: bool,
    /// The engine was told to generate exactly `max_tokens`.
    pub ignore_eos: bool,
    /// Keep texts, not only their hash and length.
    pub keep_text: bool,
    /// From the first byte written to the end.
    pub total_timeout: Nanos,
    /// Between content events.
    pub idle_timeout: Nanos,
}

impl Rules {
    /// The rules of requests to `target`.
    #[must_use]
    pub fn of(target: &Target) -> Self {
        Self {
            sends_done: target.dialect.traits().sends_done,
            ignore_eos: target.ignore_eos,
            keep_text: target.keep_text,
            total_timeout: target.total_timeout,
            idle_timeout: target.idle_timeout,
        }
    }
}

/// One read from the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// When it returned.
    pub at: Nanos,
    /// Its number on the connection: two reads may have the same stamp, and are still two.
    pub number: u64,
}

/// How a response body ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyEnd {
    /// As HTTP says that a body ends.
    Clean,
    /// The connection was closed in the middle of it.
    Truncated,
    /// Something else went wrong.
    Broken(Failure),
}

/// A request in flight.
#[derive(Debug)]
pub struct Stream {
    rules: Rules,
    /// Filled as the request goes on; its outcome is set at the end.
    trace: Trace,
    verdict: Option<Outcome>,
    decoder: sse::Decoder,
    evidence: Evidence,
    transcript: Transcript,
    error_body: Vec<u8>,
    /// The begin of the body, as long as no event has come: an engine may answer with something else than a stream.
    preamble: Vec<u8>,
    is_event_stream: bool,
    /// The body cannot be read, so nothing of it is kept.
    is_coded: bool,
    /// Bytes that the socket has brought, and how many they were at the last content.
    wire: (u64, u64),
    /// Reads that brought the first and the last content.
    content_reads: Option<(u64, u64)>,
}

impl Stream {
    /// A request that is ready to be sent.
    #[must_use]
    pub fn new(
        rules: Rules,
        unsent: Unsent,
        released: Nanos,
        waited_for_permit: bool,
        request_bytes: u64,
    ) -> Self {
        let mut trace = Trace::unsent(unsent, Failure::new(FailureKind::NotDispatched, ""), released);
        trace.clocks.released = Some(released);
        trace.facts.waited_for_permit = waited_for_permit;
        trace.facts.request_bytes = request_bytes;
        Self {
            rules,
            trace,
            verdict: None,
            decoder: sse::Decoder::default(),
            evidence: Evidence::default(),
            transcript: Transcript::default(),
            error_body: Vec::new(),
            preamble: Vec::new(),
            is_event_stream: false,
            is_coded: false,
            wire: (0, 0),
            content_reads: None,
        }
    }

    /// A usable connection is in hand.
    pub fn on_connected(&mut self, at: Nanos) {
        self.trace.clocks.connected = Some(at);
    }

    /// The first byte of the request was accepted by the socket.
    pub fn on_written(&mut self, at: Nanos) {
        self.trace.clocks.written.get_or_insert(at);
    }

    /// The connection had been closed while it was idle: the request starts over on a fresh one.
    pub fn on_reconnection(&mut self) {
        self.trace.facts.reconnections = 1;
        self.trace.clocks.connected = None;
        self.trace.clocks.written = None;
    }

    /// The response head came.
    pub fn on_head(&mut self, at: Nanos, status: u16, content_type: Option<&[u8]>) {
        self.trace.clocks.headers = Some(at);
        self.trace.facts.http_status = Some(status);
        let prefix = content_type.and_then(|t| t.get(..b"text/event-stream".len()));
        self.is_event_stream = prefix.is_some_and(|p| p.eq_ignore_ascii_case(b"text/event-stream"));
    }

    /// The body is in some `coding` that was not asked for.
    pub fn on_coding(&mut self, at: Nanos, coding: &str) {
        self.is_coded = true;
        if self.status_is_success() {
            self.fail(at, faults::coded(coding));
        }
    }

    /// The socket has brought so many bytes since the request began, whatever they were.
    pub fn on_wire(&mut self, at: Nanos, bytes: u64) {
        self.wire.0 = bytes;
        let message = if bytes > MAX_RESPONSE {
            format!("the response is longer than {} GiB", MAX_RESPONSE >> 30)
        } else if bytes.saturating_sub(self.wire.1) > MAX_WITHOUT_CONTENT {
            format!("more than {} MiB came without any content", MAX_WITHOUT_CONTENT >> 20)
        } else {
            return;
        };
        self.fail(at, Failure::new(FailureKind::MalformedStream, message));
    }

    /// Bytes of the body came. They may be any part of what the read brought.
    pub fn on_read(&mut self, read: Read, bytes: &[u8]) {
        self.trace.facts.response_bytes += bytes.len() as u64;
        self.on_time(read.at);
        if self.is_decided() {
            return;
        }
        if !self.status_is_success() {
            if !self.is_coded {
                keep(&mut self.error_body, bytes);
            }
            if self.trace.facts.response_bytes > MAX_ERROR_RESPONSE {
                self.fail(read.at, Failure::new(FailureKind::HttpStatus, "no status"));
            }
            return;
        }
        let mut decoder = std::mem::take(&mut self.decoder);
        if let Err(e) = decoder.push(bytes, |event| self.on_event(read, event)) {
            self.fail(read.at, Failure::new(FailureKind::MalformedStream, e.to_string()));
        }
        self.decoder = decoder;
        if self.trace.facts.data_events == 0 {
            keep(&mut self.preamble, bytes);
        } else if !self.preamble.is_empty() {
            self.preamble = Vec::new();
        }
    }

    /// The body ended, or the connection did.
    pub fn on_end(&mut self, at: Nanos, end: BodyEnd) {
        if end == BodyEnd::Clean && !self.is_decided() && self.status_is_success() {
            // An event whose blank line never came shares no read with another.
            let read = Read { at, number: u64::MAX };
            let mut decoder = std::mem::take(&mut self.decoder);
            if let Err(e) = decoder.finish(|event| self.on_event(read, event)) {
                self.fail(at, Failure::new(FailureKind::MalformedStream, e.to_string()));
            }
        }
        if self.is_decided() {
            return;
        }
        let failure = match end {
            BodyEnd::Clean if self.status_is_success() => return self.ended_without_mark(at),
            BodyEnd::Clean => Failure::new(FailureKind::HttpStatus, "no status"),
            BodyEnd::Truncated => {
                let after = self.trace.clocks.content.len();
                let message = format!(
                    "the connection was closed in the middle of the body, after {after} content events"
                );
                Failure::new(FailureKind::TruncatedStream, message)
            }
            BodyEnd::Broken(failure) => failure,
        };
        let aborted = self.aborted().filter(|_| self.status_is_success());
        self.fail(at, aborted.unwrap_or(failure));
    }

    /// Time has passed: a deadline that has been reached ends the request.
    pub fn on_time(&mut self, now: Nanos) {
        let Some((_, kind)) = self.next_deadline().filter(|&(at, _)| at <= now) else { return };
        let message = match kind {
            FailureKind::TimeoutIdle => format!("no content for {} s", self.rules.idle_timeout.as_secs_f64()),
            _ => format!("not finished {} s after it was sent", self.rules.total_timeout.as_secs_f64()),
        };
        self.fail(now, Failure::new(kind, message));
    }

    /// When [`Stream::on_time`] is to be called at the latest, if at all.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        self.next_deadline().map(|(at, _)| at)
    }

    fn next_deadline(&self) -> Option<(Nanos, FailureKind)> {
        if self.is_decided() {
            return None;
        }
        // A socket takes the first byte at once; should it ever not, waiting has an end too.
        let begin = self.trace.clocks.written.or(self.trace.clocks.connected)?;
        let total = (begin + self.rules.total_timeout, FailureKind::TimeoutTotal);
        if let Some(head) = self.trace.clocks.headers.filter(|_| !self.status_is_success()) {
            // Nothing more is to be learnt than why; an engine that does not say so is not waited for.
            return Some((total.0.min(head + ERROR_BODY_GRACE), FailureKind::HttpStatus));
        }
        let idle =
            self.trace.clocks.last_content().map(|l| (l + self.rules.idle_timeout, FailureKind::TimeoutIdle));
        Some(idle.filter(|idle| idle.0 < total.0).unwrap_or(total))
    }

    /// Ends the request with `failure`, unless the verdict has fallen. A status that is an error stays the reason.
    pub fn fail(&mut self, at: Nanos, failure: Failure) {
        let failure = match self.trace.facts.http_status {
            Some(status) if !self.status_is_success() => self.bad_status(status),
            _ => failure,
        };
        self.decide(at, Outcome::Failure(failure));
    }

    /// The verdict has fallen.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.verdict.is_some()
    }

    /// When the first byte was written, if it was.
    #[must_use]
    pub fn written(&self) -> Option<Nanos> {
        self.trace.clocks.written
    }

    /// The verdict came from an event that the engine sent, not from a connection, a framing or a time that failed:
    /// once its body is at its end the connection can be used again.
    #[must_use]
    pub fn connection_is_sound(&self) -> bool {
        use FailureKind::{EngineAborted, ErrorEvent, NoContent};
        match &self.verdict {
            Some(Outcome::Failure(f)) => matches!(f.kind, EngineAborted | ErrorEvent | NoContent),
            Some(Outcome::Success) => true,
            None => false,
        }
    }

    /// The request's trace. A request whose end nobody told is a failure.
    #[must_use]
    pub fn finish(mut self, secret: Option<&Secret>) -> Trace {
        if !self.is_decided() {
            let at = self.trace.clocks.finished;
            self.fail(at, Failure::new(FailureKind::TruncatedStream, "the response was not read to its end"));
        }
        let facts = &mut self.trace.facts;
        facts.outcome = self.verdict.take().unwrap_or(Outcome::Success);
        facts.output_tokens = self.evidence.output_tokens();
        facts.prompt_tokens = self.evidence.prompt_tokens();
        facts.cached_tokens = self.evidence.cached_tokens();
        facts.stream_tokens = self.evidence.stream_tokens();
        facts.event_tokens = self.evidence.event_tokens();
        facts.itl_evidence = self.evidence.itl();
        facts.engine_time = self.evidence.engine_time();
        let count = facts.output_tokens.count;
        let too_few = count.is_some_and(|n| n < u64::from(facts.requested_tokens));
        facts.short_output = self.rules.ignore_eos && too_few && facts.outcome.is_success();
        let several = self.trace.clocks.content.len() > 1 || count.is_some_and(|n| n > 1);
        facts.stream_coalesced = several && self.content_reads.is_some_and(|(first, last)| first == last);
        let error_body = Some(self.error_body).filter(|b| !b.is_empty());
        self.trace.text = self.transcript.finish(error_body, self.rules.keep_text, secret);
        self.trace
    }

    fn on_event(&mut self, read: Read, event: sse::Event<'_>) -> ControlFlow<()> {
        let meaning = match events::classify(event) {
            // As browsers do: bytes that are no UTF-8 become replacement characters.
            Err(_) if std::str::from_utf8(event.data).is_err() => {
                let text = String::from_utf8_lossy(event.data);
                let event = sse::Event { data: text.as_bytes(), ..event };
                let meaning = events::classify(event);
                return self.on_meaning(read, event, meaning);
            }
            other => other,
        };
        self.on_meaning(read, event, meaning)
    }

    fn on_meaning(
        &mut self,
        read: Read,
        event: sse::Event<'_>,
        meaning: Result<Meaning<'_>, Malformed>,
    ) -> ControlFlow<()> {
        if !event.data.is_empty() && meaning != Ok(Meaning::Done) {
            self.trace.facts.data_events = self.trace.facts.data_events.saturating_add(1);
        }
        match meaning {
            Ok(Meaning::Nothing) => {}
            Ok(Meaning::Chunk(chunk)) => self.on_chunk(read, &chunk),
            Ok(Meaning::Done) => {
                self.trace.facts.done_seen = true;
                self.ended_with_mark(read.at);
            }
            Ok(Meaning::Error(error)) => {
                let said = [event.data, event.error, event.comment].into_iter().find(|s| !s.is_empty());
                keep(&mut self.error_body, said.unwrap_or_default());
                let message = labelled("error event", &error.label);
                self.fail(read.at, Failure::new(FailureKind::ErrorEvent, message));
            }
            Err(malformed) => {
                keep(&mut self.error_body, event.data);
                self.fail(read.at, Failure::new(FailureKind::MalformedStream, malformed.to_string()));
            }
        }
        if self.is_decided() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn on_chunk(&mut self, read: Read, chunk: &Chunk<'_>) {
        if let Some(reason) = &chunk.finish_reason {
            self.trace.facts.finish_reason = Some(reason.chars().take(64).collect());
        }
        self.evidence.add(chunk);
        if !chunk.has_text() {
            return;
        }
        if self.trace.clocks.content.len() == MAX_CONTENT_EVENTS {
            let message = format!("more than {MAX_CONTENT_EVENTS} content events");
            return self.fail(read.at, Failure::new(FailureKind::MalformedStream, message));
        }
        self.wire.1 = self.wire.0;
        self.transcript.add(chunk);
        let channel = match (chunk.answer.is_empty(), chunk.reasoning.is_empty()) {
            (false, _) => Channel::Answer,
            (true, false) => Channel::Reasoning,
            (true, true) => Channel::ToolCall,
        };
        self.trace.clocks.content.push(ContentEvent { at: read.at, channel });
        let first = match self.content_reads {
            Some((first, last)) => {
                self.trace.facts.coalesced_events += u32::from(last == read.number);
                first
            }
            None => read.number,
        };
        self.content_reads = Some((first, read.number));
    }
}

/// Appends what fits into the space for error bodies.
fn keep(buffer: &mut Vec<u8>, bytes: &[u8]) {
    let space = MAX_ERROR_BYTES.saturating_sub(buffer.len());
    buffer.extend_from_slice(&bytes[..bytes.len().min(space)]);
}
