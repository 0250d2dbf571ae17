//! The errors that the driver reports of its GPUs, each an event.

use std::sync::Arc;

use common::ids::Nanos;
use common::telemetry::{Event, EventKind};

use super::super::{Fault, GpuSource, Signal, SourceError};
use super::Shared;

/// How long one call waits: the library cannot be opened again meanwhile.
const WAIT: Nanos = Nanos::from_millis(200);

/// After an error.
const PAUSE: Nanos = Nanos::from_secs(1);
const SHORT_PAUSE: Nanos = Nanos::from_millis(20);

/// Waits for errors until the end, or until it turns out that nobody tells of them: the inventory says that.
pub(super) fn run(shared: &Arc<Shared>, mut source: Box<dyn GpuSource>) {
    loop {
        let start = shared.now();
        let pause = match source.fault(WAIT) {
            Ok(Some(fault)) => {
                let Fault { gpu, code, message } = fault;
                let event = Event { at: shared.now(), gpu, kind: EventKind::Xid, code: Some(code), message };
                shared.tell_all([event]);
                Nanos::ZERO
            }
            // A library that does not wait must not keep this thread busy.
            Ok(None) => WAIT - (shared.now() - start),
            Err(why @ (SourceError::Unsupported(_) | SourceError::Denied(_))) => {
                let name = Signal::Faults.name();
                shared.amend(|_, gpu| _ = gpu.signals.insert(name.to_owned(), why.to_string()));
                return;
            }
            // The library is opened again.
            Err(SourceError::Transient(_)) => SHORT_PAUSE,
            Err(_) => PAUSE,
        };
        if shared.threads.until(&*shared.clock, shared.now() + pause) {
            return;
        }
    }
}
