//! Telemetry in: frames of one agent process, appended in the order in which they come.

use common::ids::{Incarnation, Seq};
use proto::convert;
use proto::v1::RecordBatch;
use tonic::Status;

use super::Shared;

/// Takes a batch; says below which number records are kept.
pub(super) async fn take(shared: &Shared, batch: RecordBatch) -> Result<Seq, Status> {
    let agent = convert::agent_name(&batch.agent, "RecordBatch")?;
    let incarnation = Incarnation(batch.incarnation);
    let run = shared.offer().run.clone().filter(|run| run.id.as_str() == batch.run_id);
    let run = run.ok_or_else(|| Status::failed_precondition("this run takes no telemetry (any more)"))?;
    // The disk is waited for, and not on a thread that serves others.
    let kept =
        tokio::task::spawn_blocking(move || run.telemetry.append(&agent, incarnation, &batch.frames)).await;
    match kept {
        Ok(Ok(up_to)) => Ok(up_to),
        Ok(Err(e)) => {
            tracing::error!("telemetry cannot be kept: {e}");
            Err(Status::resource_exhausted(e.to_string()))
        }
        Err(e) => Err(Status::internal(e.to_string())),
    }
}
