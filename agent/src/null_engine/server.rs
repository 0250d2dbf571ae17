//! The null engine's one thread: epoll, sockets that never block, and a heap of what is due.
//!
//! Must never be what is measured: nothing is copied, parsed twice or allocated per event, and one timer in nanoseconds
//! (not epoll's timeout, which is in milliseconds on kernels that are still about) wakes it for what is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::SocketAddr;

use common::clock::{Clock, SystemClock};
use common::ids::Nanos;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, accept_with, bind, getsockname,
    listen, recv, send, shutdown, socket_with, sockopt,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::Pacing;
use super::arrivals::{Arrivals, Stamps};
use super::connection::{Connection, Reply, Stand};
use super::request::{self, Ask, Refusal, Request, Step};
use super::response::{Answers, JSON, plain};

/// Numbers in the interest list that are no connection's.
const LISTENER: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
const END: u64 = u64::MAX - 2;

/// Connections that wait to be accepted: a load opens many at once.
const BACKLOG: i32 = 4096;

/// What a read takes at most.
const READ_BYTES: usize = 64 << 10;

/// Files that are no connection's.
const OTHER_FILES: u64 = 32;

const MODELS: &str = r#"{"object":"list","data":[{"id":"null","object":"model","created":1764460800,"owned_by":"plimsoll","max_model_len":1048576}]}"#;

/// The engine.
pub(super) struct Server {
    pacing: Pacing,
    /// Content events of an answer whose request does not say.
    events: u32,
    listener: OwnedFd,
    timer: OwnedFd,
    interest: OwnedFd,
    answers: Answers,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    most: usize,
    /// Counts connections: the upper half of a token.
    opened: u64,
    due: BinaryHeap<Reverse<(Nanos, u64)>>,
    /// What the timer is set to.
    armed: Option<Nanos>,
    /// It has fired, and can be read until it is set again.
    fired: bool,
    arrivals: Arrivals,
    scratch: Vec<u8>,
}

/// A token is a connection's place, and which of those that had it.
fn place(token: u64) -> usize {
    (token & 0xffff_ffff) as usize
}

/// The connection, unless it has gone. Beside the server, whose other fields are used with it.
fn of(connections: &mut [Option<Connection>], token: u64) -> Option<&mut Connection> {
    connections.get_mut(place(token))?.as_mut().filter(|c| c.token == token)
}

impl Server {
    /// Listens. `end` becomes readable when the engine is to end.
    ///
    /// # Errors
    /// The kernel's, most often that the address is in use.
    pub(super) fn new(
        listen_at: SocketAddr,
        pacing: Pacing,
        events: u32,
        open_files: u64,
        end: &OwnedFd,
    ) -> io::Result<Self> {
        let family = if listen_at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&listener, true)?;
        bind(&listener, &listen_at)?;
        listen(&listener, BACKLOG)?;
        let interest = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer_flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, timer_flags)?;
        for (fd, number) in [(&listener, LISTENER), (&timer, TIMER), (end, END)] {
            epoll::add(&interest, fd, EventData::new_u64(number), EventFlags::IN)?;
        }
        let most = usize::try_from(open_files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
        Ok(Self {
            pacing,
            events,
            listener,
            timer,
            interest,
            answers: Answers::new(),
            connections: Vec::new(),
            free: Vec::new(),
            most: most.clamp(1, u32::MAX as usize >> 1),
            opened: 0,
            due: BinaryHeap::new(),
            armed: None,
            fired: false,
            arrivals: Arrivals::default(),
            scratch: vec![0; READ_BYTES],
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        SocketAddr::try_from(getsockname(&self.listener)?).map_err(|e| io::Error::other(e.to_string()))
    }

    /// Serves until the end is asked for. Gives what is remembered.
    ///
    /// # Errors
    /// The kernel's, of what is no connection's.
    pub(super) fn run(mut self) -> io::Result<Arrivals> {
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(1024);
        loop {
            ready.clear();
            match epoll::wait(&self.interest, rustix::buffer::spare_capacity(&mut ready), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            for event in &ready {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    END => return Ok(self.arrivals),
                    // Set again below, which also takes back that it has fired.
                    TIMER => self.fired = true,
                    token => self.serve(token, event.flags),
                }
            }
            self.let_out_what_is_due();
            self.set_timer()?;
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let socket = match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(()),
                // Of a connection that has gone already.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => continue,
                Err(e) => return Err(e.into()),
            };
            if self.connections.len() - self.free.len() >= self.most {
                // Closed at once: its client sees it, and those that are served do not.
                continue;
            }
            sockopt::set_tcp_nodelay(&socket, true)?;
            let at = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.opened = (self.opened + 1) & 0x7fff_ffff;
            let token = self.opened << 32 | at as u64;
            epoll::add(&self.interest, &socket, EventData::new_u64(token), EventFlags::IN)?;
            self.connections[at] = Some(Connection::new(socket, token));
        }
    }

    /// A connection can be read, or written again, or has gone.
    fn serve(&mut self, token: u64, flags: EventFlags) {
        // None: it went earlier in this round.
        let Some(connection) = of(&mut self.connections, token) else { return };
        if flags.contains(EventFlags::OUT) && std::mem::take(&mut connection.watches_writes) {
            let data = EventData::new_u64(token);
            if epoll::modify(&self.interest, &connection.socket, data, EventFlags::IN).is_err() {
                return self.close(token);
            }
            self.go_on(token);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            let mut scratch = std::mem::take(&mut self.scratch);
            self.read(token, &mut scratch);
            self.scratch = scratch;
        }
    }

    fn close(&mut self, token: u64) {
        if of(&mut self.connections, token).is_some() {
            self.connections[place(token)] = None;
            self.free.push(place(token));
        }
    }

    fn read(&mut self, token: u64, scratch: &mut [u8]) {
        let Some(connection) = of(&mut self.connections, token) else { return };
        let bytes = match recv(&connection.socket, &mut *scratch, RecvFlags::empty()) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            Ok((0, _)) | Err(_) => return self.close(token),
            Ok(_) if connection.draining => return,
            Ok((n, _)) => &scratch[..n],
        };
        let now = SystemClock.monotonic();
        let (fits, begun) = if connection.reply.is_none() && connection.kept().is_empty() {
            // A request that came at once, as most do, is not copied.
            let taken = self.begin(token, request::read(bytes), now).min(bytes.len());
            (of(&mut self.connections, token).is_none_or(|c| c.keep(&bytes[taken..])), taken > 0)
        } else {
            let fits = connection.keep(bytes);
            // An answer under way goes on when its instant or its client says so, and not for this.
            let idle = connection.reply.is_none();
            (fits, fits && idle && self.take_kept(token, now))
        };
        if !fits {
            self.close(token);
        } else if begun {
            self.go_on(token);
        }
    }

    /// Takes the next request of what was kept. False when that holds no whole one.
    fn take_kept(&mut self, token: u64, now: Nanos) -> bool {
        let Some(connection) = of(&mut self.connections, token) else { return false };
        let step = request::read(connection.kept());
        let taken = self.begin(token, step, now);
        if let Some(connection) = of(&mut self.connections, token) {
            let taken = taken.min(connection.kept().len());
            connection.taken(taken);
        }
        taken > 0
    }

    /// Begins the answer to what was read, if it can be answered, and says how many bytes are done with.
    fn begin(&mut self, token: u64, step: Step, now: Nanos) -> usize {
        let (reply, taken) = match step {
            Step::More { expects_continue } => {
                if let Some(connection) = of(&mut self.connections, token)
                    && expects_continue
                    && !std::mem::replace(&mut connection.continued, true)
                {
                    // 25 bytes to a client that waits for them: a socket that does not take them is broken.
                    let _ = send(&connection.socket, b"HTTP/1.1 100 Continue\r\n\r\n", SendFlags::empty());
                }
                return 0;
            }
            // With all that follows: where another request would begin cannot be known.
            Step::Refused(refusal) => (refuse(&refusal), usize::MAX),
            Step::Whole(request) => (self.reply(&request, now), request.length),
        };
        if let Some(connection) = of(&mut self.connections, token) {
            connection.continued = false;
            connection.reply = Some(reply);
        }
        taken
    }

    fn reply(&mut self, request: &Request, now: Nanos) -> Reply {
        let alive = request.keep_alive;
        let body = match &request.ask {
            Ask::Generate(asked) => {
                let answer = self.answers.to(asked, asked.tokens.unwrap_or(self.events));
                let stamps = Stamps { id: asked.id.clone(), read: now, ..Stamps::default() };
                return Reply::tokens(answer, stamps, now + self.pacing.ttft, alive);
            }
            Ask::Health => "{}",
            Ask::Models => MODELS,
            Ask::Reset => {
                self.arrivals.clear();
                "{}"
            }
            Ask::Arrivals => {
                let mut lines = Vec::new();
                // Writing to memory does not fail, and what is written is text.
                let _ = self.arrivals.write(&mut lines);
                let lines = String::from_utf8(lines).unwrap_or_default();
                let dropped = self.arrivals.dropped();
                let headers = format!("content-type: application/x-ndjson\r\nx-dropped: {dropped}");
                return Reply::plain(plain(200, &headers, &lines, alive), alive);
            }
        };
        Reply::plain(plain(200, JSON, body, alive), alive)
    }

    /// Goes on with a connection until it waits for something.
    fn go_on(&mut self, token: u64) {
        loop {
            let Some(connection) = of(&mut self.connections, token) else { return };
            match connection.go_on(&self.pacing) {
                Stand::Idle => return,
                Stand::Waits(due) => return self.due.push(Reverse((due, token))),
                Stand::Gone => return self.close(token),
                Stand::Blocked => {
                    connection.watches_writes = true;
                    let (data, both) = (EventData::new_u64(token), EventFlags::IN | EventFlags::OUT);
                    if epoll::modify(&self.interest, &connection.socket, data, both).is_err() {
                        self.close(token);
                    }
                    return;
                }
                Stand::Ended { arrival, keep_alive } => {
                    self.arrivals.extend(arrival);
                    if !keep_alive {
                        connection.draining = true;
                        // Its client may have gone already.
                        let _ = shutdown(&connection.socket, Shutdown::Write);
                        return;
                    }
                    // What came while the answer was under way.
                    if connection.kept().is_empty() || !self.take_kept(token, SystemClock.monotonic()) {
                        return;
                    }
                }
            }
        }
    }

    fn let_out_what_is_due(&mut self) {
        if self.due.is_empty() {
            return;
        }
        // Once: what becomes due meanwhile has its turn after the sockets have had theirs.
        let now = SystemClock.monotonic();
        while let Some(&Reverse((at, token))) = self.due.peek()
            && at <= now
        {
            self.due.pop();
            self.go_on(token);
        }
    }

    fn set_timer(&mut self) -> io::Result<()> {
        let next = self.due.peek().map(|Reverse((at, _))| *at);
        // Also where nothing is due any more: a timer that has fired and stays so would wake this thread for ever.
        if next == self.armed && !std::mem::take(&mut self.fired) {
            return Ok(());
        }
        self.fired = false;
        self.armed = next;
        // Zero would be no time at all, and switches it off.
        let at = next.map_or(Nanos::ZERO, |at| at.max(Nanos(1)));
        let it_value = Timespec {
            tv_sec: i64::try_from(at.0 / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (at.0 % 1_000_000_000) as _,
        };
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }
}

fn refuse(refusal: &Refusal) -> Reply {
    let Refusal { status, message } = refusal;
    let body = serde_json::json!({ "error": { "message": message, "type": "invalid_request_error", "code": status } });
    Reply::plain(plain(*status, JSON, &body.to_string(), false), false)
}
