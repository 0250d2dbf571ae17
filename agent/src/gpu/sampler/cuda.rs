//! Has CUDA asked which GPUs it shows the engine, where that cannot be seen by the engine's processes.

use common::telemetry::EventKind;

use super::super::probe;
use super::{Shared, lock};

/// Asks for the engine that a process began. The next look at processes says what came of it.
pub(super) fn ask(shared: &Shared, engine: u32) {
    let seen = match (shared.ask_cuda)(engine) {
        Ok(view) => Some(probe::seen(&view, &lock(&shared.inventory))),
        // Also where there is no CUDA: the agent's container may lack what the engine's has.
        Err(why) => {
            let message = format!("which GPUs the engine uses is not known, so all are summed: {why}");
            shared.tell(None, EventKind::Degraded, message);
            None
        }
    };
    lock(&shared.users).told(seen);
}
