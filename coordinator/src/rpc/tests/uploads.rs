//! Traces and telemetry that are not the sender's to send.

use common::ids::{Incarnation, Nanos, Seq};
use common::telemetry::series::{self, Frame};
use common::telemetry::{EventKind, Record};
use common::trace::segment::MAX_BLOCK_BYTES;
use proto::v1::{RecordBatch, TraceBatch, trace_ack};
use tonic::{Code, Status};

use super::house::{House, Joined, RUN, TOKEN, block, name, with};
use crate::rpc::Limits;
use crate::rpc::limits::{MAX_BATCH_MESSAGE, MAX_FRAMES};

fn batch(agent: &str, incarnation: u64, blocks: Vec<Vec<u8>>) -> TraceBatch {
    TraceBatch { run_id: RUN.into(), agent: agent.into(), incarnation, blocks }
}

async fn upload(house: &House, joined: &Joined, batch: TraceBatch) -> Result<trace_ack::Kind, Status> {
    let mut client = house.telemetry().await.max_encoding_message_size(usize::MAX);
    let acks = client.upload(with(tokio_stream::iter([batch]), TOKEN, &joined.pass)).await?;
    Ok(acks.into_inner().message().await?.unwrap().kind.unwrap())
}

#[tokio::test]
async fn an_agent_uploads_its_own_traces_and_nobody_elses() {
    let house = House::open().await;
    let a = house.join("a", 5).await;
    let honest = block("a", 5, 0, &[0, 2, 4], |_| {});
    assert_eq!(
        upload(&house, &a, batch("a", 5, vec![honest.clone()])).await.unwrap(),
        trace_ack::Kind::UpTo(3)
    );
    let refused = [
        ("another's name", batch("b", 5, vec![]), Code::PermissionDenied, "another agent"),
        (
            "the coordinator's incarnation",
            batch("a", 0, vec![]),
            Code::PermissionDenied,
            "the coordinator's own",
        ),
        (
            "another's block",
            batch("a", 5, vec![block("b", 6, 3, &[1], |_| {})]),
            Code::PermissionDenied,
            "another agent",
        ),
        (
            "another's arrival",
            batch("a", 5, vec![block("a", 5, 3, &[6, 7], |_| {})]),
            Code::PermissionDenied,
            "arrival 7",
        ),
        (
            "an arrival of nobody",
            batch("a", 5, vec![block("a", 5, 3, &[u64::MAX], |_| {})]),
            Code::PermissionDenied,
            "is not one",
        ),
        (
            "a coordinator's trace",
            batch("a", 5, vec![block("a", 5, 3, &[6], |t| t.facts.synthetic = true)]),
            Code::PermissionDenied,
            "synthetic",
        ),
        (
            "a block of too many",
            batch("a", 5, vec![block("a", 5, 3, &(0..65).map(|n| n % 50 * 2).collect::<Vec<_>>(), |_| {})]),
            Code::InvalidArgument,
            "65 traces",
        ),
        ("no block", batch("a", 5, vec![b"nonsense".to_vec()]), Code::DataLoss, "TraceBatch.blocks"),
        (
            "bytes after it",
            batch("a", 5, vec![[&honest[..], b"x"].concat()]),
            Code::DataLoss,
            "after the block",
        ),
        (
            "another run",
            TraceBatch { run_id: "r-2".into(), ..batch("a", 5, vec![]) },
            Code::FailedPrecondition,
            "this run",
        ),
        ("a name that is none", batch("../a", 5, vec![]), Code::InvalidArgument, "TraceBatch.agent"),
    ];
    for (what, batch, code, words) in refused {
        let status = upload(&house, &a, batch).await.expect_err(what);
        assert_eq!(status.code(), code, "{what}: {status}");
        assert!(status.message().contains(words), "{what}: {status}");
    }
    // What an earlier process of the same agent left is that agent's to bring.
    let left = upload(&house, &a, batch("a", 6, vec![])).await.unwrap();
    assert_eq!(left, trace_ack::Kind::UpTo(0));
    // And twice is enough, under however many names of its own: the house's slice has 50 arrivals.
    let all: Vec<u64> = (0..50).map(|n| n * 2).collect();
    for (incarnation, taken) in [(7, true), (8, true), (9, false)] {
        let again = block("a", incarnation, 0, &all[..47], |_| {});
        match upload(&house, &a, batch("a", incarnation, vec![again])).await {
            Ok(kind) => assert_eq!((kind, taken), (trace_ack::Kind::UpTo(47), true)),
            Err(status) => assert_eq!((status.code(), taken), (Code::ResourceExhausted, false)),
        }
    }
    // Nothing of it was taken, and what was is still there.
    assert_eq!(house.ingest.mark(&name("a"), Incarnation(5)), Seq(3));
    assert_eq!(house.ingest.counters().traces, 3 + 2 * 47);
    house.shared.open_trial(None);
    let late = upload(&house, &a, batch("a", 5, vec![block("a", 5, 3, &[6], |_| {})])).await.unwrap_err();
    assert_eq!(late.code(), Code::FailedPrecondition, "{late}");
}

#[tokio::test]
async fn a_batch_beyond_the_limit_is_refused_and_the_agent_goes_on() {
    let house = House::open().await;
    let a = house.join("a", 5).await;
    let huge = batch("a", 5, vec![vec![0; MAX_BATCH_MESSAGE]]);
    let status = upload(&house, &a, huge).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    // A length that no block has, in a message that is small enough.
    let mut lies = block("a", 5, 0, &[0], |_| {});
    lies[..4].copy_from_slice(&(MAX_BLOCK_BYTES as u32 + 1).to_le_bytes());
    assert_eq!(upload(&house, &a, batch("a", 5, vec![lies])).await.unwrap_err().code(), Code::DataLoss);
    // A small block that unpacks to much: a message of one letter, many times.
    let bomb = block("a", 5, 0, &[0], |t| {
        t.facts.finish_reason = Some("x".repeat(17 << 20));
    });
    assert!(bomb.len() < 1 << 20, "it is not small: {} bytes", bomb.len());
    let status = upload(&house, &a, batch("a", 5, vec![bomb])).await.unwrap_err();
    assert!(status.code() == Code::DataLoss && status.message().contains("facts"), "{status}");
    let honest = block("a", 5, 0, &[0], |_| {});
    assert_eq!(upload(&house, &a, batch("a", 5, vec![honest])).await.unwrap(), trace_ack::Kind::UpTo(1));
}

/// Stamps are the agent's word, and stored as they are; `common/tests/absurd_stamps.rs` says what is made of them.
#[tokio::test]
async fn absurd_stamps_are_stored() {
    let house = House::open().await;
    let a = house.join("a", 5).await;
    let absurd = block("a", 5, 0, &[0, 2], |t| {
        t.clocks.scheduled = Nanos::MAX;
        t.clocks.released = Some(Nanos(0));
        t.clocks.connected = Some(Nanos::MAX);
        t.clocks.finished = Nanos(1);
        t.facts.response_bytes = u64::MAX;
    });
    assert_eq!(upload(&house, &a, batch("a", 5, vec![absurd])).await.unwrap(), trace_ack::Kind::UpTo(2));
}

fn frame(first: u64) -> Vec<u8> {
    let (kind, message) = (EventKind::Running, "x".repeat(100));
    let event = common::telemetry::Event { at: Nanos(1), gpu: None, kind, code: None, message };
    let records = vec![Record::Event(event)];
    series::encode(&Frame { agent: name("a"), incarnation: Incarnation(5), first_seq: Seq(first), records })
        .unwrap()
}

#[tokio::test]
async fn a_flood_of_telemetry_ends_at_the_limit() {
    let limits = Limits { telemetry_bytes: 3_000, ..Limits::default() };
    let house = House::with(limits).await;
    let a = house.join("a", 5).await;
    let record = async |agent: &str, frames: Vec<Vec<u8>>| {
        let batch = RecordBatch { run_id: RUN.into(), agent: agent.into(), incarnation: 5, frames };
        house.telemetry().await.record(with(batch, TOKEN, &a.pass)).await
    };
    let foreign = record("b", vec![]).await.unwrap_err();
    assert_eq!(foreign.code(), Code::PermissionDenied, "{foreign}");
    let many = record("a", vec![Vec::new(); MAX_FRAMES + 1]).await.unwrap_err();
    assert_eq!(many.code(), Code::InvalidArgument, "{many}");
    let mut kept = 0;
    let status = loop {
        match record("a", vec![frame(kept)]).await {
            Ok(ack) => kept = ack.into_inner().up_to,
            Err(status) => break status,
        }
    };
    assert!(kept > 0 && kept < 100, "{kept} frames were kept");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("3000 bytes"), "{status}");
}
