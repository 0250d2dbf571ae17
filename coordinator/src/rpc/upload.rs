//! The telemetry service: batches of blocks in, cumulative acknowledgements out.

use std::pin::Pin;
use std::sync::Arc;

use common::fleet::TrialFate;
use common::ids::{AgentName, Incarnation};
use common::trace::segment::Block;
use proto::convert;
use proto::v1::telemetry_server::Telemetry;
use proto::v1::{FatesReply, FatesRequest, RecordAck, RecordBatch, TraceAck, TraceBatch, trace_ack};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{OpenRun, Shared};
use crate::ingest::{Ack, IngestError};

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
        self.shared.admit(&request)?;
        let mut batches = request.into_inner();
        let shared = Arc::clone(&self.shared);
        let (acks, answers) = mpsc::channel(ACKS);
        tokio::spawn(async move {
            while let Ok(Some(batch)) = batches.message().await {
                let answer = take(&shared, batch).await.map(|kind| TraceAck { kind: Some(kind) });
                let failed = answer.is_err();
                if acks.send(answer).await.is_err() || failed {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn record(&self, request: Request<RecordBatch>) -> Result<Response<RecordAck>, Status> {
        self.shared.admit(&request)?;
        let up_to = super::record::take(&self.shared, request.into_inner()).await?;
        Ok(Response::new(RecordAck { up_to: up_to.0 }))
    }

    async fn fates(&self, request: Request<FatesRequest>) -> Result<Response<FatesReply>, Status> {
        self.shared.admit(&request)?;
        let (id, trials) = request.into_inner().try_into()?;
        let run = open_run(&self.shared, id.as_str())?;
        let fates = tokio::task::spawn_blocking(move || {
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

/// The run of this name, when it takes traces.
fn open_run(shared: &Shared, id: &str) -> Result<OpenRun, Status> {
    let run = shared.offer().run.clone().filter(|run| run.id.as_str() == id);
    run.ok_or_else(|| Status::failed_precondition("this run takes no traces (any more)"))
}

async fn take(shared: &Shared, batch: TraceBatch) -> Result<trace_ack::Kind, Status> {
    let agent = convert::agent_name(&batch.agent, "TraceBatch")?;
    let incarnation = Incarnation(batch.incarnation);
    let run = open_run(shared, &batch.run_id)?;
    let blocks = batch.blocks.iter().map(|bytes| block(bytes, &agent, incarnation, &run));
    let blocks = blocks.collect::<Result<Vec<Block>, Status>>()?;
    if blocks.is_empty() {
        return Ok(trace_ack::Kind::UpTo(run.ingest.mark(&agent, incarnation).0));
    }
    match run.ingest.submit(blocks).await {
        Ok(Ack::UpTo(seq)) => Ok(trace_ack::Kind::UpTo(seq.0)),
        Ok(Ack::ResumeFrom(seq)) => Ok(trace_ack::Kind::ResumeFrom(seq.0)),
        Err(e) => {
            tracing::error!(%agent, "traces cannot be stored: {e}");
            Ok(trace_ack::Kind::Refused(e.to_string()))
        }
    }
}

/// A whole block of this agent and the open trial. Anything else is refused: a sealed trial does not change.
fn block(bytes: &[u8], agent: &AgentName, incarnation: Incarnation, run: &OpenRun) -> Result<Block, Status> {
    let block = Block::decode(bytes).map_err(|e| Status::data_loss(format!("TraceBatch.blocks: {e}")))?;
    if block.bytes().len() != bytes.len() {
        return Err(Status::data_loss("TraceBatch.blocks: bytes after the block"));
    }
    let header = block.header();
    if header.agent != *agent || header.incarnation != incarnation {
        return Err(Status::permission_denied("TraceBatch.blocks: traces of another agent"));
    }
    if run.trial != Some((header.trial, header.epoch)) {
        return Err(Status::failed_precondition(format!(
            "traces of trial {} epoch {} are not taken (any more)",
            header.trial, header.epoch
        )));
    }
    Ok(block)
}
