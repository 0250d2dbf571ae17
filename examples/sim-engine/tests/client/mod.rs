//! A client that sees what a polite one hides: chunk borders, a missing last chunk, a reset.

#![allow(clippy::unwrap_used, reason = "a test says what it expected")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use clap::Parser as _;
use serde_json::Value;
use sim_engine::{Background, Options};

/// A quick server with these further arguments.
pub(crate) fn start(arguments: &[&str]) -> Background {
    let quick = ["sim-engine", "--step-ms=0.5", "--step-per-seq-ms=0", "--prefill-base-ms=1"];
    let options = Options::parse_from(quick.iter().chain(arguments));
    Background::start(options.config()).unwrap()
}

/// A response, taken apart.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Chunks of a chunked body as they were framed.
    pub(crate) chunks: Vec<Vec<u8>>,
    pub(crate) body: Vec<u8>,
    /// The body ended as its framing promised.
    pub(crate) complete: bool,
    /// The connection was reset.
    pub(crate) reset: bool,
}

impl Answer {
    /// The data of each event.
    pub(crate) fn data(&self) -> Vec<String> {
        let text = String::from_utf8(self.body.clone()).unwrap();
        text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }

    pub(crate) fn last(&self) -> String {
        self.data().pop().unwrap()
    }

    /// The events that are JSON.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.data().iter().filter_map(|data| serde_json::from_str(data).ok()).collect()
    }

    /// Events with text.
    pub(crate) fn tokens(&self) -> usize {
        let has_text = |event: &&Value| {
            let choice = &event["choices"][0];
            let text = choice["text"].as_str().or(choice["delta"]["content"].as_str());
            text.is_some_and(|text| !text.is_empty())
        };
        self.json().iter().filter(has_text).count()
    }
}

/// A request whose answer is read bit by bit. Dropping it closes the connection.
pub(crate) struct Open {
    stream: TcpStream,
    text: String,
}

impl Open {
    fn read_some(&mut self) -> usize {
        let mut buffer = [0; 4096];
        let read = self.stream.read(&mut buffer).unwrap();
        self.text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        read
    }

    pub(crate) fn read_until(&mut self, enough: impl Fn(&str) -> bool) {
        while !enough(&self.text) {
            assert_ne!(self.read_some(), 0, "ended early: {}", self.text);
        }
    }

    pub(crate) fn read_to_end(&mut self) -> String {
        while self.read_some() > 0 {}
        self.text.clone()
    }
}

fn send(server: &Background, head: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    // In one piece: a request in small writes waits for acknowledgements between them.
    let request = format!("{head}host: sim\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn post_head(path: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("POST {path} HTTP/1.1\r\n");
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    head
}

/// Posts on a connection that is kept alive, and reads nothing yet.
pub(crate) fn open(server: &Background, path: &str, headers: &[(&str, &str)], body: &Value) -> Open {
    Open { stream: send(server, &post_head(path, headers), &body.to_string()), text: String::new() }
}

fn exchange(server: &Background, head: &str, body: &str) -> Answer {
    let mut stream = send(server, &format!("{head}connection: close\r\n"), body);
    let mut raw = Vec::new();
    let mut buffer = [0; 65536];
    let reset = loop {
        match stream.read(&mut buffer) {
            Ok(0) => break false,
            Ok(read) => raw.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break true,
            Err(error) => panic!("{error}"),
        }
    };
    take_apart(&raw, reset)
}

fn take_apart(raw: &[u8], reset: bool) -> Answer {
    let head_end = raw.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(raw[..head_end].to_vec()).unwrap().to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut rest = &raw[head_end..];
    let mut answer = Answer { status, chunks: Vec::new(), body: Vec::new(), complete: false, reset };
    if !head.contains("transfer-encoding: chunked") {
        answer.body = rest.to_vec();
        answer.complete = head.contains(&format!("content-length: {}\r\n", rest.len()));
        return answer;
    }
    while let Some(line_end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line_end]).unwrap(), 16).unwrap();
        if size == 0 {
            answer.complete = true;
            break;
        }
        let chunk = &rest[line_end + 2..line_end + 2 + size];
        answer.chunks.push(chunk.to_vec());
        answer.body.extend_from_slice(chunk);
        rest = &rest[line_end + 2 + size + 2..];
    }
    answer
}

pub(crate) fn completion(server: &Background, headers: &[(&str, &str)], body: Value) -> Answer {
    exchange(server, &post_head("/v1/completions", headers), &body.to_string())
}

pub(crate) fn chat(server: &Background, headers: &[(&str, &str)], body: Value) -> Answer {
    exchange(server, &post_head("/v1/chat/completions", headers), &body.to_string())
}

pub(crate) fn get(server: &Background, path: &str) -> Answer {
    exchange(server, &format!("GET {path} HTTP/1.1\r\n"), "")
}

pub(crate) fn clear_log(server: &Background) {
    assert_eq!(exchange(server, "DELETE /log HTTP/1.1\r\n", "").status, 204);
}

pub(crate) fn log(server: &Background) -> Vec<Value> {
    serde_json::from_slice(&get(server, "/log").body).unwrap()
}

/// The value of the first sample whose line starts so.
pub(crate) fn metric(server: &Background, start: &str) -> u64 {
    let text = String::from_utf8(get(server, "/metrics").body).unwrap();
    let line = text.lines().find(|line| line.starts_with(start)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Waits as long as it takes, within reason.
pub(crate) fn wait_for(what: &str, done: impl Fn() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited in vain for {what}");
}
