//! The async side of the writer: submissions go in, acknowledgements come out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use common::fleet::TrialFate;
use common::ids::{AgentName, Epoch, Incarnation, Seq, TrialId};
use common::trace::segment::Block;
use tokio::sync::{mpsc, oneshot, watch};

use super::admit::{Confusion, process_name};
use super::writer::Writer;
use crate::store::{IndexError, Marks, RunEvent, RunStore, StoreError};

/// Submissions that may wait for the writer. Each is at most one batch of an agent (about 1 MiB), so this bounds the
/// memory to about 64 MiB; and it is more than one group takes, so that the next group collects while one is synced.
/// A full channel holds back the agents' uploads, never their dispatching. `IngestCounters::stalls` counts it.
const WAITING: usize = 64;

/// How far an agent process is stored. Both say: everything below this number is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// The submission is stored, or was before.
    UpTo(Seq),
    /// Traces before the submission, or inside it, are missing: go on from this one.
    ResumeFrom(Seq),
}

/// Why a submission was not stored. Every submitter of a group gets its group's error; nothing of the group was
/// acknowledged, and it may be submitted again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IngestError {
    /// The agent does not keep to the protocol; sending again does not help.
    #[error(transparent)]
    Confused(#[from] Confusion),
    /// The segment file cannot be written.
    #[error("traces cannot be stored in {}: {reason}{}", path.display(), if *full { "; free some space" } else { "" })]
    Disk {
        /// The file.
        path: PathBuf,
        /// What the disk said.
        reason: String,
        /// It is full: it may work again later.
        full: bool,
    },
    /// The index cannot be written.
    #[error("traces are stored but cannot be indexed: {0}")]
    Index(#[from] IndexError),
    /// The writer was closed, or died of a panic.
    #[error("the writer of this run has ended")]
    Closed,
}

/// What the writer did, for the operator and the run's record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IngestCounters {
    /// Traces stored.
    pub traces: u64,
    /// Bytes of their blocks.
    pub bytes: u64,
    /// Groups that were synced: `traces / groups` says how much a sync was shared.
    pub groups: u64,
    /// Traces that were stored before and dropped.
    pub duplicates: u64,
    /// Submissions answered with [`Ack::ResumeFrom`].
    pub gaps: u64,
    /// Submissions refused with [`Confusion`].
    pub confused: u64,
    /// Groups that disk or index refused.
    pub failures: u64,
    /// Submissions that had to wait because the channel was full.
    pub stalls: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) traces: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) groups: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) gaps: AtomicU64,
    pub(super) confused: AtomicU64,
    pub(super) failures: AtomicU64,
    stalls: AtomicU64,
}

/// Adds to a counter. Counters are read one by one, for people: no order between them is needed.
pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// What writer and handles share.
pub(super) struct Board {
    /// Durable marks.
    marks: Mutex<Marks>,
    /// Changes with every change of `marks`; closes when the writer ends, because the writer owns the sender.
    changed: watch::Receiver<()>,
    pub(super) counters: Counters,
}

impl Board {
    pub(super) fn new(marks: Marks) -> (Arc<Self>, watch::Sender<()>) {
        let (sender, changed) = watch::channel(());
        (Arc::new(Self { marks: Mutex::new(marks), changed, counters: Counters::default() }), sender)
    }

    pub(super) fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn mark(&self, agent: &AgentName, incarnation: Incarnation) -> Seq {
        self.marks().get(&(agent.clone(), incarnation)).copied().unwrap_or_default()
    }
}

/// What the writer is asked to do.
pub(super) enum Work {
    Store(Submission),
    Skip(Skip),
}

/// A mark on its way to the writer.
pub(super) struct Skip {
    pub(super) process: (AgentName, Incarnation),
    pub(super) to: Seq,
    pub(super) reply: oneshot::Sender<Result<(), IngestError>>,
}

/// A submission on its way to the writer.
pub(super) struct Submission {
    pub(super) blocks: Vec<Block>,
    pub(super) reply: oneshot::Sender<Result<Ack, IngestError>>,
}

/// Submits to a run's writer. Clones share it. When the last clone is dropped without [`IngestHandle::close`], the
/// writer still stores what waits and ends by itself.
#[derive(Clone)]
pub struct IngestHandle(Arc<Inner>);

struct Inner {
    board: Arc<Board>,
    /// None once closed.
    sender: Mutex<Option<mpsc::Sender<Work>>>,
    shell: Mutex<Option<Shell>>,
    /// None once closed: the run is then somebody else's.
    run: Mutex<Option<RunStore>>,
}

/// Starts the writer of a run on its own thread: it waits for the disk most of the time.
///
/// # Errors
/// [`StoreError::HasWriter`], or when the marks cannot be read or the thread cannot start.
pub fn start(run: &RunStore) -> Result<IngestHandle, StoreError> {
    let (writer, board) = Writer::open(run)?;
    let (sender, receiver) = mpsc::channel(WAITING);
    let shell = Shell::start(writer.run(receiver));
    let shell = shell.map_err(|source| StoreError::Thread { run: run.id().clone(), source })?;
    Ok(IngestHandle(Arc::new(Inner {
        board,
        sender: Mutex::new(Some(sender)),
        shell: Mutex::new(Some(shell)),
        run: Mutex::new(Some(run.clone())),
    })))
}

/// What carries the writer: a thread, for it waits for the disk most of the time; in a simulation a task.
enum Shell {
    Thread(JoinHandle<()>),
    Task(tokio::task::JoinHandle<()>),
}

impl Shell {
    fn start(work: impl Future<Output = ()> + Send + 'static) -> std::io::Result<Self> {
        if common::simulated::is_simulated() {
            return Ok(Self::Task(tokio::spawn(work)));
        }
        let thread = std::thread::Builder::new().name("ingest".to_owned());
        Ok(Self::Thread(thread.spawn(move || crate::aside::block_on(work))?))
    }

    /// Waits for its end; false when it died of a panic.
    async fn join(self) -> bool {
        match self {
            Self::Thread(thread) => matches!(crate::aside::run(move || thread.join()).await, Ok(Ok(()))),
            Self::Task(task) => task.await.is_ok(),
        }
    }
}

impl IngestHandle {
    /// Stores blocks of one agent process, in order, and answers when they are durable. The caller has checked that
    /// their trial and epoch still take traces. Dropping the future does not take the submission back.
    ///
    /// # Errors
    /// See [`IngestError`]; nothing of the submission was acknowledged then.
    pub async fn submit(&self, blocks: Vec<Block>) -> Result<Ack, IngestError> {
        let sender = self.0.sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sender = sender.ok_or(IngestError::Closed)?;
        let (reply, answer) = oneshot::channel();
        match sender.try_send(Work::Store(Submission { blocks, reply })) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(work)) => {
                count(&self.0.board.counters.stalls, 1);
                sender.send(work).await.map_err(|_| IngestError::Closed)?;
            }
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(IngestError::Closed),
        }
        // Or the writer could not end while this submission is under way.
        drop(sender);
        answer.await.map_err(|_| IngestError::Closed)?
    }

    /// Expects nothing of an agent process below `to` any more: what is missing there was of sealed trials, which the
    /// agent keeps no longer, and is lost. Without this the agent would be asked for it for ever.
    ///
    /// # Errors
    /// When the index cannot be written.
    pub async fn skip_to(
        &self,
        agent: &AgentName,
        incarnation: Incarnation,
        to: Seq,
    ) -> Result<(), IngestError> {
        let sender = self.0.sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sender = sender.ok_or(IngestError::Closed)?;
        let (reply, answer) = oneshot::channel();
        let skip = Skip { process: (agent.clone(), incarnation), to, reply };
        sender.send(Work::Skip(skip)).await.map_err(|_| IngestError::Closed)?;
        drop(sender);
        answer.await.map_err(|_| IngestError::Closed)?
    }

    /// The next sequence number expected of an agent process: everything below it is durable.
    #[must_use]
    pub fn mark(&self, agent: &AgentName, incarnation: Incarnation) -> Seq {
        self.0.board.mark(agent, incarnation)
    }

    /// The durable marks of every agent process of the run.
    #[must_use]
    pub fn marks(&self) -> BTreeMap<(AgentName, Incarnation), Seq> {
        self.0.board.marks().clone()
    }

    /// Waits until everything of an agent process below `seq` is durable. The deadline is the caller's.
    ///
    /// # Errors
    /// [`IngestError::Closed`] when the writer ends before.
    pub async fn wait_for(
        &self,
        agent: &AgentName,
        incarnation: Incarnation,
        seq: Seq,
    ) -> Result<(), IngestError> {
        let mut changed = self.0.board.changed.clone();
        loop {
            // Marked as seen before the look, so that no change falls between look and wait.
            changed.mark_unchanged();
            if self.mark(agent, incarnation) >= seq {
                return Ok(());
            }
            if changed.changed().await.is_err() {
                let stored = self.mark(agent, incarnation);
                let process = process_name(agent, incarnation);
                tracing::warn!(%process, %stored, awaited = %seq, "the writer ended before the awaited traces came");
                return if stored >= seq { Ok(()) } else { Err(IngestError::Closed) };
            }
        }
    }

    /// Of each trial, whether the run's log says that it is sealed; one that was called off is, too. It waits for the
    /// disk.
    ///
    /// # Errors
    /// [`IngestError::Closed`], or when the log cannot be read.
    pub fn fates(&self, trials: &[(TrialId, Epoch)]) -> Result<Vec<TrialFate>, IngestError> {
        let run = self.0.run.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let events = run.ok_or(IngestError::Closed)?.events().map_err(|e| match e {
            StoreError::Index(e) => IngestError::Index(e),
            _ => IngestError::Closed,
        })?;
        let over = events.iter().filter_map(|event| match event {
            RunEvent::TrialSealed { trial, epoch, .. } | RunEvent::TrialCancelled { trial, epoch, .. } => {
                Some((*trial, *epoch))
            }
            _ => None,
        });
        let over: BTreeSet<_> = over.collect();
        let fate = |key| if over.contains(key) { TrialFate::Sealed } else { TrialFate::Unknown };
        Ok(trials.iter().map(fate).collect())
    }

    /// What the writer did so far.
    #[must_use]
    pub fn counters(&self) -> IngestCounters {
        let c = &self.0.board.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IngestCounters {
            traces: get(&c.traces),
            bytes: get(&c.bytes),
            groups: get(&c.groups),
            duplicates: get(&c.duplicates),
            gaps: get(&c.gaps),
            confused: get(&c.confused),
            failures: get(&c.failures),
            stalls: get(&c.stalls),
        }
    }

    /// Takes no more submissions, waits until those that wait are stored, and joins the thread. Afterwards the run
    /// can be written by another writer. A second call returns at once.
    ///
    /// # Errors
    /// [`IngestError::Closed`] when the writer died of a panic.
    pub async fn close(&self) -> Result<(), IngestError> {
        drop(self.0.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
        drop(self.0.run.lock().unwrap_or_else(PoisonError::into_inner).take());
        let shell = self.0.shell.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(shell) = shell else { return Ok(()) };
        if shell.join().await { Ok(()) } else { Err(IngestError::Closed) }
    }
}
