//! One request on one connection, from its first byte to its verdict.
//!
//! It waits for the socket, then for the operator's interruption, then for the next deadline: what has arrived counts
//! before time does. It knows nothing of where the connection comes from and never makes another one.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use common::ids::Nanos;
use common::trace::FailureKind;
use http::Request;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

use super::alarm::Alarm;
use super::connection::{Connection, NoHead, Piece};
use super::faults;
use super::stream::{BodyEnd, Stream};
use super::trial_clock::TrialClock;

/// How long after the last event the end of the body is waited for, so that the connection may be used again.
const DRAIN_GRACE: Duration = Duration::from_millis(250);
/// How much is read in that time.
const MAX_DRAINED_BYTES: usize = 64 << 10;
/// A connection that was closed while idle shows it within a round trip. Later, the engine has closed on the request.
const CLOSED_WHILE_IDLE: Nanos = Nanos::from_secs(1);

/// What an exchange came to.
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
    pub(super) async fn run(
        &mut self,
        mut connection: Connection,
        request: Request<Full<Bytes>>,
        was_idle: bool,
    ) -> Ended {
        let mut alarm = Alarm::new();
        let mut response = pin!(connection.start(request));
        let head = poll_fn(|cx| {
            let head = connection.poll_head(cx, response.as_mut());
            if let Some(at) = connection.meter().first_write() {
                self.stream.on_written(at);
            }
            match head {
                Poll::Ready(head) => Poll::Ready(Some(head)),
                Poll::Pending => self.poll_cut(cx, &mut alarm).map(|()| None),
            }
        });
        let mut body = match head.await {
            None => return Ended::Over(None),
            Some(Err(e)) => return self.without_head(&connection, &e, was_idle),
            Some(Ok(response)) => {
                let (head, body) = response.into_parts();
                let content_type = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
                let at = connection.meter().last_read().at;
                self.stream.on_head(at, head.status.as_u16(), content_type);
                if let Some(coding) = faults::coding(&head.headers) {
                    self.stream.on_coding(at, &coding);
                }
                body
            }
        };
        let body_ended = poll_fn(|cx| self.poll_body(cx, &mut connection, &mut body, &mut alarm)).await;
        let at_end =
            body_ended || (self.stream.connection_is_sound() && drained(&mut connection, &mut body).await);
        let reusable = at_end && poll_fn(|cx| Poll::Ready(connection.poll_reusable(cx))).await;
        Ended::Over(reusable.then_some(connection))
    }

    fn without_head(&mut self, connection: &Connection, no_head: &NoHead, was_idle: bool) -> Ended {
        let failure = no_head.failure();
        let now = self.clock.now();
        let written = self.stream.written();
        let soon = written.is_none_or(|written| now.since(written) <= CLOSED_WHILE_IDLE);
        if was_idle && soon && !connection.meter().has_answered() && failure.kind == FailureKind::Reset {
            return Ended::ClosedWhileIdle;
        }
        let failure = connection.before_head(no_head);
        // The instant at which the socket said so, where it was the socket.
        self.stream.fail(connection.meter().activity_at().max(written.unwrap_or(now)), failure);
        Ended::Over(None)
    }

    /// Reads until the verdict has fallen. True when the body came to its end as HTTP says.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        body: &mut Incoming,
        alarm: &mut Alarm,
    ) -> Poll<bool> {
        while !self.stream.is_decided() {
            let piece = connection.poll_piece(cx, body);
            let meter = connection.meter();
            self.stream.on_wire(meter.last_read().at, meter.received());
            match piece {
                Poll::Ready(Piece::Bytes(bytes)) => {
                    self.stream.on_read(connection.meter().last_read(), &bytes)
                }
                Poll::Ready(Piece::End) => {
                    self.stream.on_end(connection.meter().activity_at(), BodyEnd::Clean);
                    return Poll::Ready(true);
                }
                Poll::Ready(Piece::Broken(e)) => {
                    self.stream.on_end(connection.meter().activity_at(), faults::in_body(&e));
                }
                Poll::Pending if self.stream.is_decided() => break,
                Poll::Pending => return self.poll_cut(cx, alarm).map(|()| false),
            }
        }
        Poll::Ready(false)
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

/// Reads what is left of a body whose verdict has fallen. True when it came to its end.
async fn drained(connection: &mut Connection, body: &mut Incoming) -> bool {
    let mut left = MAX_DRAINED_BYTES;
    let rest = poll_fn(|cx| {
        loop {
            match connection.poll_piece(cx, body) {
                Poll::Ready(Piece::Bytes(bytes)) if bytes.len() <= left => left -= bytes.len(),
                Poll::Ready(Piece::Bytes(_) | Piece::Broken(_)) => return Poll::Ready(false),
                Poll::Ready(Piece::End) => return Poll::Ready(true),
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
