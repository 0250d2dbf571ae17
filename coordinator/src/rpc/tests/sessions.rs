//! Sessions that are not what a session should be.

use proto::PROTOCOL_VERSION;
use proto::v1::{
    AgentMessage, CoordinatorMessage, Heartbeat, Hello, TargetReport, TrialFailed, agent_message::Kind,
    coordinator_message, refused::Reason,
};
use tonic::{Code, Status, Streaming};

use super::house::{House, PATIENCE, hello};
use crate::rpc::Limits;
use crate::rpc::limits::MAX_CONTROL_MESSAGE;

async fn next(inbound: &mut Streaming<CoordinatorMessage>) -> Result<Option<CoordinatorMessage>, Status> {
    tokio::time::timeout(PATIENCE, inbound.message()).await.expect("the coordinator says something")
}

async fn first_words(house: &House, first: Kind) -> Result<(Reason, String), Status> {
    let (_outbox, mut inbound) = house.say(first).await;
    match next(&mut inbound).await?.and_then(|m| m.kind) {
        Some(coordinator_message::Kind::Refused(r)) => Ok((r.reason(), r.message)),
        other => panic!("not refused: {other:?}"),
    }
}

fn changed(change: fn(&mut Hello)) -> Kind {
    let Kind::Hello(mut h) = hello("a", 5) else { panic!("hello is a hello") };
    change(&mut h);
    Kind::Hello(h)
}

#[tokio::test]
async fn a_hello_that_cannot_be_taken_is_refused_with_what_to_do() {
    let house = House::open().await;
    let (reason, message) =
        first_words(&house, changed(|h| h.protocol_version = PROTOCOL_VERSION + 1)).await.unwrap();
    assert_eq!(reason, Reason::Version);
    assert!(message.contains("install the same version"), "{message}");
    // One of the future may fill fields in ways that are not understood: it still learns why.
    let future = changed(|h| {
        h.protocol_version = 99;
        h.agent_version = "\u{1b}[2Jx".repeat(500);
        h.host = None;
    });
    let (reason, message) = first_words(&house, future).await.unwrap();
    assert!(reason == Reason::Version && message.len() < 500 && !message.contains('\u{1b}'), "{message:?}");
    for (change, field) in [
        ((|h| h.host = None) as fn(&mut Hello), "Hello.host"),
        (|h| h.name = "../../x".into(), "Hello.name"),
        (|h| h.incarnation = 0, "Hello.incarnation"),
        (|h| h.agent_version = "9".repeat(5_000), "Hello.agent_version"),
    ] {
        let (reason, message) = first_words(&house, changed(change)).await.unwrap();
        assert_eq!(reason, Reason::Invalid);
        assert!(message.contains(field), "{message}");
    }
    let status = first_words(&house, Kind::Heartbeat(Heartbeat::default())).await.unwrap_err();
    assert!(status.message().contains("no hello"), "{status}");
}

#[tokio::test]
async fn a_name_is_not_taken_from_the_process_that_has_it() {
    let house = House::open().await;
    let mut first = house.join("a", 5).await;
    let (reason, message) = first_words(&house, hello("a", 6)).await.unwrap();
    assert_eq!(reason, Reason::NameTaken);
    assert!(message.contains("--name"), "{message}");
    let beat = Kind::Heartbeat(Heartbeat { number: 1, progress: None });
    first.outbox.send(AgentMessage { kind: Some(beat) }).await.unwrap();
    let lease = next(&mut first.inbound).await.unwrap().unwrap().kind;
    assert!(matches!(lease, Some(coordinator_message::Kind::Lease(l)) if l.number == 1), "{lease:?}");
}

#[tokio::test]
async fn a_session_without_a_hello_ends() {
    let limits = Limits { hello_within: std::time::Duration::from_millis(50), ..Limits::default() };
    let house = House::with(limits).await;
    let (outbox, messages) = tokio::sync::mpsc::channel::<AgentMessage>(1);
    let call =
        super::house::with(tokio_stream::wrappers::ReceiverStream::new(messages), super::house::TOKEN, "");
    let mut inbound = house.fleet().await.session(call).await.unwrap().into_inner();
    let status = next(&mut inbound).await.unwrap_err();
    assert!(status.message().contains("no hello came in time"), "{status}");
    drop(outbox);
}

/// What ends a session, with the words that its agent reads.
async fn ended(house: &House, messages: impl Iterator<Item = Kind>, read: bool) -> Option<Status> {
    let mut joined = house.join("a", 5).await;
    let outbox = joined.outbox;
    let speaking = async {
        for kind in messages {
            if outbox.send(AgentMessage { kind: Some(kind) }).await.is_err() {
                // Why is about to be read, where somebody reads.
                return if read {
                    std::future::pending().await
                };
            }
        }
        panic!("it was all taken");
    };
    let listening = async {
        if !read {
            return std::future::pending().await;
        }
        loop {
            match joined.inbound.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    };
    let end = async {
        tokio::select! {
            status = listening => status,
            () = speaking => None,
        }
    };
    tokio::time::timeout(PATIENCE, end).await.expect("the session ends")
}

#[tokio::test]
async fn a_session_that_says_too_much_or_too_much_at_once_is_ended() {
    let house = House::open().await;
    let beats = std::iter::repeat_with(|| Kind::Heartbeat(Heartbeat { number: 0, progress: None }));
    let status = ended(&house, beats.take(1_000_000), true).await.unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let long = Kind::TrialFailed(TrialFailed { message: "x".repeat(100_000), ..TrialFailed::default() });
    let status = ended(&house, std::iter::once(long).chain(endless()), true).await.unwrap();
    assert!(status.message().contains("TrialFailed.message: 100000 bytes"), "{status}");
    let huge = "x".repeat(MAX_CONTROL_MESSAGE);
    let huge = Kind::TrialFailed(TrialFailed { message: huge, ..TrialFailed::default() });
    ended(&house, std::iter::once(huge).chain(endless()), true).await;
    let models = TargetReport { models: vec![String::new(); 2_000], ..TargetReport::default() };
    let status =
        ended(&house, std::iter::once(Kind::TargetReport(models)).chain(endless()), true).await.unwrap();
    assert!(status.message().contains("TargetReport.models"), "{status}");
    // Everybody else is served as before.
    house.join("b", 9).await;
}

fn endless() -> impl Iterator<Item = Kind> {
    std::iter::repeat_with(|| Kind::Heartbeat(Heartbeat { number: 0, progress: None })).take(1_000_000)
}

/// An agent that never reads what it is told costs its answers' buffer, and then its session.
#[tokio::test]
async fn a_session_that_never_reads_is_ended() {
    let limits = Limits { hear_within: std::time::Duration::from_millis(100), ..Limits::default() };
    let house = House::with(limits).await;
    let beats = (1..).map(|number| Kind::Heartbeat(Heartbeat { number, progress: None }));
    ended(&house, beats.take(1_000_000), false).await;
    house.join("b", 9).await;
}
