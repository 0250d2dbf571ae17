//! Telemetry on its way: one observation at a time, sent over the session's connection for bulk.

use std::sync::Arc;

use common::fleet::Observation;
use common::ids::Seq;
use proto::v1::RecordBatch;
use proto::v1::telemetry_client::TelemetryClient;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

use super::join::Wire;
use crate::telemetry::{Means, observe};

/// An observation that goes on until this is dropped.
pub(super) struct Observing(AbortHandle);

impl Observing {
    /// Begins one. `next` is shared by all observations of this process, so that no number is used twice.
    pub(super) fn begin(what: Observation, means: Means, next: Arc<Mutex<Seq>>, wire: Wire) -> Self {
        let (run, agent, incarnation) = (what.run.to_string(), means.agent.to_string(), means.incarnation.0);
        let send = move |frames: Vec<Vec<u8>>| {
            let mut client = TelemetryClient::new(wire.clone());
            let batch = RecordBatch { run_id: run.clone(), agent: agent.clone(), incarnation, frames };
            async move {
                let ack = client.record(batch).await.map_err(|s| s.message().to_owned())?;
                Ok(Seq(ack.into_inner().up_to))
            }
        };
        let work = async move {
            let mut next = next.lock().await;
            observe(what, means, &mut next, send).await;
        };
        Self(tokio::spawn(work).abort_handle())
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        self.0.abort();
    }
}
