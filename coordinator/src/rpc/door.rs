//! Accepting connections: counted, with a deadline each, and told apart by their first byte.
//!
//! A handshake runs in a task of its own, so that one that hangs holds up nobody, and ends by its deadline. A peer that
//! speaks plainly to a door with TLS, or the reverse, is answered in its own language as far as that goes, because the
//! person at the other end sees only what their side can read.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Shared;
use super::guest::{Connection, Guest, Lobby, Socket, Wire};
use super::tls::{self, ServerTls};

/// A place that agents dial.
pub enum Door {
    /// A socket.
    Socket {
        /// It.
        listener: TcpListener,
        /// With TLS.
        tls: Option<ServerTls>,
    },
    /// A simulated one: streams of peers, as they come.
    Simulated(mpsc::Receiver<(Box<dyn Wire>, SocketAddr)>),
}

/// What an HTTP/2 connection begins with: `PRI * HTTP/2.0`.
const HTTP2: u8 = b'P';
/// What a TLS connection begins with: a handshake record.
const TLS: u8 = 0x16;

/// After an accept that failed, for want of files above all.
const AGAIN: Duration = Duration::from_millis(100);

/// The same failure is said again after so many more of them, about a minute.
const SAY_AGAIN: u32 = 600;

/// How long a peer that is turned away may take to read why.
const LINGER: Duration = Duration::from_secs(1);

/// Said to who speaks plainly to TLS. An HTTP/2 client shows it.
pub(super) const SPEAKS_TLS: &str = "this coordinator speaks TLS: join with https:// and --tls-ca";

/// Lets connections in through one door and hands them to the server, until it is dropped.
pub(super) async fn attend(
    door: Door,
    shared: Arc<Shared>,
    lobby: Arc<Lobby>,
    ready: mpsc::Sender<io::Result<Connection>>,
) {
    match door {
        Door::Socket { listener, tls } => attend_socket(listener, tls, shared, lobby, ready).await,
        Door::Simulated(mut streams) => {
            while let Some((stream, peer)) = streams.recv().await {
                match lobby.enter(peer) {
                    Ok(guest) => {
                        let connection = connection(Socket::Other(stream), guest, &shared);
                        _ = ready.send(Ok(connection)).await;
                    }
                    Err(full) => shared.turned_away(peer, &full),
                }
            }
        }
    }
}

async fn attend_socket(
    listener: TcpListener,
    tls: Option<ServerTls>,
    shared: Arc<Shared>,
    lobby: Arc<Lobby>,
    ready: mpsc::Sender<io::Result<Connection>>,
) {
    // As many as there may be strangers: each holds a place in the lobby.
    let mut handshakes = JoinSet::new();
    let mut failed = 0;
    loop {
        while handshakes.try_join_next().is_some() {}
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => {
                failed = 0;
                accepted
            }
            Err(e) => {
                if failed % SAY_AGAIN == 0 {
                    tracing::warn!("no connection can be accepted: {e}");
                }
                failed += 1;
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let guest = match lobby.enter(peer) {
            Ok(guest) => guest,
            Err(full) => {
                shared.turned_away(peer, &full);
                continue;
            }
        };
        let (tls, shared, ready) = (tls.clone(), Arc::clone(&shared), ready.clone());
        handshakes.spawn(async move {
            match receive(stream, guest, tls, &shared).await {
                // The server is gone: nobody wants the connection.
                Ok(Some(connection)) => _ = ready.send(Ok(connection)).await,
                Ok(None) => {}
                Err(reason) => shared.turned_away(peer, &reason),
            }
        });
    }
}

/// Who is turned away: with these words, for this reason.
struct Away {
    stream: Option<TcpStream>,
    words: Vec<u8>,
    reason: String,
}

/// Shakes hands. None for who went away before a word.
async fn receive(
    stream: TcpStream,
    guest: Guest,
    tls: Option<ServerTls>,
    shared: &Arc<Shared>,
) -> Result<Option<Connection>, String> {
    let limits = shared.limits;
    // Where it is not possible, answers are a little later.
    let _ = stream.set_nodelay(true);
    let shaken = tokio::time::timeout(limits.handshake_within, shake(stream, tls)).await;
    let socket = match shaken {
        Ok(Ok(Some(socket))) => socket,
        Ok(Ok(None)) => return Ok(None),
        Ok(Err(away)) => {
            if let Some(stream) = away.stream {
                part(stream, &away.words).await;
            }
            return Err(away.reason);
        }
        Err(_) => return Err(format!("its handshake took longer than {:?}", limits.handshake_within)),
    };
    Ok(Some(connection(socket, guest, shared)))
}

/// A connection that has time to show the token.
fn connection(socket: Socket, guest: Guest, shared: &Arc<Shared>) -> Connection {
    let notices = Arc::clone(shared);
    let overdue = move |peer: SocketAddr| {
        notices.turned_away(peer, "it made no call with the join token in time");
    };
    Connection::new(socket, guest, shared.limits.prove_within, Arc::new(overdue))
}

/// Looks at the first byte, and speaks TLS where that is wanted.
async fn shake(stream: TcpStream, tls: Option<ServerTls>) -> Result<Option<Socket>, Away> {
    let mut first = [0];
    if !matches!(stream.peek(&mut first).await, Ok(1)) {
        return Ok(None);
    }
    let away = |stream, words: &str, reason: &str| {
        Err(Away { stream: Some(stream), words: goodbye(words), reason: reason.to_owned() })
    };
    match (first[0], tls) {
        (HTTP2, None) => Ok(Some(Socket::Plain(stream))),
        (TLS, Some(tls)) => match tls.acceptor().accept(stream).into_fallible().await {
            Ok(stream) => Ok(Some(Socket::Tls(Box::new(stream)))),
            // The alert, which says why, is written already.
            Err((e, stream)) => {
                Err(Away { stream: Some(stream), words: Vec::new(), reason: tls::reason(&e) })
            }
        },
        (HTTP2, Some(_)) => away(
            stream,
            SPEAKS_TLS,
            "it speaks without TLS, and this coordinator with TLS: start that agent with https:// in --join, and --tls-ca",
        ),
        // Any byte that is no TLS tells its side that this one speaks none.
        (TLS, None) => away(
            stream,
            "this coordinator speaks without TLS",
            "it speaks TLS, and this coordinator does not: start it with --tls-cert and --tls-key, or that agent without --tls-ca",
        ),
        _ => Err(Away {
            stream: None,
            words: Vec::new(),
            reason: "it speaks neither HTTP/2 nor TLS; agents join here, and nothing else is served".into(),
        }),
    }
}

/// The shortest HTTP/2 that tells a client why it is not served: settings, and a GOAWAY with a text.
fn goodbye(text: &str) -> Vec<u8> {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const INADEQUATE_SECURITY: u32 = 0xc;
    let mut frames = SETTINGS.to_vec();
    let length = 8 + text.len() as u32;
    frames.extend_from_slice(&length.to_be_bytes()[1..]);
    frames.extend_from_slice(&[7, 0, 0, 0, 0, 0]);
    frames.extend_from_slice(&0u32.to_be_bytes());
    frames.extend_from_slice(&INADEQUATE_SECURITY.to_be_bytes());
    frames.extend_from_slice(text.as_bytes());
    frames
}

/// Says the last words and closes. What the peer still sends is read for a moment: a socket that is closed on unread
/// bytes is reset, and the reset overtakes the words.
async fn part(mut stream: TcpStream, words: &[u8]) {
    let parting = async {
        stream.write_all(words).await?;
        stream.shutdown().await?;
        let mut ignored = [0; 4096];
        while stream.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    // It was turned away: whether it heard why is its own affair.
    let _ = tokio::time::timeout(LINGER, parting).await;
}
