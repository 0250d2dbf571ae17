//! The wire: gRPC services that turn messages into domain events and back.
//!
//! Owns the generated types on the coordinator's side, and everything that stands between the network and the rest: who
//! may connect, who may call, and how much a peer may send. It decides nothing about trials: it hands on and answers.
//!
//! - `door` accepts connections, with `tls` where that is wanted; `guest` is one of them.
//! - `admission` checks the token and the pass of every call, in front of the services.
//! - `session`, `upload` and `record` are the services; `data` is what agents fetch.
//! - `limits` holds every number, `notices` says who was turned away.
//!
//! Must never: let a call reach a service that `admission` has not seen, or keep something of a peer that no limit bounds.
//! `tests` plays peers that do not keep to the protocol.

mod admission;
mod data;
mod door;
mod guest;
pub mod limits;
mod notices;
mod record;
mod session;
#[cfg(test)]
mod tests;
mod tls;
mod translate;
mod upload;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use common::clock::Clock;
use common::ids::{AgentName, Digest, Epoch, RunId, TrialId};
use common::schedule::Arrival;
use proto::v1::fleet_server::FleetServer;
use proto::v1::telemetry_server::TelemetryServer;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::interceptor::InterceptedService;

pub use door::Door;
pub use guest::Wire;
pub use limits::Limits;
pub use tls::ServerTls;

use crate::fleet::FleetEvent;
use crate::ingest::IngestHandle;
use crate::live::Tap;
use crate::store::TelemetrySink;
use admission::{Gate, Passes};
use guest::Lobby;
use notices::Notices;

/// Connections that have shaken hands and wait for the server: it takes them at once.
const READY: usize = 16;

/// What agents may fetch and where their traces go. Changed by the driver, read by the services.
#[derive(Default)]
struct Offer {
    slices: HashMap<(AgentName, Epoch), Arc<[Arrival]>>,
    workloads: HashMap<Digest, Arc<[u8]>>,
    run: Option<OpenRun>,
}

/// The run that takes traces.
#[derive(Clone)]
struct OpenRun {
    id: RunId,
    ingest: IngestHandle,
    telemetry: TelemetrySink,
    /// The trial that is not sealed yet.
    trial: Option<(TrialId, Epoch)>,
    /// What was stored of it.
    stored: Arc<Stored>,
}

/// Traces of the open trial that were stored of each agent.
#[derive(Default)]
struct Stored(Mutex<HashMap<AgentName, u64>>);

impl Stored {
    fn counts(&self) -> MutexGuard<'_, HashMap<AgentName, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, agent: &AgentName) -> u64 {
        self.counts().get(agent).copied().unwrap_or(0)
    }

    fn add(&self, agent: &AgentName, traces: u64) {
        *self.counts().entry(agent.clone()).or_default() += traces;
    }
}

/// What all services share.
pub struct Shared {
    clock: Arc<dyn Clock>,
    /// Of the join token.
    token: Option<Digest>,
    incarnation: u64,
    events: mpsc::Sender<FleetEvent>,
    offer: Mutex<Offer>,
    /// Sessions so far: each gets a number of its own.
    sessions: AtomicU64,
    passes: Passes,
    notices: Mutex<Notices>,
    limits: Limits,
    /// Who looks on, if somebody does.
    tap: OnceLock<Tap>,
}

impl Shared {
    /// Services that report to `events` and, with a token, let nobody in without it.
    #[must_use]
    pub fn new(
        clock: Arc<dyn Clock>,
        token: Option<&str>,
        incarnation: u64,
        events: mpsc::Sender<FleetEvent>,
        limits: Limits,
    ) -> Arc<Self> {
        let notices = Mutex::new(Notices::new(clock.monotonic()));
        Arc::new(Self {
            clock,
            token: token.map(|token| Digest::of(token.as_bytes())),
            incarnation,
            events,
            offer: Mutex::default(),
            sessions: AtomicU64::new(0),
            passes: Passes::default(),
            notices,
            limits,
            tap: OnceLock::new(),
        })
    }

    /// Says that a peer was turned away, unless much was said already.
    fn turned_away(&self, peer: SocketAddr, reason: &str) {
        let now = self.clock.monotonic();
        let said = self.notices.lock().unwrap_or_else(PoisonError::into_inner).take(peer.ip(), reason, now);
        match said {
            Some(0) => tracing::warn!("refused {peer}: {reason}"),
            Some(more) => {
                tracing::warn!("refused {peer}: {reason} (and {more} others since the last such line)")
            }
            None => tracing::debug!("refused {peer}: {reason}"),
        }
    }

    fn offer(&self) -> MutexGuard<'_, Offer> {
        self.offer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on what is stored is offered to `tap`, too. The first one stays.
    pub fn tap(&self, tap: Tap) {
        let _ = self.tap.set(tap);
    }

    /// Lets agents fetch a workload.
    pub fn offer_workload(&self, digest: Digest, bytes: Arc<[u8]>) {
        self.offer().workloads.insert(digest, bytes);
    }

    /// Lets each agent fetch its slice of a trial, and only that trial's.
    pub fn offer_slices(&self, epoch: Epoch, slices: impl IntoIterator<Item = (AgentName, Arc<[Arrival]>)>) {
        let mut offer = self.offer();
        offer.slices = slices.into_iter().map(|(agent, slice)| ((agent, epoch), slice)).collect();
    }

    /// From now on traces and telemetry of this run are taken.
    pub fn open_run(&self, id: RunId, ingest: IngestHandle, telemetry: TelemetrySink) {
        self.passes.begin_run();
        self.offer().run = Some(OpenRun { id, ingest, telemetry, trial: None, stored: Arc::default() });
    }

    /// From now on traces of this trial are taken, or of none.
    pub fn open_trial(&self, trial: Option<(TrialId, Epoch)>) {
        if let Some(run) = &mut self.offer().run {
            run.trial = trial;
            run.stored = Arc::default();
        }
    }

    /// No traces are taken any more.
    pub fn close_run(&self) {
        self.offer().run = None;
    }
}

/// Serves agents that come in through `doors` until `shutdown` completes.
///
/// # Errors
/// When the transport fails.
pub async fn serve(
    doors: Vec<Door>,
    shared: Arc<Shared>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let lobby = Lobby::new(shared.limits);
    let (ready, connections) = mpsc::channel(READY);
    let mut attendants = JoinSet::new();
    for door in doors {
        attendants.spawn(door::attend(door, Arc::clone(&shared), Arc::clone(&lobby), ready.clone()));
    }
    drop(ready);
    let fleet = FleetServer::new(session::FleetService::new(Arc::clone(&shared)))
        .max_decoding_message_size(limits::MAX_CONTROL_MESSAGE);
    let telemetry = TelemetryServer::new(upload::TelemetryService::new(Arc::clone(&shared)))
        .max_decoding_message_size(limits::MAX_BATCH_MESSAGE);
    let gate = |pass_required| Gate { shared: Arc::clone(&shared), pass_required };
    tonic::transport::Server::builder()
        // An agent whose host died never closes its connections.
        .http2_keepalive_interval(Some(std::time::Duration::from_secs(5)))
        .http2_keepalive_timeout(Some(std::time::Duration::from_secs(10)))
        .initial_stream_window_size(limits::STREAM_WINDOW)
        .initial_connection_window_size(limits::CONNECTION_WINDOW)
        .max_concurrent_streams(limits::MAX_STREAMS)
        .http2_max_header_list_size(limits::MAX_METADATA_BYTES)
        .add_service(InterceptedService::new(fleet, gate(false)))
        .add_service(InterceptedService::new(telemetry, gate(true)))
        .serve_with_incoming_shutdown(ReceiverStream::new(connections), async {
            shutdown.await;
            // No more is accepted; who is here is served to the end.
            attendants.abort_all();
        })
        .await
}

/// Binds the control port.
///
/// # Errors
/// A message that says which address and why.
pub async fn bind(listen: &str) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(listen).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow::anyhow!("--listen {listen}: the port is in use; is another coordinator running?")
        }
        _ => anyhow::anyhow!("--listen {listen}: {e}"),
    })?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}
