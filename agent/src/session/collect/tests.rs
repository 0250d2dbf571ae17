//! A whole agent, led by a coordinator that says what it is told to, over connections that end when it is told to.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Condvar, Mutex, PoisonError};

use common::clock::SystemClock;
use common::disk::{DiskFile, SimDisk};
use common::fleet::{HostFacts, Introduction};
use common::ids::Incarnation;
use proto::v1::agent_message::Kind as Said;
use proto::v1::coordinator_message::Kind as Told;
use proto::v1::fleet_server::{Fleet, FleetServer};
use proto::v1::telemetry_server::TelemetryServer;
use proto::v1::{
    AgentMessage, Collect, CoordinatorMessage, Observe, ProbeReply, ProbeRequest, Sealed, SlicePage,
    SliceRequest, Welcome, WorkloadChunk, WorkloadRequest,
};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use super::*;
use crate::session::backlog::tests::{Coordinator, DIR, Mood, left};
use crate::session::{Access, AgentConfig, Dial, run};
use crate::spool::held;

type Answers<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;
type Orders = mpsc::Sender<Result<CoordinatorMessage, Status>>;

/// Leads one agent: gives each of its sessions, as the way to tell it something and to hear it.
#[derive(Clone)]
struct Leader(mpsc::Sender<(Orders, Streaming<AgentMessage>)>);

#[tonic::async_trait]
impl Fleet for Leader {
    type SessionStream = Answers<CoordinatorMessage>;
    type ProbeStream = Answers<ProbeReply>;
    type SliceStream = Answers<SlicePage>;
    type WorkloadStream = Answers<WorkloadChunk>;

    async fn session(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (orders, told) = mpsc::channel(8);
        let welcome = Welcome {
            coordinator_version: "1".into(),
            heartbeat_interval_ns: 100_000_000,
            lease_ns: 15_000_000_000,
            coordinator_incarnation: 7,
            pass: "p".into(),
        };
        tell(&orders, Told::Welcome(welcome)).await;
        let _ = self.0.send((orders, request.into_inner())).await;
        Ok(Response::new(Box::pin(ReceiverStream::new(told))))
    }

    async fn probe(
        &self,
        _: Request<Streaming<ProbeRequest>>,
    ) -> Result<Response<Self::ProbeStream>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn slice(&self, _: Request<SliceRequest>) -> Result<Response<Self::SliceStream>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn workload(&self, _: Request<WorkloadRequest>) -> Result<Response<Self::WorkloadStream>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

async fn tell(orders: &Orders, kind: Told) {
    orders.send(Ok(CoordinatorMessage { kind: Some(kind) })).await.unwrap();
}

async fn hear(said: &mut Streaming<AgentMessage>) -> Said {
    said.message().await.unwrap().unwrap().kind.unwrap()
}

/// A disk that lists nothing until it may.
struct Slow {
    disk: SimDisk,
    may: Arc<(Mutex<bool>, Condvar)>,
}

impl Disk for Slow {
    fn open(&self, path: &Path) -> std::io::Result<Box<dyn DiskFile>> {
        self.disk.open(path)
    }
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        self.disk.read(path)
    }
    fn replace(&self, path: &Path, content: &[u8]) -> std::io::Result<()> {
        self.disk.replace(path, content)
    }
    fn create_dir_all(&self, path: &Path) -> std::io::Result<()> {
        self.disk.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> std::io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn list(&self, path: &Path) -> std::io::Result<Vec<PathBuf>> {
        let (may, changed) = &*self.may;
        let guard = may.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(guard, |may| !*may));
        self.disk.list(path)
    }
    fn remove(&self, path: &Path) -> std::io::Result<()> {
        self.disk.remove(path)
    }
    fn remove_dir_all(&self, path: &Path) -> std::io::Result<()> {
        self.disk.remove_dir_all(path)
    }
}

struct House {
    disk: SimDisk,
    may: Arc<(Mutex<bool>, Condvar)>,
    stored: Coordinator,
    sessions: mpsc::Receiver<(Orders, Streaming<AgentMessage>)>,
    _end: watch::Sender<u8>,
}

/// An agent with 70 traces of trial 0 and 3 of trial 1 of run r in its spool, of a process that is gone.
async fn house() -> House {
    let disk = SimDisk::default();
    left(&disk, &[(0, 70), (1, 3)], 0).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let join = listener.local_addr().unwrap().to_string();
    let stored = Coordinator { mood: Mood::Honest, stored: Arc::default() };
    let (sender, sessions) = mpsc::channel(4);
    let server = tonic::transport::Server::builder()
        .add_service(FleetServer::new(Leader(sender)))
        .add_service(TelemetryServer::new(stored.clone()));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let may: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let config = AgentConfig {
        dial: Dial { join, tls: None, token: None },
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
        spool: DIR.into(),
        once: false,
        access: Access::default(),
        clock: Arc::new(SystemClock),
        disk: Arc::new(Slow { disk: disk.clone(), may: Arc::clone(&may) }),
        outside: Arc::new(crate::outside::Host::default()),
        engine: None,
        gpu: None,
    };
    let (end, shutdown) = watch::channel(0);
    tokio::spawn(run(config, shutdown));
    House { disk, may, stored, sessions, _end: end }
}

impl House {
    fn let_it_list(&self) {
        *self.may.0.lock().unwrap() = true;
        self.may.1.notify_all();
    }

    /// Trials of which segments are there; none while one is being removed.
    fn held(&self) -> Vec<u32> {
        let (agent, run) = ("a".parse().unwrap(), "r".parse().unwrap());
        let held = held::backlogs(&self.disk, Path::new(DIR), &agent, &run).unwrap_or_default();
        held.iter().flat_map(|b| &b.segments).map(|s| s.origin.trial.0).collect()
    }
}

fn collect() -> Told {
    Told::Collect(Collect { run_id: "r".into(), trial: 0, epoch: 1 })
}

async fn collected(said: &mut Streaming<AgentMessage>) {
    while !matches!(hear(said).await, Said::Collected(_)) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_disk_does_not_keep_an_agent_from_saying_that_it_lives() {
    let mut house = house().await;
    let (orders, mut said) = house.sessions.recv().await.unwrap();
    tell(&orders, collect()).await;
    for _ in 0..5 {
        let said = hear(&mut said).await;
        assert!(!matches!(said, Said::Collected(_)), "its disk has said nothing yet");
    }
    house.let_it_list();
    collected(&mut said).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_collected_outlives_a_connection_and_goes_when_it_is_sealed() {
    let mut house = house().await;
    house.let_it_list();
    let (orders, mut said) = house.sessions.recv().await.unwrap();
    tell(&orders, collect()).await;
    collected(&mut said).await;
    drop((orders, said));
    let (orders, _said) = house.sessions.recv().await.unwrap();
    // It is not told again, and delivers over the new connection.
    let all = |house: &House| house.stored.stored.lock().unwrap().get(&7).map_or(0, Vec::len) == 70;
    while !all(&house) {
        tokio::task::yield_now().await;
    }
    tell(&orders, Told::Sealed(Sealed { epoch: 1 })).await;
    while house.held() != [1] {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sealed_unheard_goes_when_the_run_goes_on() {
    let mut house = house().await;
    house.let_it_list();
    let (orders, _said) = house.sessions.recv().await.unwrap();
    assert_eq!(house.held(), [0, 1]);
    // The coordinator says that trial 0 is sealed, and 1 is not.
    tell(&orders, Told::Observe(Observe { run_id: "r".into(), ..Observe::default() })).await;
    while house.held() != [1] {
        tokio::task::yield_now().await;
    }
}
