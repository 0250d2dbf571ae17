//! Coordinators that are broken, or worse: each is refused with what was wrong, before it costs memory.

use std::pin::Pin;
use std::sync::Arc;

use common::clock::SystemClock;
use common::disk::OsDisk;
use common::fleet::{HostFacts, Introduction, TrialOrder, Upload};
use common::ids::{ArrivalIndex, Digest, Epoch, Incarnation, Nanos, TrialId};
use common::plan::Target;
use common::schedule::{self, Arrival};
use proto::v1::fleet_server::{Fleet, FleetServer};
use proto::v1::{
    AgentMessage, CoordinatorMessage, ProbeReply, ProbeRequest, Refused, SlicePage, SliceRequest, Welcome,
    WorkloadChunk, WorkloadRequest, coordinator_message::Kind, refused,
};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};

use super::fetch::fetch;
use super::join::join;
use super::limits::{MAX_CONTROL_MESSAGE, MAX_DATA_MESSAGE};
use super::{AgentConfig, AgentError, JoinError};

type Answers<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;

/// Says the same to everybody.
#[derive(Clone)]
struct Rogue {
    first: Kind,
    pages: Vec<SlicePage>,
    chunks: Vec<Vec<u8>>,
}

fn all<T: Send + 'static>(messages: Vec<T>) -> Result<Response<Answers<T>>, Status> {
    Ok(Response::new(Box::pin(tokio_stream::iter(messages.into_iter().map(Ok)))))
}

#[tonic::async_trait]
impl Fleet for Rogue {
    type SessionStream = Answers<CoordinatorMessage>;
    type ProbeStream = Answers<ProbeReply>;
    type SliceStream = Answers<SlicePage>;
    type WorkloadStream = Answers<WorkloadChunk>;

    async fn session(
        &self,
        _: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        all(vec![CoordinatorMessage { kind: Some(self.first.clone()) }])
    }

    async fn probe(
        &self,
        _: Request<Streaming<ProbeRequest>>,
    ) -> Result<Response<Self::ProbeStream>, Status> {
        all(Vec::new())
    }

    async fn slice(&self, _: Request<SliceRequest>) -> Result<Response<Self::SliceStream>, Status> {
        all(self.pages.clone())
    }

    async fn workload(&self, _: Request<WorkloadRequest>) -> Result<Response<Self::WorkloadStream>, Status> {
        all(self.chunks.iter().map(|data| WorkloadChunk { data: data.clone() }).collect())
    }
}

struct House {
    config: AgentConfig,
    _spool: TempDir,
    server: JoinHandle<()>,
}

impl Drop for House {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn house(rogue: Rogue) -> House {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = FleetServer::new(rogue).max_encoding_message_size(usize::MAX);
    let serving = tonic::transport::Server::builder()
        .add_service(service)
        .serve_with_incoming(TcpListenerStream::new(listener));
    let server = tokio::spawn(async move { serving.await.unwrap() });
    let spool = TempDir::new().unwrap();
    let config = AgentConfig {
        dial: super::Dial { join: address.to_string(), tls: None, token: None },
        introduction: Introduction {
            version: "1".into(),
            name: "a".parse().unwrap(),
            incarnation: Incarnation(5),
            host: HostFacts::default(),
            observer: false,
            engine: None,
            gpu: false,
            calibration: None,
        },
        spool: spool.path().to_owned(),
        once: true,
        access: super::Access::default(),
        clock: Arc::new(SystemClock),
        disk: Arc::new(OsDisk),
        outside: Arc::new(crate::outside::Host::default()),
        engine: None,
        gpu: None,
    };
    House { config, _spool: spool, server }
}

fn welcome() -> Welcome {
    Welcome {
        coordinator_version: "1".into(),
        heartbeat_interval_ns: 1_000_000_000,
        lease_ns: 15_000_000_000,
        coordinator_incarnation: 7,
        pass: "p".into(),
    }
}

/// How joining ends: whether it is tried again, and the words.
async fn joins(first: Kind) -> (bool, String) {
    let house = house(Rogue { first, pages: Vec::new(), chunks: Vec::new() }).await;
    match join(&house.config).await {
        Ok(_) => panic!("it joined"),
        Err(JoinError::Again(why)) => (true, why),
        Err(JoinError::Fatal(e @ AgentError::Refused { .. })) => (false, e.to_string()),
        Err(JoinError::Fatal(e)) => panic!("{e}"),
    }
}

#[tokio::test]
async fn a_welcome_that_makes_no_sense_is_no_welcome() {
    let (again, why) = joins(Kind::Welcome(Welcome { lease_ns: u64::MAX, ..welcome() })).await;
    assert!(again && why.contains("lease"), "{why}");
    let (again, why) = joins(Kind::Welcome(Welcome { heartbeat_interval_ns: 1, ..welcome() })).await;
    assert!(again && why.contains("heartbeat"), "{why}");
    let huge = Welcome { coordinator_version: "x".repeat(MAX_CONTROL_MESSAGE), ..welcome() };
    let (again, why) = joins(Kind::Welcome(huge)).await;
    assert!(again && why.contains("too large") && why.len() < 1_000, "{why}");
}

#[tokio::test]
async fn another_version_ends_the_agent_with_what_to_do() {
    let message = format!("install the same version of both\u{1b}[2J{}", "x".repeat(100_000));
    let refused = Refused { reason: refused::Reason::Version.into(), message };
    let (again, why) = joins(Kind::Refused(refused)).await;
    assert!(!again && why.contains("install the same version"), "{why}");
    assert!(!why.contains('\u{1b}') && why.len() < 10_000, "{} bytes", why.len());
}

const ROWS: &[u8] = b"{\"prompt\": \"one\", \"max_tokens\": 1}\n";

fn arrivals() -> Vec<Arrival> {
    (0..3).map(|n| Arrival { index: ArrivalIndex(n), at: Nanos(n), row: 0 }).collect()
}

/// What comes of fetching what this coordinator serves, under an order that was changed.
async fn fetched(change: impl Fn(&mut TrialOrder, &mut Rogue)) -> Result<(), String> {
    let slice = arrivals();
    let mut order = TrialOrder {
        run: "r-1".parse().unwrap(),
        trial: TrialId(0),
        epoch: Epoch(1),
        target: Target::plain("http://127.0.0.1:1".parse().unwrap()),
        workload: Digest::of(ROWS),
        workload_bytes: ROWS.len() as u64,
        schedule: Digest::of(b"s"),
        slice: schedule::digest(&slice),
        slice_count: 3,
        permits: None,
        warmup: Vec::new(),
        warm_connections: 0,
        closed: false,
        upload: Upload::During,
    };
    let mut rogue = Rogue {
        first: Kind::Welcome(welcome()),
        pages: vec![slice.as_slice().into()],
        chunks: vec![ROWS.to_vec()],
    };
    change(&mut order, &mut rogue);
    let house = house(rogue).await;
    let Ok(link) = join(&house.config).await else { panic!("it did not join") };
    let (name, config) = (house.config.introduction.name.clone(), &house.config);
    let fetched = fetch(order, name, link.control, Arc::clone(&config.disk), config.spool.clone()).await;
    fetched.map(|_| ())
}

#[tokio::test]
async fn an_order_that_is_not_what_was_announced_is_refused_by_name() {
    fetched(|_, _| ()).await.unwrap();
    let said = async |change: fn(&mut TrialOrder, &mut Rogue)| fetched(change).await.unwrap_err();
    let other = said(|_, r| r.chunks = vec![ROWS.to_ascii_uppercase()]).await;
    assert!(other.contains("not the one that was announced"), "{other}");
    let longer = said(|_, r| r.chunks = vec![ROWS.to_vec(); 3]).await;
    assert!(longer.contains("longer than announced"), "{longer}");
    let endless = said(|o, _| o.workload_bytes = u64::MAX).await;
    assert!(endless.contains("more than the"), "{endless}");
    let chunk = said(|o, r| {
        r.chunks = vec![vec![b' '; MAX_DATA_MESSAGE]];
        o.workload_bytes = u64::from(u32::MAX);
    })
    .await;
    assert!(chunk.contains("too large"), "{chunk}");
    let many = said(|o, _| o.slice_count = u64::MAX).await;
    assert!(many.contains("more than the"), "{many}");
    let more = said(|_, r| r.pages = vec![arrivals().as_slice().into(); 2]).await;
    assert!(more.contains("more than the 3 arrivals"), "{more}");
    let connections = said(|o, _| o.warm_connections = u32::MAX).await;
    assert!(connections.contains("connections"), "{connections}");
    // Digests that fit, of something that no schedule makes.
    let row = said(|o, r| {
        let mut slice = arrivals();
        slice[1].row = 9;
        o.slice = schedule::digest(&slice);
        r.pages = vec![slice.as_slice().into()];
    })
    .await;
    assert!(row.contains("row 9"), "{row}");
}
