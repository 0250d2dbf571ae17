//! Writes an event stream and notes, event by event, what is in it. The only place where an [`Expected`] of a stream
//! is made.
//!
//! What an event carries is said by the engine that writes it, beside its bytes. Nothing here looks into the bytes but
//! for their line ends. The conclusions follow the specification, section 1: an event is no token, the last usage that
//! counts wins, unknown stays unknown.

use crate::expected::{Channel, Content, Expected, Itl, Outcome, TokenSource};
use crate::reply::{Reply, Stack};

/// An engine's count of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt: u64,
    pub(crate) completion: u64,
    /// None where the engine does not say it.
    pub(crate) cached: Option<u64>,
}

/// What one event carries.
#[derive(Debug, Clone, Default)]
pub(crate) struct Carries {
    text: Option<(Channel, String)>,
    /// Tokens that it shows to hold.
    shows: Option<u64>,
    /// Tokens of the request so far, by a count that is no usage.
    total: Option<u64>,
    usage: Option<Usage>,
    finish: Option<String>,
    /// Nanoseconds to the first token and for the rest.
    time: Option<(u64, u64)>,
}

impl Carries {
    /// A role, an empty delta, a usage of zeros.
    pub(crate) fn nothing() -> Self {
        Self::default()
    }

    /// Visible text; an empty one is none.
    pub(crate) fn text(channel: Channel, text: &str) -> Self {
        Self { text: (!text.is_empty()).then(|| (channel, text.to_owned())), ..Self::default() }
    }

    /// It shows that it holds so many tokens.
    pub(crate) fn shows(mut self, tokens: Option<u64>) -> Self {
        self.shows = tokens;
        self
    }

    /// It counts the request's tokens so far.
    pub(crate) fn total(mut self, tokens: Option<u64>) -> Self {
        self.total = tokens;
        self
    }

    /// The engine's counts.
    pub(crate) fn usage(mut self, usage: Option<Usage>) -> Self {
        self.usage = usage;
        self
    }

    /// The engine's own time, in nanoseconds: to the first token, and for the rest.
    pub(crate) fn time(mut self, time: Option<(u64, u64)>) -> Self {
        self.time = time;
        self
    }

    /// Why it ends.
    pub(crate) fn finish(mut self, reason: Option<&str>) -> Self {
        self.finish = reason.map(str::to_owned);
        self
    }
}

/// A stream that is being written.
#[derive(Debug)]
pub(crate) struct Script {
    head: Vec<u8>,
    body: Vec<u8>,
    /// Where in the body an HTTP chunk ends.
    chunk_ends: Vec<usize>,
    expected: Expected,
    /// Where in the body each content event is complete.
    complete_at: Vec<usize>,
    /// The client has drawn its conclusion and looks at nothing more.
    decided: bool,
    /// Tokens shown by all events so far.
    shown: u64,
    /// The last count of all tokens, unless text without a count came after it.
    total: Option<u64>,
    /// Events without text that show tokens after the last one with text, and those tokens.
    trailing: (u64, u64),
}

impl Script {
    /// An event stream of an engine on this stack.
    pub(crate) fn new(stack: Stack) -> Self {
        Self {
            head: stack.stream_head().into_bytes(),
            body: Vec::new(),
            chunk_ends: Vec::new(),
            expected: Expected::nothing(200, Outcome::Success),
            complete_at: Vec::new(),
            decided: false,
            shown: 0,
            total: None,
            trailing: (0, 0),
        }
    }

    /// Adds an event to the chunk that is being written.
    pub(crate) fn event(&mut self, bytes: &str, carries: Carries) {
        self.body.extend_from_slice(bytes.as_bytes());
        if self.decided {
            return;
        }
        self.expected.data_events += 1;
        self.note(carries, line_end(bytes));
    }

    /// An event in a chunk of its own.
    pub(crate) fn send(&mut self, bytes: &str, carries: Carries) {
        self.event(bytes, carries);
        self.flush();
    }

    /// Ends the chunk that is being written.
    pub(crate) fn flush(&mut self) {
        if self.chunk_ends.last().is_none_or(|&end| end < self.body.len()) && !self.body.is_empty() {
            self.chunk_ends.push(self.body.len());
        }
    }

    /// Lines without data, such as a ping.
    pub(crate) fn comment(&mut self, bytes: &str) {
        self.body.extend_from_slice(bytes.as_bytes());
        self.flush();
    }

    /// The end mark.
    pub(crate) fn done(&mut self, bytes: &str) {
        self.comment(bytes);
        self.expected.done_seen |= !self.decided;
        self.decided = true;
    }

    /// An event that says that the request failed, or that is no event: nothing after it matters.
    pub(crate) fn fatal(&mut self, bytes: &str) {
        self.expected.data_events += u32::from(!self.decided && bytes.contains("data:"));
        self.comment(bytes);
        self.decided = true;
    }

    /// Cuts the body into HTTP chunks at these places and nowhere else.
    pub(crate) fn chunk_at(&mut self, mut ends: Vec<usize>) {
        ends.push(self.body.len());
        ends.retain(|&end| end > 0);
        ends.dedup();
        self.chunk_ends = ends;
    }

    /// The body so far.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Ends as HTTP says that a body ends.
    pub(crate) fn close(self, outcome: Outcome, generated: u64) -> Reply {
        self.end(outcome, generated, true)
    }

    /// Ends in the middle: the connection is closed without a last chunk.
    pub(crate) fn cut(self, outcome: Outcome, generated: u64) -> Reply {
        self.end(outcome, generated, false)
    }

    fn note(&mut self, carries: Carries, line_end: usize) {
        let Carries { text, shows, total, usage, finish, time } = carries;
        let e = &mut self.expected;
        e.engine_time = time.or(e.engine_time);
        if finish.is_some() {
            e.finish_reason = finish;
        }
        // A count that stands on the first event with text is that event's own.
        let shows = match (shows, &usage, &text) {
            (None, Some(usage), Some(_)) if self.complete_at.is_empty() => Some(usage.completion),
            (shows, ..) => shows,
        };
        if let Some(usage) = usage {
            if usage.completion > 0 {
                e.output_tokens = Some(usage.completion);
                e.token_source = TokenSource::Usage;
            }
            e.prompt_tokens = Some(usage.prompt).filter(|&n| n > 0).or(e.prompt_tokens);
            e.cached_tokens = usage.cached.or(e.cached_tokens);
        }
        self.total = total.or(self.total.filter(|_| text.is_none()));
        self.shown += shows.unwrap_or(0);
        let Some((channel, text)) = text else {
            if let Some(tokens @ 1..) = shows {
                e.event_tokens.textless += 1;
                self.trailing = (self.trailing.0 + 1, self.trailing.1 + tokens);
            }
            return;
        };
        let kind = match shows {
            Some(0) => &mut e.event_tokens.none,
            Some(1) => &mut e.event_tokens.one,
            Some(_) => &mut e.event_tokens.many,
            None => &mut e.event_tokens.unknown,
        };
        *kind += 1;
        self.trailing = (0, 0);
        self.complete_at.push(self.body.len() - line_end + 1);
        e.content.push(Content { complete_at: 0, channel });
        let said = if channel == Channel::Reasoning { &mut e.reasoning } else { &mut e.output };
        said.push_str(&text);
    }

    fn end(mut self, outcome: Outcome, generated: u64, clean: bool) -> Reply {
        self.flush();
        let mut writes = Vec::new();
        let mut written = self.head.len();
        let mut begin = 0;
        // Bytes of the answer before each chunk's data, and where that data begins in the body.
        let mut places = Vec::new();
        for &end in &self.chunk_ends {
            let size = format!("{:x}\r\n", end - begin);
            places.push((begin, end, written + size.len()));
            let chunk = [size.as_bytes(), &self.body[begin..end], b"\r\n"].concat();
            written += chunk.len();
            writes.push(chunk);
            begin = end;
        }
        if clean {
            writes.push(b"0\r\n\r\n".to_vec());
        }
        for (content, &at) in self.expected.content.iter_mut().zip(&self.complete_at) {
            let place = places.iter().find(|(begin, end, _)| (begin + 1..=*end).contains(&at));
            content.complete_at = place.map_or(0, |(begin, _, written)| written + at - begin);
        }
        self.conclude(outcome, generated);
        Reply { head: self.head, writes, closes: !clean, streams: true, deaf: false, expected: self.expected }
    }

    fn conclude(&mut self, outcome: Outcome, generated: u64) {
        let e = &mut self.expected;
        e.outcome = outcome;
        e.generated = generated;
        let tokens = e.event_tokens;
        e.stream_tokens = (tokens.unknown == 0 && self.shown > 0).then_some(self.shown);
        let counted = self.total.or(e.stream_tokens);
        if e.output_tokens.is_none() && counted.is_some() {
            e.output_tokens = counted;
            e.token_source = TokenSource::StreamCounts;
        }
        let one = u64::from(tokens.one);
        // A last token without text changes no gap between texts.
        let with_last = if self.trailing == (1, 1) { one + 1 } else { one };
        e.itl = if tokens.many > 0 || tokens.none > 0 {
            Itl::ManyPerEvent
        } else if one == 0 || tokens.unknown > 0 {
            Itl::None
        } else if e.output_tokens.is_some_and(|n| n == one || n == with_last) {
            Itl::Proven
        } else {
            Itl::SumDiffers
        };
    }
}

/// Bytes from the one that completes an event to the event's end, both included.
fn line_end(bytes: &str) -> usize {
    if bytes.ends_with("\r\n") { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack() -> Stack {
        Stack::Uvicorn("")
    }

    #[test]
    fn the_place_where_an_event_is_complete_is_found_on_the_wire() {
        for (end, whole) in [("\n\n", 0), ("\r\n\r\n", 1), ("\r\r", 0)] {
            let mut script = Script::new(stack());
            script.send(&format!("data: role{end}"), Carries::nothing());
            script.send(&format!("data: text{end}"), Carries::text(Channel::Answer, "a"));
            let reply = script.close(Outcome::Success, 1);
            let at = reply.expected().content[0].complete_at;
            let bytes = reply.bytes();
            let text = String::from_utf8(bytes[..at + whole].to_vec()).unwrap();
            assert!(text.ends_with(&format!("data: text{end}")), "{text:?}");
        }
    }

    #[test]
    fn nothing_after_the_verdict_counts() {
        let mut script = Script::new(stack());
        script.send("data: a\n\n", Carries::text(Channel::Answer, "a"));
        script.done("data: [DONE]\n\n");
        script.send("data: b\n\n", Carries::text(Channel::Answer, "b"));
        let reply = script.close(Outcome::Success, 1);
        assert_eq!((reply.expected().content_events(), reply.expected().data_events), (1, 1));
        assert!(reply.expected().done_seen);
    }

    #[test]
    fn counts_prove_and_disprove() {
        let run = |events: &[(&str, Option<u64>)], usage: Option<u64>| {
            let mut script = Script::new(stack());
            for &(text, shows) in events {
                script.send("data: x\n\n", Carries::text(Channel::Answer, text).shows(shows));
            }
            let usage = usage.map(|completion| Usage { prompt: 3, completion, cached: None });
            script.send("data: u\n\n", Carries::nothing().usage(usage));
            let reply = script.close(Outcome::Success, 0);
            (reply.expected().itl, reply.expected().output_tokens, reply.expected().token_source)
        };
        use TokenSource::{StreamCounts, Unknown, Usage as Said};
        let one = ("a", Some(1));
        assert_eq!(run(&[one, one], Some(2)), (Itl::Proven, Some(2), Said));
        assert_eq!(run(&[one, one], None), (Itl::Proven, Some(2), StreamCounts));
        assert_eq!(run(&[one, ("a", None)], None), (Itl::None, None, Unknown));
        assert_eq!(run(&[one, ("", Some(1)), one], Some(3)), (Itl::SumDiffers, Some(3), Said));
        assert_eq!(run(&[one, one, ("", Some(1))], Some(3)), (Itl::Proven, Some(3), Said));
        assert_eq!(run(&[one, ("b", Some(2))], Some(3)), (Itl::ManyPerEvent, Some(3), Said));
    }
}
