//! An answer as bytes, with what a client must make of it.

use crate::expected::{Expected, Outcome};

/// The date that every answer carries.
const DATE: &str = "Sun, 29 Nov 2026 20:37:18 GMT";

/// The web server that an engine is built on: it shapes the head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stack {
    /// uvicorn, with the lines that the engine adds.
    Uvicorn(&'static str),
    /// hyper under axum, with the lines that the engine adds.
    Axum(&'static str),
    /// Go's net/http under gin.
    Go,
    /// llama.cpp's cpp-httplib.
    Httplib,
}

impl Stack {
    /// The head of an event stream.
    pub(crate) fn stream_head(self) -> String {
        match self {
            Self::Uvicorn(more) => format!(
                "HTTP/1.1 200 OK\r\ndate: {DATE}\r\nserver: uvicorn\r\n\
                 content-type: text/event-stream; charset=utf-8\r\n{more}transfer-encoding: chunked\r\n\r\n"
            ),
            Self::Axum(more) => format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n{more}\
                 transfer-encoding: chunked\r\ndate: {DATE}\r\n\r\n"
            ),
            Self::Go => format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nDate: {DATE}\r\nTransfer-Encoding: chunked\r\n\r\n"
            ),
            Self::Httplib => "HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nAccess-Control-Allow-Origin: \r\n\
                 X-Accel-Buffering: no\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\
                 Keep-Alive: timeout=5, max=100\r\n\r\n"
                .to_owned(),
        }
    }

    /// A whole answer; an empty `kind` is no content type.
    pub(crate) fn whole(self, status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Reply {
        let body = body.into();
        let line = format!("HTTP/1.1 {status} {}\r\n", phrase(status));
        let length = body.len();
        let of_kind =
            |name: &str| if kind.is_empty() { String::new() } else { format!("{name}: {kind}\r\n") };
        let head = match self {
            Self::Uvicorn(more) => format!(
                "{line}date: {DATE}\r\nserver: uvicorn\r\ncontent-length: {length}\r\n{}{more}\r\n",
                of_kind("content-type")
            ),
            Self::Axum(_) => {
                format!("{line}{}content-length: {length}\r\ndate: {DATE}\r\n\r\n", of_kind("content-type"))
            }
            Self::Go => {
                format!("{line}{}Date: {DATE}\r\nContent-Length: {length}\r\n\r\n", of_kind("Content-Type"))
            }
            // It closes the connection after an error.
            Self::Httplib => format!(
                "{line}Server: llama.cpp\r\nAccess-Control-Allow-Origin: \r\n{}Content-Length: {length}\r\n{}\r\n",
                of_kind("Content-Type"),
                if status < 400 { "Keep-Alive: timeout=5, max=100\r\n" } else { "Connection: close\r\n" },
            ),
        };
        let closes = self == Self::Httplib && status >= 400;
        // A whole answer is what a client that asked for a stream cannot use.
        let outcome = if status < 300 { Outcome::MalformedStream } else { Outcome::HttpStatus };
        Reply {
            head: head.into_bytes(),
            writes: vec![body],
            closes,
            streams: false,
            deaf: false,
            expected: Expected::nothing(status, outcome),
        }
    }

    /// A whole answer of JSON.
    pub(crate) fn json(self, status: u16, body: &str) -> Reply {
        let kind = match self {
            Self::Httplib | Self::Go => "application/json; charset=utf-8",
            Self::Uvicorn(_) | Self::Axum(_) => "application/json",
        };
        self.whole(status, kind, body)
    }
}

/// The words beside a status.
fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Payload Too Large",
        422 => "Unprocessable Entity",
        424 => "Failed Dependency",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Unknown",
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(crate) head: Vec<u8>,
    /// What the engine writes at a time after the head.
    pub(crate) writes: Vec<Vec<u8>>,
    /// The connection is closed after it.
    pub(crate) closes: bool,
    /// It is a generation: the engine works while it is written.
    pub(crate) streams: bool,
    /// The engine does not see that its client has gone.
    pub(crate) deaf: bool,
    pub(crate) expected: Expected,
}

impl Reply {
    /// All of its bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        [&self.head].into_iter().chain(&self.writes).flatten().copied().collect()
    }

    /// The engine closes the connection after it.
    #[must_use]
    pub fn closes(&self) -> bool {
        self.closes
    }

    /// What a client must make of it.
    #[must_use]
    pub fn expected(&self) -> &Expected {
        &self.expected
    }

    /// Its HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.expected.status
    }

    /// The body of an answer that is no stream.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        self.writes.concat()
    }

    /// The value of a header, as it stands.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        let head = String::from_utf8_lossy(&self.head);
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_answer_says_its_length_and_what_it_is() {
        for stack in [Stack::Uvicorn("vary: Origin\r\n"), Stack::Axum(""), Stack::Go, Stack::Httplib] {
            let reply = stack.json(404, "{}");
            assert_eq!(reply.header("content-length").as_deref(), Some("2"));
            assert!(reply.header("content-type").is_some_and(|kind| kind.starts_with("application/json")));
            assert!(reply.bytes().ends_with(b"\r\n\r\n{}"), "{stack:?}");
            assert_eq!((reply.status(), reply.closes()), (404, stack == Stack::Httplib));
            assert!(stack.stream_head().ends_with("\r\n\r\n"));
        }
    }
}
