//! The socket, with a stamp on each read and on the first write.
//!
//! hyper hands out a body in frames and may have read further by the time a frame is seen, so the instant of a read
//! has to be taken where the read happens: here. The gate lets one read through at a time, and whoever drives the
//! connection opens it only when everything that earlier reads brought has been seen. So the last stamp is always the
//! stamp of the bytes in hand, whatever hyper does between (`stamp_tests`).

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
    /// Reads that returned anything: bytes, end of file or an error.
    activity: AtomicU64,
    activity_at: AtomicU64,
    /// Reads that brought bytes.
    reads: AtomicU64,
    read_at: AtomicU64,
    /// `reads` when the current request began.
    reads_before: AtomicU64,
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
            activity_at: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            read_at: AtomicU64::new(0),
            reads_before: AtomicU64::new(0),
            first_write_at: AtomicU64::new(NEVER),
        }
    }

    /// A request begins on this connection.
    pub(super) fn begin(&self) {
        self.first_write_at.store(NEVER, Relaxed);
        self.reads_before.store(self.reads.load(Relaxed), Relaxed);
    }

    /// Lets one read through, or none.
    pub(super) fn set_gate(&self, open: bool) {
        self.may_read.store(open, Relaxed);
    }

    /// Changes whenever a read returned.
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

    /// Bytes came since the request began.
    pub(super) fn has_answered(&self) -> bool {
        self.reads.load(Relaxed) != self.reads_before.load(Relaxed)
    }

    /// When the socket accepted the request's first byte.
    pub(super) fn first_write(&self) -> Option<Nanos> {
        Some(self.first_write_at.load(Relaxed)).filter(|&at| at != NEVER).map(Nanos)
    }

    fn on_read(&self, bytes: usize) {
        let now = self.clock.now().0;
        self.may_read.store(false, Relaxed);
        self.activity.store(self.activity.load(Relaxed) + 1, Relaxed);
        self.activity_at.store(now, Relaxed);
        if bytes > 0 {
            self.reads.store(self.reads.load(Relaxed) + 1, Relaxed);
            self.read_at.store(now, Relaxed);
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
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.meter.on_write(&written);
        written
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
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bytes);
        this.meter.on_write(&written);
        written
    }
}
