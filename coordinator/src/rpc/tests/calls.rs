//! Token, pass and number of calls.

use common::ids::Digest;
use proto::v1::{FatesRequest, ProbeRequest, RecordBatch, SliceRequest, TraceBatch, WorkloadRequest};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use super::house::{EPOCH, House, PATIENCE, TOKEN, with};
use crate::rpc::limits::{MAX_CALLS_PER_AGENT, MAX_REFUSALS};

/// Every call that there is.
const CALLS: [&str; 7] = ["Session", "Probe", "Slice", "Workload", "Upload", "Record", "Fates"];

/// Makes a call, and says how it was refused. A call of its own connection: too many refusals end one.
async fn refused(house: &House, call: &str, token: &str, pass: &str) -> Option<Status> {
    let (mut fleet, mut telemetry) = (house.fleet().await, house.telemetry().await);
    let workload = WorkloadRequest { sha256: Digest::of(b"rows").to_string() };
    match call {
        "Session" => fleet.session(with(tokio_stream::empty(), token, pass)).await.err(),
        "Probe" => {
            let probes = tokio_stream::iter([ProbeRequest { number: 1 }]);
            fleet.probe(with(probes, token, pass)).await.err()
        }
        "Slice" => {
            let request = SliceRequest { agent: "a".into(), epoch: EPOCH.0 };
            fleet.slice(with(request, token, pass)).await.err()
        }
        "Workload" => fleet.workload(with(workload, token, pass)).await.err(),
        "Upload" => {
            let batch = TraceBatch {
                run_id: "r-1".into(),
                agent: "a".into(),
                incarnation: 5,
                ..TraceBatch::default()
            };
            match telemetry.upload(with(tokio_stream::iter([batch]), token, pass)).await {
                Ok(acks) => acks.into_inner().message().await.err(),
                Err(status) => Some(status),
            }
        }
        "Record" => {
            let batch = RecordBatch {
                run_id: "r-1".into(),
                agent: "a".into(),
                incarnation: 5,
                ..RecordBatch::default()
            };
            telemetry.record(with(batch, token, pass)).await.err()
        }
        "Fates" => {
            let request = FatesRequest { run_id: "r-1".into(), trials: Vec::new() };
            telemetry.fates(with(request, token, pass)).await.err()
        }
        other => panic!("no call {other}"),
    }
}

/// The list above is all: a call that is added to the protocol must be added here.
#[test]
fn every_call_of_the_protocol_is_tried() {
    let files = [
        include_str!("../../../../proto/proto/plimsoll/v1/fleet.proto"),
        include_str!("../../../../proto/proto/plimsoll/v1/telemetry.proto"),
    ];
    let calls = files.iter().flat_map(|text| text.lines()).filter_map(|l| l.trim().strip_prefix("rpc "));
    let mut calls: Vec<&str> = calls.filter_map(|l| Some(l.split_once('(')?.0)).collect();
    let mut tried = CALLS.to_vec();
    calls.sort_unstable();
    tried.sort_unstable();
    assert_eq!(calls, tried);
}

#[tokio::test]
async fn no_call_is_served_without_the_token_nor_with_another() {
    let house = House::open().await;
    let joined = house.join("a", 5).await;
    for call in CALLS {
        let status = refused(&house, call, "", &joined.pass).await.expect(call);
        assert_eq!(
            (status.code(), status.message().contains("no join token")),
            (Code::Unauthenticated, true)
        );
        let same_length = "tok-of-the-tesT";
        for wrong in ["x", same_length, &TOKEN.repeat(9)] {
            let status = refused(&house, call, wrong, &joined.pass).await.expect(call);
            assert_eq!(status.code(), Code::Unauthenticated, "{call}");
            assert!(status.message().contains("token is wrong"), "{call}: {status}");
            assert!(!status.message().contains(wrong), "a token was repeated");
        }
        assert!(refused(&house, call, TOKEN, &joined.pass).await.is_none(), "{call} is refused with both");
    }
}

#[tokio::test]
async fn every_call_but_the_first_wants_the_pass_of_a_session() {
    let house = House::open().await;
    let first = house.join("a", 5).await;
    for call in CALLS.into_iter().filter(|call| *call != "Session") {
        for pass in ["", "0123456789abcdef0123456789abcdef"] {
            let status = refused(&house, call, TOKEN, pass).await.expect(call);
            assert_eq!(
                (status.code(), status.message().contains("pass")),
                (Code::Unauthenticated, true),
                "{call}"
            );
        }
    }
    // The same process, over another connection: the old pass is good no more.
    let second = house.join("a", 5).await;
    assert!(refused(&house, "Slice", TOKEN, &first.pass).await.is_some());
    assert!(refused(&house, "Slice", TOKEN, &second.pass).await.is_none());
    // And not for another agent's.
    let other = house.join("b", 6).await;
    let status = refused(&house, "Slice", TOKEN, &other.pass).await.unwrap();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
}

#[tokio::test]
async fn an_agent_has_so_many_calls_at_once_and_more_when_one_ends() {
    let house = House::open().await;
    let joined = house.join("a", 5).await;
    let mut open = Vec::new();
    for _ in 0..MAX_CALLS_PER_AGENT {
        let (probes, outgoing) = mpsc::channel(1);
        let mut client = house.fleet().await;
        let replies = client.probe(with(ReceiverStream::new(outgoing), TOKEN, &joined.pass)).await.unwrap();
        open.push((probes, replies.into_inner()));
    }
    let status = refused(&house, "Record", TOKEN, &joined.pass).await.unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("agent a has 8 calls"), "{status}");
    open.pop();
    let ends = async {
        while refused(&house, "Record", TOKEN, &joined.pass).await.is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ends).await.expect("an ended call gives its place back");
}

/// Who guesses gets few guesses a connection.
#[tokio::test]
async fn a_connection_that_is_refused_too_often_is_closed() {
    let house = House::open().await;
    let mut client = house.fleet().await;
    let mut refusals = 0;
    let guessing = async {
        loop {
            let request = WorkloadRequest { sha256: Digest::of(b"rows").to_string() };
            match client.workload(with(request, "guess", "")).await.unwrap_err().code() {
                Code::Unauthenticated => refusals += 1,
                _ => break,
            }
        }
    };
    tokio::time::timeout(PATIENCE, guessing).await.expect("the connection is closed");
    assert!((1..=MAX_REFUSALS + 1).contains(&refusals), "{refusals} guesses were answered");
}
