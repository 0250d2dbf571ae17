//! The GPUs' sampler as an observation sees it, and who the engine is that it looks for.

use std::ffi::OsString;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::clock::Clock;
use common::telemetry::{Event, Record};

use super::host::tree;
use crate::gpu::nvml::NvmlSource;
use crate::gpu::{Config, Sampler};

/// How long a stop waits for a thread that may be stuck in the driver.
const STOP_WITHIN: Duration = Duration::from_secs(2);

/// The first process of the engine on this host, once it is known. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct EngineRoot(Arc<AtomicI32>);

impl EngineRoot {
    /// It is this process; none: it is not known.
    pub fn set(&self, pid: Option<i32>) {
        self.0.store(pid.unwrap_or(0), Ordering::Relaxed);
    }

    /// The process, where it is known.
    #[must_use]
    pub fn get(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|pid| *pid > 0)
    }
}

/// The GPUs of this host, being read.
pub struct GpuFeed {
    sampler: Sampler,
    /// Why no GPU is read, as it was last said: each observation has to hear it.
    absent: Mutex<Option<Event>>,
}

impl GpuFeed {
    /// Begins to read them. `library` is NVML's, where it is not the usual one.
    #[must_use]
    pub fn start(library: Option<OsString>, root: &EngineRoot, clock: &Arc<dyn Clock>) -> Self {
        let source = NvmlSource::new(library.as_deref(), Arc::clone(clock));
        let root = root.clone();
        let engine = move || {
            let pids = tree(root.get()?);
            Some(pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect())
        };
        let config = Config::new(Box::new(source), Arc::new(engine));
        Self { sampler: Sampler::start(config, Arc::clone(clock)), absent: Mutex::default() }
    }

    /// For a new observation: what was read before is not its, but for what the GPUs are.
    #[must_use]
    pub fn begin(&self) -> Vec<Record> {
        let _ = self.take();
        let inventory = self.sampler.inventory();
        if !inventory.is_empty() {
            return vec![Record::Inventory(inventory)];
        }
        let absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        absent.iter().cloned().map(Record::Event).collect()
    }

    /// The engine is another one from now on.
    pub fn forget_engine(&self) {
        self.sampler.forget_engine();
    }

    /// What was read since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Record> {
        let records = self.sampler.records.take(Duration::ZERO).unwrap_or_default();
        let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        for record in &records {
            match record {
                Record::Event(event) if event.kind.is_absence() => *absent = Some(event.clone()),
                Record::Inventory(gpus) if !gpus.is_empty() => *absent = None,
                _ => {}
            }
        }
        records
    }

    /// Ends the threads; one that is stuck is left behind.
    pub fn stop(&self) {
        let stuck = self.sampler.stop(STOP_WITHIN);
        if !stuck.is_empty() {
            tracing::warn!("left behind, stuck in the driver: {}", stuck.join(", "));
        }
    }
}
