//! The control service: sessions, clock probes, slices and workloads.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::fleet::Introduction;
use common::ids::Epoch;
use proto::v1::fleet_server::Fleet;
use proto::v1::{
    AgentMessage, CoordinatorMessage, Hello, Lease, ProbeReply, ProbeRequest, Refused, SlicePage,
    SliceRequest, Welcome, WorkloadChunk, WorkloadRequest, agent_message, coordinator_message, refused,
};
use proto::{PROTOCOL_VERSION, convert};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{Shared, data, translate};
use crate::fleet::{FleetEvent, HEARTBEAT, LEASE, ORDERS, Refusal};

/// An agent that has connected must say hello within this.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

pub(super) struct FleetService {
    shared: Arc<Shared>,
}

impl FleetService {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

fn answer(kind: coordinator_message::Kind) -> Result<CoordinatorMessage, Status> {
    Ok(CoordinatorMessage { kind: Some(kind) })
}

#[tonic::async_trait]
impl Fleet for FleetService {
    type SessionStream = Answers<CoordinatorMessage>;
    type ProbeStream = Answers<ProbeReply>;
    type SliceStream = Answers<SlicePage>;
    type WorkloadStream = Answers<WorkloadChunk>;

    async fn session(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        self.shared.admit(&request)?;
        let mut inbound = request.into_inner();
        // Orders and leases that wait for the network; the fleet's own limit is the smaller one.
        let (outbound, answers) = mpsc::channel(ORDERS * 2);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let first = tokio::time::timeout(HELLO_WITHIN, inbound.message()).await;
            let hello = match first {
                Ok(Ok(Some(AgentMessage { kind: Some(agent_message::Kind::Hello(hello)) }))) => hello,
                _ => {
                    let _ = outbound.send(Err(Status::deadline_exceeded("no hello came"))).await;
                    return;
                }
            };
            let number = shared.sessions.fetch_add(1, Ordering::Relaxed);
            match welcome(&shared, hello, number).await {
                Ok((introduction, orders)) => {
                    Session { shared, number, introduction, inbound, outbound }.run(orders).await
                }
                Err(refused) => _ = outbound.send(answer(coordinator_message::Kind::Refused(refused))).await,
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn probe(
        &self,
        request: Request<Streaming<ProbeRequest>>,
    ) -> Result<Response<Self::ProbeStream>, Status> {
        self.shared.admit(&request)?;
        let mut inbound = request.into_inner();
        let clock = Arc::clone(&self.shared.clock);
        // The agent sends a probe when it has the answer to the one before.
        let (replies, answers) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Ok(Some(probe)) = inbound.message().await {
                let received_ns = clock.monotonic().0;
                let sent_ns = clock.monotonic().0;
                if replies.send(Ok(ProbeReply { number: probe.number, received_ns, sent_ns })).await.is_err()
                {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn slice(&self, request: Request<SliceRequest>) -> Result<Response<Self::SliceStream>, Status> {
        self.shared.admit(&request)?;
        let request = request.into_inner();
        let agent = convert::agent_name(&request.agent, "SliceRequest")?;
        let slice = self.shared.offer().slices.get(&(agent, Epoch(request.epoch))).cloned();
        let slice =
            slice.ok_or_else(|| Status::not_found("this trial has no slice for this agent (any more)"))?;
        Ok(Response::new(Box::pin(data::pages(slice))))
    }

    async fn workload(
        &self,
        request: Request<WorkloadRequest>,
    ) -> Result<Response<Self::WorkloadStream>, Status> {
        self.shared.admit(&request)?;
        let digest = convert::sha256(&request.into_inner().sha256, "WorkloadRequest")?;
        let bytes = self.shared.offer().workloads.get(&digest).cloned();
        let bytes = bytes.ok_or_else(|| Status::not_found("no such workload"))?;
        Ok(Response::new(Box::pin(data::chunks(bytes))))
    }
}

/// The handshake: version first, so that an agent of any version learns why it is not taken.
async fn welcome(
    shared: &Shared,
    hello: Hello,
    session: u64,
) -> Result<(Introduction, mpsc::Receiver<crate::fleet::ToAgent>), Refused> {
    let refuse = |reason: refused::Reason, message: String| Refused { reason: reason.into(), message };
    if hello.protocol_version != PROTOCOL_VERSION {
        let message = format!(
            "it speaks protocol {} (version {}) and the coordinator {PROTOCOL_VERSION} (version {}); install the same version of both",
            hello.protocol_version,
            hello.agent_version,
            env!("CARGO_PKG_VERSION")
        );
        return Err(refuse(refused::Reason::Version, message));
    }
    let introduction =
        Introduction::try_from(hello).map_err(|e| refuse(refused::Reason::Invalid, e.to_string()))?;
    let (link, orders) = mpsc::channel(ORDERS);
    let (answer, answered) = oneshot::channel();
    let at = shared.clock.boottime();
    let event = FleetEvent::Join { introduction: Box::new(introduction.clone()), session, at, link, answer };
    let gone = || refuse(refused::Reason::Full, "the run has ended".into());
    shared.events.send(event).await.map_err(|_| gone())?;
    match answered.await.map_err(|_| gone())? {
        Ok(()) => Ok((introduction, orders)),
        Err(Refusal::NameTaken(message)) => Err(refuse(refused::Reason::NameTaken, message)),
        Err(Refusal::Full(message)) => Err(refuse(refused::Reason::Full, message)),
    }
}

/// A joined agent.
struct Session {
    shared: Arc<Shared>,
    number: u64,
    introduction: Introduction,
    inbound: Streaming<AgentMessage>,
    outbound: mpsc::Sender<Result<CoordinatorMessage, Status>>,
}

impl Session {
    async fn run(mut self, mut orders: mpsc::Receiver<crate::fleet::ToAgent>) {
        let (agent, session) = (self.introduction.name.clone(), self.number);
        let welcome = Welcome {
            coordinator_version: env!("CARGO_PKG_VERSION").into(),
            heartbeat_interval_ns: HEARTBEAT.0,
            lease_ns: LEASE.0,
            coordinator_incarnation: self.shared.incarnation,
        };
        let mut open = self.send(answer(coordinator_message::Kind::Welcome(welcome))).await;
        while open {
            open = tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.send(Ok(translate::to_agent(order))).await,
                    // The fleet has dropped the agent: lost, or the run is over.
                    None => false,
                },
                message = self.inbound.message() => match message {
                    Ok(Some(AgentMessage { kind: Some(kind) })) => self.hear(kind).await,
                    Ok(Some(_)) => true,
                    Ok(None) => false,
                    Err(status) => {
                        tracing::info!(%agent, "the session broke: {}", status.message());
                        false
                    }
                },
            };
        }
        // What was ordered before the end, a goodbye above all, must still be heard.
        while let Ok(order) = orders.try_recv() {
            self.send(Ok(translate::to_agent(order))).await;
        }
        // The driver has ended: nobody needs to know.
        let _ = self.shared.events.send(FleetEvent::Left { agent, session }).await;
    }

    async fn send(&self, message: Result<CoordinatorMessage, Status>) -> bool {
        self.outbound.send(message).await.is_ok()
    }

    async fn hear(&mut self, kind: agent_message::Kind) -> bool {
        let at = self.shared.clock.boottime();
        if let agent_message::Kind::Heartbeat(h) = &kind {
            // Answered here and not by the driver: a busy driver must not cost anybody the lease.
            let lease = coordinator_message::Kind::Lease(Lease { number: h.number });
            if h.number > 0 && !self.send(answer(lease)).await {
                return false;
            }
        }
        match translate::from_agent(kind) {
            Ok(Some(what)) => {
                let agent = self.introduction.name.clone();
                self.shared.events.send(FleetEvent::Said { agent, at, what }).await.is_ok()
            }
            Ok(None) => true,
            Err(e) => {
                let _ = self.send(Err(e.into())).await;
                false
            }
        }
    }
}
