//! The null server: a thread on a core of its own that answers every request with the same bytes.
//!
//! It parses nothing and allocates nothing for a request, so that what a client costs is not hidden behind what the
//! server costs. Client and floor meet the same server.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use common::clock::{Clock, SystemClock};
use common::ids::Nanos;
use rustix::event::epoll;
use rustix::time::Timespec;

use crate::cpu;
use crate::wire::Response;

/// Between two events of a response that is paced.
const PERIOD: Nanos = Nanos::from_millis(10);

/// The listener's number in the interest list; connections count from 0.
const LISTENER: u64 = u64::MAX;

/// How a response leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// In one write.
    OneWrite,
    /// Each event in a write of its own, the next at once.
    EachWrite,
    /// An event every 10 ms, those of all connections at the same instant: the steps of an engine that batches.
    InStep,
    /// An event every 10 ms, those of `n` connections evenly spread over it.
    Spread(usize),
}

impl Pace {
    /// The first instant after `now` at which connection `number` is due.
    fn first(self, number: u64, now: Nanos) -> Nanos {
        let phase = match self {
            Self::Spread(n) => number % n as u64 * PERIOD.0 / n as u64,
            _ => 0,
        };
        Nanos(((now.0.saturating_sub(phase)) / PERIOD.0 + 1) * PERIOD.0 + phase)
    }
}

/// Starts the server on core `core` and says on which port. Its responses have so many content events. It ends with the
/// process.
pub(crate) fn start(pace: Pace, events: usize, core: usize) -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let interest = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&interest, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    let server = Server {
        pace,
        listener,
        interest,
        response: Response::new(events),
        events,
        connections: BTreeMap::new(),
        next: 0,
        due: BinaryHeap::new(),
    };
    let work = move || {
        cpu::pin(core);
        if let Err(e) = server.run() {
            eprintln!("the null server ended: {e:#}");
        }
    };
    std::thread::Builder::new().name("server".into()).spawn(work)?;
    Ok(port)
}

struct Server {
    pace: Pace,
    listener: TcpListener,
    interest: rustix::fd::OwnedFd,
    response: Response,
    events: usize,
    connections: BTreeMap<u64, TcpStream>,
    next: u64,
    /// When the next event of a connection is due, which connection, and which event.
    due: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
}

impl Server {
    fn run(mut self) -> anyhow::Result<()> {
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(256);
        loop {
            ready.clear();
            let timeout = self.due.peek().map(|Reverse((at, ..))| timespec(*at - SystemClock.monotonic()));
            epoll::wait(&self.interest, rustix::buffer::spare_capacity(&mut ready), timeout.as_ref())?;
            for event in &ready {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    number => self.answer(number),
                }
            }
            self.send_what_is_due();
        }
    }

    fn accept(&mut self) -> anyhow::Result<()> {
        let (socket, _) = self.listener.accept()?;
        socket.set_nodelay(true)?;
        let data = epoll::EventData::new_u64(self.next);
        epoll::add(&self.interest, &socket, data, epoll::EventFlags::IN)?;
        self.connections.insert(self.next, socket);
        self.next += 1;
        Ok(())
    }

    /// A connection can be read: a request, or its end.
    fn answer(&mut self, number: u64) {
        let Some(socket) = self.connections.get_mut(&number) else { return };
        let mut request = [0; 16 << 10];
        let n = socket.read(&mut request).unwrap_or(0);
        if n == 0 {
            self.connections.remove(&number);
            return;
        }
        // The body is a JSON object, and over the loopback a request that was written at once comes at once.
        if request[n - 1] != b'}' {
            return;
        }
        // A client that has gone is seen at the next read.
        match self.pace {
            Pace::OneWrite => drop(socket.write_all(self.response.whole())),
            Pace::EachWrite => {
                let _ = (0..self.events).try_for_each(|event| socket.write_all(self.response.part(event)));
            }
            Pace::InStep | Pace::Spread(_) => {
                let first = self.pace.first(number, SystemClock.monotonic());
                self.due.push(Reverse((first, number, 0)));
            }
        }
    }

    fn send_what_is_due(&mut self) {
        let now = SystemClock.monotonic();
        while let Some(&Reverse((at, number, event))) = self.due.peek()
            && at <= now
        {
            self.due.pop();
            if let Some(socket) = self.connections.get_mut(&number) {
                let _ = socket.write_all(self.response.part(event));
            }
            if event + 1 < self.events {
                self.due.push(Reverse((at + PERIOD, number, event + 1)));
            }
        }
    }
}

fn timespec(length: Nanos) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(length.0 / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (length.0 % 1_000_000_000) as _,
    }
}
