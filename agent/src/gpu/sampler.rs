//! Reads the GPUs on threads of its own, for as long as the agent wants, whatever the library does.
//!
//! It owns the threads and what they share. Energy and power are read by one thread (`fast`) at a fifth of the period
//! of the energy counters, which it finds out first. Everything else, which may be slow, is read by another (`slow`),
//! so that a call that takes long or never returns cannot stop energy; it also opens the library, and opens it again
//! for GPUs that were lost, and in a container has CUDA asked which GPUs the engine sees (`cuda`). A third waits for the driver's errors (`faults`), and a fourth, which makes no call of the
//! library, says when the others are stuck (`watch`).
//!
//! What it must never do: panic or block the agent (a thread that is stuck at the end is left behind), make up for
//! readings that it missed, let the records grow without bound, or stay silent about why there are none: each state is
//! one event. Decisions are those of `fleet`, `pace`, `engine` and `watch`, which are pure; guarded by `tests/gpu/`.

mod cuda;
mod fast;
mod faults;
mod slow;
mod threads;
mod watch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::clock::{Clock, SystemClock};
use common::ids::Nanos;
use common::telemetry::{Event, EventKind, GpuInfo, Record};

use super::engine::{EngineProcesses, Users};
use super::fleet::Fleet;
use super::probe::{self, ChildState, CudaView};
use super::queue::{self, Queue, Records};
use super::{Found, GpuSource, SourceError};
use threads::Threads;
use watch::Beats;

/// Asks what CUDA shows a process.
pub type AskCuda = Arc<dyn Fn(u32) -> Result<CudaView, ChildState> + Send + Sync>;

/// What a sampler is told at its start.
pub struct Config {
    /// What is read.
    pub source: Box<dyn GpuSource>,
    /// Who the engine is.
    pub engine: EngineProcesses,
    /// Between two readings of energy and power; found out where it is none.
    pub interval: Option<Nanos>,
    /// For how long the counters are watched to find that out.
    pub looking: Nanos,
    /// Between two readings of everything else.
    pub slow: Nanos,
    /// Until a source that cannot be opened is tried again.
    pub retry: Nanos,
    /// Records that are kept for whoever takes them.
    pub capacity: usize,
    /// The driver's process ids are those of this host's `/proc`.
    pub same_numbers: bool,
    /// What CUDA shows a process, for where they are not. May take seconds.
    pub ask_cuda: AskCuda,
}

impl Config {
    /// The usual ones: 3 s of looking, everything else each 200 ms, another try each minute.
    #[must_use]
    pub fn new(source: Box<dyn GpuSource>, engine: EngineProcesses) -> Self {
        Self {
            source,
            engine,
            interval: None,
            looking: Nanos::from_secs(3),
            slow: Nanos::from_millis(200),
            retry: Nanos::from_secs(60),
            capacity: queue::CAPACITY,
            same_numbers: super::engine::same_numbers(),
            ask_cuda: Arc::new(|pid| probe::view_of(pid, &SystemClock)),
        }
    }
}

/// Threads that read the GPUs.
pub struct Sampler {
    /// What they read. Must be taken from time to time.
    pub records: Records,
    shared: Arc<Shared>,
}

/// How the sampler itself does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Passes over energy and power.
    pub passes: u64,
    /// Passes that were left out, because the one before took too long or the thread got no CPU.
    pub late: u64,
    /// Samples that nobody took in time.
    pub dropped: u64,
    /// Between two passes; none while that is being found out.
    pub interval: Option<Nanos>,
    /// Times that the source was opened, or tried to be.
    pub openings: u64,
}

/// What the threads share.
struct Shared {
    clock: Arc<dyn Clock>,
    engine: EngineProcesses,
    ask_cuda: AskCuda,
    queue: Arc<Queue>,
    threads: Threads,
    beats: Beats,
    fleet: Mutex<Fleet>,
    inventory: Mutex<Vec<GpuInfo>>,
    users: Mutex<Users>,
    passes: AtomicU64,
    late: AtomicU64,
    openings: AtomicU64,
    /// 0 while it is not known.
    interval: AtomicU64,
}

impl Sampler {
    /// Starts reading. That it cannot is an event among the records.
    #[must_use]
    pub fn start(config: Config, clock: Arc<dyn Clock>) -> Self {
        let queue = Queue::new(config.capacity);
        let records = queue.records();
        let shared = Arc::new(Shared {
            clock,
            engine: Arc::clone(&config.engine),
            ask_cuda: Arc::clone(&config.ask_cuda),
            queue,
            threads: Threads::default(),
            beats: Beats::default(),
            fleet: Mutex::default(),
            inventory: Mutex::default(),
            users: Mutex::new(Users::new(config.same_numbers)),
            passes: AtomicU64::new(0),
            late: AtomicU64::new(0),
            openings: AtomicU64::new(0),
            interval: AtomicU64::new(0),
        });
        shared.spawn("gpu-watch", watch::run);
        shared.spawn("gpu-slow", move |shared| slow::run(shared, config));
        Self { records, shared }
    }

    /// Waits until readings are taken at their final distance, no longer than `wait`, and says whether they are: what is
    /// measured before has no energy.
    #[must_use]
    pub fn settled(&self, wait: Duration) -> bool {
        let until = self.shared.now() + wait.into();
        while self.counts().interval.is_none() {
            if self.shared.now() >= until
                || self.shared.threads.until(&*self.shared.clock, self.shared.now() + Nanos::from_millis(5))
            {
                return self.counts().interval.is_some();
            }
        }
        true
    }

    /// The GPUs as they were last found.
    #[must_use]
    pub fn inventory(&self) -> Vec<GpuInfo> {
        lock(&self.shared.inventory).clone()
    }

    /// The engine is another one from now on.
    pub fn forget_engine(&self) {
        lock(&self.shared.users).forget();
        self.shared.amend(|_, gpu| gpu.used_by_engine = None);
    }

    /// How it does.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let interval = self.shared.interval.load(Ordering::Relaxed);
        Counts {
            passes: self.shared.passes.load(Ordering::Relaxed),
            late: self.shared.late.load(Ordering::Relaxed),
            dropped: self.records.dropped(),
            interval: (interval > 0).then_some(Nanos(interval)),
            openings: self.shared.openings.load(Ordering::Relaxed),
        }
    }

    /// Ends the threads and waits for them, no longer than `patience`; the records end then. Gives the names of threads
    /// that are stuck in a call: they are left behind, and end when it returns.
    pub fn stop(&self, patience: Duration) -> Vec<&'static str> {
        let stuck = self.shared.threads.stop(patience);
        self.shared.queue.close();
        stuck
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.threads.tell();
        self.shared.queue.close();
    }
}

impl Shared {
    fn now(&self) -> Nanos {
        self.clock.monotonic()
    }

    /// Starts a thread. Whatever happens in it stays in it.
    fn spawn(self: &Arc<Self>, name: &'static str, body: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let shared = Arc::clone(self);
        let failed = self.threads.spawn(name, move || {
            let body = std::panic::AssertUnwindSafe(|| body(&shared));
            if std::panic::catch_unwind(body).is_err() {
                let message =
                    format!("the thread {name} ended by an error of the program; its readings end here");
                shared.tell(None, EventKind::Degraded, message);
            }
        });
        if let Err(error) = failed {
            self.tell(None, EventKind::Degraded, format!("the thread {name} cannot be started: {error}"));
        }
    }

    /// Adds an event of now.
    fn tell(&self, gpu: Option<u8>, kind: EventKind, message: String) {
        self.tell_all([Event { at: self.now(), gpu, kind, code: None, message }]);
    }

    fn tell_all(&self, events: impl IntoIterator<Item = Event>) {
        let told = |event: Event| {
            tracing::info!(kind = event.kind.name(), gpu = event.gpu, "{}", event.message);
            Record::Event(event)
        };
        self.queue.push(events.into_iter().map(told).collect::<Vec<_>>());
    }

    /// Takes an inventory in, and hands it on. What this sampler found out itself stays, and so does what is known of a
    /// GPU that cannot be asked now.
    fn know(&self, found: &Found) {
        let mut inventory = lock(&self.inventory);
        let mut gpus = found.gpus.clone();
        for ((position, new), old) in (0u8..).zip(&mut gpus).zip(inventory.iter()) {
            if found.trouble.iter().any(|(gpu, _)| *gpu == position) && !old.uuid.is_empty() {
                new.clone_from(old);
            }
            new.counter_period = new.counter_period.or(old.counter_period);
            new.used_by_engine = new.used_by_engine.or(old.used_by_engine);
        }
        lock(&self.fleet).know(&gpus);
        inventory.clone_from(&gpus);
        drop(inventory);
        self.queue.push([Record::Inventory(gpus)]);
    }

    /// Changes what the inventory says, and hands it on if that was something new.
    fn amend(&self, change: impl Fn(u8, &mut GpuInfo)) {
        let mut inventory = lock(&self.inventory);
        let before = inventory.clone();
        for (position, gpu) in (0u8..).zip(inventory.iter_mut()) {
            change(position, gpu);
        }
        if *inventory != before {
            let gpus = inventory.clone();
            drop(inventory);
            self.queue.push([Record::Inventory(gpus)]);
        }
    }
}

/// A lock whose holder panicked is as good as any: what it guards is whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why nothing can be read of any GPU, when that is so and none of them is merely lost.
fn state(found: &Found) -> Option<SourceError> {
    let lost = |(_, error): &(u8, SourceError)| matches!(error, SourceError::Lost(_));
    let all = found.trouble.len() >= found.gpus.len() && !found.trouble.iter().any(lost);
    all.then(|| found.trouble.first().map_or(SourceError::NoDevices, |(_, error)| error.clone()))
}
