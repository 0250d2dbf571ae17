//! One connection: where it comes from, whether it has shown the token, and its end when it does not.
//!
//! The lobby counts connections; a [`Guest`] is one of them, and leaves it when the last clone is dropped. What reads the
//! socket is wrapped in a [`Connection`], which fails the read, and so ends the connection, when the guest has made no
//! call with the token in time. Nothing else would: HTTP/2 keeps a silent connection for ever.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::limits::{Limits, MAX_REFUSALS};

/// Who is here.
#[derive(Debug, Default)]
struct Count {
    connections: usize,
    /// Those that have not shown the token, by address.
    strangers: HashMap<IpAddr, usize>,
}

/// Counts connections.
#[derive(Debug)]
pub(super) struct Lobby {
    limits: Limits,
    count: Mutex<Count>,
}

impl Lobby {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, count: Mutex::default() })
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection in.
    ///
    /// # Errors
    /// Why there is no room for it.
    pub(super) fn enter(self: &Arc<Self>, peer: SocketAddr) -> Result<Guest, String> {
        let (limits, ip) = (&self.limits, peer.ip());
        let mut count = self.count();
        let strangers: usize = count.strangers.values().sum();
        let of_peer = count.strangers.get(&ip).copied().unwrap_or(0);
        if count.connections >= limits.connections {
            return Err(format!("there are {} connections already", limits.connections));
        }
        if strangers >= limits.strangers {
            return Err(format!("there are {} connections that have not shown the token", limits.strangers));
        }
        if of_peer >= limits.strangers_per_peer && !ip.is_loopback() {
            return Err(format!("{of_peer} connections from there have not shown the token"));
        }
        count.connections += 1;
        *count.strangers.entry(ip).or_default() += 1;
        let (proven, refusals) = (AtomicBool::new(false), AtomicU32::new(0));
        Ok(Guest(Arc::new(Inner { peer, proven, refusals, lobby: Arc::clone(self) })))
    }

    fn is_no_stranger(&self, ip: IpAddr) {
        let mut count = self.count();
        if let Some(n) = count.strangers.get_mut(&ip) {
            *n -= 1;
            if *n == 0 {
                count.strangers.remove(&ip);
            }
        }
    }
}

/// A connection. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Guest(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    peer: SocketAddr,
    proven: AtomicBool,
    refusals: AtomicU32,
    lobby: Arc<Lobby>,
}

impl Guest {
    pub(super) fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    /// It has shown the token.
    pub(super) fn prove(&self) {
        if !self.0.proven.swap(true, Ordering::AcqRel) {
            self.0.lobby.is_no_stranger(self.0.peer.ip());
        }
    }

    pub(super) fn is_proven(&self) -> bool {
        self.0.proven.load(Ordering::Acquire)
    }

    /// A call of it was refused for want of the token.
    pub(super) fn refuse(&self) {
        self.0.refusals.fetch_add(1, Ordering::Relaxed);
    }

    fn tried_too_often(&self) -> bool {
        self.0.refusals.load(Ordering::Relaxed) >= MAX_REFUSALS
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !*self.proven.get_mut() {
            self.lobby.is_no_stranger(self.peer.ip());
        }
        self.lobby.count().connections -= 1;
    }
}

/// The socket, with TLS or without.
pub(super) enum Socket {
    Plain(TcpStream),
    /// Boxed: it is much larger.
    Tls(Box<TlsStream<TcpStream>>),
    /// Of a simulation.
    Other(Box<dyn Wire>),
}

/// A byte stream that is no socket of this host's.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// A guest's socket.
pub(super) struct Connection {
    socket: Socket,
    guest: Guest,
    /// When the guest must have shown the token; none once it has.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Told when it has not.
    overdue: Arc<dyn Fn(SocketAddr) + Send + Sync>,
}

impl Connection {
    pub(super) fn new(
        socket: Socket,
        guest: Guest,
        prove_within: Duration,
        overdue: Arc<dyn Fn(SocketAddr) + Send + Sync>,
    ) -> Self {
        Self { socket, guest, deadline: Some(Box::pin(tokio::time::sleep(prove_within))), overdue }
    }

    /// Whether it may go on.
    fn look(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(deadline) = &mut self.deadline else { return Ok(()) };
        if self.guest.is_proven() {
            self.deadline = None;
            return Ok(());
        }
        if self.guest.tried_too_often() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "refused too often"));
        }
        if deadline.as_mut().poll(cx).is_ready() {
            (self.overdue)(self.guest.peer());
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no call with the token came in time"));
        }
        Ok(())
    }
}

impl Connected for Connection {
    type ConnectInfo = Guest;
    fn connect_info(&self) -> Guest {
        self.guest.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.look(cx)?;
        match &mut self.socket {
            Socket::Plain(s) => Pin::new(s).poll_read(cx, buf),
            Socket::Tls(s) => Pin::new(s).poll_read(cx, buf),
            Socket::Other(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Plain(s) => Pin::new(s).poll_write(cx, buf),
            Socket::Tls(s) => Pin::new(s).poll_write(cx, buf),
            Socket::Other(s) => Pin::new(s).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(s) => Pin::new(s).poll_flush(cx),
            Socket::Tls(s) => Pin::new(s).poll_flush(cx),
            Socket::Other(s) => Pin::new(s).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(s) => Pin::new(s).poll_shutdown(cx),
            Socket::Tls(s) => Pin::new(s).poll_shutdown(cx),
            Socket::Other(s) => Pin::new(s).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Plain(s) => Pin::new(s).poll_write_vectored(cx, bufs),
            Socket::Tls(s) => Pin::new(s).poll_write_vectored(cx, bufs),
            Socket::Other(s) => Pin::new(s).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            Socket::Plain(s) => s.is_write_vectored(),
            Socket::Tls(s) => s.is_write_vectored(),
            Socket::Other(s) => s.is_write_vectored(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ip: [u8; 4]) -> SocketAddr {
        SocketAddr::from((ip, 1))
    }

    #[test]
    fn strangers_are_few_and_leave_room_when_they_go_or_are_known() {
        let limits = Limits { connections: 4, strangers: 3, strangers_per_peer: 2, ..Limits::default() };
        let lobby = Lobby::new(limits);
        let first = lobby.enter(at([10, 0, 0, 1])).unwrap();
        let _second = lobby.enter(at([10, 0, 0, 1])).unwrap();
        assert!(lobby.enter(at([10, 0, 0, 1])).unwrap_err().contains("from there"));
        let third = lobby.enter(at([10, 0, 0, 2])).unwrap();
        assert!(lobby.enter(at([10, 0, 0, 3])).unwrap_err().contains("token"));
        drop(third);
        first.prove();
        first.prove();
        let _third = lobby.enter(at([10, 0, 0, 1])).unwrap();
        let fourth = lobby.enter(at([10, 0, 0, 2])).unwrap();
        fourth.prove();
        assert!(lobby.enter(at([10, 0, 0, 4])).unwrap_err().contains("4 connections"));
        drop((first, fourth));
        assert!(lobby.enter(at([127, 0, 0, 1])).is_ok());
        let count = lobby.count();
        assert_eq!((count.connections, count.strangers.values().sum::<usize>()), (2, 2));
    }
}
