//! Connections of the page: bounded in number, and given up when nothing moves.
//!
//! A viewer gets something every second. One whose socket takes nothing for [`STILL`] does not read any more; one that
//! asks for nothing needs no connection. Either is closed: nothing is kept for it but the kernel's own buffer.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// How long a connection may stand still.
const STILL: Duration = Duration::from_secs(15);
/// Between two tries when the system gives no connection.
const AGAIN: Duration = Duration::from_millis(200);

/// Accepts as many connections as there are places.
pub(super) struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener, places: Arc<Semaphore>) -> Self {
        Self { listener, places }
    }
}

impl Listener for Bounded {
    type Io = Moving<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // Never closed.
            let place = Arc::clone(&self.places).acquire_owned().await.ok();
            match self.listener.accept().await {
                Ok((stream, peer)) => return (Moving::new(stream, STILL, place), peer),
                Err(e) => {
                    tracing::debug!("the live page takes no connection: {e}");
                    sleep(AGAIN).await;
                }
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that fails when it stands still.
pub(super) struct Moving<S> {
    stream: S,
    patience: Duration,
    until: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl<S> Moving<S> {
    fn new(stream: S, patience: Duration, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { stream, patience, until: Box::pin(sleep(patience)), _place: place }
    }

    fn moved(&mut self) {
        let until = Instant::now() + self.patience;
        self.until.as_mut().reset(until);
    }

    /// An error when it stood still for too long.
    fn still<T>(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<T>> {
        ready!(self.until.as_mut().poll(cx));
        Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Moving<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Ready(read) => {
                self.moved();
                Poll::Ready(read)
            }
            Poll::Pending => self.still(cx),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Moving<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(cx, bytes) {
            Poll::Ready(written) => {
                self.moved();
                Poll::Ready(written)
            }
            Poll::Pending => self.still(cx),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Pending => self.still(cx),
            flushed => flushed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(cx) {
            Poll::Pending => self.still(cx),
            shut => shut,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn who_takes_nothing_is_given_up() {
        let (ours, mut theirs) = duplex(64);
        let mut ours = Moving::new(ours, Duration::from_millis(20), None);
        let writes = tokio::spawn(async move {
            let mut written = 0;
            loop {
                match ours.write(&[7; 64]).await {
                    Ok(n) => written += n,
                    Err(e) => return (written, e.kind()),
                }
            }
        });
        theirs.read_exact(&mut [0; 64]).await.unwrap();
        let (written, why) = writes.await.unwrap();
        assert_eq!((written, why), (2 * 64, std::io::ErrorKind::TimedOut), "what was read, and what fits");
    }

    #[tokio::test]
    async fn who_asks_for_nothing_is_given_up() {
        let (ours, _theirs) = duplex(64);
        let mut ours = Moving::new(ours, Duration::from_millis(20), None);
        assert_eq!(ours.read(&mut [0; 1]).await.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    }
}
