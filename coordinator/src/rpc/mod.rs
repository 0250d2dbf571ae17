//! The wire: gRPC services that turn messages into domain events and back.
//!
//! Owns the generated types on the coordinator's side, the join token's check and the limits on what a peer may send.
//! It decides nothing about trials: it hands on and answers.

mod data;
mod record;
mod session;
mod translate;
mod upload;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::clock::Clock;
use common::ids::{AgentName, Digest, Epoch, RunId, TrialId};
use common::schedule::Arrival;
use proto::TOKEN_METADATA;
use proto::v1::fleet_server::FleetServer;
use proto::v1::telemetry_server::TelemetryServer;
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Status};

use crate::fleet::FleetEvent;
use crate::ingest::IngestHandle;
use crate::store::TelemetrySink;

/// Largest message of any kind: a batch of traces with one very large block.
const MAX_MESSAGE: usize = common::trace::segment::MAX_BLOCK_BYTES + (1 << 20);

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
}

/// What all services share.
pub struct Shared {
    clock: Arc<dyn Clock>,
    token: Option<String>,
    incarnation: u64,
    events: mpsc::Sender<FleetEvent>,
    offer: Mutex<Offer>,
    /// Sessions so far: each gets a number of its own.
    sessions: AtomicU64,
}

impl Shared {
    /// Services that report to `events` and, with a token, let nobody in without it.
    #[must_use]
    pub fn new(
        clock: Arc<dyn Clock>,
        token: Option<String>,
        incarnation: u64,
        events: mpsc::Sender<FleetEvent>,
    ) -> Arc<Self> {
        Arc::new(Self {
            clock,
            token,
            incarnation,
            events,
            offer: Mutex::default(),
            sessions: AtomicU64::new(0),
        })
    }

    fn offer(&self) -> MutexGuard<'_, Offer> {
        self.offer.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.offer().run = Some(OpenRun { id, ingest, telemetry, trial: None });
    }

    /// From now on traces of this trial are taken, or of none.
    pub fn open_trial(&self, trial: Option<(TrialId, Epoch)>) {
        if let Some(run) = &mut self.offer().run {
            run.trial = trial;
        }
    }

    /// No traces are taken any more.
    pub fn close_run(&self) {
        self.offer().run = None;
    }

    /// Refuses a call without the join token. The comparison takes as long for a wrong token as for the right one.
    fn admit<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let Some(token) = &self.token else { return Ok(()) };
        let given = request.metadata().get(TOKEN_METADATA).map(|v| v.as_bytes()).unwrap_or_default();
        if bool::from(given.ct_eq(token.as_bytes())) {
            return Ok(());
        }
        let text = if given.is_empty() {
            "this coordinator wants a join token: set PLIMSOLL_TOKEN or --token-file on the agent"
        } else {
            "the join token is wrong: compare PLIMSOLL_TOKEN or --token-file with what the coordinator printed"
        };
        Err(Status::unauthenticated(text))
    }
}

/// Serves agents on `listener` until `shutdown` completes.
///
/// # Errors
/// When the transport fails.
pub async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let fleet =
        FleetServer::new(session::FleetService::new(Arc::clone(&shared))).max_decoding_message_size(1 << 20);
    let telemetry =
        TelemetryServer::new(upload::TelemetryService::new(shared)).max_decoding_message_size(MAX_MESSAGE);
    tonic::transport::Server::builder()
        .tcp_nodelay(true)
        // An agent whose host died never closes its connections.
        .http2_keepalive_interval(Some(std::time::Duration::from_secs(5)))
        .http2_keepalive_timeout(Some(std::time::Duration::from_secs(10)))
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20)
        .add_service(fleet)
        .add_service(telemetry)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), shutdown)
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
