//! The telemetry service: batches of blocks in, cumulative acknowledgements out.

use std::pin::Pin;
use std::sync::Arc;

use common::fleet::TrialFate;
use common::ids::{AgentName, Incarnation, Seq};
use common::schedule::Arrival;
use common::simulated::{Sabotage, is_sabotaged};
use common::trace::Facts;
use common::trace::segment::{BLOCK_TRACES, Block};
use proto::convert;
use proto::v1::telemetry_server::Telemetry;
use proto::v1::{FatesReply, FatesRequest, RecordAck, RecordBatch, TraceAck, TraceBatch, trace_ack};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use super::admission::{Caller, caller};
use super::guest::Guest;
use super::limits::MAX_DELIVERIES;
use super::{OpenRun, Shared};
use crate::ingest::{Ack, IngestError};
use crate::live::{Offer, Tap};
use crate::trial::seal::SYNTHETIC;

/// Acknowledgements that wait for the network. When it is full the stream is not read: the agent's spool takes over.
const ACKS: usize = 32;

pub(super) struct TelemetryService {
    shared: Arc<Shared>,
}

impl TelemetryService {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

#[tonic::async_trait]
impl Telemetry for TelemetryService {
    type UploadStream = Pin<Box<dyn Stream<Item = Result<TraceAck, Status>> + Send>>;

    async fn upload(
        &self,
        request: Request<Streaming<TraceBatch>>,
    ) -> Result<Response<Self::UploadStream>, Status> {
        let caller = caller(&request)?;
        let peer = request.extensions().get::<Guest>().map(Guest::peer);
        let mut batches = request.into_inner();
        let shared = Arc::clone(&self.shared);
        let (acks, answers) = mpsc::channel(ACKS);
        tokio::spawn(async move {
            loop {
                let batch = tokio::select! {
                    batch = batches.message() => batch,
                    () = caller.holder.is_revoked() => return,
                };
                let answer = match batch {
                    Ok(Some(batch)) => take(&shared, &caller, batch).await,
                    Ok(None) => return,
                    Err(status) => Err(status),
                };
                if let (Err(status), Some(peer)) = (&answer, peer)
                    && is_a_fault(status.code())
                {
                    shared.turned_away(peer, &format!("agent {}: {}", caller.holder.agent, status.message()));
                }
                let failed = answer.is_err();
                let answer = answer.map(|kind| TraceAck { kind: Some(kind) });
                if acks.send(answer).await.is_err() || failed {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn record(&self, request: Request<RecordBatch>) -> Result<Response<RecordAck>, Status> {
        let caller = caller(&request)?;
        let peer = request.extensions().get::<Guest>().map(Guest::peer);
        let taken = super::record::take(&self.shared, &caller, request.into_inner()).await;
        if let (Err(status), Some(peer)) = (&taken, peer)
            && is_a_fault(status.code())
        {
            self.shared.turned_away(peer, &format!("agent {}: {}", caller.holder.agent, status.message()));
        }
        Ok(Response::new(RecordAck { up_to: taken?.0 }))
    }

    async fn fates(&self, request: Request<FatesRequest>) -> Result<Response<FatesReply>, Status> {
        caller(&request)?;
        let (id, trials) = request.into_inner().try_into()?;
        let run = self.shared.offer().run.clone().filter(|run| run.id == id).ok_or_else(closed)?;
        let fates = crate::aside::run(move || {
            let mut fates = run.ingest.fates(&trials)?;
            for (fate, key) in fates.iter_mut().zip(trials) {
                if run.trial == Some(key) {
                    *fate = TrialFate::Open;
                }
            }
            Ok::<_, IngestError>(fates)
        });
        let fates = fates.await.map_err(|e| Status::internal(e.to_string()))?;
        Ok(Response::new(fates.map_err(|e| Status::unavailable(e.to_string()))?.into()))
    }
}

/// No such run takes traces.
fn closed() -> Status {
    Status::failed_precondition("this run takes no traces (any more)")
}

/// Codes of what an honest agent never does. What comes late, or over a connection that breaks, is no fault.
fn is_a_fault(code: Code) -> bool {
    matches!(
        code,
        Code::PermissionDenied
            | Code::InvalidArgument
            | Code::DataLoss
            | Code::OutOfRange
            | Code::ResourceExhausted
    )
}

async fn take(shared: &Shared, caller: &Caller, batch: TraceBatch) -> Result<trace_ack::Kind, Status> {
    let agent = convert::agent_name(&batch.agent, "TraceBatch")?;
    let incarnation = Incarnation(batch.incarnation);
    caller.is(&batch.agent, "TraceBatch")?;
    if incarnation == SYNTHETIC {
        return Err(Status::permission_denied("TraceBatch: incarnation 0 is the coordinator's own"));
    }
    // Both under one lock: a slice of the next trial must not be held against traces of this one.
    let (run, slice) = {
        let offer = shared.offer();
        let run = offer.run.clone().filter(|run| run.id.as_str() == batch.run_id);
        let epoch = run.as_ref().and_then(|run| run.trial).map(|(_, epoch)| epoch);
        (run, epoch.and_then(|epoch| offer.slices.get(&(agent.clone(), epoch)).cloned()))
    };
    let run = run.ok_or_else(closed)?;
    if batch.blocks.is_empty() {
        return Ok(trace_ack::Kind::UpTo(run.ingest.mark(&agent, incarnation).0));
    }
    let (ingest, name) = (run.ingest.clone(), agent.clone());
    let (stored, most) =
        (Arc::clone(&run.stored), slice.as_ref().map_or(0, |s| s.len() as u64) * MAX_DELIVERIES);
    // Unpacking takes the processor for a while, and not on a thread that serves others.
    let blocks = crate::aside::run(move || {
        let slice = slice.as_deref();
        let blocks = batch.blocks.iter().map(|bytes| block(bytes, &name, incarnation, &run, slice));
        blocks.collect::<Result<Vec<(Block, Vec<Facts>)>, Status>>()
    });
    let blocks = blocks.await.map_err(|e| Status::internal(e.to_string()))??;
    let before = ingest.mark(&agent, incarnation);
    let offers = shared.tap.get().map(|tap| (tap, Vec::with_capacity(blocks.len())));
    let (blocks, offers) = apart(blocks, before, offers);
    let new: u64 = blocks.iter().filter(|b| b.next_seq() > before).map(|b| u64::from(b.header().count)).sum();
    if stored.of(&agent) + new > most && !is_sabotaged(Sabotage::IgnoreEpoch) {
        return Err(Status::resource_exhausted(format!(
            "TraceBatch: more than {most} traces of this trial, which is {MAX_DELIVERIES} times this agent's slice"
        )));
    }
    match ingest.submit(blocks).await {
        Ok(Ack::UpTo(seq)) => {
            stored.add(&agent, seq.0.saturating_sub(before.0));
            if let Some((tap, offers)) = offers {
                offers.into_iter().for_each(|offer| tap.offer(offer));
            }
            Ok(trace_ack::Kind::UpTo(seq.0))
        }
        Ok(Ack::ResumeFrom(seq)) => Ok(trace_ack::Kind::ResumeFrom(seq.0)),
        Err(e) => {
            // What is wrong with the disk is said once for all of them: see `cli/watchdog.rs`.
            tracing::debug!(%agent, "traces cannot be stored: {e}");
            Ok(trace_ack::Kind::Refused(e.to_string()))
        }
    }
}

/// Blocks with their facts, and what somebody who looks on is offered of those that are new.
fn apart(
    read: Vec<(Block, Vec<Facts>)>,
    before: Seq,
    mut offers: Option<(&Tap, Vec<Offer>)>,
) -> (Vec<Block>, Option<(&Tap, Vec<Offer>)>) {
    let blocks = read.into_iter().map(|(block, facts)| {
        if let Some((_, offers)) = offers.as_mut().filter(|_| block.next_seq() > before) {
            offers.push(Tap::prepare(&block, facts));
        }
        block
    });
    (blocks.collect(), offers)
}

/// A whole block of this agent, the open trial, and its own arrivals. Anything else is refused: a sealed trial does not
/// change, and nobody answers for what another was to send.
fn block(
    bytes: &[u8],
    agent: &AgentName,
    incarnation: Incarnation,
    run: &OpenRun,
    slice: Option<&[Arrival]>,
) -> Result<(Block, Vec<Facts>), Status> {
    let block = Block::decode(bytes).map_err(|e| Status::data_loss(format!("TraceBatch.blocks: {e}")))?;
    if block.bytes().len() != bytes.len() {
        return Err(Status::data_loss("TraceBatch.blocks: bytes after the block"));
    }
    let header = block.header();
    if header.agent != *agent || header.incarnation != incarnation {
        return Err(Status::permission_denied("TraceBatch.blocks: traces of another agent"));
    }
    if is_sabotaged(Sabotage::IgnoreEpoch) {
        return Ok((block, Vec::new()));
    }
    let slice = slice.filter(|_| run.trial == Some((header.trial, header.epoch))).ok_or_else(|| {
        Status::failed_precondition(format!(
            "traces of trial {} epoch {} are not taken (any more)",
            header.trial, header.epoch
        ))
    })?;
    if header.count as usize > BLOCK_TRACES {
        return Err(Status::invalid_argument(format!(
            "TraceBatch.blocks: {} traces in a block, more than {BLOCK_TRACES}",
            header.count
        )));
    }
    let facts = block.facts().map_err(|e| Status::data_loss(format!("TraceBatch.blocks: {e}")))?;
    for fact in &facts {
        // A slice is in the schedule's order, which is that of the index.
        if slice.binary_search_by_key(&fact.index, |arrival| arrival.index).is_err() {
            return Err(Status::permission_denied(format!(
                "TraceBatch.blocks: arrival {} is not one of this agent's",
                fact.index
            )));
        }
        if fact.synthetic {
            return Err(Status::permission_denied(
                "TraceBatch.blocks: a synthetic trace, which only a coordinator makes",
            ));
        }
    }
    Ok((block, facts))
}
