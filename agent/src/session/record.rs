//! Telemetry on its way: one observation at a time, sent over the session's connection for bulk.

use std::sync::{Arc, Mutex as Lock, PoisonError};

use common::fleet::Observation;
use common::ids::Seq;
use proto::v1::RecordBatch;
use proto::v1::telemetry_client::TelemetryClient;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::join::Wire;
use crate::telemetry::{Means, observe};

/// An observation that goes on until this is dropped.
pub(super) struct Observing {
    what: Observation,
    wire: Arc<Lock<Wire>>,
    task: JoinHandle<()>,
}

impl Observing {
    /// Begins one. `next` is shared by all observations of this process, so that no number is used twice.
    pub(super) fn begin(what: Observation, means: Means, next: Arc<Mutex<Seq>>, wire: Wire) -> Self {
        let (run, agent, incarnation) = (what.run.to_string(), means.agent.to_string(), means.incarnation.0);
        let wire = Arc::new(Lock::new(wire));
        let newest = Arc::clone(&wire);
        let send = move |frames: Vec<Vec<u8>>| {
            let wire = newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let batch = RecordBatch { run_id: run.clone(), agent: agent.clone(), incarnation, frames };
            async move {
                let ack = TelemetryClient::new(wire).record(batch).await;
                Ok(Seq(ack.map_err(|s| s.message().to_owned())?.into_inner().up_to))
            }
        };
        let told = what.clone();
        let work = async move {
            let mut next = next.lock().await;
            observe(told, means, &mut next, send).await;
        };
        Self { what, wire, task: tokio::spawn(work) }
    }

    /// Told again, over another connection: what waits to be sent is kept, and goes there. False when it is another.
    pub(super) fn goes_on(&self, what: &Observation, wire: Wire) -> bool {
        let same = self.what == *what && !self.task.is_finished();
        if same {
            *self.wire.lock().unwrap_or_else(PoisonError::into_inner) = wire;
        }
        same
    }

    /// Ends it, and waits until it has let go of everything.
    pub(super) async fn end(mut self) {
        self.task.abort();
        // It was aborted: that is all that it can say.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        self.task.abort();
    }
}
