//! Delivering what agent processes left that are gone, under their own incarnation.
//!
//! The coordinator takes from an agent what its earlier processes left: a batch says which, and it takes what follows its
//! mark while the trial is open. A session that has a connection calls [`deliver`] over it; `agent spool push` is let in for
//! that alone, when the agent is not there. One batch at a time, each acknowledged before the next: nothing
//! waits for this, and the disk is the slower part.
//!
//! It must never deliver a trace behind a gap as if there were none, and never go on without progress. The tests
//! beside it guard that, with a coordinator that answers as told.

use std::sync::Arc;

use common::clock::Clock;
use common::disk::Disk;
use common::fleet::{Introduction, TrialFate};
use common::ids::{Epoch, RunId, Seq, TrialId};
use proto::v1::telemetry_client::TelemetryClient;
use proto::v1::{FatesRequest, TraceAck, TraceBatch, trace_ack};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::join::{self, Link, Wire};
use super::{Dial, JoinError};
use crate::outside::Host;
use crate::spool::held::Backlog;

/// Bytes of a batch, unless one block is larger.
const BATCH_BYTES: usize = 1 << 20;

/// A connection over which one agent's backlogs are delivered.
pub struct Courier {
    wire: Wire,
    /// The session whose pass the calls carry, where it is the courier's own: it lasts as long.
    _session: Option<Link>,
}

/// What came of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// Traces that were sent and are stored now.
    pub sent: u64,
    /// Traces that the coordinator had before.
    pub had: u64,
}

/// Why a backlog, or a part of it, was not delivered. It may be tried again; what was taken is not sent twice.
#[derive(Debug, thiserror::Error)]
pub enum Undelivered {
    /// There is no connection, or it broke.
    #[error("{0}")]
    Unreachable(String),
    /// The address or the token cannot be used at all.
    #[error(transparent)]
    Unusable(#[from] super::AgentError),
    /// The coordinator does not take this: the run is not open there, or the trial is sealed.
    #[error("the coordinator does not take it: {0}")]
    NotTaken(String),
    /// The coordinator cannot store it now.
    #[error("the coordinator cannot take it now: {0}")]
    Refused(String),
    /// The coordinator wants traces that are not here.
    #[error(
        "the coordinator asks for trace {wanted}, and the first one held is {held}: those between are lost"
    )]
    Gap {
        /// The next number that it takes.
        wanted: Seq,
        /// The first number from there on that is held.
        held: Seq,
    },
    /// The coordinator answers as none does.
    #[error("the coordinator's answer makes no sense: {0}")]
    Confused(String),
    /// The spool.
    #[error("the spool cannot be read: {0}")]
    Spool(#[from] std::io::Error),
}

impl From<Status> for Undelivered {
    fn from(status: Status) -> Self {
        let message = status.message().to_owned();
        match status.code() {
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Unknown => {
                Self::Unreachable(format!("the connection broke: {message}"))
            }
            Code::Unimplemented => Self::NotTaken("it is of a version that cannot answer this".to_owned()),
            _ => Self::NotTaken(message),
        }
    }
}

impl Courier {
    /// Over a connection of a session that lasts.
    pub(super) fn over(wire: Wire) -> Self {
        Self { wire, _session: None }
    }

    /// Is let in under the agent's name, to deliver and for nothing else. Nothing is delivered yet.
    ///
    /// # Errors
    /// [`Undelivered::Unusable`] or [`Undelivered::Unreachable`].
    pub async fn join(
        dial: &Dial,
        introduction: &Introduction,
        clock: &dyn Clock,
    ) -> Result<Self, Undelivered> {
        match join::greet(dial, introduction, true, (clock, &Host::default())).await {
            Ok(link) => Ok(Self { wire: link.bulk.clone(), _session: Some(link) }),
            Err(JoinError::Fatal(e)) => Err(Undelivered::Unusable(e)),
            Err(JoinError::Again(reason)) => Err(Undelivered::Unreachable(reason)),
        }
    }

    /// What became of trials of a run, in their order.
    ///
    /// # Errors
    /// [`Undelivered::NotTaken`] when the run is not open at this coordinator.
    pub async fn fates(
        &self,
        run: &RunId,
        trials: &[(TrialId, Epoch)],
    ) -> Result<Vec<TrialFate>, Undelivered> {
        let mut client = TelemetryClient::new(self.wire.clone());
        let fates: Vec<TrialFate> = client.fates(FatesRequest::of(run, trials)).await?.into_inner().into();
        if fates.len() == trials.len() {
            return Ok(fates);
        }
        Err(Undelivered::Confused(format!("{} fates for {} trials", fates.len(), trials.len())))
    }
}

/// Delivers a backlog from the coordinator's mark on, until the coordinator has stored all of it.
///
/// # Errors
/// See [`Undelivered`]. What was acknowledged before stays delivered.
pub async fn deliver(
    backlog: &Backlog,
    disk: Arc<dyn Disk>,
    courier: &Courier,
) -> Result<Delivered, Undelivered> {
    let (batches, outgoing) = mpsc::channel(1);
    let mut stream = Upload { backlog, batches, acks: None };
    // The first batch asks for the mark; it must wait in the channel, or the call does not begin.
    stream.send(Vec::new()).await;
    let mut client = TelemetryClient::new(courier.wire.clone());
    stream.acks = Some(client.upload(ReceiverStream::new(outgoing)).await?.into_inner());
    let mut mark = stream.answer().await?;
    let before = mark;
    while mark < backlog.next() {
        let (disk, theirs, from) = (Arc::clone(&disk), backlog.clone(), mark);
        let read = crate::aside::run(move || theirs.read_from(&*disk, from, BATCH_BYTES));
        let (blocks, next) = read.await.map_err(|e| Undelivered::Confused(e.to_string()))??;
        match backlog.held_from(mark) {
            Some(held) if held == mark => {}
            Some(held) => return Err(Undelivered::Gap { wanted: mark, held }),
            None => break,
        }
        stream.send(blocks).await;
        let after = stream.answer().await?;
        if after <= mark {
            let said = format!("it wants trace {after} after it was sent {mark} to {next} (excluded)");
            return Err(Undelivered::Confused(said));
        }
        mark = after;
    }
    let sent = mark.min(backlog.next()).0 - before.min(backlog.next()).0;
    Ok(Delivered { sent, had: backlog.traces().saturating_sub(sent) })
}

struct Upload<'a> {
    backlog: &'a Backlog,
    batches: mpsc::Sender<TraceBatch>,
    acks: Option<Streaming<TraceAck>>,
}

impl Upload<'_> {
    async fn send(&self, blocks: Vec<Vec<u8>>) {
        let batch = TraceBatch {
            run_id: self.backlog.run.to_string(),
            agent: self.backlog.agent.to_string(),
            incarnation: self.backlog.incarnation.0,
            blocks,
        };
        // Closed when the call has ended: its answer says why.
        let _ = self.batches.send(batch).await;
    }

    /// The number from which on the coordinator wants traces.
    async fn answer(&mut self) -> Result<Seq, Undelivered> {
        let acks = self.acks.as_mut().ok_or_else(|| Undelivered::Confused("no stream".to_owned()))?;
        let ended = || Undelivered::Unreachable("the coordinator ended the stream".to_owned());
        match acks.message().await?.ok_or_else(ended)?.kind {
            Some(trace_ack::Kind::UpTo(seq) | trace_ack::Kind::ResumeFrom(seq)) => Ok(Seq(seq)),
            Some(trace_ack::Kind::Refused(reason)) => Err(Undelivered::Refused(reason)),
            None => Err(Undelivered::Confused("it is empty".to_owned())),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
