//! One request on one connection, from its first byte to its verdict.
//!
//! It waits for the socket, then for the operator's interruption, then for the next deadline: what has arrived counts
//! before time does. It knows nothing of where the connection comes from and never makes another one.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use common::ids::Nanos;
use common::trace::FailureKind;
use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

use super::alarm::Alarm;
use super::connection::{Broken, Connection, Step, Wire};
use super::faults;
use super::http::{Head, Heard};
use super::stream::{BodyEnd, Stream};
use super::trial_clock::TrialClock;

/// How long after the last event the end of the body is waited for, so that the connection may be used again.
const DRAIN_GRACE: Duration = Duration::from_millis(250);
/// How much is read in that time.
const MAX_DRAINED_BYTES: usize = 64 << 10;
/// A connection that was closed while idle shows it within a round trip. Later, the engine has closed on the request.
const CLOSED_WHILE_IDLE: Nanos = Nanos::from_secs(1);

/// What an exchange came to.
#[expect(clippy::large_enum_variant, reason = "made once a request, and taken apart at once")]
pub(super) enum Ended {
    /// The verdict has fallen. The connection is there if another request can follow on it.
    Over(Option<Connection>),
    /// The engine had closed the connection while it was idle, and nothing of an answer came: no verdict.
    ClosedWhileIdle,
}

/// A request with what it waits for besides the socket.
pub(super) struct Exchange<'a, I> {
    pub(super) clock: &'a TrialClock,
    pub(super) stream: &'a mut Stream,
    /// Ends when the operator cuts what is in flight.
    pub(super) interrupt: Pin<&'a mut I>,
}

impl<I: Future<Output = ()>> Exchange<'_, I> {
    /// Sends on `connection` and reads until the verdict has fallen.
    pub(super) async fn run(&mut self, mut connection: Connection, request: Wire, was_idle: bool) -> Ended {
        let mut alarm = Alarm::new();
        connection.begin(request);
        let over = poll_fn(|cx| self.poll_response(cx, &mut connection, &mut alarm)).await;
        let at_end = match over {
            Over::Cut => self.stream.connection_is_sound() && drained(&mut connection).await,
            Over::Whole => true,
            Over::Broken => false,
            Over::NoHead(broken) => return self.without_head(&connection, &broken, was_idle),
        };
        Ended::Over((at_end && connection.is_reusable()).then_some(connection))
    }

    fn without_head(&mut self, connection: &Connection, broken: &Broken, was_idle: bool) -> Ended {
        let failure = broken.before_head();
        let now = self.clock.now();
        let written = self.stream.written();
        let soon = written.is_none_or(|written| now.since(written) <= CLOSED_WHILE_IDLE);
        if was_idle && soon && !connection.has_answered() && failure.kind == FailureKind::Reset {
            return Ended::ClosedWhileIdle;
        }
        let failure = connection.before_head(broken);
        // The instant at which the socket said so, where it was the socket.
        self.stream.fail(connection.meter().activity_at().max(written.unwrap_or(now)), failure);
        Ended::Over(None)
    }

    /// Writes the request and reads its response until the verdict has fallen.
    fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        alarm: &mut Alarm,
    ) -> Poll<Over> {
        loop {
            connection.poll_write(cx);
            if let Some(at) = connection.meter().first_write() {
                self.stream.on_written(at);
            }
            let stream = &mut *self.stream;
            let step = connection.poll_read(cx, |read, received, heard| {
                match heard {
                    Heard::Head(head) => on_head(stream, read.at, head),
                    Heard::Body(bytes) => {
                        stream.on_wire(read.at, received);
                        if !stream.is_decided() {
                            stream.on_read(read, bytes);
                        }
                    }
                };
            });
            let decided = self.stream.is_decided();
            let at = connection.meter().activity_at();
            match step {
                Poll::Ready(Step::End) => {
                    self.stream.on_end(at, BodyEnd::Clean);
                    // A body that ended well after an answer that did not: what else came with it, nobody knows.
                    let whole = !decided || self.stream.connection_is_sound();
                    return Poll::Ready(if whole { Over::Whole } else { Over::Cut });
                }
                Poll::Ready(Step::Broken(broken)) if !connection.has_head() => {
                    return Poll::Ready(Over::NoHead(broken));
                }
                Poll::Ready(Step::Broken(broken)) => {
                    self.stream.on_end(at, faults::in_body(&broken));
                    return Poll::Ready(Over::Broken);
                }
                Poll::Ready(Step::More) | Poll::Pending => {
                    if connection.is_endless() {
                        return Poll::Ready(Over::NoHead(Broken::Endless));
                    }
                    if connection.has_head() {
                        // Framing counts, too, and what TLS has to say for itself: a read may bring nothing else.
                        self.stream.on_wire(connection.meter().last_read().at, connection.meter().received());
                    }
                    if self.stream.is_decided() {
                        return Poll::Ready(Over::Cut);
                    }
                    if step.is_pending() {
                        return self.poll_cut(cx, alarm).map(|()| Over::Cut);
                    }
                }
            }
        }
    }

    /// Ends the request when the operator wants it or its deadline has come.
    fn poll_cut(&mut self, cx: &mut Context<'_>, alarm: &mut Alarm) -> Poll<()> {
        // Outside of tokio's budget: an engine that always has bytes ready uses it up, and would never be cut.
        if pin!(unconstrained(self.interrupt.as_mut())).poll(cx).is_ready() {
            self.stream.fail(self.clock.now(), faults::cancelled());
            return Poll::Ready(());
        }
        let Some(deadline) = self.stream.deadline() else { return Poll::Pending };
        alarm.poll_at(cx, deadline, self.clock).map(|()| self.stream.on_time(deadline.max(self.clock.now())))
    }
}

/// How the reading of a response ended.
enum Over {
    /// The verdict has fallen and more of the body may come.
    Cut,
    /// The connection, or HTTP on it, has failed: nothing more is read from it.
    Broken,
    /// The body has come to its end.
    Whole,
    /// There was none.
    NoHead(Broken),
}

fn on_head(stream: &mut Stream, at: Nanos, head: &Head<'_>) {
    stream.on_head(at, head.status, head.header("content-type"));
    if let Some(coding) = head.coding() {
        stream.on_coding(at, &coding);
    }
}

/// Reads what is left of a body whose verdict has fallen. True when it came to its end.
async fn drained(connection: &mut Connection) -> bool {
    let mut left = MAX_DRAINED_BYTES;
    let rest = poll_fn(|cx| {
        loop {
            let mut drained = 0;
            let step = connection.poll_read(cx, |_, _, heard| {
                if let Heard::Body(bytes) = heard {
                    drained += bytes.len();
                }
            });
            match step {
                Poll::Ready(Step::End) => return Poll::Ready(true),
                Poll::Ready(Step::More) if drained <= left => left -= drained,
                Poll::Ready(Step::More | Step::Broken(_)) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    timeout(DRAIN_GRACE, rest).await.unwrap_or(false)
}

/// Ends when `cancel` becomes true; never when there is nobody left who could cancel.
pub(super) async fn interrupted(cancel: &mut watch::Receiver<bool>) {
    let cut = cancel.wait_for(|&cut| cut).await.is_ok();
    if !cut {
        std::future::pending::<()>().await;
    }
}
