//! What a client asks of the null engine: bytes in, one request or a refusal out.
//!
//! Pure: no socket, no clock. It reads as much of HTTP/1.1 as clients of engines write, refuses the rest with a status,
//! and holds no more than [`MAX_HEAD_BYTES`] and [`MAX_BODY_BYTES`] of a request. Of the body it takes what an answer
//! depends on. It must never panic on any bytes, nor take two requests for one: `tests` guards both.

use std::fmt;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The longest head that is read.
pub(super) const MAX_HEAD_BYTES: usize = 16 << 10;

/// The longest body: a prompt of some million tokens.
pub(super) const MAX_BODY_BYTES: usize = 8 << 20;

/// What is kept of an `x-request-id`.
const MAX_ID_BYTES: usize = 128;

/// The longest answer that may be asked for, in tokens.
const MAX_TOKENS: u64 = 1_000_000;

/// Which answer has which shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `choices[].text`.
    Completions,
    /// `choices[].delta.content`.
    Chat,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ask {
    /// `GET /health`.
    Health,
    /// `GET /v1/models`.
    Models,
    /// `GET /arrivals`.
    Arrivals,
    /// `POST /reset`.
    Reset,
    /// Tokens.
    Generate(Generate),
}

/// A request for tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Generate {
    /// Its answer's.
    pub(super) shape: Shape,
    /// `max_completion_tokens`, else `max_tokens`.
    pub(super) tokens: Option<u32>,
    /// `stream`.
    pub(super) streamed: bool,
    /// `stream_options.include_usage`; always for an answer that is not streamed.
    pub(super) usage: bool,
    /// Exact for a prompt of token ids, a quarter of the bytes otherwise.
    pub(super) prompt_tokens: u64,
    /// `x-request-id`, as far as it is kept.
    pub(super) id: Box<str>,
}

/// A whole request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// What it asks for.
    pub(super) ask: Ask,
    /// Another one may follow on this connection.
    pub(super) keep_alive: bool,
    /// How many bytes it takes.
    pub(super) length: usize,
}

/// What the bytes so far amount to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A part of a request.
    More {
        /// Its client waits for a `100 Continue` before it sends the body.
        expects_continue: bool,
    },
    /// A request.
    Whole(Request),
    /// Nothing that can be answered: say so, and close.
    Refused(Refusal),
}

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Of HTTP.
    pub(super) status: u16,
    /// For whoever reads the answer.
    pub(super) message: String,
}

fn refused(status: u16, message: impl Into<String>) -> Refusal {
    Refusal { status, message: message.into() }
}

/// What `bytes`, from the beginning of a request, amount to.
pub(super) fn read(bytes: &[u8]) -> Step {
    match whole(bytes) {
        Ok(step) => step,
        Err(refusal) => Step::Refused(refusal),
    }
}

/// What the head says that matters here.
#[derive(Default)]
struct Head<'a> {
    method: &'a str,
    path: &'a str,
    body: usize,
    close: bool,
    expects_continue: bool,
    id: &'a str,
}

fn whole(bytes: &[u8]) -> Result<Step, Refusal> {
    let searched = &bytes[..bytes.len().min(MAX_HEAD_BYTES)];
    let Some(end) = memchr::memmem::find(searched, b"\r\n\r\n") else {
        return if bytes.len() >= MAX_HEAD_BYTES {
            Err(refused(431, format!("the request's head is longer than {MAX_HEAD_BYTES} bytes")))
        } else {
            Ok(Step::More { expects_continue: false })
        };
    };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| refused(400, "the head is not text"))?;
    let head = read_head(head)?;
    let length = end + 4 + head.body;
    let Some(body) = bytes.get(end + 4..length) else {
        return Ok(Step::More { expects_continue: head.expects_continue });
    };
    Ok(Step::Whole(Request { ask: ask(&head, body)?, keep_alive: !head.close, length }))
}

fn read_head(head: &str) -> Result<Head<'_>, Refusal> {
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(path), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(refused(400, "the first line is not METHOD PATH VERSION"));
    };
    if version != "HTTP/1.1" {
        return Err(refused(505, "only HTTP/1.1 is spoken here"));
    }
    let mut read = Head { method, path: path.split('?').next().unwrap_or_default(), ..Head::default() };
    let mut length = None;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| refused(400, "a header line has no colon"))?;
        let value = value.trim_matches([' ', '\t']);
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        if name.is_empty() || name.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err(refused(400, "a header has a name that HTTP does not know"));
        } else if is("content-length") {
            // Digits only: `parse` would take a sign, too.
            let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
            let n: usize = value
                .parse()
                .ok()
                .filter(|_| digits)
                .ok_or_else(|| refused(400, "content-length is no length"))?;
            if length.replace(n).is_some_and(|other| other != n) {
                return Err(refused(400, "two lengths of one body"));
            }
        } else if is("transfer-encoding") {
            return Err(refused(411, "send the body with a content-length"));
        } else if is("connection") {
            read.close = value.split(',').any(|word| word.trim().eq_ignore_ascii_case("close"));
        } else if is("expect") {
            read.expects_continue = value.eq_ignore_ascii_case("100-continue");
        } else if is("x-request-id") {
            let cut = (0..=MAX_ID_BYTES.min(value.len())).rev().find(|&n| value.is_char_boundary(n));
            read.id = &value[..cut.unwrap_or(0)];
        }
    }
    read.body = length.unwrap_or(0);
    if read.body > MAX_BODY_BYTES {
        return Err(refused(413, format!("the body is longer than {MAX_BODY_BYTES} bytes")));
    }
    Ok(read)
}

fn ask(head: &Head<'_>, body: &[u8]) -> Result<Ask, Refusal> {
    match (head.method, head.path) {
        ("POST", "/reset") => Ok(Ask::Reset),
        ("POST", path) if path.ends_with("/completions") => {
            let shape = if path.contains("/chat/") { Shape::Chat } else { Shape::Completions };
            generate(shape, head.id, body).map(Ask::Generate)
        }
        ("GET", "/health") => Ok(Ask::Health),
        ("GET", "/v1/models") => Ok(Ask::Models),
        ("GET", "/arrivals") => Ok(Ask::Arrivals),
        ("GET" | "POST", path) => Err(refused(404, format!("nothing is at {path}"))),
        (method, _) => Err(refused(405, format!("{method} is not understood here"))),
    }
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(default)]
    max_completion_tokens: Option<u64>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    prompt: Option<PromptTokens>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

fn generate(shape: Shape, id: &str, body: &[u8]) -> Result<Generate, Refusal> {
    // A list would do for the fields in their order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(refused(400, "the body is not a JSON object"));
    }
    let read: Body = serde_json::from_slice(body).map_err(|e| refused(400, format!("the body: {e}")))?;
    let tokens = read.max_completion_tokens.or(read.max_tokens);
    let tokens = match tokens {
        None => None,
        Some(n @ 1..=MAX_TOKENS) => u32::try_from(n).ok(),
        Some(n) => return Err(refused(400, format!("max_tokens is {n}, not 1 to {MAX_TOKENS}"))),
    };
    let streamed = read.stream.unwrap_or(false);
    let asked = read.stream_options.and_then(|o| o.include_usage).unwrap_or(false);
    Ok(Generate {
        shape,
        tokens,
        streamed,
        usage: asked || !streamed,
        prompt_tokens: read.prompt.map_or(body.len() as u64 / 4, |p| p.0),
        id: id.into(),
    })
}

/// How many tokens a prompt has.
struct PromptTokens(u64);

impl<'de> Deserialize<'de> for PromptTokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;
        impl<'de> Visitor<'de> for Count {
            type Value = PromptTokens;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a prompt: text, or a list")
            }

            fn visit_str<E>(self, text: &str) -> Result<PromptTokens, E> {
                Ok(PromptTokens((text.len() as u64).div_ceil(4)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<PromptTokens, A::Error> {
                let mut n = 0;
                while items.next_element::<IgnoredAny>()?.is_some() {
                    n += 1;
                }
                Ok(PromptTokens(n))
            }
        }
        deserializer.deserialize_any(Count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
        format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
            .into_bytes()
    }

    fn generated(bytes: &[u8]) -> Generate {
        match read(bytes) {
            Step::Whole(Request { ask: Ask::Generate(generate), length, .. }) if length == bytes.len() => {
                generate
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_says_what_is_to_be_answered() {
        let body = r#"{"model":"m","stream":true,"max_tokens":7,"prompt":[1,2,3],"temperature":0}"#;
        let asked = generated(&post("/v1/completions", "x-request-id: r/0/1\r\n", body));
        let wanted = Generate {
            shape: Shape::Completions,
            tokens: Some(7),
            streamed: true,
            usage: false,
            prompt_tokens: 3,
            id: "r/0/1".into(),
        };
        assert_eq!(asked, wanted);
        let body = r#"{"stream":true,"max_tokens":7,"max_completion_tokens":9,"messages":[],"stream_options":{"include_usage":true}}"#;
        let asked = generated(&post("/x/v1/chat/completions?a=b", "", body));
        assert!(asked.shape == Shape::Chat && asked.tokens == Some(9) && asked.usage, "{asked:?}");
        let asked = generated(&post("/v1/completions", "", r#"{"prompt":"12345","max_tokens":null}"#));
        assert!(
            !asked.streamed && asked.usage && asked.tokens.is_none() && asked.prompt_tokens == 2,
            "{asked:?}"
        );
        let long = format!("x-request-id: {}\r\n", "é".repeat(200));
        assert_eq!(generated(&post("/v1/completions", &long, "{}")).id.len(), MAX_ID_BYTES);
    }

    /// Every beginning of two requests is a part of the first, or the first and no more.
    #[test]
    fn a_request_ends_where_it_ends() {
        let first = post("/v1/completions", "connection: close\r\n", r#"{"stream":true}"#);
        let both = [first.clone(), b"GET /health HTTP/1.1\r\n\r\n".to_vec()].concat();
        for n in 0..both.len() {
            match read(&both[..n]) {
                Step::More { expects_continue: false } => assert!(n < first.len()),
                Step::Whole(r) => assert!(n >= first.len() && r.length == first.len() && !r.keep_alive),
                other => panic!("{other:?} of {n} bytes"),
            }
        }
        let Step::Whole(second) = read(&both[first.len()..]) else { panic!("no second request") };
        assert!(second.keep_alive && second.ask == Ask::Health);
        let waiting = b"POST /v1/completions HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
        assert_eq!(read(waiting), Step::More { expects_continue: true });
    }

    #[test]
    fn what_cannot_be_answered_is_refused_with_a_status() {
        let status = |bytes: &[u8]| match read(bytes) {
            Step::Refused(refusal) => refusal.status,
            other => panic!("{other:?} of {}", String::from_utf8_lossy(bytes)),
        };
        let get = |line: &str, headers: &str| format!("{line}\r\n{headers}\r\n").into_bytes();
        assert_eq!(status(&get("GET /health", "")), 400);
        assert_eq!(status(&get("GET /health HTTP/1.0", "")), 505);
        assert_eq!(status(&get("GET /nothing HTTP/1.1", "")), 404);
        assert_eq!(status(&get("DELETE /health HTTP/1.1", "")), 405);
        assert_eq!(status(&get("GET /health HTTP/1.1", "no colon\r\n")), 400);
        assert_eq!(status(&get("GET /health HTTP/1.1", "a name: x\r\n")), 400);
        for length in ["-1", "+1", "x", "", "99999999999999999999999"] {
            assert_eq!(status(&get("POST /reset HTTP/1.1", &format!("content-length: {length}\r\n"))), 400);
        }
        assert_eq!(status(&get("POST /reset HTTP/1.1", "content-length: 1\r\ncontent-length: 2\r\n")), 400);
        assert_eq!(status(&get("POST /reset HTTP/1.1", "content-length: 99999999\r\n")), 413);
        assert_eq!(status(&get("POST /v1/completions HTTP/1.1", "transfer-encoding: chunked\r\n")), 411);
        assert_eq!(status(&vec![b'x'; MAX_HEAD_BYTES]), 431);
        assert_eq!(status(b"\xff\r\n\r\n"), 400);
        for body in [
            "",
            "{",
            "[]",
            r#"{"max_tokens":0}"#,
            r#"{"max_tokens":-1}"#,
            r#"{"max_tokens":9999999}"#,
            r#"{"prompt":1}"#,
        ] {
            assert_eq!(status(&post("/v1/completions", "", body)), 400, "{body}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300), cut in 0usize..120) {
            let _ = read(&bytes);
            let mut request = post("/v1/chat/completions", "", r#"{"stream":true,"prompt":"x","max_tokens":3}"#);
            let at = cut.min(request.len());
            request.splice(at..at, bytes);
            let _ = read(&request);
        }
    }
}
