//! Stamps over real sockets. What cannot be known there is when a read happened; what can: never before the bytes
//! were written. (`engine::stamp_tests` knows both, on a scripted socket.)

use common::ids::Nanos;
use tokio::sync::oneshot;

use super::support::{Rig, SSE_HEAD, chunked, ending, listen, read_request, target, token, write};

#[tokio::test]
async fn no_event_is_stamped_before_it_was_written() {
    const EVENTS: usize = 2000;
    let (listener, port) = listen().await;
    let rig = Rig::new(target(port));
    let clock = rig.clock.clone();
    let (sender, written) = oneshot::channel();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        read_request(&mut socket).await;
        write(&mut socket, SSE_HEAD).await;
        let mut instants = Vec::new();
        for i in 0..EVENTS {
            // Each a segment of its own, as fast as they go.
            instants.push(clock.now());
            write(&mut socket, &chunked(&token(&format!("{i} ")))).await;
        }
        write(&mut socket, &chunked(&ending(EVENTS as u32))).await;
        write(&mut socket, "0\r\n\r\n").await;
        sender.send(instants).unwrap();
    });
    let trace = rig.send().await;
    assert!(trace.facts.outcome.is_success(), "{:?}", trace.facts.outcome);
    let stamps: Vec<Nanos> = trace.clocks.content.iter().map(|e| e.at).collect();
    assert_eq!(stamps.len(), EVENTS);
    assert!(stamps.is_sorted() && stamps[EVENTS - 1] <= trace.clocks.finished);
    for (i, (stamp, written)) in stamps.iter().zip(written.await.unwrap()).enumerate() {
        assert!(*stamp >= written, "event {i}");
    }
    let together = stamps.windows(2).filter(|w| w[0] == w[1]).count();
    assert_eq!(trace.facts.coalesced_events as usize, together);
    assert_eq!(trace.text.output, Some((0..EVENTS).map(|i| format!("{i} ")).collect()));
}

#[tokio::test]
async fn events_of_one_segment_share_a_stamp_and_are_marked() {
    let (listener, port) = listen().await;
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        read_request(&mut socket).await;
        let events: String = (0..50).map(|_| chunked(&token("a"))).collect();
        write(&mut socket, &format!("{SSE_HEAD}{events}{}0\r\n\r\n", chunked(&ending(50)))).await;
        read_request(&mut socket).await;
    });
    let trace = Rig::new(target(port)).send().await;
    assert!(trace.facts.outcome.is_success());
    assert_eq!((trace.facts.coalesced_events, trace.facts.stream_coalesced), (49, true));
    assert_eq!(trace.clocks.first_content(), trace.clocks.last_content());
    assert_eq!(trace.clocks.first_content(), trace.clocks.headers);
}
