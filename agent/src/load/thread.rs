//! The load thread: a thread with a runtime of its own for everything between an arrival and its trace.
//!
//! It lives for one trial, from Prepare to the drain, because connections belong to the runtime on which they were
//! opened. The session talks to it through a [`LoadHandle`] and hears of it through [`Report`]s; neither side waits
//! for the other.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use common::clock::Clock;
use common::fleet::{Health, TrialOrder};
use common::ids::{AgentName, Nanos};
use common::schedule::Arrival;
use common::trace::Trace;
use common::workload::Workload;
use tokio::sync::{mpsc, oneshot};

use super::counters::Counters;
use super::pacer::{Guard, PaceEnd, pace};
use super::run::{Orders, Pace, Part, Sender, Stop, run};
use super::warmup::{self, StageError};
use crate::engine::{Access, Client, ClientConfig, Prepared, Requests, TrialClock};
use crate::health::canary::{self, Samples};
use crate::health::evidence::{self, Snapshot};
use crate::spool::{SpoolState, SpoolWriter};

/// Announcements between the pacer and the load thread. When it is full the load thread is behind, and the pacer
/// announces what has come together in one message: nothing is lost by its being small.
const PACE_CHANNEL: usize = 256;

/// Stops of one trial that wait for the load thread: to drain, to cut, and the end of the session.
const STOPS: usize = 8;

/// Everything that a trial needs on this agent.
pub struct Setup {
    /// What to do.
    pub order: TrialOrder,
    /// This agent's arrivals.
    pub slice: Vec<Arrival>,
    /// The rows.
    pub workload: Arc<Workload>,
    /// This agent.
    pub agent: AgentName,
    /// What this agent brings to the engine.
    pub access: Access,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Boot time until which the lease holds.
    pub lease_until: Arc<AtomicU64>,
    /// Where traces go.
    pub spool: SpoolWriter,
    /// What the heartbeat shows.
    pub counters: Arc<Counters>,
}

/// What the load thread says.
#[derive(Debug)]
pub enum Report {
    /// Warmed up and connected, or why not.
    Prepared(Result<(), StageError>),
    /// Every arrival has its trace in the spool.
    Drained {
        /// What the spool holds.
        spool: SpoolState,
        /// How late the first look at the clock was after the start.
        start_skew: Nanos,
        /// How the agent fared.
        health: Box<Health>,
    },
    /// It ended without having started.
    Abandoned,
}

/// How the session steers the load thread.
pub struct LoadHandle {
    start: Option<oneshot::Sender<Nanos>>,
    stops: mpsc::Sender<Stop>,
    guard: Arc<Guard>,
}

impl LoadHandle {
    /// Starts the trial at this instant of the monotonic clock. Only the first call counts.
    pub fn start(&mut self, at: Nanos) {
        if let Some(start) = self.start.take() {
            let _ = start.send(at);
        }
    }

    /// Sends nothing more; with `cancel` cuts what is in flight.
    pub fn stop(&self, stop: Stop) {
        self.guard.stop();
        // Full: as many stops wait already. Closed: the thread has ended, and there is nothing left to stop.
        let _ = self.stops.try_send(stop);
    }

    /// Gives up a trial that has not started.
    pub fn abandon(&mut self) {
        self.start = None;
    }
}

/// Starts the load thread. `reports` must have room for the few reports of a trial.
///
/// # Errors
/// When the thread or its runtime cannot be made.
pub fn spawn(setup: Setup, reports: mpsc::Sender<Report>) -> std::io::Result<LoadHandle> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let guard = Arc::new(Guard::new(Arc::clone(&setup.lease_until)));
    let (start, started) = oneshot::channel();
    let (stops, stop_orders) = mpsc::channel(STOPS);
    let their_guard = Arc::clone(&guard);
    let work = move || {
        precise_timers();
        let last = runtime.block_on(trial(setup, started, stop_orders, their_guard, &reports));
        let _ = reports.blocking_send(last);
    };
    std::thread::Builder::new().name("load".into()).spawn(work)?;
    Ok(LoadHandle { start: Some(start), stops, guard })
}

/// By default the kernel may wake a thread 50 µs late to save power.
fn precise_timers() {
    if let Err(e) = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)) {
        tracing::debug!("timer slack stays as it is: {e}");
    }
}

async fn trial(
    setup: Setup,
    mut started: oneshot::Receiver<Nanos>,
    stops: mpsc::Receiver<Stop>,
    guard: Arc<Guard>,
    reports: &mpsc::Sender<Report>,
) -> Report {
    let Setup { order, slice, workload, agent, access, clock, mut spool, counters, .. } = setup;
    let trial_clock = TrialClock::new(Arc::clone(&clock), clock.monotonic());
    let client = |label: String| {
        let (target, run) = (order.target.clone(), order.run.clone());
        let (agent, access) = (agent.clone(), access.clone());
        let config = ClientConfig { target, access, agent, run, trial: label };
        Client::new(config, trial_clock.clone()).map_err(|e| StageError::new("prepare", e))
    };
    let prepared = async {
        warmup::run(&order, &workload, client(format!("{}-warmup", order.trial))?).await?;
        let client = Arc::new(client(order.trial.to_string())?);
        let wanted = order.warm_connections as usize;
        client.warm(wanted).await.map_err(|f| StageError::failure("connect", &f))?;
        Ok(client)
    };
    let prepared = tokio::select! {
        prepared = prepared => prepared,
        // Called off: a warm-up must not go on loading the engine.
        _ = &mut started => return Report::Abandoned,
    };
    let client = match prepared {
        Ok(client) => client,
        Err(e) => return Report::Prepared(Err(e)),
    };
    let part = Part {
        rows: bodies(&order, &workload, &slice),
        slice,
        permits: order.permits,
        queue_timeout: order.target.total_timeout,
        closed: order.closed,
    };
    if reports.send(Report::Prepared(Ok(()))).await.is_err() {
        return Report::Abandoned;
    }
    let Ok(start) = started.await else { return Report::Abandoned };
    trial_clock.set_t0(start);
    let watched = Watched::begin(start, &clock);
    let (announce, announced) = mpsc::channel(PACE_CHANNEL);
    let pacer = match spawn_pacer(&part, start, Arc::clone(&guard), Arc::clone(&clock), announce) {
        Ok(pacer) => pacer,
        Err(e) => return Report::Prepared(Err(StageError::new("start", e))),
    };
    let lost = Arc::clone(&counters);
    let sink = |trace: Trace| {
        if !spool.push(trace) {
            lost.trace_lost();
        }
    };
    let lease_over = || guard.lease_expired(&*clock);
    let sender = Sender { client, clock: trial_clock, counters };
    run(&part, sender, Orders { pace: announced, stops }, lease_over, sink).await;
    let mut health = watched.end(&*clock);
    // The dispatcher is drained, so the pacer has nothing left to announce and ends at its next look.
    let paced = tokio::task::spawn_blocking(move || pacer.join()).await;
    let paced = paced.ok().and_then(Result::ok).unwrap_or_default();
    health.pacer_run_queue_seconds = paced.run_queue.map(Nanos::as_secs_f64);
    Report::Drained { spool: spool.finish(), start_skew: paced.start_skew, health: Box::new(health) }
}

/// The load thread under watch, from the start of a trial to its drain.
struct Watched {
    begin: Snapshot,
    samples: Samples,
    canary: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Watched {
    fn begin(start: Nanos, clock: &Arc<dyn Clock>) -> Self {
        let samples = Samples::default();
        let canary = tokio::spawn(canary::run(start, Arc::clone(clock), samples.clone()));
        Self { begin: Snapshot::take(&**clock), samples, canary }
    }

    fn end(self, clock: &dyn Clock) -> Health {
        self.canary.abort();
        Health { read_lateness: self.samples.lateness(), ..self.begin.until(&Snapshot::take(clock)) }
    }
}

/// What the pacer's thread leaves.
#[derive(Default)]
struct Paced {
    /// How late after the start it first looked at the clock.
    start_skew: Nanos,
    /// How long it was ready to run and did not.
    run_queue: Option<Nanos>,
}

fn bodies(order: &TrialOrder, workload: &Workload, slice: &[Arrival]) -> Vec<Option<Prepared>> {
    let requests = Requests::new(&order.target);
    let mut rows = vec![None; workload.rows.len()];
    for arrival in slice {
        let number = arrival.row as usize;
        if let (Some(slot @ None), Some(row)) = (rows.get_mut(number), workload.rows.get(number)) {
            *slot = Some(requests.prepare(row));
        }
    }
    rows
}

fn spawn_pacer(
    part: &Part,
    start: Nanos,
    guard: Arc<Guard>,
    clock: Arc<dyn Clock>,
    announce: mpsc::Sender<Pace>,
) -> std::io::Result<std::thread::JoinHandle<Paced>> {
    let instants: Vec<Nanos> = part.slice.iter().map(|a| a.at).collect();
    let work = move || {
        precise_timers();
        let start_skew = clock.monotonic() - start;
        let end = pace(start, &instants, &guard, &*clock, |count| {
            let _ = announce.blocking_send(Pace::Due(count));
        });
        if end != PaceEnd::Complete {
            tracing::warn!("pacing ended early: {end:?}");
        }
        let _ = announce.blocking_send(Pace::Ended(end));
        // The thread is new: all its waiting was in this trial.
        Paced { start_skew, run_queue: evidence::run_queue_delay() }
    };
    std::thread::Builder::new().name("pacer".into()).spawn(work)
}
