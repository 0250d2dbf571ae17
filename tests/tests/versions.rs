//! Two versions that do not understand each other say so, on both sides, and whoever cannot go on ends.
//!
//! The other version is played byte by byte: it is none that this workspace could build.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use plimsoll_tests::{Agent, Coordinator, Engine};

/// Of HTTP/2: what a client says first, and the types of frames.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header field that no table knows, or one whose name is at `index` of the static one.
fn field(index: &[u8], name: Option<&str>, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat();
    [index, &name.map(text).unwrap_or_default(), &text(value)].concat()
}

/// A field of protobuf that is bytes.
fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(content.len()).expect("short")], content].concat()
}

/// A message of gRPC, on the first stream.
fn message(content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("short").to_be_bytes();
    frame(DATA, 0, 1, &[&[0], &length[..], content].concat())
}

/// Reads until the other side has said `text`.
fn read_until(stream: &mut TcpStream, text: &[u8]) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let (mut heard, mut buffer) = (Vec::new(), [0; 4096]);
    while !heard.windows(text.len()).any(|part| part == text) {
        match stream.read(&mut buffer) {
            Ok(n @ 1..) => heard.extend_from_slice(&buffer[..n]),
            other => panic!("{other:?} after {}", String::from_utf8_lossy(&heard)),
        }
    }
    heard
}

/// The first words of an agent of protocol 99 that is known by another name, and has fields that nobody knows here.
fn future_agent(coordinator: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(coordinator).expect("the coordinator listens");
    // POST and http.
    let headers = [
        vec![0x83, 0x86],
        field(&[4], None, "/plimsoll.v1.Fleet/Session"),
        field(&[1], None, "coordinator"),
        field(&[0], Some("content-type"), "application/grpc"),
        field(&[0], Some("te"), "trailers"),
    ];
    let version = [8, 99];
    let hello = [&version[..], &bytes(2, b"9.9.9"), &bytes(3, b"from-the-future"), &bytes(15, b"?")].concat();
    let words = [
        PREFACE.to_vec(),
        frame(SETTINGS, 0, 0, &[]),
        frame(HEADERS, END_HEADERS, 1, &headers.concat()),
        message(&bytes(1, &hello)),
    ];
    stream.write_all(&words.concat()).expect("it takes the call");
    stream
}

#[test]
fn a_coordinator_tells_an_agent_of_another_protocol_what_to_do_and_goes_on() {
    let engine = Engine::start(&["--fixed-ttft-ms", "5"]);
    let mut running = Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .line("--rates 20 --requests 20 --repeats 1 --agents 1 --listen 127.0.0.1:0 --max-tokens 2")
        .start();
    let address = running.join_address();
    let mut stranger = future_agent(address);
    let heard = read_until(&mut stranger, b"install the same version of both");
    let heard = String::from_utf8_lossy(&heard);
    assert!(heard.contains("it speaks protocol 99 (version 9.9.9) and the coordinator"), "{heard}");
    running.process.expect_said("it speaks protocol 99 (version 9.9.9)");
    // One of its own version is taken all the same.
    let agent = Agent::start("of-today", address, &["--once"]);
    let finished = running.finish().expect_code(0);
    finished.expect_said(&["of-today joined (1 of 1)"]);
    let _ = agent.process.wait();
}

#[test]
fn an_agent_that_a_coordinator_of_another_protocol_refuses_says_why_and_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let agent = Agent::start("of-today", address, &[]);
    let (mut stream, _) = listener.accept().expect("the agent dials");
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).expect("it reads");
    // Its hello holds its name.
    read_until(&mut stream, b"of-today");
    let why = b"it speaks protocol 2 and the coordinator 99; install the same version of both";
    let refused = [&[8, 1], bytes(2, why).as_slice()].concat();
    let headers = [vec![0x88], field(&[0], Some("content-type"), "application/grpc")].concat();
    let words = [frame(HEADERS, END_HEADERS, 1, &headers), message(&bytes(2, &refused))].concat();
    stream.write_all(&words).expect("it reads");
    let ended = agent.process.wait();
    assert_eq!(ended.code, Some(1), "{}", ended.story());
    assert!(ended.stderr.contains("and the coordinator 99; install the same version"), "{}", ended.story());
    assert!(ended.stderr.contains(&address.to_string()), "it does not say whose words: {}", ended.story());
}
