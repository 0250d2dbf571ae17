//! No bytes whatever make the measured path panic, nor hang, nor end without a trace.

use agent::engine::events::classify;
use agent::engine::sse::Event;
use agent::engine::stream::{BodyEnd, Read, Rules};
use common::ids::Nanos;
use common::trace::{Failure, FailureKind};
use proptest::prelude::*;
use std::time::Duration;

use super::support::{RULES, Rig, listen, read_request, target, written};

/// Bytes that look more or less like a stream.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let json = prop_oneof![
        Just(String::from("null")),
        Just(String::from("[DONE]")),
        Just(String::from("{\"choices\":[{\"index\":0,\"text\":\"a\",\"token_ids\":[1]}]}")),
        Just(String::from("{\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}")),
        Just(String::from("{\"choices\":[],\"usage\":{\"completion_tokens\":18446744073709551615}}")),
        Just(String::from("{\"error\":{}}")),
        "\\{\"(choices|usage|error|timings|object)\":(\\[|\\{|1|\"a\"|null)(\\]|\\}|)\\}",
        Just(format!("{}1{}", "[".repeat(300), "]".repeat(300))),
        Just(format!("{{\"choices\":{}}}", "[".repeat(300))),
        "\\PC{0,20}",
    ];
    let piece = prop_oneof![
        4 => json.prop_map(|j| format!("data: {j}\n\n").into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => Just(b"event: error\r\n".to_vec()),
        1 => Just(b"\r".to_vec()),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|p| p.concat())
}

fn endings() -> impl Strategy<Value = BodyEnd> {
    prop_oneof![
        Just(BodyEnd::Clean),
        Just(BodyEnd::Truncated),
        Just(BodyEnd::Broken(Failure::new(FailureKind::Reset, "x"))),
    ]
}

proptest! {
    #[test]
    fn a_stream_of_noise_ends_in_a_trace(
        pieces in proptest::collection::vec(noise(), 0..6),
        status in prop_oneof![Just(200u16), any::<u16>()],
        steps in proptest::collection::vec(any::<u64>(), 6),
        end in endings(),
        keep_text in any::<bool>(),
    ) {
        let rules = Rules { keep_text, ignore_eos: true, ..RULES };
        let mut stream = written(rules);
        stream.on_head(Nanos(20), status, None);
        let mut at = Nanos(20);
        for (number, (piece, step)) in (1..).zip(pieces.iter().zip(&steps)) {
            at = at + Nanos(step % 1_000_000_000);
            stream.on_read(Read { at, number }, piece);
        }
        stream.on_end(at, end);
        prop_assert!(stream.is_decided());
        let trace = stream.finish(None);
        prop_assert!(trace.clocks.finished <= at);
        prop_assert_eq!(trace.facts.response_bytes as usize, pieces.iter().map(Vec::len).sum::<usize>());
        if trace.facts.outcome.is_success() {
            prop_assert!(!trace.clocks.content.is_empty() && (200..300).contains(&status));
        }
    }

    #[test]
    fn events_of_noise_are_classified(name in "(|error|message|x)", data in noise(), error in noise()) {
        let _ = classify(Event { name: name.as_bytes(), data: &data, comment: b"", error: &error });
    }

    #[test]
    fn a_stream_without_an_end_is_a_failure(piece in noise()) {
        let mut stream = written(RULES);
        stream.on_head(Nanos(20), 200, None);
        stream.on_read(Read { at: Nanos(30), number: 1 }, &piece);
        let decided = stream.is_decided();
        prop_assert!(decided || !stream.finish(None).facts.outcome.is_success());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_socket_full_of_noise_ends_in_a_trace(
        begin in prop_oneof![
            Just(""),
            Just("HTTP/1.1 200 OK\r\n\r\n"),
            Just("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\ndata:"),
            Just("HTTP/1.1 204 None\r\n"),
            Just("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"),
        ],
        pieces in proptest::collection::vec(noise(), 0..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (listener, port) = listen().await;
            tokio::spawn(async move {
                let (mut socket, _) = listener.accept().await.unwrap();
                read_request(&mut socket).await;
                use tokio::io::AsyncWriteExt;
                let _ = socket.write_all(begin.as_bytes()).await;
                for piece in pieces {
                    let _ = socket.write_all(&piece).await;
                    tokio::task::yield_now().await;
                }
            });
            let rig = Rig::new(target(port));
            let trace = tokio::time::timeout(Duration::from_secs(30), rig.send()).await.expect("it hangs");
            assert!(trace.clocks.finished >= trace.clocks.written.unwrap());
        });
    }
}
