//! Delivering the spool: from the coordinator's mark on, as often as it takes.

use std::sync::Arc;
use std::time::Duration;

use common::ids::{RunId, Seq};
use proto::v1::telemetry_client::TelemetryClient;
use proto::v1::{TraceBatch, trace_ack};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::join::Wire;
use crate::spool::Spool;

/// Bytes of a batch, unless one block is larger.
const BATCH_BYTES: usize = 1 << 20;
/// Batches sent and not acknowledged. With the coordinator's answer after each flush, this hides the round trip.
const WINDOW: u64 = 16;
/// Before a broken stream is opened again: the shortest and the longest wait.
const RETRY_MIN: Duration = Duration::from_millis(250);
/// See [`RETRY_MIN`].
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Uploads until the task is dropped: the trial is sealed, or its coordinator is gone.
pub(super) async fn upload(run: RunId, spool: Arc<Spool>, wire: Wire) {
    let mut stream = Stream { run, spool, wire };
    let (mut wait, mut told) = (RETRY_MIN, String::new());
    loop {
        let before = *stream.spool.durable().borrow();
        let Err(reason) = stream.once().await else { return };
        // The same reason again and again would bury everything else.
        if reason != told {
            tracing::warn!("traces stay in the spool for now: {reason}");
            told = reason;
        }
        tokio::time::sleep(wait).await;
        let moved = *stream.spool.durable().borrow() > before;
        wait = if moved { RETRY_MIN } else { (wait * 2).min(RETRY_MAX) };
    }
}

struct Stream {
    run: RunId,
    spool: Arc<Spool>,
    wire: Wire,
}

impl Stream {
    async fn once(&mut self) -> Result<(), String> {
        let (batches, outgoing) = mpsc::channel(2);
        batches.send(self.batch(Vec::new())).await.map_err(|_| "closed".to_owned())?;
        let status = |s: tonic::Status| s.message().to_owned();
        let mut client = TelemetryClient::new(self.wire.clone());
        let mut acks = client.upload(ReceiverStream::new(outgoing)).await.map_err(status)?.into_inner();
        let mut durable = self.spool.durable();
        let mut sent = None;
        let mut unanswered = 1u64;
        loop {
            tokio::select! {
                ack = acks.message() => {
                    let ack = ack.map_err(status)?.ok_or("the coordinator ended the stream")?;
                    unanswered = unanswered.saturating_sub(1);
                    match ack.kind {
                        // Before its first ack the coordinator's mark is unknown. Below the spool's first number
                        // lie sealed trials.
                        Some(trace_ack::Kind::UpTo(seq)) => {
                            self.spool.note_delivered(Seq(seq));
                            sent.get_or_insert(Seq(seq).max(self.spool.first()));
                        }
                        // What lies before this trial is not here. Sending the same again would not end.
                        Some(trace_ack::Kind::ResumeFrom(seq)) if Seq(seq) < self.spool.first() => {
                            return Err(format!(
                                "the coordinator asks for trace {seq}, but this trial begins with {}",
                                self.spool.first()
                            ));
                        }
                        Some(trace_ack::Kind::ResumeFrom(seq)) => sent = Some(Seq(seq)),
                        Some(trace_ack::Kind::Refused(reason)) => return Err(reason),
                        None => return Err("an answer without content".into()),
                    }
                }
                changed = durable.changed(), if sent.is_some() => {
                    changed.map_err(|_| "the spool is closed".to_owned())?;
                }
            }
            let Some(from) = sent.as_mut() else { continue };
            while unanswered < WINDOW && *from < *durable.borrow_and_update() {
                let (spool, start) = (Arc::clone(&self.spool), *from);
                // The disk may stall, and this thread keeps the lease.
                let read = crate::aside::run(move || {
                    let blocks = spool.read_from(start, BATCH_BYTES)?;
                    let next = spool.next_after(start, blocks.len());
                    std::io::Result::Ok((blocks, next))
                });
                let (blocks, next) =
                    read.await.map_err(|e| e.to_string())?.map_err(|e| format!("the spool: {e}"))?;
                *from = next;
                batches.send(self.batch(blocks)).await.map_err(|_| "the stream is closed".to_owned())?;
                unanswered += 1;
            }
        }
    }

    fn batch(&self, blocks: Vec<Vec<u8>>) -> TraceBatch {
        let origin = self.spool.origin();
        TraceBatch {
            run_id: self.run.to_string(),
            agent: origin.agent.to_string(),
            incarnation: origin.incarnation.0,
            blocks,
        }
    }
}
