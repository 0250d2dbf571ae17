//! One connection of the null engine: what it has read, and how much of an answer has left.
//!
//! [`Connection::go_on`] is all there is to an answer: it lets out what is due, an event in a write of its own where
//! that is asked for, until it must wait for an instant or for the client. It never blocks, and holds no more than one
//! request that is not whole yet.

use common::clock::{Clock, SystemClock};
use common::ids::Nanos;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, writev};

use super::Pacing;
use super::arrivals::{Arrival, Stamps};
use super::request::{MAX_BODY_BYTES, MAX_HEAD_BYTES};
use super::response::Answer;

/// What may wait unread of a connection: one request.
const MAX_INPUT_BYTES: usize = MAX_HEAD_BYTES + MAX_BODY_BYTES;

/// An answer under way.
pub(super) struct Reply {
    answer: Answer,
    /// Bytes that have left.
    sent: u64,
    /// Bytes that may leave.
    goal: u64,
    /// The content event that may leave next.
    next: u32,
    /// When the first may.
    first_due: Nanos,
    /// Of an answer of tokens.
    stamps: Option<Stamps>,
    keep_alive: bool,
}

impl Reply {
    /// Tokens, the first of them at `first_due`.
    pub(super) fn tokens(answer: Answer, stamps: Stamps, first_due: Nanos, keep_alive: bool) -> Self {
        Self { answer, sent: 0, goal: 0, next: 0, first_due, stamps: Some(stamps), keep_alive }
    }

    /// Something else, now.
    pub(super) fn plain(bytes: Vec<u8>, keep_alive: bool) -> Self {
        let answer = Answer::of(bytes, 0);
        Self { answer, sent: 0, goal: 0, next: 0, first_due: Nanos::ZERO, stamps: None, keep_alive }
    }

    /// Lets out the next part, or says when it is due.
    fn release(&mut self, pacing: &Pacing, now: Nanos) -> Result<(), Nanos> {
        let one_by_one = self.answer.is_streamed() && (pacing.split || pacing.interval > Nanos::ZERO);
        let due = self.first_due + Nanos(pacing.interval.0.saturating_mul(u64::from(self.next)));
        if due > now {
            return Err(due);
        }
        (self.goal, self.next) = if one_by_one {
            (self.answer.end_of(self.next), self.next + 1)
        } else {
            (self.answer.bytes(), self.answer.events())
        };
        Ok(())
    }
}

/// Where an answer stands.
pub(super) enum Stand {
    /// There is none.
    Idle,
    /// Its next event is due then.
    Waits(Nanos),
    /// The client does not take more now.
    Blocked,
    /// It has left.
    Ended {
        /// What is remembered of it.
        arrival: Option<Arrival>,
        /// Another request may follow.
        keep_alive: bool,
    },
    /// The client has gone.
    Gone,
}

/// A client's connection.
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    /// Tells it from an earlier one with the same number.
    pub(super) token: u64,
    /// What was read and not answered yet: a part of a request, or requests that came during an answer.
    input: Vec<u8>,
    /// How much of it has been answered.
    taken: usize,
    pub(super) reply: Option<Reply>,
    /// The kernel has been asked to say when it takes more.
    pub(super) watches_writes: bool,
    /// It was told to go on with its body.
    pub(super) continued: bool,
    /// It got its last answer: what it still sends is thrown away, and it is closed when it has gone.
    pub(super) draining: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, token: u64) -> Self {
        Self {
            socket,
            token,
            input: Vec::new(),
            taken: 0,
            reply: None,
            watches_writes: false,
            continued: false,
            draining: false,
        }
    }

    /// What was kept and not taken.
    pub(super) fn kept(&self) -> &[u8] {
        &self.input[self.taken..]
    }

    /// Keeps `bytes` for later. False when they are too many.
    pub(super) fn keep(&mut self, bytes: &[u8]) -> bool {
        let fits = self.kept().len() + bytes.len() <= MAX_INPUT_BYTES;
        if fits && !bytes.is_empty() {
            self.input.drain(..std::mem::take(&mut self.taken));
            self.input.extend_from_slice(bytes);
        }
        fits
    }

    /// So many bytes of what was kept are done with.
    pub(super) fn taken(&mut self, bytes: usize) {
        self.taken += bytes;
        if self.taken == self.input.len() {
            // The memory too: connections are many, and a long prompt is rare.
            (self.input, self.taken) = (Vec::new(), 0);
        }
    }

    /// Goes on with the answer as far as it can.
    pub(super) fn go_on(&mut self, pacing: &Pacing) -> Stand {
        let Some(reply) = &mut self.reply else { return Stand::Idle };
        loop {
            let now = SystemClock.monotonic();
            if reply.sent == reply.goal {
                if reply.sent == reply.answer.bytes() {
                    break;
                }
                if let Err(due) = reply.release(pacing, now) {
                    return Stand::Waits(due);
                }
            }
            if let Some(stamps) = &mut reply.stamps {
                stamps.write(now);
            }
            let (slices, n) = reply.answer.slices(reply.sent, reply.goal);
            match writev(&self.socket, &slices[..n]) {
                Ok(written) => reply.sent += written as u64,
                Err(Errno::AGAIN) => return Stand::Blocked,
                Err(Errno::INTR) => {}
                Err(_) => return Stand::Gone,
            }
        }
        let (events, keep_alive) = (reply.answer.events(), reply.keep_alive);
        let stamps = self.reply.take().and_then(|r| r.stamps);
        Stand::Ended { arrival: stamps.map(|s| s.end(events)), keep_alive }
    }
}
