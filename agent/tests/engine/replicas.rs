//! Several engines: each arrival goes to the one that the schedule's digest names, and to no other.

use std::sync::Arc;

use agent::engine::{
    Access, AllowedTarget, AllowedTargets, ClientConfig, Engine, Outgoing, Replicas, TrialClock,
};
use common::clock::{Clock, SystemClock};
use common::ids::{ArrivalIndex, Digest};
use common::plan::Target;
use common::trace::{FailureKind, Unsent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::support::{UNSENT, listen, target};

/// An engine that answers every request on a connection of its own with a status that is its name.
async fn refuses_with(listener: TcpListener, status: u16) {
    while let Ok((mut socket, _)) = listener.accept().await {
        let mut request = [0; 4096];
        let _ = socket.read(&mut request).await;
        let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let _ = socket.write_all(answer.as_bytes()).await;
    }
}

fn config(target: Target, access: Access) -> ClientConfig {
    let (agent, run) = ("a1".parse().unwrap(), "run-1".parse().unwrap());
    ClientConfig { target, access, agent, run, trial: "0".into() }
}

fn clock() -> TrialClock {
    let system = Arc::new(SystemClock);
    TrialClock::new(system.clone(), system.monotonic())
}

#[tokio::test]
async fn each_arrival_reaches_the_engine_that_the_digest_names() {
    let statuses = [521_u16, 522, 523];
    let mut urls = Vec::new();
    for status in statuses {
        let (listener, port) = listen().await;
        tokio::spawn(refuses_with(listener, status));
        urls.push(target(port).base_url);
    }
    let several = Target { replicas: urls[1..].to_vec(), ..target(urls[0].port()) };
    let schedule = Digest::of(b"a schedule");
    let engines = Replicas::new(&config(several, Access::default()), schedule, &clock()).unwrap();
    let named = common::replicas::Replicas::new(schedule, &urls);
    let (_keep, mut never) = watch::channel(false);
    let mut reached = std::collections::BTreeSet::new();
    for index in 0..40 {
        let unsent = Unsent { index: ArrivalIndex(index), ..UNSENT };
        let request =
            Outgoing { unsent, released: unsent.scheduled, waited_for_permit: false, body: "{}".into() };
        let trace = engines.send(request, &mut never).await;
        assert_eq!(trace.facts.http_status, Some(statuses[named.of(index)]), "arrival {index}");
        reached.extend(trace.facts.http_status);
    }
    assert_eq!(reached.len(), statuses.len(), "not every engine was asked");
    assert_eq!(engines.clients().len(), statuses.len());
}

/// One of them that is not permitted, wherever it stands, and nothing is sent to any.
#[tokio::test]
async fn an_agent_that_may_not_send_to_one_sends_to_none() {
    let (listener, port) = listen().await;
    let allowed: AllowedTarget = format!("127.0.0.1:{port}").parse().unwrap();
    let access = Access { allowed: AllowedTargets::new([allowed]), ..Access::default() };
    let other = "http://127.0.0.2:9".parse().unwrap();
    let several = Target { replicas: vec![other], ..target(port) };
    let refused = Replicas::new(&config(several, access), Digest::of(b""), &clock()).unwrap_err();
    assert!(refused.to_string().contains("127.0.0.2:9"), "{refused}");
    let asked = tokio::time::timeout(std::time::Duration::ZERO, listener.accept()).await;
    assert!(asked.is_err(), "a connection was made");
}

#[tokio::test]
async fn an_engine_that_cannot_be_reached_fails_the_warming() {
    let (listener, port) = listen().await;
    let (gone, no_port) = listen().await;
    drop(gone);
    let several = Target { replicas: vec![target(no_port).base_url], ..target(port) };
    let engines = Replicas::new(&config(several, Access::default()), Digest::of(b""), &clock()).unwrap();
    let failure = engines.warm(4).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Connect);
    assert!(failure.message.contains(&no_port.to_string()), "{}", failure.message);
    drop(listener);
}
