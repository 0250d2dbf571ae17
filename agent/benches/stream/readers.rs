//! The three that read: the agent's client, a bare reader of the socket, and the client's parser alone.

use std::io::{Read, Write};
use std::net::TcpStream;

use agent::engine::Requests;
use agent::engine::stream::{BodyEnd, Read as SocketRead, Rules, Stream};
use anyhow::{Context, ensure};
use bytes::Bytes;
use common::ids::{ArrivalIndex, Nanos};
use common::trace::{Trace, Unsent};
use common::workload::{Row, RowBody};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use memchr::memmem;
use rustix::event::epoll;
use tokio::task::JoinSet;

use crate::cpu;
use crate::support::{Rig, target};
use crate::wire::{BOUNDARIES, EVENTS, events};

/// What a reader used and saw.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) cpu: Nanos,
    pub(crate) events: u64,
    pub(crate) reads: u64,
}

impl Cost {
    pub(crate) fn us_per_event(&self) -> f64 {
        self.cpu.0 as f64 / 1e3 / self.events as f64
    }

    pub(crate) fn events_per_read(&self) -> f64 {
        self.events as f64 / self.reads as f64
    }
}

/// Every connection carries `rounds` requests, one after the other, through [`agent::engine::Client::send`]. Making
/// and dropping the trace is in it; the connections were opened before.
pub(crate) fn client(port: u16, connections: usize, rounds: usize) -> anyhow::Result<Cost> {
    let rig = Rig::new(port)?;
    let runtime = agent::load::thread::runtime()?;
    runtime.block_on(async {
        let warm = rig.client.warm(connections).await.map_err(|f| anyhow::anyhow!(f.message))?;
        ensure!(warm == connections, "{warm} connections of {connections}");
        // Buffers grow to their size, pages are touched.
        let _ = rig.send().await;
        let before = cpu::used();
        let mut requests = JoinSet::new();
        for _ in 0..connections {
            let rig = rig.clone();
            requests.spawn(async move {
                let mut cost = Cost::default();
                for _ in 0..rounds {
                    count(&rig.send().await, &mut cost)?;
                }
                anyhow::Ok(cost)
            });
        }
        let mut total = Cost::default();
        while let Some(cost) = requests.join_next().await {
            let cost = cost??;
            total.events += cost.events;
            total.reads += cost.reads;
        }
        Ok(Cost { cpu: cpu::used() - before, ..total })
    })
}

fn count(trace: &Trace, cost: &mut Cost) -> anyhow::Result<()> {
    let events = trace.clocks.content.len();
    ensure!(trace.facts.outcome.is_success() && events == EVENTS, "{:?}", trace.facts.outcome);
    cost.events += events as u64;
    cost.reads += events as u64 - u64::from(trace.facts.coalesced_events);
    Ok(())
}

/// The same requests and responses by a bare HTTP connection, hyper's: heads are parsed, chunks taken out of their framing,
/// and dropped. What a client pays that takes a library for HTTP and looks at nothing.
pub(crate) fn http(port: u16, connections: usize, rounds: usize) -> anyhow::Result<Cost> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut senders = Vec::with_capacity(connections);
        for _ in 0..connections {
            let socket = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
            socket.set_nodelay(true)?;
            let (sender, http) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
            tokio::spawn(http);
            senders.push(sender);
        }
        let body = body(port)?;
        let before = cpu::used();
        let mut requests = JoinSet::new();
        for mut sender in senders {
            let body = body.clone();
            requests.spawn(async move {
                for _ in 0..rounds {
                    let request = http::Request::post("/v1/completions").header("host", "127.0.0.1");
                    let request = request.body(Full::new(body.clone()))?;
                    let mut response = sender.send_request(request).await?;
                    while let Some(frame) = response.frame().await {
                        frame?;
                    }
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = requests.join_next().await {
            done??;
        }
        let events = (connections * rounds * EVENTS) as u64;
        Ok(Cost { cpu: cpu::used() - before, events, reads: events })
    })
}

/// A connection of the bare reader.
struct Raw {
    socket: TcpStream,
    /// Blank lines of the response so far.
    boundaries: usize,
    /// The last read ended with a line end.
    after_line_end: bool,
    rounds_left: usize,
}

/// The same requests and responses over bare sockets: epoll, read, and a search for the ends of events. It parses
/// neither HTTP nor JSON, keeps nothing and stamps nothing: what no client in this place can go below.
pub(crate) fn floor(port: u16, connections: usize, rounds: usize) -> anyhow::Result<Cost> {
    let request = request(port)?;
    let interest = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut raws = Vec::with_capacity(connections);
    for number in 0..connections {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        epoll::add(&interest, &socket, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
        raws.push(Raw { socket, boundaries: 0, after_line_end: false, rounds_left: rounds });
    }
    let mut buffer = vec![0; 64 << 10];
    let mut ready: Vec<epoll::Event> = Vec::with_capacity(256);
    let (mut cost, mut open) = (Cost::default(), connections);
    let before = cpu::used();
    for raw in &mut raws {
        raw.socket.write_all(&request)?;
    }
    while open > 0 {
        ready.clear();
        epoll::wait(&interest, rustix::buffer::spare_capacity(&mut ready), None)?;
        for event in &ready {
            let raw = &mut raws[event.data.u64() as usize];
            let n = raw.socket.read(&mut buffer).context("the null server has closed")?;
            ensure!(n > 0, "the null server has closed");
            cost.reads += 1;
            if raw.take(&buffer[..n]) {
                cost.events += EVENTS as u64;
                raw.rounds_left -= 1;
                match raw.rounds_left {
                    0 => open -= 1,
                    _ => raw.socket.write_all(&request)?,
                }
            }
        }
    }
    Ok(Cost { cpu: cpu::used() - before, ..cost })
}

impl Raw {
    /// Looks through what a read brought. True when the response is whole.
    fn take(&mut self, bytes: &[u8]) -> bool {
        let across = self.after_line_end && bytes[0] == b'\n';
        self.boundaries += usize::from(across) + memmem::find_iter(bytes, b"\n\n").count();
        // HTTP's framing around the events ends its lines with CR LF: no blank line is found in it.
        self.after_line_end = bytes.last() == Some(&b'\n');
        let whole = self.boundaries >= BOUNDARIES;
        if whole {
            self.boundaries = 0;
        }
        whole
    }
}

fn body(port: u16) -> anyhow::Result<Bytes> {
    let row = Row { body: RowBody::Prompt("word ".repeat(150)), max_tokens: Some(128), line: 1 };
    Ok(Requests::new(&target(port)?).body(&row))
}

fn request(port: u16) -> anyhow::Result<Vec<u8>> {
    let body = body(port)?;
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    Ok([head.as_bytes(), &body].concat())
}

/// The client's parser alone: the same events, each as a read of its own, from memory. No socket, no HTTP.
pub(crate) fn parser(rounds: usize) -> anyhow::Result<Cost> {
    let events: Vec<String> = events();
    let rules = Rules::of(&target(1)?);
    let unsent = Unsent {
        index: ArrivalIndex(0),
        scheduled: Nanos(0),
        row: 0,
        requested_tokens: 128,
        prompt_tokens: None,
    };
    let mut cost = Cost::default();
    let before = cpu::used();
    for _ in 0..rounds {
        let mut stream = Stream::new(rules, unsent, Nanos(1), false, 100);
        stream.on_written(Nanos(2));
        stream.on_head(Nanos(3), 200, Some(b"text/event-stream"));
        for (number, event) in (4..).zip(&events) {
            stream.on_read(SocketRead { at: Nanos(number), number }, event.as_bytes());
        }
        stream.on_end(Nanos(1000), BodyEnd::Clean);
        count(&stream.finish(None), &mut cost)?;
    }
    Ok(Cost { cpu: cpu::used() - before, ..cost })
}
