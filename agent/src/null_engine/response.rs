//! The bytes of an answer: serialised once, and put together from there without a copy.
//!
//! An answer is a string of bytes that is never made: a head, events of one length from a block that is repeated, and a
//! tail. So an answer of a million tokens takes no more memory than one of 16, and what is left to do for one is to say
//! which slices of it leave next. Every event is an HTTP chunk of its own, as vLLM streams them. Pure.

use std::fmt::Write as _;
use std::io::IoSlice;
use std::rc::Rc;

use super::request::{Generate, Shape};

/// Events of a block: enough that an answer of common length is one slice.
const BLOCK: u32 = 1024;

/// The most slices that leave in one write.
const MAX_SLICES: usize = 16;

const ID: &str = "8f1e7c5a3b9d4f60a2c4e6f8091b3d5f";
const CREATED: u64 = 1_764_460_800;
const MODEL: &str = "null";

/// Head and events of a shape.
#[derive(Debug)]
struct Block {
    head: Vec<u8>,
    events: Vec<u8>,
    event_bytes: usize,
}

impl Block {
    fn new(shape: Shape) -> Self {
        let mut head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
                        transfer-encoding: chunked\r\n\r\n"
            .to_owned();
        if shape == Shape::Chat {
            let choice = r#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}"#;
            chunk(&mut head, &event(shape, choice, None));
        }
        let mut events = String::new();
        for number in 0..BLOCK {
            chunk(&mut events, &event(shape, &choice(shape, &text(number), "null"), None));
        }
        let event_bytes = events.len() / BLOCK as usize;
        Self { head: head.into_bytes(), events: events.into_bytes(), event_bytes }
    }
}

/// What a token says: each has six bytes.
fn text(number: u32) -> String {
    format!(" t{:04}", number % BLOCK)
}

fn choice(shape: Shape, text: &str, finish: &str) -> String {
    match shape {
        Shape::Completions => {
            format!(
                r#"{{"index":0,"text":"{text}","logprobs":null,"finish_reason":{finish},"stop_reason":null}}"#
            )
        }
        Shape::Chat => format!(
            r#"{{"index":0,"delta":{{"content":"{text}"}},"logprobs":null,"finish_reason":{finish},"stop_reason":null}}"#
        ),
    }
}

fn prefix(shape: Shape) -> (&'static str, &'static str) {
    match shape {
        Shape::Completions => ("cmpl", "text_completion"),
        Shape::Chat => ("chatcmpl", "chat.completion.chunk"),
    }
}

fn event(shape: Shape, choices: &str, usage: Option<&str>) -> String {
    let (id, object) = prefix(shape);
    let usage = usage.map(|usage| format!(r#","usage":{usage}"#)).unwrap_or_default();
    format!(
        "data: {{\"id\":\"{id}-{ID}\",\"object\":\"{object}\",\"created\":{CREATED},\"model\":\"{MODEL}\",\
         \"choices\":[{choices}]{usage}}}\n\n"
    )
}

/// Puts an HTTP chunk around `data`.
fn chunk(to: &mut String, data: &str) {
    // Writing to a string does not fail.
    let _ = write!(to, "{:x}\r\n{data}\r\n", data.len());
}

fn usage(prompt_tokens: u64, tokens: u32) -> String {
    let total = prompt_tokens.saturating_add(u64::from(tokens));
    format!(r#"{{"prompt_tokens":{prompt_tokens},"total_tokens":{total},"completion_tokens":{tokens}}}"#)
}

/// Finish reason, usage where it was asked for, `[DONE]`, and the end of the body.
fn tail(shape: Shape, tokens: u32, prompt_tokens: Option<u64>) -> Vec<u8> {
    let mut tail = String::new();
    chunk(&mut tail, &event(shape, &choice(shape, "", r#""length""#), None));
    if let Some(prompt_tokens) = prompt_tokens {
        chunk(&mut tail, &event(shape, "", Some(&usage(prompt_tokens, tokens))));
    }
    chunk(&mut tail, "data: [DONE]\n\n");
    tail.push_str("0\r\n\r\n");
    tail.into_bytes()
}

/// Makes answers.
#[derive(Debug)]
pub(super) struct Answers {
    completions: Rc<Block>,
    chat: Rc<Block>,
    /// The tail of the last answer and what it depends on: requests of a load are much alike.
    last: Option<(TailOf, Rc<Vec<u8>>)>,
}

type TailOf = (Shape, u32, Option<u64>);

impl Answers {
    pub(super) fn new() -> Self {
        let [completions, chat] = [Shape::Completions, Shape::Chat].map(|shape| Rc::new(Block::new(shape)));
        Self { completions, chat, last: None }
    }

    /// The answer of `tokens` tokens to `asked`.
    pub(super) fn to(&mut self, asked: &Generate, tokens: u32) -> Answer {
        let tail_of = (asked.shape, tokens, asked.usage.then_some(asked.prompt_tokens));
        if !asked.streamed {
            return Answer::of(whole(tail_of), tokens);
        }
        let block = match asked.shape {
            Shape::Completions => Rc::clone(&self.completions),
            Shape::Chat => Rc::clone(&self.chat),
        };
        let tail = match &self.last {
            Some((of, tail)) if *of == tail_of => Rc::clone(tail),
            _ => {
                let (shape, tokens, prompt) = tail_of;
                let tail = Rc::new(tail(shape, tokens, prompt));
                self.last = Some((tail_of, Rc::clone(&tail)));
                tail
            }
        };
        Answer { block: Some(block), tail, events: tokens }
    }
}

/// The answer to a request that wants no stream.
fn whole((shape, tokens, prompt_tokens): TailOf) -> Vec<u8> {
    let text: String = (0..tokens).map(text).collect();
    let (id, object, message) = match shape {
        Shape::Completions => ("cmpl", "text_completion", format!(r#""text":"{text}""#)),
        Shape::Chat => {
            ("chatcmpl", "chat.completion", format!(r#""message":{{"role":"assistant","content":"{text}"}}"#))
        }
    };
    let usage = usage(prompt_tokens.unwrap_or(0), tokens);
    let body = format!(
        "{{\"id\":\"{id}-{ID}\",\"object\":\"{object}\",\"created\":{CREATED},\"model\":\"{MODEL}\",\
         \"choices\":[{{\"index\":0,{message},\"logprobs\":null,\"finish_reason\":\"length\"}}],\"usage\":{usage}}}"
    );
    plain(200, JSON, &body, true)
}

/// The header line of an answer that is JSON.
pub(super) const JSON: &str = "content-type: application/json";

/// An answer with a body of known length, and these header lines.
pub(super) fn plain(status: u16, headers: &str, body: &str, keep_alive: bool) -> Vec<u8> {
    let reason = http::StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason()).unwrap_or("");
    let close = if keep_alive { "" } else { "connection: close\r\n" };
    format!("HTTP/1.1 {status} {reason}\r\n{headers}\r\ncontent-length: {}\r\n{close}\r\n{body}", body.len())
        .into_bytes()
}

/// The bytes of one answer, as a string that is never made.
#[derive(Debug)]
pub(super) struct Answer {
    /// None: all of it is the tail.
    block: Option<Rc<Block>>,
    tail: Rc<Vec<u8>>,
    events: u32,
}

impl Answer {
    /// These bytes, to leave at once.
    pub(super) fn of(bytes: Vec<u8>, events: u32) -> Self {
        Self { block: None, tail: Rc::new(bytes), events }
    }

    /// How many content events it has.
    pub(super) fn events(&self) -> u32 {
        self.events
    }

    /// Whether its events may leave one by one.
    pub(super) fn is_streamed(&self) -> bool {
        self.block.is_some()
    }

    fn head_and_events(&self) -> u64 {
        self.block.as_ref().map_or(0, |b| b.head.len() as u64 + b.event_bytes as u64 * u64::from(self.events))
    }

    /// How many bytes it has.
    pub(super) fn bytes(&self) -> u64 {
        self.head_and_events() + self.tail.len() as u64
    }

    /// How many bytes have left when content event `number` has: the head leaves with the first, the tail with the
    /// last.
    pub(super) fn end_of(&self, number: u32) -> u64 {
        match &self.block {
            Some(block) if number + 1 < self.events => {
                block.head.len() as u64 + block.event_bytes as u64 * u64::from(number + 1)
            }
            _ => self.bytes(),
        }
    }

    /// Bytes from `from` to `to`, or the first of them where they are many slices.
    pub(super) fn slices(&self, from: u64, to: u64) -> ([IoSlice<'_>; MAX_SLICES], usize) {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let (mut at, mut n) = (from, 0);
        while at < to && n < MAX_SLICES {
            let rest = self.from(at);
            let length = rest.len().min(usize::try_from(to - at).unwrap_or(usize::MAX));
            slices[n] = IoSlice::new(&rest[..length]);
            at += length as u64;
            n += 1;
        }
        (slices, n)
    }

    /// What lies in one piece from byte `at`.
    fn from(&self, at: u64) -> &[u8] {
        // Below the length of what they index, which is in memory.
        let within = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        if let Some(block) = &self.block {
            let head = block.head.len() as u64;
            if at < head {
                return &block.head[within(at)..];
            }
            let left = self.head_and_events().saturating_sub(at);
            if left > 0 {
                let rest = &block.events[within((at - head) % block.events.len() as u64)..];
                return &rest[..rest.len().min(within(left))];
            }
        }
        &self.tail[within(at - self.head_and_events())..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(shape: Shape, streamed: bool, usage: bool) -> Generate {
        Generate { shape, tokens: None, streamed, usage, prompt_tokens: 5, id: "".into() }
    }

    fn bytes(answer: &Answer, from: u64, to: u64) -> Vec<u8> {
        let (mut all, mut at) = (Vec::new(), from);
        while at < to {
            let (slices, n) = answer.slices(at, to);
            assert!(n > 0);
            slices[..n].iter().for_each(|slice| all.extend_from_slice(slice));
            at = from + all.len() as u64;
        }
        all
    }

    /// Whatever parts an answer leaves in, they are the same bytes; each part up to the last ends with an event.
    #[test]
    fn the_parts_are_the_whole() {
        for (shape, tokens) in [Shape::Completions, Shape::Chat].into_iter().zip([1, 2500]) {
            let answer = Answers::new().to(&asked(shape, true, true), tokens);
            let all = bytes(&answer, 0, answer.bytes());
            assert_eq!(all.len() as u64, answer.bytes());
            let mut at = 0;
            for number in 0..tokens {
                let end = answer.end_of(number);
                let part = bytes(&answer, at, end);
                assert_eq!(part, all[at as usize..end as usize]);
                assert!(number + 1 == tokens || part.ends_with(b"}\n\n\r\n"), "{number}");
                at = end;
            }
            assert_eq!(at, answer.bytes());
            let text = String::from_utf8(all).unwrap();
            assert_eq!(text.matches(" t0").count() + text.matches(" t1").count(), tokens as usize);
            assert!(text.contains(&format!("\"completion_tokens\":{tokens}}}")), "{text}");
            assert!(text.ends_with("e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"), "{text}");
            let event = Block::new(shape).event_bytes;
            assert!((190..290).contains(&event), "{event} bytes an event");
        }
    }

    #[test]
    fn usage_is_sent_when_asked_for_and_an_answer_without_a_stream_is_one_document() {
        let mut answers = Answers::new();
        let streamed = answers.to(&asked(Shape::Chat, true, false), 3);
        assert!(!String::from_utf8(bytes(&streamed, 0, streamed.bytes())).unwrap().contains("usage"));
        let answer = answers.to(&asked(Shape::Chat, false, true), 3);
        let text = String::from_utf8(bytes(&answer, 0, answer.bytes())).unwrap();
        let body: serde_json::Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(body["choices"][0]["message"]["content"], " t0000 t0001 t0002");
        assert_eq!(body["usage"]["total_tokens"], 8);
        assert_eq!(answer.end_of(0), answer.bytes());
    }
}
