//! One load, carried out as a session with a coordinator would carry it out: the load thread, the client, the spool.
//!
//! Everything comes back through the spool, as a coordinator would get it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, bail};
use common::clock::{Clock, SystemClock};
use common::disk::OsDisk;
use common::fleet::{Health, TrialOrder, Upload};
use common::ids::{AgentName, Digest, Epoch, Incarnation, Nanos, RunId, Seq, TrialId};
use common::plan::{BaseUrl, Target};
use common::schedule::Arrival;
use common::trace::segment::{Block, BlockOrigin};
use common::trace::{Clocks, Facts};
use common::workload::{Row, RowBody, Workload};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;

use crate::engine::Access;
use crate::load::counters::Counters;
use crate::load::scheduling::Scheduling;
use crate::load::thread;
use crate::load::trial::{Report, Setup};
use crate::spool::{Spool, SpoolWriter};

/// A prompt of some 200 tokens.
const PROMPT: &str = "What does the mark on the side of a ship say about how much it may carry? ";

/// From here to the start: the load thread is waiting by then.
const LEAD: Nanos = Nanos::from_millis(20);

/// Bytes of traces that are read back at a time.
const READ_BYTES: usize = 4 << 20;

/// What is to be sent.
pub(super) struct Load {
    /// When.
    pub(super) slice: Vec<Arrival>,
    /// Events of each answer.
    pub(super) tokens: u32,
    /// A closed loop of so many workers; none: when they are due.
    pub(super) workers: Option<u32>,
    /// Connections to open before.
    pub(super) warm: u32,
}

impl Load {
    /// So many requests, one after the other in each worker.
    pub(super) fn closed(requests: u64, workers: u32, tokens: u32) -> Self {
        Self { slice: evenly(requests, Nanos::ZERO), tokens, workers: Some(workers), warm: workers }
    }
}

/// Arrivals at the same distance.
pub(super) fn evenly(requests: u64, gap: Nanos) -> Vec<Arrival> {
    (0..requests)
        .map(|n| Arrival { index: common::ids::ArrivalIndex(n), at: Nanos(gap.0.saturating_mul(n)), row: 0 })
        .collect()
}

/// What came of it.
pub(super) struct Carried {
    /// Its name at the engine: request ids are `RUN/TRIAL/INDEX`.
    pub(super) id: String,
    /// The trial's start by the monotonic clock.
    pub(super) start: Nanos,
    /// From the first request to the last end.
    pub(super) wall: Nanos,
    /// CPU time of this process.
    pub(super) cpu: Nanos,
    /// Clocks and facts, in no order.
    pub(super) traces: Vec<(Clocks, Facts)>,
    /// How the load thread fared.
    pub(super) health: Health,
}

/// Carries loads out, one after the other.
pub(super) struct Bench {
    folder: PathBuf,
    run: RunId,
    agent: AgentName,
    next: u32,
}

fn process_cpu() -> Nanos {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(t.tv_sec), u64::try_from(t.tv_nsec));
    Nanos(seconds.unwrap_or(0) * 1_000_000_000 + nanoseconds.unwrap_or(0))
}

impl Bench {
    /// Spools to `folder`.
    pub(super) fn new(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            run: "calibrate".parse()?,
            agent: "calibrate".parse()?,
            next: 0,
        })
    }

    /// Sends `load` to `engine`.
    ///
    /// # Errors
    /// When it cannot be carried out, or not all of it ended well: then it says nothing of this host.
    pub(super) fn carry(&mut self, engine: &BaseUrl, load: &Load) -> anyhow::Result<Carried> {
        let (trial, epoch) = (TrialId(self.next), Epoch(self.next + 1));
        self.next += 1;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let origin = BlockOrigin { agent: self.agent.clone(), incarnation: Incarnation(1), trial, epoch };
        let spool = Spool::create(&OsDisk, &self.folder, &self.run, origin, Seq(0))
            .with_context(|| format!("the spool {} cannot be made", self.folder.display()))?;
        let counters = Arc::new(Counters::new(epoch, load.slice.len() as u64));
        let lost = Arc::clone(&counters);
        let writer = SpoolWriter::start(Arc::clone(&spool), Arc::clone(&clock), move || lost.trace_lost())?;
        let (reports, mut inbox) = mpsc::channel(4);
        let setup = Setup {
            order: self.order(engine, load, trial, epoch),
            slice: load.slice.clone(),
            workload: Arc::new(workload(load.tokens)),
            agent: self.agent.clone(),
            access: Access::from(None),
            clock: Arc::clone(&clock),
            // No coordinator: nothing runs out.
            lease_until: Arc::new(AtomicU64::new(u64::MAX)),
            spool: writer,
            counters: Arc::clone(&counters),
        };
        let mut handle = thread::spawn(setup, Scheduling::Usual, reports).context("no load thread")?;
        match inbox.blocking_recv() {
            Some(Report::Prepared(Ok(()))) => {}
            Some(Report::Prepared(Err(e))) => bail!("{e}"),
            other => bail!("the load thread ended before the start: {other:?}"),
        }
        let cpu = process_cpu();
        let start = clock.monotonic() + LEAD;
        handle.start(start);
        let (state, health) = match inbox.blocking_recv() {
            Some(Report::Drained { spool, health, .. }) => (spool, *health),
            other => bail!("the load thread ended before the load: {other:?}"),
        };
        let cpu = process_cpu() - cpu;
        let traces = read_back(&spool)?;
        spool.remove(&OsDisk).context("the spool")?;
        check(&traces, load.slice.len(), state.lost)?;
        let first = traces.iter().filter_map(|(c, _)| c.released).min().unwrap_or_default();
        let last = traces.iter().map(|(c, _)| c.finished).max().unwrap_or_default();
        Ok(Carried { id: format!("{}/{trial}", self.run), start, wall: last - first, cpu, traces, health })
    }

    fn order(&self, engine: &BaseUrl, load: &Load, trial: TrialId, epoch: Epoch) -> TrialOrder {
        TrialOrder {
            run: self.run.clone(),
            trial,
            epoch,
            target: Target {
                model: Some("null".to_owned()),
                ignore_eos: true,
                default_max_tokens: load.tokens,
                ..Target::plain(engine.clone())
            },
            // Both ends of these are here.
            workload: Digest::of(b""),
            workload_bytes: 0,
            schedule: Digest::of(b""),
            slice: Digest::of(b""),
            slice_count: load.slice.len() as u64,
            permits: load.workers,
            closed: load.workers.is_some(),
            warmup: Vec::new(),
            warm_connections: load.warm,
            upload: Upload::During,
        }
    }
}

fn workload(tokens: u32) -> Workload {
    let row = Row { body: RowBody::Prompt(PROMPT.repeat(10)), max_tokens: Some(tokens), line: 1 };
    Workload { rows: vec![row], digest: Digest::of(b""), ignored_fields: Default::default() }
}

fn read_back(spool: &Spool) -> anyhow::Result<Vec<(Clocks, Facts)>> {
    let mut traces = Vec::new();
    let mut seq = spool.first();
    loop {
        let blocks = spool.read_from(seq, READ_BYTES).context("the spool")?;
        if blocks.is_empty() {
            return Ok(traces);
        }
        for bytes in &blocks {
            let block = Block::decode(bytes)?;
            traces.extend(block.clocks()?.into_iter().zip(block.facts()?));
            seq = block.next_seq();
        }
    }
}

/// Scheduled is recorded, and every request ended well.
fn check(traces: &[(Clocks, Facts)], scheduled: usize, lost: u64) -> anyhow::Result<()> {
    if let Some(failure) = traces.iter().find_map(|(_, f)| f.outcome.failure()) {
        let failed = traces.iter().filter(|(_, f)| !f.outcome.is_success()).count();
        bail!("{failed} of {scheduled} requests to the null engine failed: {}", failure.told());
    }
    if traces.len() != scheduled {
        bail!("{} traces of {scheduled} requests; the disk of --spool took {lost} too few", traces.len());
    }
    Ok(())
}
