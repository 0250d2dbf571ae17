//! The socket, with a stamp on each read and on the first write.
//!
//! hyper hands out a body in frames and may have read further by the time a frame is seen, so the instant of a read
//! has to be taken where the read happens: here. The gate lets one read through at a time, and whoever drives the
//! connection opens it only when everything that earlier reads brought has been seen. So the last stamp is always the
//! stamp of the bytes in hand, whatever hyper does between (`stamp_tests`).
//!
//! Two layers, because TLS may lie between them:
//! - [`Stamped`] is the socket itself. It takes the stamps: of the read of the network, not of the decryption.
//! - [`MeteredIo`] is what hyper reads. It holds the gate and counts what came out of it.
//!
//! Inside TLS one read of the socket may bring several records, which come out of the gate one by one: they all have
//! the stamp and the number of that read. A record that takes several reads has the stamp of the last of them, for
//! before that nobody could read a byte of it. The socket is read only when nothing is left of what it brought before
//! (`tls::records`), so the last stamp is that of the bytes in hand there, too (`tls_stamp_tests`).

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use common::ids::Nanos;
use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::Read;
use super::trial_clock::TrialClock;

/// The largest single read: several hundred events.
const READ_BYTES: usize = 64 << 10;

thread_local! {
    // hyper's buffer can only be filled in place by unsafe code. One buffer per thread, not per connection: bytes
    // stay in it only within one call.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// What the socket has done. Shared by the socket, which hyper owns, and the task that drives hyper; both run in the
/// same task, so that the atomics only spare a lock.
#[derive(Debug)]
pub(super) struct Meter {
    clock: TrialClock,
    may_read: AtomicBool,
    /// Reads by hyper that returned anything: bytes, end of file or an error.
    activity: AtomicU64,
    /// Those of them that brought bytes of HTTP.
    answers: AtomicU64,
    /// `answers` when the current request began.
    answers_before: AtomicU64,
    /// The socket's last read that returned anything, or write that failed.
    activity_at: AtomicU64,
    /// Reads of the socket that brought bytes.
    reads: AtomicU64,
    read_at: AtomicU64,
    /// Bytes that the socket has brought since the current request began.
    received: AtomicU64,
    first_write_at: AtomicU64,
}

/// No write yet.
const NEVER: u64 = u64::MAX;

impl Meter {
    pub(super) fn new(clock: TrialClock) -> Self {
        Self {
            clock,
            may_read: AtomicBool::new(false),
            activity: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            answers_before: AtomicU64::new(0),
            activity_at: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            read_at: AtomicU64::new(0),
            received: AtomicU64::new(0),
            first_write_at: AtomicU64::new(NEVER),
        }
    }

    /// A request begins on this connection.
    pub(super) fn begin(&self) {
        self.first_write_at.store(NEVER, Relaxed);
        self.answers_before.store(self.answers.load(Relaxed), Relaxed);
        self.received.store(0, Relaxed);
    }

    /// Lets one read through, or none.
    pub(super) fn set_gate(&self, open: bool) {
        self.may_read.store(open, Relaxed);
    }

    /// Changes whenever a read by hyper returned.
    pub(super) fn activity(&self) -> u64 {
        self.activity.load(Relaxed)
    }

    /// The last read that returned, be it with an end of file, or write that failed.
    pub(super) fn activity_at(&self) -> Nanos {
        Nanos(self.activity_at.load(Relaxed))
    }

    /// The last read that brought bytes.
    pub(super) fn last_read(&self) -> Read {
        Read { at: Nanos(self.read_at.load(Relaxed)), number: self.reads.load(Relaxed) }
    }

    /// Bytes of HTTP came since the request began. What TLS says for itself is no answer.
    pub(super) fn has_answered(&self) -> bool {
        self.answers.load(Relaxed) != self.answers_before.load(Relaxed)
    }

    /// Bytes of HTTP have come at any time.
    pub(super) fn has_ever_answered(&self) -> bool {
        self.answers.load(Relaxed) > 0
    }

    /// Bytes that the socket has brought since the request began, whatever they were.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// When the socket accepted the request's first byte.
    pub(super) fn first_write(&self) -> Option<Nanos> {
        Some(self.first_write_at.load(Relaxed)).filter(|&at| at != NEVER).map(Nanos)
    }

    /// The socket's read returned.
    fn on_socket_read(&self, bytes: usize) {
        let now = self.clock.now().0;
        self.activity_at.store(now, Relaxed);
        if bytes > 0 {
            self.reads.store(self.reads.load(Relaxed) + 1, Relaxed);
            self.read_at.store(now, Relaxed);
            self.received.store(self.received.load(Relaxed) + bytes as u64, Relaxed);
        }
    }

    /// hyper's read returned.
    fn on_read(&self, bytes: usize) {
        self.may_read.store(false, Relaxed);
        self.activity.store(self.activity.load(Relaxed) + 1, Relaxed);
        if bytes > 0 {
            self.answers.store(self.answers.load(Relaxed) + 1, Relaxed);
        }
    }

    fn on_write(&self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Ready(Ok(1..)) if self.first_write_at.load(Relaxed) == NEVER => {
                self.first_write_at.store(self.clock.now().0, Relaxed);
            }
            Poll::Ready(Err(_)) => self.activity_at.store(self.clock.now().0, Relaxed),
            _ => {}
        }
    }
}

/// What a connection runs over: a TCP socket, or what stands for one in a test or a simulation.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A socket that reports to a [`Meter`].
pub(super) struct Stamped<S> {
    socket: S,
    meter: Arc<Meter>,
}

impl<S: Socket> Stamped<S> {
    pub(super) fn new(socket: S, meter: Arc<Meter>) -> Self {
        Self { socket, meter }
    }
}

impl<S: Socket> AsyncRead for Stamped<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        let result = ready!(Pin::new(&mut this.socket).poll_read(cx, into));
        this.meter.on_socket_read(into.filled().len() - before);
        Poll::Ready(result)
    }
}

impl<S: Socket> AsyncWrite for Stamped<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write(cx, bytes);
        this.meter.on_write(&written);
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write_vectored(cx, bytes);
        this.meter.on_write(&written);
        written
    }
}

/// What hyper reads and writes: a [`Stamped`] socket, or TLS over one, behind the gate.
pub(super) struct MeteredIo {
    stream: Box<dyn Socket>,
    meter: Arc<Meter>,
}

impl MeteredIo {
    pub(super) fn new(stream: impl Socket + 'static, meter: Arc<Meter>) -> Self {
        Self { stream: Box::new(stream), meter }
    }
}

impl hyper::rt::Read for MeteredIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.meter.may_read.load(Relaxed) {
            // No waker is registered: the driver opens the gate before it waits.
            return Poll::Pending;
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let space = scratch.len().min(into.remaining());
            let mut buffer = ReadBuf::new(&mut scratch[..space]);
            let result = ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buffer));
            this.meter.on_read(buffer.filled().len());
            into.put_slice(buffer.filled());
            Poll::Ready(result)
        })
    }
}

impl hyper::rt::Write for MeteredIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Dropping closes.
        Poll::Ready(Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        // Head and body leave in one call without being copied together.
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bytes)
    }
}
