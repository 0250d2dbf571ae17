//! What a correct client must make of an answer. Written down while the answer is made, and never read back from its
//! bytes: it stands for the truth that a reading of the bytes is held against.

/// Where visible text belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// `text` or `delta.content`.
    Answer,
    /// `delta.reasoning_content` or `delta.reasoning`.
    Reasoning,
    /// Arguments of a tool call.
    ToolCall,
}

/// How a request ended, by the names that Plimsoll's outputs use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Text and a proper end.
    Success,
    /// A status that is an error.
    HttpStatus,
    /// An error in the stream, or instead of it.
    ErrorEvent,
    /// A finish reason that says that the engine gave up.
    EngineAborted,
    /// An end, and no text before it.
    NoContent,
    /// No proper end.
    TruncatedStream,
    /// Something that is no event stream, or no event.
    MalformedStream,
}

impl Outcome {
    /// `success` or the kind of the failure.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::HttpStatus => "http_status",
            Self::ErrorEvent => "error_event",
            Self::EngineAborted => "engine_aborted",
            Self::NoContent => "no_content",
            Self::TruncatedStream => "truncated_stream",
            Self::MalformedStream => "malformed_stream",
        }
    }
}

/// Where a number of output tokens comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenSource {
    /// The engine's `usage`.
    Usage,
    /// The events count their tokens.
    StreamCounts,
    /// Nothing says it.
    Unknown,
}

impl TokenSource {
    /// As in Plimsoll's outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::StreamCounts => "stream_counts",
            Self::Unknown => "unknown",
        }
    }
}

/// Whether the gaps between events with text are gaps between tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Itl {
    /// Each event with text shows one token, and they are all there are.
    Proven,
    /// Nothing is shown.
    None,
    /// An event with text shows no token or several.
    ManyPerEvent,
    /// The tokens that are shown are not all there are.
    SumDiffers,
}

impl Itl {
    /// As in Plimsoll's outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::None => "none",
            Self::ManyPerEvent => "many_per_event",
            Self::SumDiffers => "sum_differs",
        }
    }
}

/// How many tokens the events show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventTokens {
    /// Events with text that show one token.
    pub one: u32,
    /// Events with text that show several.
    pub many: u32,
    /// Events with text that show none.
    pub none: u32,
    /// Events with text that show nothing.
    pub unknown: u32,
    /// Events without text that show tokens.
    pub textless: u32,
}

/// An event with text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// Bytes of the answer, head included, up to the one that completes it: the first of the line end that makes its
    /// blank line. A client that has so many has the event.
    pub complete_at: usize,
    /// Where its text belongs.
    pub channel: Channel,
}

/// What a correct client must conclude.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The HTTP status.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// The events with text, in order.
    pub content: Vec<Content>,
    /// Events with data, up to the one that decides the outcome; the end mark is none.
    pub data_events: u32,
    /// Output tokens by the best source.
    pub output_tokens: Option<u64>,
    /// Which that is.
    pub token_source: TokenSource,
    /// Output tokens as the events count them.
    pub stream_tokens: Option<u64>,
    /// How many tokens the events show.
    pub event_tokens: EventTokens,
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the prompt that were in the prefix cache.
    pub cached_tokens: Option<u64>,
    /// The last finish reason.
    pub finish_reason: Option<String>,
    /// The end mark was seen.
    pub done_seen: bool,
    /// Whether gaps are inter-token latencies.
    pub itl: Itl,
    /// Text of the answer and of tool calls.
    pub output: String,
    /// Text of the reasoning.
    pub reasoning: String,
    /// The engine's own time to the first token and for the rest, in nanoseconds, where it says it.
    pub engine_time: Option<(u64, u64)>,
    /// Tokens that the engine really generated and counts, whether or not it says so.
    pub generated: u64,
}

impl Expected {
    /// Nothing has come yet.
    pub(crate) fn nothing(status: u16, outcome: Outcome) -> Self {
        Self {
            status,
            outcome,
            content: Vec::new(),
            data_events: 0,
            output_tokens: None,
            token_source: TokenSource::Unknown,
            stream_tokens: None,
            event_tokens: EventTokens::default(),
            prompt_tokens: None,
            cached_tokens: None,
            finish_reason: None,
            done_seen: false,
            itl: Itl::None,
            output: String::new(),
            reasoning: String::new(),
            engine_time: None,
            generated: 0,
        }
    }

    /// Events with text.
    #[must_use]
    pub fn content_events(&self) -> usize {
        self.content.len()
    }

    /// Several events or tokens are known to have come: in one read they say nothing about when each was made.
    #[must_use]
    pub fn is_several(&self) -> bool {
        self.content.len() > 1 || self.output_tokens.is_some_and(|n| n > 1)
    }

    /// All of the text came in one read though it is several events or tokens. None where it depends on the reads.
    #[must_use]
    pub fn stream_coalesced(&self) -> Option<bool> {
        match self.content.len() {
            0 => Some(false),
            1 => Some(self.is_several()),
            _ => None,
        }
    }
}
