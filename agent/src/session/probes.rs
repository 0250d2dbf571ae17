//! Keeping the clock model: probes over a connection of their own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::clock::Clock;
use common::ids::Nanos;
use common::offset::{Estimate, Model, Probe};
use proto::v1::ProbeRequest;
use proto::v1::fleet_client::FleetClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::join::Wire;

/// Probes in a burst: enough that one of them is not delayed by anything.
const BURST: u64 = 24;
/// Between two single probes while a session lasts.
const EVERY: Duration = Duration::from_secs(5);
/// After a probe that failed.
const AGAIN: Duration = Duration::from_secs(1);
/// An answer that takes longer bounds nothing that is worth knowing.
const DEADLINE: Duration = Duration::from_secs(2);

/// The coordinator's clock as this agent knows it. Clones share it.
#[derive(Clone)]
pub(super) struct ClockModel {
    clock: Arc<dyn Clock>,
    model: Arc<Mutex<Model>>,
}

impl ClockModel {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, model: Arc::default() }
    }

    /// Another coordinator has another clock.
    pub(super) fn forget(&self) {
        *self.lock() = Model::default();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The offset now; none before the first probe.
    pub(super) fn estimate(&self) -> Option<Estimate> {
        self.lock().estimate(self.clock.monotonic())
    }

    /// Sends a burst of probes and waits for their answers.
    pub(super) async fn burst(&self, wire: Wire) -> Result<Estimate, String> {
        let mut probes = Probes::open(self.clone(), wire).await?;
        for number in 0..BURST {
            probes.one(number).await?;
        }
        self.estimate().ok_or_else(|| "no clock probe was usable".to_owned())
    }

    /// Probes now and then until the task is dropped. A probe that fails costs this one, not those after it.
    pub(super) async fn keep(self, wire: Wire) {
        loop {
            match Probes::open(self.clone(), wire.clone()).await {
                Ok(mut probes) => {
                    for number in 0.. {
                        if let Err(e) = probes.one(number).await {
                            tracing::warn!("a clock probe failed: {e}");
                            break;
                        }
                        tokio::time::sleep(EVERY).await;
                    }
                }
                Err(e) => tracing::warn!("no clock probes: {e}"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

struct Probes {
    clock: ClockModel,
    requests: mpsc::Sender<ProbeRequest>,
    replies: tonic::Streaming<proto::v1::ProbeReply>,
}

impl Probes {
    async fn open(clock: ClockModel, wire: Wire) -> Result<Self, String> {
        // One probe is under way at a time.
        let (requests, stream) = mpsc::channel(1);
        let mut client = FleetClient::new(wire);
        let opened = client.probe(ReceiverStream::new(stream));
        let replies = tokio::time::timeout(DEADLINE, opened)
            .await
            .map_err(|_| "no answer to clock probes".to_owned())?;
        let replies = replies.map_err(|s| s.message().to_owned())?.into_inner();
        Ok(Self { clock, requests, replies })
    }

    async fn one(&mut self, number: u64) -> Result<(), String> {
        let sent = self.clock.clock.monotonic();
        self.requests.send(ProbeRequest { number }).await.map_err(|_| "the connection is gone".to_owned())?;
        let reply = tokio::time::timeout(DEADLINE, self.replies.message()).await;
        let received = self.clock.clock.monotonic();
        match reply {
            Ok(Ok(Some(r))) if r.number == number => {
                let (other_received, other_sent) = (Nanos(r.received_ns), Nanos(r.sent_ns));
                self.clock.lock().add(Probe { sent, other_received, other_sent, received });
                Ok(())
            }
            Ok(Ok(Some(_))) => Err("an answer to another probe".into()),
            Ok(Ok(None)) => Err("the coordinator ended the probes".into()),
            Ok(Err(status)) => Err(status.message().to_owned()),
            Err(_) => Err("no answer to a clock probe".into()),
        }
    }
}
