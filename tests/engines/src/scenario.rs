//! The misbehaviours that can be asked for, by the start of a prompt: `scenario:NAME rest of the prompt`.
//!
//! What goes wrong in the middle does so at the fourth event; an answer that is shorter ends well. The names in brackets
//! are the reports in the engine notes. An engine that does not know a scenario answers as
//! usual; [`crate::Engine::scenarios`] says which it knows, and its own file what it then sends.

/// What goes on in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// Nothing special.
    Normal,
    /// A status that says that there is no room (B41).
    Overload,
    /// A prompt that is too long, said with a status (B41).
    TooLong,
    /// Status 200, and the only event says that there is no room.
    QueueFull,
    /// An error before any text (B01, B03).
    ErrorFirst,
    /// An error after some text (B29, B32).
    ErrorLater,
    /// An error as event name and comment, without data (B29).
    ErrorComment,
    /// An error as a field line (B29).
    ErrorField,
    /// An error that is no valid JSON (B40).
    BadJson,
    /// An error that is swallowed: the stream just ends.
    Swallowed,
    /// Nothing but the end mark (B02).
    DoneOnly,
    /// A finish reason that says that the engine gave up.
    Abort,
    /// The engine gives up on a request that waits: usage and end mark, but no text.
    AbortQueued,
    /// The connection is closed in the middle (B31).
    Cut,
    /// As `Cut`, with a ping before (B43).
    PingThenCut,
    /// A proper end but for the end mark (B28).
    NoDone,
    /// No finish reason anywhere (B28).
    NoFinish,
    /// Pings before the first event and between others (B07).
    KeepAlives,
    /// No usage, though it was asked for (B13).
    NoUsage,
    /// Usage in every event, though nobody asked (B10, B11).
    ForcedUsage,
    /// Usage at the end, though nobody asked (B06).
    UnaskedUsage,
    /// Usage in an event without choices (B14).
    UsageWithoutChoices,
    /// HTTP chunks that end within characters (B15).
    CutCharacters,
    /// Each event over several HTTP chunks (B17).
    CutEvents,
    /// All events in one HTTP chunk (B17).
    OneChunk,
    /// CRLF at the end of each line (B18).
    Crlf,
    /// A lone CR at the end of each line (B18).
    Cr,
    /// No blank after the colon (B18).
    NoSpace,
    /// Several tokens for each event (B20, B33).
    SeveralTokens,
    /// One to four tokens for each event (B21).
    Speculative,
    /// Reasoning before the answer (B26).
    Reasoning,
    /// Reasoning until the tokens are used up (B26).
    ReasoningOnly,
    /// Arguments of a tool call (B22).
    ToolCalls,
    /// The whole text in one event (B36).
    Burst,
    /// `data: null` first (B38).
    NullFirst,
    /// Characters that cannot be rebuilt (B34).
    BrokenCharacters,
    /// `error` in every event with a value that says that there is none (B29).
    NullErrors,
    /// Events under names of their own.
    NamedEvents,
    /// A finish reason `length` before the tokens are used up.
    ContextEnd,
    /// A negative token count.
    BadCounts,
    /// A whole JSON answer instead of a stream.
    NotAStream,
    /// It goes on when its client has gone (B37).
    Deaf,
}

impl Scenario {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Normal,
        Self::Overload,
        Self::TooLong,
        Self::QueueFull,
        Self::ErrorFirst,
        Self::ErrorLater,
        Self::ErrorComment,
        Self::ErrorField,
        Self::BadJson,
        Self::Swallowed,
        Self::DoneOnly,
        Self::Abort,
        Self::AbortQueued,
        Self::Cut,
        Self::PingThenCut,
        Self::NoDone,
        Self::NoFinish,
        Self::KeepAlives,
        Self::NoUsage,
        Self::ForcedUsage,
        Self::UnaskedUsage,
        Self::UsageWithoutChoices,
        Self::CutCharacters,
        Self::CutEvents,
        Self::OneChunk,
        Self::Crlf,
        Self::Cr,
        Self::NoSpace,
        Self::SeveralTokens,
        Self::Speculative,
        Self::Reasoning,
        Self::ReasoningOnly,
        Self::ToolCalls,
        Self::Burst,
        Self::NullFirst,
        Self::BrokenCharacters,
        Self::NullErrors,
        Self::NamedEvents,
        Self::ContextEnd,
        Self::BadCounts,
        Self::NotAStream,
        Self::Deaf,
    ];

    /// As a prompt names it.
    #[must_use]
    pub fn name(self) -> String {
        let mut name = String::new();
        for c in format!("{self:?}").chars() {
            if c.is_ascii_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(c.to_ascii_lowercase());
        }
        name
    }

    /// A prompt that asks for it.
    #[must_use]
    pub fn prompt(self, rest: &str) -> String {
        match self {
            Self::Normal => rest.to_owned(),
            other => format!("scenario:{} {rest}", other.name()),
        }
    }

    /// The one that a prompt asks for, of those that an engine knows.
    pub(crate) fn of(prompt: &str, known: &[Self]) -> Self {
        let name = prompt.strip_prefix("scenario:").and_then(|rest| rest.split_whitespace().next());
        let asked = name.and_then(|name| known.iter().find(|s| s.name() == name));
        asked.copied().unwrap_or(Self::Normal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_names_a_scenario_that_the_engine_knows() {
        for &scenario in Scenario::ALL {
            assert_eq!(Scenario::of(&scenario.prompt("hello"), Scenario::ALL), scenario, "{scenario:?}");
            assert_eq!(Scenario::of(&scenario.prompt("hello"), &[]), Scenario::Normal);
        }
        assert_eq!(Scenario::PingThenCut.name(), "ping-then-cut");
        assert_eq!(Scenario::of("tell me of scenario:cut", Scenario::ALL), Scenario::Normal);
    }
}
