//! One connection to the engine: hyper's HTTP/1 client, driven by the task of the request that uses it.
//!
//! hyper's connection is not spawned. A task of its own would read while the request's task is not running, and then
//! a body frame could not be matched to the read that brought it. Here reading and looking take turns: a frame is
//! seen before the gate lets the next read through. Dropping a connection closes its socket.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use common::trace::{Failure, FailureKind};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use tokio::net::TcpStream;

use super::faults;
use super::io::{Meter, MeteredIo, Socket, Stamped};
use super::tls::Session;
use super::trial_clock::TrialClock;

/// The most that hyper holds of what it has not handed out. Endless heads end here.
const MAX_BUFFER_BYTES: usize = 128 << 10;
/// The longest response head (and trailer).
const MAX_HEAD_BYTES: usize = 64 << 10;
/// What may come before a response head is complete: itself, and interim ones (1xx), of which an engine may send any
/// number. Of the socket's bytes, TLS included.
const MAX_BYTES_BEFORE_HEAD: u64 = 256 << 10;

/// A connection, idle or with one request on it.
pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// None once HTTP has finished with the socket. Boxed, because a connection is moved from the pool and back.
    http: Option<Box<http1::Connection<MeteredIo, Full<Bytes>>>>,
    meter: Arc<Meter>,
    /// Of a connection inside TLS.
    tls: Option<Session>,
}

/// What a body gives next.
pub(super) enum Piece {
    /// Bytes that the last read brought.
    Bytes(Bytes),
    /// Its end.
    End,
    /// What went wrong.
    Broken(hyper::Error),
}

/// Why no response head came.
pub(super) enum NoHead {
    /// HTTP or the connection broke.
    Broken(hyper::Error),
    /// More came before it than [`MAX_BYTES_BEFORE_HEAD`].
    Endless,
}

impl NoHead {
    /// As it is, whatever the connection it was on.
    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Broken(e) => faults::before_head(e),
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
            return Err(failed(std::io::ErrorKind::ConnectionRefused.into()));
        }
        Ok(stream)
    }

    /// HTTP over a socket that is connected.
    pub(super) async fn plain(socket: impl Socket + 'static, clock: &TrialClock) -> Result<Self, Failure> {
        let meter = Arc::new(Meter::new(clock.clone()));
        let socket = Stamped::new(socket, Arc::clone(&meter));
        Self::http(socket, meter, None).await
    }

    /// HTTP inside TLS over a socket that is connected, when its handshake is over. The caller sets the time limit.
    pub(super) async fn inside_tls(
        socket: impl Socket + 'static,
        session: &Session,
        clock: &TrialClock,
    ) -> Result<Self, Failure> {
        let meter = Arc::new(Meter::new(clock.clone()));
        let socket = session.handshake(Stamped::new(socket, Arc::clone(&meter))).await?;
        Self::http(socket, meter, Some(session.clone())).await
    }

    async fn http(
        stream: impl Socket + 'static,
        meter: Arc<Meter>,
        tls: Option<Session>,
    ) -> Result<Self, Failure> {
        let io = MeteredIo::new(stream, Arc::clone(&meter));
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MAX_BUFFER_BYTES).max_header_size(MAX_HEAD_BYTES);
        let (sender, http) = builder.handshake(io).await.map_err(|e| faults::before_head(&e))?;
        Ok(Self { sender, http: Some(Box::new(http)), meter, tls })
    }

    /// What it means on this connection that no response head came.
    ///
    /// An engine that wants a client's certificate says so only after the client takes the handshake for done, and
    /// what it says may be lost to the reset that follows.
    pub(super) fn before_head(&self, no_head: &NoHead) -> Failure {
        let failure = no_head.failure();
        let refused = matches!(failure.kind, FailureKind::Reset | FailureKind::Tls);
        match &self.tls {
            Some(session) if refused && !self.meter.has_ever_answered() => session.refused(failure),
            _ => failure,
        }
    }

    /// Stamps and counts of the socket.
    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Begins a request. Nothing is written before [`Connection::poll_head`].
    pub(super) fn start(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        self.meter.begin();
        self.sender.send_request(request)
    }

    /// Whether an idle connection can still be used: reads, to see an end of file that came in the meantime.
    pub(super) fn poll_usable(&mut self, cx: &mut Context<'_>) -> bool {
        self.work(cx, true);
        self.http.is_some() && self.sender.is_ready()
    }

    /// Whether another request can follow: HTTP has come to the end of the last one, and the socket stays open.
    pub(super) fn poll_reusable(&mut self, cx: &mut Context<'_>) -> bool {
        self.work(cx, false);
        self.http.is_some() && self.sender.is_ready()
    }

    /// Writes the request and reads until its response head is there.
    pub(super) fn poll_head<F>(
        &mut self,
        cx: &mut Context<'_>,
        mut response: Pin<&mut F>,
    ) -> Poll<Result<Response<Incoming>, NoHead>>
    where
        F: Future<Output = hyper::Result<Response<Incoming>>>,
    {
        loop {
            let went_on = self.work(cx, true);
            if let Poll::Ready(head) = response.as_mut().poll(cx) {
                return Poll::Ready(head.map_err(NoHead::Broken));
            }
            if self.meter.received() > MAX_BYTES_BEFORE_HEAD {
                return Poll::Ready(Err(NoHead::Endless));
            }
            if !went_on {
                return Poll::Pending;
            }
        }
    }

    /// The next piece of the body. Its stamp is the meter's last read.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>, body: &mut Incoming) -> Poll<Piece> {
        // What earlier reads brought comes first, hence the turn with the gate closed.
        let mut may_read = false;
        loop {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => return Poll::Ready(Piece::Bytes(bytes)),
                    // Trailers say nothing that a trace keeps.
                    Err(_) => continue,
                },
                Poll::Ready(Some(Err(e))) => return Poll::Ready(Piece::Broken(e)),
                Poll::Ready(None) => return Poll::Ready(Piece::End),
                Poll::Pending => {}
            }
            if !self.work(cx, may_read) && may_read {
                return Poll::Pending;
            }
            may_read = !may_read;
        }
    }

    /// Lets HTTP do what it can, with at most one read. True when a read returned or HTTP came to its end: then there
    /// may be something to see, and the socket has not promised to wake the task.
    fn work(&mut self, cx: &mut Context<'_>, may_read: bool) -> bool {
        let Some(http) = &mut self.http else { return false };
        let before = self.meter.activity();
        self.meter.set_gate(may_read);
        let over = Pin::new(http).poll(cx).is_ready();
        self.meter.set_gate(false);
        if over {
            // What HTTP has to say of it comes through the response or the body.
            self.http = None;
        }
        over || self.meter.activity() != before
    }
}
