//! One connection to the engine: writes a request, reads what its response says, driven by the task of the request.
//!
//! Nothing of it is spawned. A task of its own would read while the request's task is not running, and then bytes could
//! not be matched to the read that brought them. Here each read is looked at to its end, where it lies, before the next.
//! Dropping a connection closes its socket.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use common::trace::{Failure, FailureKind};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;

use super::faults;
use super::http::{Eof, Heard, Reader};
use super::io::{Meter, Socket, Stamped, Transport};
use super::stream::Read;
use super::tls::Session;
use super::trial_clock::TrialClock;

/// What may come before a response head is complete: itself, and interim ones (1xx), of which an engine may send any
/// number. Of the socket's bytes, TLS included.
const MAX_BYTES_BEFORE_HEAD: u64 = 256 << 10;
/// The largest single read: several hundred events.
const READ_BYTES: usize = 64 << 10;

thread_local! {
    // One buffer per thread, not per connection: bytes stay in it only while one read is looked at.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// A request as it goes over the wire.
pub(super) struct Wire {
    /// Everything before the body.
    pub(super) head: Vec<u8>,
    pub(super) body: Bytes,
}

/// A connection, idle or with one request on it.
pub(super) struct Connection {
    // Boxed, because a connection is moved from the pool and back.
    io: Box<dyn Transport>,
    reader: Reader,
    outbox: Outbox,
    /// The current request has got a byte of HTTP for an answer; what TLS says for itself is none.
    has_answered: bool,
    /// Any request has.
    has_ever_answered: bool,
    /// Of a connection inside TLS.
    tls: Option<Session>,
}

/// What is left to be written.
#[derive(Default)]
struct Outbox {
    head: Vec<u8>,
    body: Bytes,
    /// Of head and body together.
    written: usize,
    /// What was written may still lie in TLS.
    unflushed: bool,
    /// The engine may have answered all the same, so this is told only if it has not.
    failed: Option<io::Error>,
}

impl Outbox {
    fn left(&self) -> (&[u8], &[u8]) {
        let head = self.written.min(self.head.len());
        (&self.head[head..], &self.body[self.written - head..])
    }

    fn is_empty(&self) -> bool {
        self.written == self.head.len() + self.body.len() && !self.unflushed
    }

    fn fail(&mut self, error: io::Error) {
        *self = Self { failed: Some(error), ..Self::default() };
    }
}

/// What a read came to.
pub(super) enum Step {
    /// There may be more.
    More,
    /// The body has come to its end.
    End,
    /// What went wrong.
    Broken(Broken),
}

/// Why a response is not whole.
#[derive(Debug)]
pub(super) enum Broken {
    /// The socket, or TLS over it.
    Io(io::Error),
    /// The engine closed the connection before a head or within a body.
    Closed,
    /// What came is no HTTP, said without quoting it.
    Malformed(String),
    /// More came before a head than [`MAX_BYTES_BEFORE_HEAD`]; see [`Connection::is_endless`].
    Endless,
}

impl Broken {
    /// The same before a response head had come.
    pub(super) fn before_head(&self) -> Failure {
        match self {
            Self::Io(e) => faults::broken(e),
            Self::Closed => {
                Failure::new(FailureKind::Reset, "the connection was closed before a response head came")
            }
            Self::Malformed(what) => {
                let message = format!("the response head is malformed: {what}");
                Failure::new(FailureKind::MalformedStream, message)
            }
            Self::Endless => {
                let message =
                    format!("more than {} KiB came without a response head", MAX_BYTES_BEFORE_HEAD >> 10);
                Failure::new(FailureKind::MalformedStream, message)
            }
        }
    }
}

impl Connection {
    /// A socket that is connected to `address`. The caller sets the time limit.
    pub(super) async fn socket(address: SocketAddr) -> Result<TcpStream, Failure> {
        let failed = |e| faults::connect(address, &e);
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        // A request must not wait for the acknowledgement of what was sent before it.
        stream.set_nodelay(true).map_err(failed)?;
        if stream.local_addr().is_ok_and(|local| local == address) {
            // TCP connects a socket to itself when nobody listens and the port drawn for it happens to be the target.
            return Err(failed(io::ErrorKind::ConnectionRefused.into()));
        }
        Ok(stream)
    }

    /// HTTP over a socket that is connected.
    pub(super) fn plain(socket: impl Socket + 'static, clock: &TrialClock) -> Self {
        Self::over(Stamped::new(socket, clock.clone()), None)
    }

    /// HTTP inside TLS over a socket that is connected, when its handshake is over. The caller sets the time limit.
    pub(super) async fn inside_tls(
        socket: impl Socket + 'static,
        session: &Session,
        clock: &TrialClock,
    ) -> Result<Self, Failure> {
        let records = session.handshake(Stamped::new(socket, clock.clone())).await?;
        Ok(Self::over(records, Some(session.clone())))
    }

    fn over(io: impl Transport + 'static, tls: Option<Session>) -> Self {
        Self {
            io: Box::new(io),
            reader: Reader::default(),
            outbox: Outbox::default(),
            has_answered: false,
            has_ever_answered: false,
            tls,
        }
    }

    /// What it means on this connection that no response head came.
    ///
    /// An engine that wants a client's certificate says so only after the client takes the handshake for done, and
    /// what it says may be lost to the reset that follows.
    pub(super) fn before_head(&self, broken: &Broken) -> Failure {
        let failure = broken.before_head();
        let refused = matches!(failure.kind, FailureKind::Reset | FailureKind::Tls);
        match &self.tls {
            Some(session) if refused && !self.has_ever_answered => session.refused(failure),
            _ => failure,
        }
    }

    /// Stamps and counts of the socket.
    pub(super) fn meter(&self) -> &Meter {
        self.io.meter()
    }

    /// A byte of HTTP has come since the request began.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// The response head of the current request has come.
    pub(super) fn has_head(&self) -> bool {
        self.reader.has_head()
    }

    /// Begins a request. Nothing is written before [`Connection::poll_write`].
    pub(super) fn begin(&mut self, request: Wire) {
        let Wire { head, body } = request;
        self.io.meter_mut().begin();
        self.reader = Reader::default();
        self.outbox = Outbox { head, body, unflushed: true, ..Outbox::default() };
        self.has_answered = false;
    }

    /// So much came that a head must have been in it, and none was. To be asked after each read, also one that brought no
    /// data.
    pub(super) fn is_endless(&self) -> bool {
        !self.has_head() && self.io.meter().received() > MAX_BYTES_BEFORE_HEAD
    }

    /// Whether an idle connection can still be used: reads, to see an end of file that came in the meantime. Bytes that
    /// nobody asked for make it useless, too.
    pub(super) fn poll_usable(&mut self, cx: &mut Context<'_>) -> bool {
        let io = &mut self.io;
        let read = poll_fn(|cx| {
            SCRATCH.with_borrow_mut(|scratch| {
                let mut buffer = ReadBuf::new(scratch);
                Pin::new(&mut *io).poll_read(cx, &mut buffer).map(drop)
            })
        });
        // Outside of tokio's budget: many requests that are begun at once use it up, and a read that is not even tried
        // would look like one that has to wait.
        pin!(unconstrained(read)).poll(cx).is_pending()
    }

    /// Whether another request can follow: all of this one is written, all of its answer read, and no more than that.
    pub(super) fn is_reusable(&self) -> bool {
        self.outbox.is_empty() && self.outbox.failed.is_none() && self.reader.is_reusable()
    }

    /// Writes what the socket takes of the request.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) {
        let Self { io, outbox, .. } = self;
        if outbox.is_empty() {
            return;
        }
        if let Poll::Ready(Err(e)) = write(io, outbox, cx) {
            outbox.fail(e);
        }
    }

    /// Reads once and tells what the read says, with the read and the socket's bytes so far.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        mut hear: impl FnMut(Read, u64, Heard<'_>),
    ) -> Poll<Step> {
        let Self { io, reader, outbox, has_answered, has_ever_answered, .. } = self;
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            if let Err(e) = ready!(Pin::new(&mut *io).poll_read(cx, &mut buffer)) {
                return Poll::Ready(Step::Broken(Broken::Io(e)));
            }
            let bytes = buffer.filled();
            if bytes.is_empty() {
                let body_ended = reader.is_over();
                return Poll::Ready(match (reader.eof(), outbox.failed.take()) {
                    // A failed write may have taken the reason of the end away from the read.
                    (Eof::Clean, Some(e)) if !body_ended => Step::Broken(Broken::Io(e)),
                    (Eof::Clean, _) => Step::End,
                    (Eof::NoHead, failed) => Step::Broken(failed.map_or(Broken::Closed, Broken::Io)),
                    (Eof::Truncated, _) => Step::Broken(Broken::Closed),
                });
            }
            *has_answered = true;
            *has_ever_answered = true;
            let (read, received) = (io.meter().last_read(), io.meter().received());
            if let Err(e) = reader.push(bytes, &mut |heard| hear(read, received, heard)) {
                return Poll::Ready(Step::Broken(Broken::Malformed(e.0)));
            }
            Poll::Ready(if reader.is_over() { Step::End } else { Step::More })
        })
    }
}

/// Head and body leave in one call without being copied together.
fn write(io: &mut Box<dyn Transport>, outbox: &mut Outbox, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    loop {
        let (head, body) = outbox.left();
        if head.is_empty() && body.is_empty() {
            break;
        }
        let slices = [IoSlice::new(head), IoSlice::new(body)];
        match ready!(Pin::new(&mut *io).poll_write_vectored(cx, &slices))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            n => outbox.written += n,
        }
    }
    ready!(Pin::new(io).poll_flush(cx))?;
    // Nothing of it is needed any more, and there may be thousands of streams.
    *outbox = Outbox::default();
    Poll::Ready(Ok(()))
}
