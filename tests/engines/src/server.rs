//! A small HTTP/1.1 server on a free port of the loopback, of threads and blocking sockets.
//!
//! One thread accepts, one serves each connection. All end when the [`Scripted`] is dropped, and are waited for. It
//! never retries, never buffers an answer and never answers two requests of one connection at once.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use crate::expected::Expected;
use crate::reply::Reply;
use crate::rng::Rng;
use crate::state::State;
use crate::{Api, Engine};

/// Places at most at which an answer is split.
const SPLITS: usize = 24;
/// The longest request that is read.
const LARGEST_REQUEST: usize = 64 << 20;

/// How a scripted engine writes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Between two of its writes.
    pub pace: Duration,
    /// Its bytes are split at random places and written piece by piece, differently for each request. Without a pace.
    pub split: Option<u64>,
}

/// A request as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Logged {
    /// `GET` or `POST`.
    pub method: String,
    /// With its query.
    pub path: String,
    /// The body, where it is JSON.
    pub body: Option<Value>,
    /// Values of the headers, by lowercase name.
    pub headers: HashMap<String, String>,
    /// The client went away after so many writes, before the answer was whole.
    pub left_after: Option<usize>,
    /// The answer is over, in one way or the other.
    pub over: bool,
    /// What a correct client must make of the answer.
    pub expected: Expected,
}

/// An engine that listens. It ends when it is dropped.
pub struct Scripted {
    url: String,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    engine: Box<dyn Engine>,
    options: Options,
    state: State,
    log: Mutex<Vec<Logged>>,
    /// Connections that are open, so that they can be shut down.
    open: Mutex<HashMap<u64, TcpStream>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    connections: AtomicU64,
    over: AtomicBool,
}

impl Scripted {
    /// Listens, and answers as `engine` does, as fast as it can.
    ///
    /// # Panics
    /// When this machine gives it no port.
    #[must_use]
    #[track_caller]
    pub fn start(engine: impl Engine + 'static) -> Self {
        Self::with(engine, Options::default())
    }

    /// As [`Scripted::start`], with `options`.
    ///
    /// # Panics
    /// When this machine gives it no port.
    #[must_use]
    #[track_caller]
    pub fn with(engine: impl Engine + 'static, options: Options) -> Self {
        let listening = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr().map(|at| (l, at)));
        let (listener, address) = listening.unwrap_or_else(|e| panic!("no port for {}: {e}", engine.name()));
        let shared = Arc::new(Shared {
            engine: Box::new(engine),
            options,
            state: State::default(),
            log: Mutex::default(),
            open: Mutex::default(),
            threads: Mutex::default(),
            connections: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        let acceptor = thread::spawn(move || accept(&theirs, &listener));
        Self { url: format!("http://{address}"), shared, acceptor: Some(acceptor) }
    }

    /// Where it listens: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The requests so far, in the order in which they came.
    #[must_use]
    pub fn requests(&self) -> Vec<Logged> {
        lock(&self.shared.log).clone()
    }

    /// What a correct client must make of the last answer.
    #[must_use]
    pub fn last_expected(&self) -> Option<Expected> {
        lock(&self.shared.log).last().map(|r| r.expected.clone())
    }

    /// What it knows.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.shared.state
    }
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scripted")
            .field("engine", &self.shared.engine.name())
            .field("url", &self.url)
            .finish()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.shared.over.store(true, SeqCst);
        // Wakes the acceptor.
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for stream in lock(&self.shared.open).values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let threads = std::mem::take(&mut *lock(&self.shared.threads));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    for stream in listener.incoming() {
        if shared.over.load(SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let number = shared.connections.fetch_add(1, SeqCst);
        if let Ok(copy) = stream.try_clone() {
            lock(&shared.open).insert(number, copy);
        }
        let theirs = Arc::clone(shared);
        let thread = thread::spawn(move || {
            let _ = theirs.serve(&stream);
            lock(&theirs.open).remove(&number);
            let _ = stream.shutdown(Shutdown::Both);
        });
        let mut threads = lock(&shared.threads);
        threads.retain(|t| !t.is_finished());
        threads.push(thread);
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut received = Vec::new();
        while let Some(request) = read_request(stream, &mut received)? {
            let asks_to_close = request.headers.get("connection").is_some_and(|c| c == "close");
            let reply = self.answer(&request);
            let entry = {
                let mut log = lock(&self.log);
                log.push(request.logged(&reply));
                log.len() - 1
            };
            let left_after = self.write(stream, &reply);
            let mut log = lock(&self.log);
            log[entry].left_after = left_after;
            log[entry].over = true;
            drop(log);
            if reply.closes || asks_to_close || left_after.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn answer(&self, request: &Request) -> Reply {
        let path = request.path.split('?').next().unwrap_or_default();
        let api = [Api::Completions, Api::Chat].into_iter().find(|api| api.path() == path);
        match (request.method.as_str(), api) {
            ("POST", Some(api)) => self.engine.generate(api, &request.body, &self.state),
            ("POST", None) => {
                self.engine.post(&request.path, &request.json().unwrap_or_default(), &self.state)
            }
            _ => self.engine.get(&request.path, &self.state),
        }
    }

    /// Writes an answer. After how many writes the client was seen to have gone, if it was.
    fn write(&self, mut stream: &TcpStream, reply: &Reply) -> Option<usize> {
        let _open = reply.streams.then(|| self.state.open());
        let pace = self.options.pace;
        let mut gone = None;
        for (number, piece) in self.pieces(reply).iter().enumerate() {
            if number > 0 && !pace.is_zero() {
                if gone.is_some() {
                    // A deaf engine goes on for nobody, at its own pace.
                    thread::sleep(pace);
                } else if !is_there_after(stream, pace) {
                    gone = Some(number);
                }
            }
            if gone.is_none() && stream.write_all(piece).is_err() {
                gone = Some(number);
            }
            if self.over.load(SeqCst) || (gone.is_some() && !reply.deaf) {
                break;
            }
        }
        gone
    }

    fn pieces(&self, reply: &Reply) -> Vec<Vec<u8>> {
        let Some(seed) = self.options.split else {
            return [&reply.head].into_iter().chain(&reply.writes).cloned().collect();
        };
        let bytes = reply.bytes();
        let mut rng = Rng::new(seed.wrapping_add(lock(&self.log).len() as u64));
        let mut begin = 0;
        let mut pieces = Vec::new();
        for end in rng.cuts(bytes.len(), SPLITS).into_iter().chain([bytes.len()]) {
            if end > begin {
                pieces.push(bytes[begin..end].to_vec());
            }
            begin = end;
        }
        pieces
    }
}

/// Waits, and looks whether the other side has closed meanwhile.
fn is_there_after(stream: &TcpStream, pace: Duration) -> bool {
    if stream.set_read_timeout(Some(pace)).is_err() {
        return false;
    }
    let seen = stream.peek(&mut [0]);
    let _ = stream.set_read_timeout(None);
    match seen {
        Ok(0) => false,
        // The next request waits already.
        Ok(_) => {
            thread::sleep(pace);
            true
        }
        Err(e) => matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
    }
}

struct Request {
    method: String,
    path: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    fn logged(&self, reply: &Reply) -> Logged {
        Logged {
            method: self.method.clone(),
            path: self.path.clone(),
            body: self.json(),
            headers: self.headers.clone(),
            left_after: None,
            over: false,
            expected: reply.expected.clone(),
        }
    }
}

/// The next request of a connection; none when the client has closed it. `received` keeps what came after it.
fn read_request(mut stream: &TcpStream, received: &mut Vec<u8>) -> io::Result<Option<Request>> {
    let mut buffer = [0; 16 << 10];
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut more = |received: &mut Vec<u8>| -> io::Result<bool> {
        let n = stream.read(&mut buffer)?;
        received.extend_from_slice(&buffer[..n]);
        if received.len() > LARGEST_REQUEST { Err(bad("a request too large")) } else { Ok(n > 0) }
    };
    let head_end = loop {
        if let Some(at) = received.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        if !more(received)? {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&received[..head_end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (Some(method), Some(path)) = (first.next(), first.next()) else { return Err(bad("no request line")) };
    let header = |line: &str| {
        line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers: HashMap<String, String> = lines.filter_map(header).collect();
    let length = match headers.get("content-length") {
        None => 0,
        Some(length) => length.parse().map_err(|_| bad("a length that is none"))?,
    };
    let begin = head_end + 4;
    while received.len() < begin + length {
        if !more(received)? {
            return Ok(None);
        }
    }
    let body = received[begin..begin + length].to_vec();
    received.drain(..begin + length);
    Ok(Some(Request { method, path, headers, body }))
}
