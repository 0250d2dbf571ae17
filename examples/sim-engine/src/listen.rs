//! Accepting connections, and breaking them on purpose.
//!
//! Owns the listening socket and a thin wrapper around each connection that a request can reach through its
//! [`Connection`]: to end it by a TCP reset, or to close it without a word once it is idle. Otherwise the wrapper
//! must never change what is read or written.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;

use crate::tls::{Tls, Wire};

/// A request's handle on the connection it came by.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    control: Arc<Control>,
}

#[derive(Debug)]
struct Control {
    number: u64,
    reset: AtomicBool,
    end_of_input: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

impl Connection {
    /// Counted from 1 in the order of acceptance.
    pub(crate) fn number(&self) -> u64 {
        self.control.number
    }

    /// From now on, closing this connection sends a reset.
    pub(crate) fn reset_on_close(&self) {
        self.control.reset.store(true, Ordering::Release);
    }

    /// The server believes that the client has closed, and so closes as well.
    pub(crate) fn pretend_end_of_input(&self) {
        self.control.end_of_input.store(true, Ordering::Release);
        let waiting = self.control.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

impl Connected<IncomingStream<'_, Port>> for Connection {
    fn connect_info(stream: IncomingStream<'_, Port>) -> Self {
        Self { control: Arc::clone(&stream.io().control) }
    }
}

/// The listening socket.
#[derive(Debug)]
pub(crate) struct Port {
    listener: TcpListener,
    tls: Option<Tls>,
    accepted: AtomicU64,
}

impl Port {
    pub(crate) fn new(listener: TcpListener, tls: Option<Tls>) -> Self {
        Self { listener, tls, accepted: AtomicU64::new(0) }
    }
}

impl Listener for Port {
    type Io = Socket;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Socket, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    // Without it the kernel would hold back each small event until the last was acknowledged.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "could not set TCP_NODELAY");
                    }
                    let control = Control {
                        number: self.accepted.fetch_add(1, Ordering::Relaxed) + 1,
                        reset: AtomicBool::new(false),
                        end_of_input: AtomicBool::new(false),
                        reader: Mutex::new(None),
                    };
                    let stream = Wire::new(stream, self.tls.as_ref());
                    return (Socket { stream, control: Arc::new(control) }, peer);
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// One accepted connection.
pub(crate) struct Socket {
    stream: Wire,
    control: Arc<Control>,
}

impl Socket {
    fn resets(&self) -> bool {
        self.control.reset.load(Ordering::Acquire)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.resets()
            && let Some(stream) = self.stream.tcp()
            && let Err(error) = stream.set_zero_linger()
        {
            tracing::warn!(%error, "could not prepare a reset");
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            return read;
        }
        *self.control.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        let ended = self.control.end_of_input.load(Ordering::Acquire);
        if ended { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.resets() {
            // A proper end first would be read as one.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
