//! How many tokens a request brought, and whether its events were tokens.
//!
//! Engines say it in usage, in cumulative counts, in lists of token ids or of log probabilities, or not at all. A
//! number has the source that it came from; an event is never taken for a token. Inter-token latency is proven only
//! if every content event is shown to hold one token and those tokens are all there are.

use common::trace::{EngineTime, EventTokens, ItlEvidence, OutputTokens, TokenSource};

use super::events::{Chunk, Usage};

/// What the events of one request have shown so far.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    usage: Usage,
    cumulative: u64,
    /// A content event came without a cumulative count since the last one: the next difference spans several events.
    gap: bool,
    /// Some content event came without one.
    uncounted: bool,
    ids: Listed,
    logprobs: Listed,
    events: EventTokens,
    /// Textless events after the last content event that are shown to hold tokens, and those tokens.
    trailing: (u64, u64),
    engine_time: EngineTime,
}

/// Sum over lists that came with the events.
#[derive(Debug, Default)]
struct Listed {
    tokens: u64,
    /// A content event came without a list: the sum is not the request's.
    incomplete: bool,
}

impl Listed {
    fn add(&mut self, length: Option<u64>, is_content: bool) {
        self.tokens = self.tokens.saturating_add(length.unwrap_or(0));
        self.incomplete |= is_content && length.is_none();
    }

    fn total(&self) -> Option<u64> {
        (!self.incomplete && self.tokens > 0).then_some(self.tokens)
    }
}

impl Evidence {
    /// Takes one chunk of the answer.
    pub(super) fn add(&mut self, chunk: &Chunk<'_>) {
        let is_content = chunk.has_text();
        if let Some(time) = chunk.engine_time {
            self.engine_time = time;
        }
        if let Some(usage) = chunk.usage {
            // The last one that counts: engines repeat usage and send zeros until they know. Never a sum.
            let known = |new: Option<u64>, old| new.filter(|&n| n > 0).or(old);
            self.usage.completion = known(usage.completion, self.usage.completion);
            self.usage.prompt = known(usage.prompt, self.usage.prompt);
            self.usage.cached = usage.cached.or(self.usage.cached);
        }
        self.ids.add(chunk.tokens.ids, is_content);
        self.logprobs.add(chunk.tokens.logprobs, is_content);
        let tokens = self.tokens_of(chunk, is_content);
        if is_content {
            let of_its_kind = match tokens {
                Some(0) => &mut self.events.none,
                Some(1) => &mut self.events.one,
                Some(_) => &mut self.events.many,
                None => &mut self.events.unknown,
            };
            *of_its_kind = of_its_kind.saturating_add(1);
            self.trailing = (0, 0);
        } else if let Some(n @ 1..) = tokens {
            self.events.textless = self.events.textless.saturating_add(1);
            self.trailing = (self.trailing.0 + 1, self.trailing.1.saturating_add(n));
        }
    }

    /// Tokens of this event. Differences of cumulative counts come first: lists leave out what was held back.
    fn tokens_of(&mut self, chunk: &Chunk<'_>, is_content: bool) -> Option<u64> {
        let mut difference = None;
        match chunk.tokens.cumulative {
            Some(count) => {
                difference = count.checked_sub(self.cumulative).filter(|_| !self.gap);
                self.cumulative = count;
                self.gap = false;
            }
            None => {
                self.gap |= is_content;
                self.uncounted |= is_content;
            }
        }
        difference.or(chunk.tokens.ids).or(chunk.tokens.logprobs)
    }

    /// Output tokens by the best source there is.
    pub(super) fn output_tokens(&self) -> OutputTokens {
        if let Some(n) = self.usage.completion {
            return OutputTokens { count: Some(n), source: TokenSource::Usage };
        }
        let cumulative = Some(self.cumulative).filter(|&n| n > 0 && !self.gap);
        match cumulative.or_else(|| self.ids.total()).or_else(|| self.logprobs.total()) {
            Some(n) => OutputTokens { count: Some(n), source: TokenSource::StreamCounts },
            None => OutputTokens::default(),
        }
    }

    /// Output tokens as the events themselves count them, whatever usage says: what it can be held against. A count
    /// that only stands at the end is not one of the events'.
    pub(super) fn stream_tokens(&self) -> Option<u64> {
        let cumulative = Some(self.cumulative).filter(|&n| n > 0 && !self.uncounted);
        self.ids.total().or(cumulative).or_else(|| self.logprobs.total())
    }

    /// How many tokens the events held.
    pub(super) fn event_tokens(&self) -> EventTokens {
        self.events
    }

    /// What the engine said of its own time.
    pub(super) fn engine_time(&self) -> EngineTime {
        self.engine_time
    }

    /// Prompt tokens by the engine's count.
    pub(super) fn prompt_tokens(&self) -> Option<u64> {
        self.usage.prompt
    }

    /// Prompt tokens found in the prefix cache, by the engine's count.
    pub(super) fn cached_tokens(&self) -> Option<u64> {
        self.usage.cached
    }

    /// Whether the gaps between content events are inter-token latencies.
    pub(super) fn itl(&self) -> ItlEvidence {
        let EventTokens { one, many, none, unknown, .. } = self.events;
        let one = u64::from(one);
        if many > 0 || none > 0 {
            return ItlEvidence::ManyPerEvent;
        }
        if one == 0 || unknown > 0 {
            return ItlEvidence::None;
        }
        // A last token without text (an end-of-sequence token) came after all the others: it changes no gap.
        let with_last = if self.trailing == (1, 1) { one + 1 } else { one };
        match self.output_tokens().count {
            Some(n) if n == one || n == with_last => ItlEvidence::Proven,
            _ => ItlEvidence::SumDiffers,
        }
    }
}
