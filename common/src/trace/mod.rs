//! The trace of one request: every clock, count and text that a number is later computed from.
//!
//! Every scheduled arrival ends as exactly one trace. A trace is written once, by the agent that carried the arrival
//! (or by the coordinator, marked synthetic, for an arrival whose agent is gone), and never changed. Numbers are
//! computed from traces alone, so that an SLO can be changed after the run.
//!
//! The three parts are the three columns of a segment: a re-analysis reads [`Clocks`] and [`Facts`] and leaves
//! [`Text`] on disk.

mod outcome;
mod outline;
pub mod segment;

pub use outcome::{Failure, FailureClass, FailureKind, Outcome, headed};
pub use outline::Outline;

use serde::{Deserialize, Serialize};

use crate::ids::{ArrivalIndex, Nanos};

/// One request, from its scheduled arrival to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The clocks.
    pub clocks: Clocks,
    /// Counts, outcome and marks.
    pub facts: Facts,
    /// What was said.
    pub text: Text,
}

/// The clocks of one request: nanoseconds since the trial's start on the agent's monotonic clock.
///
/// A stamp belongs to a *read*: events that came in one read share it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Clocks {
    /// When the schedule says that the request arrives. Never moves.
    pub scheduled: Nanos,
    /// The agent was ready to send: its task ran and, with a concurrency limit, a permit was held.
    pub released: Option<Nanos>,
    /// A usable connection was in hand (equal to `released` when one was warm).
    pub connected: Option<Nanos>,
    /// The first byte of the request was accepted by the socket.
    pub written: Option<Nanos>,
    /// The response head was received.
    pub headers: Option<Nanos>,
    /// Stream complete, failed, timed out or cancelled.
    pub finished: Nanos,
    /// Every event with visible text, in order. The first is `first_content`, the last `last_content`.
    pub content: Vec<ContentEvent>,
}

impl Clocks {
    /// The read that brought the first event with visible text.
    #[must_use]
    pub fn first_content(&self) -> Option<Nanos> {
        self.content.first().map(|e| e.at)
    }

    /// The read that brought the last event with visible text.
    #[must_use]
    pub fn last_content(&self) -> Option<Nanos> {
        self.content.last().map(|e| e.at)
    }

    /// The first event with visible text in `channel`.
    #[must_use]
    pub fn first_in(&self, channel: Channel) -> Option<Nanos> {
        self.content.iter().find(|e| e.channel == channel).map(|e| e.at)
    }

    /// Gaps between consecutive content events: none with fewer than two. A gap inside one read is 0.
    pub fn chunk_gaps(&self) -> impl Iterator<Item = Nanos> {
        self.content
            .iter()
            .zip(self.content.iter().skip(1))
            .map(|(earlier, later)| later.at.since(earlier.at))
    }
}

/// An event that brought visible text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentEvent {
    /// The stamp of the read that completed the event.
    pub at: Nanos,
    /// Where its text belongs.
    pub channel: Channel,
}

/// Where visible text belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// `text` or `delta.content`.
    Answer,
    /// `delta.reasoning_content` or `delta.reasoning`.
    Reasoning,
    /// Arguments of a tool call.
    ToolCall,
}

/// Counts, outcome and marks of one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Position in the schedule.
    pub index: ArrivalIndex,
    /// Row of the workload, from 0.
    pub row: u32,
    /// `max_tokens` as sent.
    pub requested_tokens: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// It waited for a permit of the concurrency limit: `released − scheduled` is client queue, not lateness.
    pub waited_for_permit: bool,
    /// Output tokens with where the number comes from.
    pub output_tokens: OutputTokens,
    /// Prompt tokens as the engine counts them.
    pub prompt_tokens: Option<u64>,
    /// Prompt tokens that the engine found in its prefix cache.
    pub cached_tokens: Option<u64>,
    /// Output tokens as the events themselves count them, also where `output_tokens` comes from usage: the two
    /// should be the same.
    pub stream_tokens: Option<u64>,
    /// Tokens of the prompt where it was sent as token ids: what `prompt_tokens` should be.
    pub sent_prompt_tokens: Option<u32>,
    /// How many tokens the events held.
    pub event_tokens: EventTokens,
    /// Whether each content event is proven to hold one token, and those tokens sum to `output_tokens`.
    pub itl_evidence: ItlEvidence,
    /// What the engine says about its own time.
    pub engine_time: EngineTime,
    /// Data events of the stream, with and without text.
    pub data_events: u32,
    /// Content events that shared a read with the content event before them.
    pub coalesced_events: u32,
    /// The engine's reason for the end.
    pub finish_reason: Option<String>,
    /// `[DONE]` was seen.
    pub done_seen: bool,
    /// Fewer tokens than asked for under `ignore_eos`.
    pub short_output: bool,
    /// All text came in one read although it was several events or tokens: its TTFT is an E2E.
    pub stream_coalesced: bool,
    /// Times that an idle connection turned out closed and was replaced (0 or 1).
    pub reconnections: u8,
    /// HTTP status, when a response head came.
    pub http_status: Option<u16>,
    /// Bytes of the request body.
    pub request_bytes: u64,
    /// Bytes of the response body.
    pub response_bytes: u64,
    /// Written by the coordinator for an arrival whose own trace cannot come any more.
    pub synthetic: bool,
}

/// Output tokens of a request, with their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OutputTokens {
    /// The number; unknown never becomes 0.
    pub count: Option<u64>,
    /// Where it comes from.
    pub source: TokenSource,
}

/// Where a token count comes from, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSource {
    /// The engine's `usage`.
    Usage,
    /// Token ids, log probabilities or cumulative counts in the stream.
    StreamCounts,
    /// The text, tokenised again: an estimate.
    RetokenizedText,
    /// Nothing said so.
    #[default]
    Unknown,
}

impl TokenSource {
    /// The name used in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::StreamCounts => "stream_counts",
            Self::RetokenizedText => "retokenized_text",
            Self::Unknown => "unknown",
        }
    }
}

/// How many tokens the events of a stream held, as far as they say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EventTokens {
    /// Events with text that hold one token.
    pub one: u32,
    /// Events with text that hold several.
    pub many: u32,
    /// Events with text that hold none, by the engine's count.
    pub none: u32,
    /// Events with text that do not say.
    pub unknown: u32,
    /// Events without text that hold tokens: text is held back.
    pub textless: u32,
}

/// What an engine says about the time of one request, on its own clock. It stands beside the client's metrics and
/// never instead of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EngineTime {
    /// From its acceptance to its first work on it.
    pub queue: Option<Nanos>,
    /// From there to the first token.
    pub first_token: Option<Nanos>,
    /// From the first token to the last.
    pub generation: Option<Nanos>,
}

impl EngineTime {
    /// From acceptance to the last token. An engine that says nothing of its queue had none that it knows of.
    #[must_use]
    pub fn total(self) -> Option<Nanos> {
        Some(self.queue.unwrap_or(Nanos::ZERO) + self.first_token? + self.generation?)
    }
}

/// Whether the gaps between content events are inter-token latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItlEvidence {
    /// Per-event evidence proves one token for every content event, and the proven events sum to the output tokens.
    Proven,
    /// The stream carried no per-event evidence.
    #[default]
    None,
    /// Evidence shows an event with no token or several.
    ManyPerEvent,
    /// Proven events do not sum to the output tokens.
    SumDiffers,
}

/// What was said. With `--no-text` only hashes and lengths.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Text {
    /// The answer (and tool-call arguments) as received.
    pub output: Option<String>,
    /// The reasoning as received.
    pub reasoning: Option<String>,
    /// SHA-256 of `output` followed by `reasoning`, first 16 hexadecimal digits.
    pub output_hash: Option<String>,
    /// Characters of `output` and `reasoning` together.
    pub output_chars: u64,
    /// The engine's error body or event, kept short.
    pub error_body: Option<String>,
}

impl Trace {
    /// A trace for an arrival that was never sent or whose fate is unknown, ended at `finished`.
    #[must_use]
    pub fn unsent(arrival: Unsent, failure: Failure, finished: Nanos) -> Self {
        Self {
            clocks: Clocks { scheduled: arrival.scheduled, finished, ..Clocks::default() },
            facts: Facts {
                index: arrival.index,
                row: arrival.row,
                requested_tokens: arrival.requested_tokens,
                outcome: Outcome::Failure(failure),
                waited_for_permit: false,
                output_tokens: OutputTokens::default(),
                prompt_tokens: None,
                cached_tokens: None,
                stream_tokens: None,
                sent_prompt_tokens: arrival.prompt_tokens,
                event_tokens: EventTokens::default(),
                itl_evidence: ItlEvidence::None,
                engine_time: EngineTime::default(),
                data_events: 0,
                coalesced_events: 0,
                finish_reason: None,
                done_seen: false,
                short_output: false,
                stream_coalesced: false,
                reconnections: 0,
                http_status: None,
                request_bytes: 0,
                response_bytes: 0,
                synthetic: false,
            },
            text: Text::default(),
        }
    }
}

/// What is known of an arrival before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unsent {
    /// Position in the schedule.
    pub index: ArrivalIndex,
    /// When it was due.
    pub scheduled: Nanos,
    /// Row of the workload.
    pub row: u32,
    /// `max_tokens` that would have been sent.
    pub requested_tokens: u32,
    /// Tokens of the prompt, where it is a list of token ids.
    pub prompt_tokens: Option<u32>,
}
