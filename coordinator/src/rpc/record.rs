//! Telemetry in: frames of one agent process, appended in the order in which they come.

use common::ids::{Incarnation, Seq};
use proto::convert;
use proto::v1::RecordBatch;
use tonic::Status;

use super::Shared;
use super::admission::Caller;
use super::limits::MAX_FRAMES;
use crate::live::Offer;

/// Takes a batch; says below which number records are kept.
pub(super) async fn take(shared: &Shared, caller: &Caller, batch: RecordBatch) -> Result<Seq, Status> {
    let agent = convert::agent_name(&batch.agent, "RecordBatch")?;
    let incarnation = Incarnation(batch.incarnation);
    caller.is(&batch.agent, "RecordBatch")?;
    if batch.frames.len() > MAX_FRAMES {
        return Err(Status::invalid_argument(format!(
            "RecordBatch.frames: {} frames, more than {MAX_FRAMES}",
            batch.frames.len()
        )));
    }
    let run = shared.offer().run.clone().filter(|run| run.id.as_str() == batch.run_id);
    let run = run.ok_or_else(|| Status::failed_precondition("this run takes no telemetry (any more)"))?;
    let (bytes, limit) = (batch.frames.iter().map(|f| f.len() as u64).sum(), shared.limits.telemetry_bytes);
    if !caller.holder.record(bytes, limit) {
        return Err(Status::resource_exhausted(format!(
            "no more telemetry of this agent is kept: one run takes {limit} bytes of an agent"
        )));
    }
    // The disk is waited for, and not on a thread that serves others.
    let tap = shared.tap.get().cloned();
    let kept = crate::aside::run(move || {
        let kept = run.telemetry.append(&agent, incarnation, &batch.frames);
        if let (Ok(_), Some(tap)) = (&kept, tap) {
            tap.offer(Offer::Frames(agent, batch.frames));
        }
        kept
    })
    .await;
    match kept {
        Ok(Ok(up_to)) => Ok(up_to),
        Ok(Err(e)) => {
            tracing::error!("telemetry cannot be kept: {e}");
            Err(Status::resource_exhausted(e.to_string()))
        }
        Err(e) => Err(Status::internal(e.to_string())),
    }
}
