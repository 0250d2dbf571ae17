//! Between wire messages and what the fleet says and is told.

use common::fleet::{CollectReport, DrainReport, EngineState, ReadyReport, TargetReport};
use common::ids::Epoch;
use proto::convert::{MAX_NAME, MAX_TEXT, WireError, text};
use proto::v1::{self, agent_message::Kind as Wire, coordinator_message::Kind as Order};

use crate::fleet::{FromAgent, ToAgent};

/// What an agent says after its hello; none for a hello, which comes once.
pub(super) fn from_agent(kind: Wire) -> Result<Option<FromAgent>, WireError> {
    Ok(Some(match kind {
        Wire::Hello(_) => return Ok(None),
        Wire::Heartbeat(h) => FromAgent::Heartbeat(h.progress.map(Into::into)),
        Wire::TargetReport(r) => FromAgent::Target(r.id, Box::new(TargetReport::try_from(r)?)),
        Wire::EngineState(s) => FromAgent::Engine(Box::new(EngineState::try_from(s)?)),
        Wire::Ready(r) => FromAgent::Ready(ReadyReport::try_from(r)?),
        Wire::Armed(a) => FromAgent::Armed(Epoch(a.epoch)),
        Wire::Drained(d) => FromAgent::Drained(Box::new(DrainReport::try_from(d)?)),
        Wire::Collected(c) => FromAgent::Collected(Box::new(CollectReport::try_from(c)?)),
        Wire::TrialFailed(f) => {
            let stage = text(f.stage, MAX_NAME, "TrialFailed", "stage")?;
            let message = text(f.message, MAX_TEXT, "TrialFailed", "message")?;
            FromAgent::Failed { epoch: Epoch(f.epoch), stage, message }
        }
    }))
}

/// An order as the wire has it.
pub(super) fn to_agent(order: ToAgent) -> v1::CoordinatorMessage {
    let kind = match order {
        ToAgent::Observe(observation) => Order::Observe((&*observation).into()),
        ToAgent::Engine(id, order) => Order::EngineOrder(v1::EngineOrder::numbered(id, &order)),
        ToAgent::Check(check) => Order::CheckTarget((&*check).into()),
        ToAgent::Prepare(order) => Order::Prepare((&*order).into()),
        ToAgent::Arm { epoch, start } => Order::Arm(v1::Arm { epoch: epoch.0, start_ns: start.0 }),
        ToAgent::Start(epoch) => Order::Start(v1::Start { epoch: epoch.0 }),
        ToAgent::Stop { epoch, cancel, reason } => Order::Stop(v1::Stop { epoch: epoch.0, cancel, reason }),
        ToAgent::Abort { epoch, reason } => Order::Abort(v1::Abort { epoch: epoch.0, reason }),
        ToAgent::Collect(order) => Order::Collect((&order).into()),
        ToAgent::Sealed(epoch) => Order::Sealed(v1::Sealed { epoch: epoch.0 }),
        ToAgent::Goodbye(reason) => Order::Goodbye(v1::Goodbye { reason }),
    };
    v1::CoordinatorMessage { kind: Some(kind) }
}
