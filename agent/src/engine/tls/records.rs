//! TLS as HTTP reads it: never more than what the last read of the socket brought.

use std::io::{self, Read as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

use crate::engine::io::{Meter, Socket, Stamped, Transport};

/// A stream of which each read gives what one record held.
///
/// `TlsStream` itself fills the buffer that it is given, with as many reads of the socket as there are bytes for: what
/// came first would get the stamp of what came last. Its own buffer, in contrast, is filled from the socket only when
/// it is empty.
pub(in crate::engine) struct Records<S> {
    stream: TlsStream<S>,
    /// What went wrong in a read that had brought good records, too: they come first.
    error: Option<io::Error>,
}

impl<S: Socket> Records<S> {
    pub(super) fn of(stream: TlsStream<S>) -> Self {
        Self { stream, error: None }
    }
}

impl<S: Socket> Transport for Records<Stamped<S>> {
    fn meter(&self) -> &Meter {
        self.stream.get_ref().0.meter()
    }

    fn meter_mut(&mut self) -> &mut Meter {
        self.stream.get_mut().0.meter_mut()
    }
}

impl<S: Socket> AsyncRead for Records<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, error } = self.get_mut();
        if error.is_none() {
            match ready!(Pin::new(&mut *stream).poll_fill_buf(cx)) {
                Ok(record) => {
                    let taken = record.len().min(into.remaining());
                    into.put_slice(&record[..taken]);
                    Pin::new(stream).consume(taken);
                    return Poll::Ready(Ok(()));
                }
                Err(e) => *error = Some(e),
            }
        }
        let (_, session) = stream.get_mut();
        if let Ok(good @ 1..) = session.reader().read(into.initialize_unfilled()) {
            into.advance(good);
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(error.take().map_or(Ok(()), Err))
    }
}

impl<S: Socket> AsyncWrite for Records<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.error.is_some() {
            // It would fail, too, and would be told instead of the reason.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
