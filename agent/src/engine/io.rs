//! The socket, with a stamp on each read and on the first write.
//!
//! The instant of a read has to be taken where the read happens: here. Whoever drives the connection looks at all that one
//! read brought before it reads again, so the last stamp is always the stamp of the bytes in hand (`stamp_tests`).
//!
//! TLS may lie over it. Then the stamp is that of the read of the network, not of the decryption: one read of the socket
//! may bring several records, which come one by one and all have the stamp and the number of that read. A record that
//! takes several reads has the stamp of the last of them, for before that nobody could read a byte of it. The socket is
//! read only when nothing is left of what it brought before (`tls::records`), so the last stamp is that of the bytes in
//! hand there, too (`tls_stamp_tests`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use common::ids::Nanos;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::Read;
use super::trial_clock::TrialClock;

/// What the socket has done.
#[derive(Debug)]
pub(super) struct Meter {
    clock: TrialClock,
    /// The last read that returned anything, or write that failed.
    activity_at: Nanos,
    /// The last read that brought bytes, and how many such reads there were.
    last_read: Read,
    /// Bytes that came since the current request began.
    received: u64,
    first_write: Option<Nanos>,
}

impl Meter {
    fn new(clock: TrialClock) -> Self {
        let last_read = Read { at: Nanos::ZERO, number: 0 };
        Self { clock, activity_at: Nanos::ZERO, last_read, received: 0, first_write: None }
    }

    /// A request begins on this connection.
    pub(super) fn begin(&mut self) {
        self.first_write = None;
        self.received = 0;
    }

    /// The last read that returned, be it with an end of file, or write that failed.
    pub(super) fn activity_at(&self) -> Nanos {
        self.activity_at
    }

    /// The last read that brought bytes.
    pub(super) fn last_read(&self) -> Read {
        self.last_read
    }

    /// Bytes that the socket has brought since the request began, whatever they were.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// When the socket accepted the request's first byte.
    pub(super) fn first_write(&self) -> Option<Nanos> {
        self.first_write
    }

    fn on_read(&mut self, bytes: usize) {
        self.activity_at = self.clock.now();
        if bytes > 0 {
            self.last_read = Read { at: self.activity_at, number: self.last_read.number + 1 };
            self.received += bytes as u64;
        }
    }

    fn on_write(&mut self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Ready(Ok(1..)) if self.first_write.is_none() => self.first_write = Some(self.clock.now()),
            Poll::Ready(Err(_)) => self.activity_at = self.clock.now(),
            _ => {}
        }
    }
}

/// What a connection runs over: a TCP socket, or what stands for one in a test or a simulation.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// What HTTP is spoken over: a [`Stamped`] socket, or TLS over one.
pub(super) trait Transport: Socket {
    /// What the socket below has done.
    fn meter(&self) -> &Meter;
    /// The same, for a request that begins.
    fn meter_mut(&mut self) -> &mut Meter;
}

/// A socket with its [`Meter`].
pub(super) struct Stamped<S> {
    socket: S,
    meter: Meter,
}

impl<S: Socket> Stamped<S> {
    pub(super) fn new(socket: S, clock: TrialClock) -> Self {
        Self { socket, meter: Meter::new(clock) }
    }
}

impl<S: Socket> Transport for Stamped<S> {
    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn meter_mut(&mut self) -> &mut Meter {
        &mut self.meter
    }
}

impl<S: Socket> AsyncRead for Stamped<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        let result = ready!(Pin::new(&mut this.socket).poll_read(cx, into));
        this.meter.on_read(into.filled().len() - before);
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
