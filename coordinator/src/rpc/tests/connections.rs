//! Connections that say nothing, the wrong thing, or are too many.

use std::time::Duration;

use proto::v1::{AgentMessage, Heartbeat, agent_message};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::house::{House, PATIENCE};
use crate::rpc::Limits;

/// Reads until the other side closes.
async fn closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut read = Vec::new();
    // A reset is an end, too.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("it is closed");
    read
}

const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn who_is_silent_or_shows_no_token_is_closed_and_holds_up_nobody() {
    let short = Duration::from_millis(200);
    let limits = Limits { handshake_within: short, prove_within: short, ..Limits::default() };
    let house = House::with(limits).await;
    let mut known = house.join("a", 5).await;
    let dial = || TcpStream::connect(house.address);
    let (mut silent, mut no_call) = (dial().await.unwrap(), dial().await.unwrap());
    no_call.write_all(HTTP2).await.unwrap();
    house.join("b", 6).await;
    closed(&mut silent).await;
    closed(&mut no_call).await;
    // One that has shown the token is here for longer than those were, as quiet as they, and stays.
    let beat = agent_message::Kind::Heartbeat(Heartbeat { number: 1, progress: None });
    known.outbox.send(AgentMessage { kind: Some(beat) }).await.unwrap();
    let lease = tokio::time::timeout(PATIENCE, known.inbound.message()).await.unwrap();
    assert!(lease.unwrap().is_some(), "an honest session was ended");
}

#[tokio::test]
async fn who_speaks_something_else_is_told_or_closed() {
    let house = House::open().await;
    let mut web = TcpStream::connect(house.address).await.unwrap();
    web.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(closed(&mut web).await.is_empty());
    let mut tls = TcpStream::connect(house.address).await.unwrap();
    tls.write_all(b"\x16\x03\x01\x02\x00\x01").await.unwrap();
    let said = closed(&mut tls).await;
    assert!(String::from_utf8_lossy(&said).contains("without TLS"), "{said:?}");
}

#[tokio::test]
async fn strangers_fill_their_own_places_only_for_a_while() {
    let limits = Limits {
        strangers: 4,
        connections: 6,
        handshake_within: Duration::from_millis(500),
        ..Limits::default()
    };
    let house = House::with(limits).await;
    let _known = house.join("a", 5).await;
    let mut strangers = Vec::new();
    for _ in 0..4 {
        strangers.push(TcpStream::connect(house.address).await.unwrap());
    }
    // One more is closed before it has said anything; those before it when their time is up.
    let mut more = TcpStream::connect(house.address).await.unwrap();
    closed(&mut more).await;
    for stranger in &mut strangers {
        closed(stranger).await;
    }
    house.join("b", 6).await;
}
