//! The trial under way on this agent: from Prepare to the seal.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use common::clock::Clock;
use common::disk::Disk;
use common::fleet::{Health, TrialOrder, Upload};
use common::ids::{AgentName, Epoch, Incarnation, Nanos, Seq};
use common::simulated::{Sabotage, is_sabotaged};
use common::trace::segment::BlockOrigin;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::fetch::Fetched;
use super::join::Wire;
use super::upload;
use crate::engine::Access;
use crate::load::counters::Counters;
use crate::load::run::Stop;
use crate::load::trial::{LoadHandle, Report, Setup};
use crate::outside::Outside;
use crate::spool::{Spool, SpoolState, SpoolWriter};

/// Reports of one trial's load thread: prepared, drained, abandoned.
const REPORTS: usize = 4;

/// For a trial to be cut and spooled. Less than the lease, which is not renewed meanwhile.
const END_WITHIN: Duration = Duration::from_secs(10);

/// How far a trial has come. Control messages that do not fit are ignored: they are late or repeated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Phase {
    /// Slice and workload are on their way.
    Fetching,
    /// Warming up.
    Preparing,
    /// Waiting to be armed.
    Ready,
    /// Waiting for the word to start at this instant.
    Armed(Nanos),
    /// Sending.
    Running,
    /// Every arrival has its trace; kept so that it can be said again after a reconnection.
    Drained { spool: SpoolState, start_skew: Nanos, health: Health },
    /// Given up; only the load thread's end is missing.
    Over,
}

/// What a trial needs from the agent.
pub(super) struct Surroundings {
    pub(super) agent: AgentName,
    pub(super) access: Access,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) spool_dir: PathBuf,
    pub(super) lease_until: Arc<AtomicU64>,
    pub(super) outside: Arc<dyn Outside>,
}

/// A trial on this agent.
pub(super) struct Trial {
    pub(super) order: TrialOrder,
    pub(super) phase: Phase,
    pub(super) counters: Arc<Counters>,
    /// Whose trial it is: another coordinator must not be told of it.
    pub(super) coordinator: u64,
    /// Of its traces.
    incarnation: Incarnation,
    first_seq: Seq,
    load: Option<LoadHandle>,
    reports: Option<mpsc::Receiver<Report>>,
    spool: Option<Arc<Spool>>,
    uploader: Option<AbortHandle>,
    disk: Arc<dyn Disk>,
}

impl Trial {
    /// A trial whose slice and workload are being fetched.
    pub(super) fn new(
        order: TrialOrder,
        coordinator: u64,
        (incarnation, first_seq): (Incarnation, Seq),
        disk: Arc<dyn Disk>,
    ) -> Self {
        let counters = Arc::new(Counters::new(order.epoch, order.slice_count));
        let (phase, load, reports, spool, uploader) = (Phase::Fetching, None, None, None, None);
        Self {
            order,
            phase,
            counters,
            coordinator,
            incarnation,
            first_seq,
            load,
            reports,
            spool,
            uploader,
            disk,
        }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.order.epoch
    }

    /// Slice and workload are here: opens the spool and starts the load thread.
    ///
    /// # Errors
    /// What is wrong, for a person.
    pub(super) fn prepare(&mut self, fetched: Fetched, s: Surroundings) -> Result<(), String> {
        let origin = BlockOrigin {
            agent: s.agent.clone(),
            incarnation: self.incarnation,
            trial: self.order.trial,
            epoch: self.order.epoch,
        };
        let dir = &s.spool_dir;
        let spool = Spool::create(&*self.disk, dir, &self.order.run, origin, self.first_seq)
            .map_err(|e| format!("the spool {} cannot be made: {e}; see --spool", dir.display()))?;
        self.spool = Some(Arc::clone(&spool));
        let counters = Arc::clone(&self.counters);
        let writer = SpoolWriter::start(spool, Arc::clone(&s.clock), move || counters.trace_lost())
            .map_err(|e| format!("the spool's thread cannot be started: {e}"))?;
        let (reports, inbox) = mpsc::channel(REPORTS);
        let setup = Setup {
            order: self.order.clone(),
            slice: fetched.slice,
            workload: fetched.workload,
            agent: s.agent,
            access: s.access,
            clock: s.clock,
            lease_until: s.lease_until,
            spool: writer,
            counters: Arc::clone(&self.counters),
        };
        self.load = Some(s.outside.load(setup, reports).map_err(|e| format!("no load thread: {e}"))?);
        self.reports = Some(inbox);
        self.phase = Phase::Preparing;
        Ok(())
    }

    /// The load thread's next report; waits for ever when there is none to come.
    pub(super) async fn report(&mut self) -> Report {
        if let Some(reports) = &mut self.reports {
            if let Some(report) = reports.recv().await {
                return report;
            }
            self.reports = None;
        }
        std::future::pending().await
    }

    /// Begins, or begins again on a new connection, to deliver traces, if it is time for that: they may have to wait for
    /// the drain, so that nothing of them is on the network while the trial is measured.
    pub(super) fn deliver(&mut self, wire: Wire) {
        let waits = self.order.upload == Upload::After
            && !matches!(self.phase, Phase::Drained { .. })
            && !is_sabotaged(Sabotage::DeliverEarly);
        let Some(spool) = self.spool.as_ref().filter(|_| !waits) else { return };
        let work = upload::upload(self.order.run.clone(), Arc::clone(spool), wire);
        if let Some(old) = self.uploader.replace(tokio::spawn(work).abort_handle()) {
            old.abort();
        }
    }

    /// The word to start, given at `now`. False when it came after the start: then nothing is sent.
    pub(super) fn start(&mut self, at: Nanos, now: Nanos) -> bool {
        if now > at {
            return false;
        }
        if let Some(load) = &mut self.load {
            load.start(at);
        }
        self.phase = Phase::Running;
        true
    }

    pub(super) fn stop(&mut self, stop: Stop) {
        if let Some(load) = &self.load {
            load.stop(stop);
        }
    }

    /// Gives up a trial that has not started. Its spool holds nothing and goes.
    pub(super) fn abandon(&mut self) {
        if let Some(load) = &mut self.load {
            load.abandon();
        }
        self.phase = Phase::Over;
        self.forget_spool();
    }

    /// The trial is sealed: the spool may go. Says from which number on the next trial's traces may go on; none when
    /// the coordinator does not have everything before it, or more may still come.
    pub(super) fn sealed(mut self) -> Option<Seq> {
        // From the spool and not from the last report: a trial that was given up may have delivered some, too, and a
        // number must never be used twice.
        let next = match &self.spool {
            None => Some(self.first_seq),
            Some(spool) => {
                let still = self.phase != Phase::Running && spool.is_delivered();
                still.then(|| *spool.durable().borrow())
            }
        };
        self.forget_spool();
        next
    }

    /// Ends it because its coordinator is gone: nothing more is sent, what is in flight is cut, and all of it is spooled
    /// when this returns. What is spooled stays on disk.
    pub(super) async fn end(mut self) {
        if self.phase != Phase::Running {
            return;
        }
        self.stop(Stop { reason: "the coordinator is gone".into(), cancel: true });
        let drained = async {
            while let Some(reports) = &mut self.reports {
                match reports.recv().await {
                    Some(Report::Drained { .. } | Report::Abandoned) | None => self.reports = None,
                    Some(Report::Prepared(_)) => {}
                }
            }
        };
        if tokio::time::timeout(END_WITHIN, drained).await.is_err() {
            tracing::error!(
                "a trial whose coordinator is gone does not end; what it still spools is not delivered"
            );
        }
    }

    /// Of its traces.
    pub(super) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn forget_spool(&mut self) {
        if let Some(uploader) = self.uploader.take() {
            uploader.abort();
        }
        if let Some(spool) = self.spool.take() {
            self.first_seq = *spool.durable().borrow();
            if let Err(e) = spool.remove(&*self.disk) {
                tracing::warn!("a sealed segment stays in the spool: {e}");
            }
        }
    }
}

impl Drop for Trial {
    /// Nobody waits for this trial any more. What it has spooled stays on disk.
    fn drop(&mut self) {
        if let Some(uploader) = self.uploader.take() {
            uploader.abort();
        }
        if let Some(load) = &mut self.load {
            load.abandon();
            load.stop(Stop { reason: "the coordinator is gone".into(), cancel: true });
        }
    }
}
