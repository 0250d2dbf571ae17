//! A link that can be slow or treacherous: a TCP proxy at the switch.
//!
//! Between an agent and the coordinator. Bytes are passed on in order, each piece when its delay is over. It can hold
//! them back (a path that is gone for a while, after which TCP catches up) and it can swallow them (a middlebox that
//! forgot the connection: bytes go in, nothing comes out, nothing is ever closed; connections made later work again).
//! It must never change or reorder what it passes on.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::clock::{Clock, SystemClock};
use common::ids::Nanos;

use crate::net::HUB;

/// Pieces of one direction that are under way. More than a window of a control connection ever fills: a held link
/// stops reading before memory grows.
const PIECES: usize = 256;

const PASS: u8 = 0;
const HOLD: u8 = 1;
const SWALLOW: u8 = 2;

#[derive(Debug, Default)]
struct State {
    mode: AtomicU8,
    /// Nanoseconds, towards the coordinator and back.
    delay: [AtomicU64; 2],
    jitter: AtomicU64,
    /// What jitter is drawn from.
    drawn: AtomicU64,
    over: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

/// The link. Everything on it breaks when it is dropped.
#[derive(Debug)]
pub struct Link {
    /// Where it is entered.
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Link {
    /// A link to `target` that adds nothing.
    ///
    /// # Panics
    /// When there is no port.
    #[must_use]
    pub fn to(target: SocketAddr) -> Self {
        let bound = TcpListener::bind((HUB, 0)).and_then(|l| l.local_addr().map(|a| (l, a)));
        let (listener, address) = bound.unwrap_or_else(|e| panic!("no port at the switch: {e}"));
        let state = Arc::new(State::default());
        let theirs = Arc::clone(&state);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if theirs.over.load(Ordering::Acquire) {
                    return;
                }
                let state = Arc::clone(&theirs);
                std::thread::spawn(move || connect(near, target, &state));
            }
        });
        Self { address, state }
    }

    /// From now on: so long to the coordinator, so long back, and up to `jitter` more each time.
    pub fn delay(&self, there: Duration, back: Duration, jitter: Duration) {
        self.state.delay[0].store(there.as_nanos() as u64, Ordering::Release);
        self.state.delay[1].store(back.as_nanos() as u64, Ordering::Release);
        self.state.jitter.store(jitter.as_nanos() as u64, Ordering::Release);
    }

    /// Holds everything back until [`Link::pass`].
    pub fn hold(&self) {
        self.state.mode.store(HOLD, Ordering::Release);
    }

    /// Swallows everything. A connection that lost a byte so never carries one again.
    pub fn swallow(&self) {
        self.state.mode.store(SWALLOW, Ordering::Release);
    }

    /// Breaks every connection that there is. New ones can be made.
    pub fn disconnect(&self) {
        for stream in self.state.connections.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Is a link again.
    pub fn pass(&self) {
        self.state.mode.store(PASS, Ordering::Release);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Release);
        self.disconnect();
        // Wakes the listener, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn mode(&self) -> u8 {
        self.mode.load(Ordering::Acquire)
    }

    /// How long the next piece of a direction takes.
    fn delay_of(&self, direction: usize) -> Nanos {
        let jitter = self.jitter.load(Ordering::Acquire);
        // A multiplicative congruential sequence: any spread will do.
        let step =
            |x: u64| Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        let drawn = self.drawn.fetch_update(Ordering::AcqRel, Ordering::Acquire, step).unwrap_or(0) >> 16;
        Nanos(self.delay[direction].load(Ordering::Acquire) + if jitter == 0 { 0 } else { drawn % jitter })
    }

    /// Waits while everything is held back.
    fn wait_while_held(&self) {
        while self.mode() == HOLD && !self.over.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn connect(near: TcpStream, target: SocketAddr, state: &Arc<State>) {
    state.wait_while_held();
    let Ok(far) = TcpStream::connect_timeout(&target, Duration::from_secs(5)) else { return };
    let lost = Arc::new(AtomicBool::new(state.mode() == SWALLOW));
    for (direction, (from, to)) in [(&near, &far), (&far, &near)].into_iter().enumerate() {
        let _ = from.set_nodelay(true);
        let (Ok(from), Ok(to), Ok(known)) = (from.try_clone(), to.try_clone(), from.try_clone()) else {
            return;
        };
        state.connections.lock().unwrap_or_else(PoisonError::into_inner).push(known);
        let (pieces, queue) = sync_channel(PIECES);
        let (reading, writing, lost) = (Arc::clone(state), Arc::clone(state), Arc::clone(&lost));
        std::thread::spawn(move || read(from, direction, &reading, &lost, &pieces));
        std::thread::spawn(move || write(to, &writing, &queue));
    }
}

fn read(
    mut from: TcpStream,
    direction: usize,
    state: &State,
    lost: &AtomicBool,
    pieces: &SyncSender<(Nanos, Vec<u8>)>,
) {
    let mut buffer = vec![0; 16 << 10];
    let mut last = Nanos::ZERO;
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if state.mode() == SWALLOW {
            lost.store(true, Ordering::Release);
        }
        if lost.load(Ordering::Acquire) {
            continue;
        }
        last = last.max(SystemClock.monotonic() + state.delay_of(direction));
        if pieces.send((last, buffer[..read].to_vec())).is_err() {
            return;
        }
    }
    if lost.load(Ordering::Acquire) {
        // Its end is swallowed, too: the other side hears of nothing, until this link goes.
        while !state.over.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn write(mut to: TcpStream, state: &State, pieces: &Receiver<(Nanos, Vec<u8>)>) {
    while let Ok((due, bytes)) = pieces.recv() {
        std::thread::sleep((due - SystemClock.monotonic()).to_duration());
        state.wait_while_held();
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
