//! What the tests share: a request fed from bytes, and small engines on real sockets.

use std::sync::Arc;

use agent::engine::stream::{BodyEnd, Read, Rules, Stream};
use agent::engine::{Access, Client, ClientConfig, Outgoing, Requests, Secret, TrialClock};
use common::clock::{Clock, SystemClock};
use common::ids::{ArrivalIndex, Nanos};
use common::plan::Target;
use common::trace::{Trace, Unsent};
use common::workload::{Row, RowBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) const RULES: Rules = Rules {
    sends_done: true,
    ignore_eos: false,
    keep_text: true,
    total_timeout: Nanos::from_secs(1000),
    idle_timeout: Nanos::from_secs(1000),
};

pub(crate) const UNSENT: Unsent =
    Unsent { index: ArrivalIndex(3), scheduled: Nanos(1), row: 0, requested_tokens: 12, prompt_tokens: None };

/// A request that has been written at 10.
pub(crate) fn written(rules: Rules) -> Stream {
    let mut stream = Stream::new(rules, UNSENT, Nanos(5), false, 100);
    stream.on_connected(Nanos(7));
    stream.on_written(Nanos(10));
    stream
}

/// The trace of an event stream that comes in `pieces`, one read each, at 100, 101, …
pub(crate) fn streamed<'a>(rules: Rules, pieces: impl IntoIterator<Item = &'a [u8]>, end: BodyEnd) -> Trace {
    let mut stream = written(rules);
    stream.on_head(Nanos(99), 200, Some(b"text/event-stream"));
    let mut read = Read { at: Nanos(100), number: 1 };
    for piece in pieces {
        stream.on_read(read, piece);
        read = Read { at: read.at + Nanos(1), number: read.number + 1 };
    }
    stream.on_end(read.at, end);
    stream.finish(None)
}

/// The framing of one response, taken off piece by piece.
#[derive(Default)]
pub(crate) struct Wire {
    head: Vec<u8>,
    framing: Framing,
    pub(crate) ended: bool,
}

#[derive(Default)]
enum Framing {
    #[default]
    Head,
    Length(usize),
    /// Bytes of a size line so far; then bytes left of the chunk with its line end.
    ChunkSize(Vec<u8>),
    Chunk(usize),
}

impl Wire {
    /// Feeds what one read brought to `stream`.
    pub(crate) fn feed(&mut self, stream: &mut Stream, read: Read, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.ended {
            match &mut self.framing {
                Framing::Head => {
                    self.head.push(bytes[0]);
                    bytes = &bytes[1..];
                    if self.head.ends_with(b"\r\n\r\n") {
                        self.on_head(stream, read.at);
                    }
                }
                Framing::Length(left) => {
                    let (now, later) = bytes.split_at(bytes.len().min(*left));
                    *left -= now.len();
                    self.ended = *left == 0;
                    stream.on_read(read, now);
                    bytes = later;
                }
                Framing::ChunkSize(line) => {
                    line.push(bytes[0]);
                    bytes = &bytes[1..];
                    if line.ends_with(b"\r\n") {
                        let size =
                            usize::from_str_radix(std::str::from_utf8(line).unwrap().trim(), 16).unwrap();
                        self.ended = size == 0;
                        self.framing = Framing::Chunk(size + 2);
                    }
                }
                Framing::Chunk(left) => {
                    let (now, later) = bytes.split_at(bytes.len().min(*left));
                    let data = now.len().min(left.saturating_sub(2));
                    *left -= now.len();
                    if *left == 0 {
                        self.framing = Framing::ChunkSize(Vec::new());
                    }
                    if data > 0 {
                        stream.on_read(read, &now[..data]);
                    }
                    bytes = later;
                }
            }
        }
    }

    fn on_head(&mut self, stream: &mut Stream, at: Nanos) {
        let head = std::str::from_utf8(&self.head).unwrap();
        let value = |name: &str| {
            let mut lines = head.lines().filter_map(|l| l.split_once(':'));
            lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim())
        };
        let status = head[9..12].parse().unwrap();
        stream.on_head(at, status, value("content-type").map(str::as_bytes));
        self.framing = match value("content-length") {
            Some(n) => Framing::Length(n.parse().unwrap()),
            None => Framing::ChunkSize(Vec::new()),
        };
    }
}

pub(crate) fn target(port: u16) -> Target {
    Target {
        model: Some("m".into()),
        total_timeout: Nanos::from_secs(20),
        idle_timeout: Nanos::from_secs(20),
        ..Target::plain(format!("http://127.0.0.1:{port}").parse().unwrap())
    }
}

/// A client and what is needed to use it.
pub(crate) struct Rig {
    pub(crate) client: Client,
    pub(crate) clock: TrialClock,
    pub(crate) cancel: watch::Sender<bool>,
    requests: Requests,
}

impl Rig {
    pub(crate) fn new(target: Target) -> Self {
        Self::with(target, Secret::new("sk-secret").into())
    }

    pub(crate) fn with(target: Target, access: Access) -> Self {
        let system = Arc::new(SystemClock);
        let clock = TrialClock::new(system.clone(), system.monotonic());
        let requests = Requests::new(&target);
        let config = ClientConfig {
            target,
            access,
            agent: "a1".parse().unwrap(),
            run: "run-1".parse().unwrap(),
            trial: "2".into(),
        };
        let client = Client::new(config, clock.clone()).unwrap();
        Self { client, clock, cancel: watch::Sender::new(false), requests }
    }

    pub(crate) fn outgoing(&self) -> Outgoing {
        let row = Row { body: RowBody::Prompt("hello".into()), max_tokens: Some(12), line: 1 };
        let released = self.clock.now();
        let unsent = Unsent { scheduled: released, ..UNSENT };
        Outgoing { unsent, released, waited_for_permit: false, body: self.requests.body(&row) }
    }

    pub(crate) async fn send(&self) -> Trace {
        self.client.send(self.outgoing(), &mut self.cancel.subscribe()).await
    }
}

/// A socket that listens on a free port of the loopback.
pub(crate) async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Reads one request to its end; gives its bytes, or none when the client has closed.
pub(crate) async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut some = [0; 4096];
        let n = socket.read(&mut some).await.unwrap_or(0);
        if n == 0 {
            return None;
        }
        bytes.extend_from_slice(&some[..n]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length = lower.lines().find_map(|l| l.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |l| l.parse().unwrap()) {
                return Some(text);
            }
        }
    }
}

pub(crate) const SSE_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// One HTTP chunk.
pub(crate) fn chunked(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n", body.len())
}

/// A content event of the completions endpoint.
pub(crate) fn token(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\"}}]}}\n\n")
}

/// Finish reason, usage and end mark.
pub(crate) fn ending(tokens: u32) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}}]}}\n\n\
         data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":2,\"completion_tokens\":{tokens}}}}}\n\n\
         data: [DONE]\n\n"
    )
}

/// A whole good response of three tokens.
pub(crate) fn good_response() -> String {
    let events = [token("a"), token("b"), token("c"), ending(3)];
    format!("{SSE_HEAD}{}0\r\n\r\n", events.map(|e| chunked(&e)).concat())
}

/// Writes in segments of its own.
pub(crate) async fn write(socket: &mut TcpStream, bytes: &str) {
    // A client that has gone is what some tests are about.
    let _ = socket.write_all(bytes.as_bytes()).await;
}
