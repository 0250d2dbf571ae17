//! The spool's thread: collects traces into blocks and writes them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use common::clock::Clock;
use common::ids::{Nanos, Seq};
use common::trace::Trace;
use common::trace::segment::BLOCK_TRACES;
use tokio::sync::mpsc;

use super::Spool;

/// Traces between the load thread and the disk. At 1 KB each this is 16 MB: some seconds of a stalled disk at a
/// thousand requests a second. What comes on top is counted as lost, never waited for.
const RING: usize = 16_384;

/// A block is closed this long after its first trace: so much is lost at most when the agent dies.
const CLOSE_AFTER: Nanos = Nanos(200_000_000);

/// How long the writer waits for room on a full disk before it gives a block up.
const RETRY_AFTER: Duration = Duration::from_millis(200);
const RETRIES: u32 = 10;

/// What the spool holds at the end of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolState {
    /// Traces written.
    pub traces: u64,
    /// All numbers below it are written.
    pub next_seq: Seq,
    /// Traces that could not be taken or written.
    pub lost: u64,
}

/// Takes traces from the load thread.
pub struct SpoolWriter {
    refused: u64,
    spool: Arc<Spool>,
    shell: Shell,
}

/// What carries the writer, and the way to it: its end is the trial's.
enum Shell {
    Thread(SyncSender<Box<Trace>>, JoinHandle<SpoolState>),
    /// In a simulation: disks answer at once there.
    Task(mpsc::Sender<Box<Trace>>, tokio::task::JoinHandle<SpoolState>),
}

impl SpoolWriter {
    /// Starts the thread that writes to `spool`. `on_lost` is called for every trace that it has to give up.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        spool: Arc<Spool>,
        clock: Arc<dyn Clock>,
        on_lost: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let written = Arc::clone(&spool);
        let shell = if common::simulated::is_simulated() {
            let (ring, traces) = mpsc::channel(RING);
            let writer = Writer::new(spool, clock, Duration::ZERO, on_lost);
            Shell::Task(ring, tokio::spawn(writer.run_as_task(traces)))
        } else {
            let (ring, traces) = sync_channel(RING);
            let work = move || Writer::new(spool, clock, RETRY_AFTER, on_lost).run(&traces);
            Shell::Thread(ring, std::thread::Builder::new().name("spool".into()).spawn(work)?)
        };
        Ok(Self { refused: 0, spool: written, shell })
    }

    /// Where it writes to.
    #[must_use]
    pub fn spool(&self) -> &Arc<Spool> {
        &self.spool
    }

    /// Hands a trace over. Never waits; false when the writer is too far behind, and the trace is lost.
    pub fn push(&mut self, trace: Trace) -> bool {
        let trace = Box::new(trace);
        let taken = match &self.shell {
            Shell::Thread(ring, _) => ring.try_send(trace).is_ok(),
            Shell::Task(ring, _) => ring.try_send(trace).is_ok(),
        };
        self.refused += u64::from(!taken);
        taken
    }

    /// Writes what is left and says what the spool holds. Waits for the disk: only after the last request.
    pub async fn finish(self) -> SpoolState {
        let ended = match self.shell {
            Shell::Thread(ring, thread) => {
                drop(ring);
                crate::aside::run(move || thread.join().ok()).await.ok().flatten()
            }
            Shell::Task(ring, task) => {
                drop(ring);
                task.await.ok()
            }
        };
        let refused = self.refused;
        match ended {
            Some(state) => SpoolState { lost: state.lost + refused, ..state },
            // It panicked: whatever it held is lost, and the missing traces will show as such. What it wrote is there
            // all the same.
            None => SpoolState { lost: refused.max(1), ..self.spool.state() },
        }
    }
}

impl Spool {
    /// What is in it, without what was lost.
    fn state(&self) -> SpoolState {
        let next_seq = *self.durable.borrow();
        SpoolState { traces: next_seq.0 - self.first.0, next_seq, lost: 0 }
    }
}

/// What the thread does, without the thread.
pub(super) struct Writer<F> {
    spool: Arc<Spool>,
    clock: Arc<dyn Clock>,
    open: Vec<Trace>,
    /// When the open block is closed at the latest (monotonic).
    close_at: Nanos,
    lost: u64,
    /// Between two tries at a disk that refuses.
    retry_after: Duration,
    on_lost: F,
}

impl<F: Fn()> Writer<F> {
    pub(super) fn new(spool: Arc<Spool>, clock: Arc<dyn Clock>, retry_after: Duration, on_lost: F) -> Self {
        Self { spool, clock, open: Vec::new(), close_at: Nanos::ZERO, lost: 0, retry_after, on_lost }
    }

    fn run(mut self, ring: &Receiver<Box<Trace>>) -> SpoolState {
        loop {
            let next = if self.open.is_empty() {
                ring.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                ring.recv_timeout((self.close_at - self.clock.monotonic()).to_duration())
            };
            match next {
                Ok(trace) => self.take(*trace),
                Err(RecvTimeoutError::Timeout) => self.close(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.close();
        self.state()
    }

    async fn run_as_task(mut self, mut ring: mpsc::Receiver<Box<Trace>>) -> SpoolState {
        loop {
            let wait = (self.close_at - self.clock.monotonic()).to_duration();
            let next = match self.open.is_empty() {
                true => Ok(ring.recv().await),
                false => tokio::time::timeout(wait, ring.recv()).await,
            };
            match next {
                Ok(Some(trace)) => self.take(*trace),
                Ok(None) => break,
                Err(_) => self.close(),
            }
        }
        self.close();
        self.state()
    }

    /// Where it stands; what is in the open block does not count yet.
    pub(super) fn state(&self) -> SpoolState {
        SpoolState { lost: self.lost, ..self.spool.state() }
    }

    /// Puts a trace into the open block, and closes that when it is full.
    pub(super) fn take(&mut self, trace: Trace) {
        if self.open.is_empty() {
            self.close_at = self.clock.monotonic() + CLOSE_AFTER;
        }
        self.open.push(trace);
        if self.open.len() >= BLOCK_TRACES {
            self.close();
        }
    }

    /// Closes the open block: writes and syncs it, or gives it up.
    pub(super) fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let mut result = self.spool.append(&self.open);
        for _ in 0..RETRIES {
            let Err(e) = &result else { break };
            tracing::warn!(path = %self.spool.path.display(), "the spool cannot be written, trying again: {e}");
            std::thread::sleep(self.retry_after);
            result = self.spool.append(&self.open);
        }
        if let Err(e) = result {
            let lost = self.open.len();
            tracing::error!(path = %self.spool.path.display(), lost, "traces are lost, the trial becomes invalid: {e}");
            self.lost += lost as u64;
            (0..lost).for_each(|_| (self.on_lost)());
            // A block may be whole in the file although its sync failed. Tried now, because nothing may come after it;
            // where the disk refuses this too, the next block tries again, and whoever reads the file later knows.
            if let Err(e) = self.spool.cut() {
                tracing::warn!(path = %self.spool.path.display(), "the end of the spool cannot be cut: {e}");
            }
        }
        self.open.clear();
    }
}
