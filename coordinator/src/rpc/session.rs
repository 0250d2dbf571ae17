//! The control service: sessions, clock probes, slices and workloads.

mod pace;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::fleet::Introduction;
use common::ids::{Epoch, Incarnation};
use prost::Message;
use proto::v1::fleet_server::Fleet;
use proto::v1::{
    AgentMessage, CoordinatorMessage, Hello, Lease, ProbeReply, ProbeRequest, Refused, SlicePage,
    SliceRequest, Welcome, WorkloadChunk, WorkloadRequest, agent_message, coordinator_message, refused,
};
use proto::{PROTOCOL_VERSION, convert};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Response, Status, Streaming};

use super::admission::caller;
use super::guest::Guest;
use super::{Shared, data, translate};
use crate::fleet::{FleetEvent, HEARTBEAT, LEASE, ORDERS, Refusal};
use pace::Pace;

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
        let peer = request.extensions().get::<Guest>().map(Guest::peer);
        let mut inbound = request.into_inner();
        // Orders and leases that wait for the network; the fleet's own limit is the smaller one.
        let (outbound, answers) = mpsc::channel(ORDERS * 2);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let first = tokio::time::timeout(shared.limits.hello_within, inbound.message()).await;
            let no_hello = |why: &str| {
                peer.iter().for_each(|peer| shared.turned_away(*peer, why));
                Err(Status::deadline_exceeded(why))
            };
            let hello = match first {
                Ok(Ok(Some(AgentMessage { kind: Some(agent_message::Kind::Hello(hello)) }))) => hello,
                // It went away.
                Ok(Ok(None)) => return,
                Ok(Err(status)) => {
                    _ = outbound.send(no_hello(&format!("no hello came: {}", status.message()))).await;
                    return;
                }
                Ok(Ok(Some(_))) => {
                    _ = outbound.send(no_hello("no hello came, but something else")).await;
                    return;
                }
                Err(_) => {
                    _ = outbound.send(no_hello("no hello came in time")).await;
                    return;
                }
            };
            let number = shared.sessions.fetch_add(1, Ordering::Relaxed);
            match welcome(&shared, hello, number).await {
                Ok(Welcomed { introduction, orders, silent }) => {
                    let (pace, courier) = (Pace::new(shared.clock.monotonic()), silent.is_some());
                    let session =
                        Session { shared, number, introduction, inbound, outbound, peer, pace, courier };
                    session.run(orders).await
                }
                Err(refused) => {
                    // Who waits for a place asks again and again: that is no news.
                    if let (Some(peer), false) = (peer, refused.reason() == refused::Reason::Full) {
                        shared.turned_away(peer, &refused.message);
                    }
                    _ = outbound.send(answer(coordinator_message::Kind::Refused(refused))).await;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn probe(
        &self,
        request: Request<Streaming<ProbeRequest>>,
    ) -> Result<Response<Self::ProbeStream>, Status> {
        let caller = caller(&request)?;
        let mut inbound = request.into_inner();
        let clock = Arc::clone(&self.shared.clock);
        // The agent sends a probe when it has the answer to the one before.
        let (replies, answers) = mpsc::channel(1);
        tokio::spawn(async move {
            let _under_way = caller;
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
        let caller = caller(&request)?;
        let request = request.into_inner();
        let agent = convert::agent_name(&request.agent, "SliceRequest")?;
        caller.is(&request.agent, "SliceRequest")?;
        let slice = self.shared.offer().slices.get(&(agent, Epoch(request.epoch))).cloned();
        let slice =
            slice.ok_or_else(|| Status::not_found("this trial has no slice for this agent (any more)"))?;
        Ok(Response::new(Box::pin(data::pages(slice).map(move |page| (page, &caller).0))))
    }

    async fn workload(
        &self,
        request: Request<WorkloadRequest>,
    ) -> Result<Response<Self::WorkloadStream>, Status> {
        let caller = caller(&request)?;
        let digest = convert::sha256(&request.into_inner().sha256, "WorkloadRequest")?;
        let bytes = self.shared.offer().workloads.get(&digest).cloned();
        let bytes = bytes.ok_or_else(|| Status::not_found("no such workload"))?;
        Ok(Response::new(Box::pin(data::chunks(bytes).map(move |chunk| (chunk, &caller).0))))
    }
}

/// Who was let in.
struct Welcomed {
    introduction: Introduction,
    orders: mpsc::Receiver<crate::fleet::ToAgent>,
    /// Of a courier, which is no member: what would send it orders, and never does. Its session lasts as long.
    silent: Option<mpsc::Sender<crate::fleet::ToAgent>>,
}

/// The handshake: version first, so that an agent of any version learns why it is not taken.
async fn welcome(shared: &Shared, hello: Hello, session: u64) -> Result<Welcomed, Refused> {
    let refuse = |reason: refused::Reason, message: String| Refused { reason: reason.into(), message };
    if hello.protocol_version != PROTOCOL_VERSION {
        let message = format!(
            "it speaks protocol {} (version {}) and the coordinator {PROTOCOL_VERSION} (version {}); install the same version of both",
            hello.protocol_version,
            convert::shown(&hello.agent_version, 64),
            env!("CARGO_PKG_VERSION")
        );
        return Err(refuse(refused::Reason::Version, message));
    }
    let courier = hello.courier;
    let introduction =
        Introduction::try_from(hello).map_err(|e| refuse(refused::Reason::Invalid, e.to_string()))?;
    if introduction.incarnation == Incarnation(0) {
        // Traces that the coordinator writes itself have it.
        return Err(refuse(refused::Reason::Invalid, "Hello.incarnation: 0 is no agent process".into()));
    }
    let (link, orders) = mpsc::channel(ORDERS);
    if courier {
        // Its pass takes the place of the agent's, so the agent must be gone.
        if shared.passes.is_here(&introduction.name) {
            let message =
                format!("agent {} is here, and delivers what it holds by itself", introduction.name);
            return Err(refuse(refused::Reason::NameTaken, message));
        }
        return Ok(Welcomed { introduction, orders, silent: Some(link) });
    }
    let (answer, answered) = oneshot::channel();
    let at = shared.clock.boottime();
    let event = FleetEvent::Join { introduction: Box::new(introduction.clone()), session, at, link, answer };
    let gone = || refuse(refused::Reason::Full, "the run has ended".into());
    shared.events.send(event).await.map_err(|_| gone())?;
    match answered.await.map_err(|_| gone())? {
        Ok(()) => Ok(Welcomed { introduction, orders, silent: None }),
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
    peer: Option<SocketAddr>,
    pace: Pace,
    /// It is no member: what it says is not heard.
    courier: bool,
}

impl Session {
    async fn run(mut self, mut orders: mpsc::Receiver<crate::fleet::ToAgent>) {
        let (agent, session) = (self.introduction.name.clone(), self.number);
        let pass = self.shared.passes.issue(&agent, self.introduction.incarnation, session);
        let welcome = pass.map(|pass| Welcome {
            coordinator_version: env!("CARGO_PKG_VERSION").into(),
            heartbeat_interval_ns: HEARTBEAT.0,
            lease_ns: LEASE.0,
            coordinator_incarnation: self.shared.incarnation,
            pass,
        });
        let mut open = match welcome {
            Ok(welcome) => self.send(answer(coordinator_message::Kind::Welcome(welcome))).await,
            Err(e) => {
                self.send(Err(Status::internal(format!("no randomness from the system: {e}")))).await;
                false
            }
        };
        while open {
            open = tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.send(Ok(translate::to_agent(order))).await,
                    // The fleet has dropped the agent: lost, or the run is over.
                    None => false,
                },
                message = self.inbound.message() => match message {
                    Ok(Some(message)) => self.hear(message).await,
                    Ok(None) => false,
                    Err(status) => {
                        self.broke(&status);
                        false
                    }
                },
            };
        }
        // What was ordered before the end, a goodbye above all, must still be heard.
        while let Ok(order) = orders.try_recv() {
            self.send(Ok(translate::to_agent(order))).await;
        }
        self.shared.passes.left(&agent, session);
        // The driver has ended: nobody needs to know.
        let _ = self.shared.events.send(FleetEvent::Left { agent, session }).await;
    }

    /// A connection that broke is an agent's bad luck; a message that cannot be taken is its fault.
    fn broke(&self, status: &Status) {
        let agent = &self.introduction.name;
        match (status.code(), self.peer) {
            (Code::OutOfRange | Code::ResourceExhausted | Code::InvalidArgument, Some(peer)) => {
                self.shared.turned_away(peer, &format!("agent {agent}: {}", status.message()));
            }
            _ => tracing::info!(%agent, "the session broke: {}", status.message()),
        }
    }

    /// Ends the session with a reason that both sides see.
    async fn refuse(&self, status: Status) -> bool {
        if let Some(peer) = self.peer {
            let agent = &self.introduction.name;
            self.shared.turned_away(peer, &format!("agent {agent}: {}", status.message()));
        }
        self.send(Err(status)).await;
        false
    }

    async fn send(&self, message: Result<CoordinatorMessage, Status>) -> bool {
        // An agent that does not read is no agent any more; its lease will run out, too.
        let sent = tokio::time::timeout(self.shared.limits.hear_within, self.outbound.send(message)).await;
        matches!(sent, Ok(Ok(())))
    }

    async fn hear(&mut self, message: AgentMessage) -> bool {
        if !self.pace.take(message.encoded_len() as u64, self.shared.clock.monotonic()) {
            return self.refuse(Status::resource_exhausted("it says more than a session may")).await;
        }
        let Some(kind) = message.kind.filter(|_| !self.courier) else { return true };
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
            Err(e) => self.refuse(e.into()).await,
        }
    }
}
