//! Services with a fleet and an open trial behind them, and raw clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::clock::SystemClock;
use common::disk::OsDisk;
use common::ids::{AgentName, ArrivalIndex, Epoch, Incarnation, Nanos, Seq, TrialId};
use common::schedule::Arrival;
use common::trace::segment::{Block, BlockOrigin};
use common::trace::{Failure, FailureKind, Trace, Unsent};
use proto::v1::fleet_client::FleetClient;
use proto::v1::telemetry_client::TelemetryClient;
use proto::v1::{AgentMessage, CoordinatorMessage, Hello, HostFacts, agent_message, coordinator_message};
use proto::{PASS_METADATA, PROTOCOL_VERSION, TOKEN_METADATA};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Streaming};

use crate::fleet::{EVENTS, Fleet};
use crate::ingest::IngestHandle;
use crate::rpc::{Door, Limits, Shared, serve};
use crate::store::{RunStore, Store};

/// Longer than anything takes that comes at all.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
pub(super) const TOKEN: &str = "tok-of-the-test";
pub(super) const RUN: &str = "r-1";
pub(super) const EPOCH: Epoch = Epoch(3);
pub(super) const TRIAL: TrialId = TrialId(2);

pub(super) struct House {
    pub(super) address: SocketAddr,
    pub(super) shared: Arc<Shared>,
    pub(super) ingest: IngestHandle,
    _run: RunStore,
    _folder: TempDir,
    _end: oneshot::Sender<()>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for House {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The arrivals of this agent: even ones for `a`, odd ones for `b`.
pub(super) fn slice(first: u64) -> Arc<[Arrival]> {
    let arrival = |index| Arrival { index: ArrivalIndex(index), at: Nanos(index * 1_000), row: 0 };
    (0..50).map(|n| arrival(first + 2 * n)).collect()
}

impl House {
    pub(super) async fn open() -> Self {
        Self::with(Limits::default()).await
    }

    pub(super) async fn with(limits: Limits) -> Self {
        let folder = TempDir::new().unwrap();
        let store = Store::open(folder.path(), Arc::new(OsDisk)).unwrap();
        let run = store.create_run(&RUN.parse().unwrap(), Nanos(1)).unwrap();
        let (ingest, sink) = (crate::ingest::start(&run).unwrap(), run.telemetry().unwrap());
        let clock = Arc::new(SystemClock);
        let (events, inbox) = mpsc::channel(EVENTS);
        let shared = Shared::new(clock.clone(), Some(TOKEN), 7, events, limits);
        shared.open_run(RUN.parse().unwrap(), ingest.clone(), sink);
        shared.offer_workload(common::ids::Digest::of(b"rows"), Arc::from(&b"rows"[..]));
        shared.offer_slices(EPOCH, [(name("a"), slice(0)), (name("b"), slice(1))]);
        shared.open_trial(Some((TRIAL, EPOCH)));
        let mut fleet = Fleet::new(Default::default(), 8, inbox, clock);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let serving = serve(vec![Door::Socket { listener, tls: None }], Arc::clone(&shared), async {
            _ = ended.await;
        });
        let server = tokio::spawn(async move { serving.await.unwrap() });
        let driver = tokio::spawn(async move {
            loop {
                fleet.next().await;
            }
        });
        Self { address, shared, ingest, _run: run, _folder: folder, _end: end, tasks: [server, driver] }
    }

    pub(super) async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    pub(super) async fn fleet(&self) -> FleetClient<Channel> {
        FleetClient::new(self.channel().await)
    }

    pub(super) async fn telemetry(&self) -> TelemetryClient<Channel> {
        TelemetryClient::new(self.channel().await)
    }

    /// Joins as an honest agent does.
    pub(super) async fn join(&self, agent: &str, incarnation: u64) -> Joined {
        let (outbox, mut inbound) = self.say(hello(agent, incarnation)).await;
        match inbound.message().await.unwrap().unwrap().kind {
            Some(coordinator_message::Kind::Welcome(w)) => Joined { outbox, inbound, pass: w.pass },
            other => panic!("no welcome: {other:?}"),
        }
    }

    /// Opens a session with the token, and says this first.
    pub(super) async fn say(
        &self,
        first: agent_message::Kind,
    ) -> (mpsc::Sender<AgentMessage>, Streaming<CoordinatorMessage>) {
        let (outbox, messages) = mpsc::channel(4);
        outbox.send(AgentMessage { kind: Some(first) }).await.unwrap();
        let call = with(ReceiverStream::new(messages), TOKEN, "");
        let inbound = self.fleet().await.session(call).await.unwrap().into_inner();
        (outbox, inbound)
    }
}

pub(super) struct Joined {
    pub(super) outbox: mpsc::Sender<AgentMessage>,
    pub(super) inbound: Streaming<CoordinatorMessage>,
    pub(super) pass: String,
}

pub(super) fn name(text: &str) -> AgentName {
    text.parse().unwrap()
}

/// A call with this token and this pass; without those that are empty.
pub(super) fn with<T>(message: T, token: &str, pass: &str) -> Request<T> {
    let mut request = Request::new(message);
    for (key, value) in [(TOKEN_METADATA, token), (PASS_METADATA, pass)] {
        if !value.is_empty() {
            request.metadata_mut().insert(key, value.parse().unwrap());
        }
    }
    request
}

pub(super) fn hello(agent: &str, incarnation: u64) -> agent_message::Kind {
    agent_message::Kind::Hello(Hello {
        protocol_version: PROTOCOL_VERSION,
        agent_version: "1".into(),
        name: agent.into(),
        incarnation,
        host: Some(HostFacts { hostname: "h".into(), ..HostFacts::default() }),
        ..Hello::default()
    })
}

/// A block of failed requests for these arrivals, changed as a peer might.
pub(super) fn block(
    agent: &str,
    incarnation: u64,
    first: u64,
    indices: &[u64],
    change: impl Fn(&mut Trace),
) -> Vec<u8> {
    let origin =
        BlockOrigin { agent: name(agent), incarnation: Incarnation(incarnation), trial: TRIAL, epoch: EPOCH };
    let trace = |&index: &u64| {
        let unsent = Unsent { index: ArrivalIndex(index), ..Unsent::default() };
        let failure = Failure::new(FailureKind::ALL[0], "x");
        let mut trace = Trace::unsent(unsent, failure, Nanos(9));
        change(&mut trace);
        trace
    };
    let traces: Vec<Trace> = indices.iter().map(trace).collect();
    Block::encode(&origin, Seq(first), &traces).unwrap().bytes().to_vec()
}
