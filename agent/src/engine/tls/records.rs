//! TLS as hyper reads it: never more than what the last read of the socket brought.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

use crate::engine::io::Socket;

/// A stream of which each read gives what one record held.
///
/// `TlsStream` itself fills the buffer that it is given, with as many reads of the socket as there are bytes for: what
/// came first would get the stamp of what came last. Its own buffer, in contrast, is filled from the socket only when
/// it is empty.
pub(in crate::engine) struct Records<S>(TlsStream<S>);

impl<S: Socket> Records<S> {
    pub(super) fn of(stream: TlsStream<S>) -> Self {
        Self(stream)
    }
}

impl<S: Socket> AsyncRead for Records<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.get_mut().0;
        let record = ready!(Pin::new(&mut *stream).poll_fill_buf(cx))?;
        let taken = record.len().min(into.remaining());
        into.put_slice(&record[..taken]);
        Pin::new(stream).consume(taken);
        Poll::Ready(Ok(()))
    }
}

impl<S: Socket> AsyncWrite for Records<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}
