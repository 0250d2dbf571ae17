//! A trial's load from Prepare to the drain, whatever carries it.
//!
//! The session talks to it through a [`LoadHandle`] and hears of it through [`Report`]s; neither side waits for the other.
//! What it is carried out with is a [`Means`]: on a host a thread, sockets and a pacer (see [`super::thread`]), in a
//! simulation tasks and an engine that is none. What it does is the same.

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
use super::lead::Lead;
use super::pacer::{Guard, pace_in_task};
use super::run::{Orders, Pace, Part, Sender, Stop, run};
use super::warmup::StageError;
use crate::engine::{Access, Engine, Prepared, Requests, TrialClock};
use crate::spool::{SpoolState, SpoolWriter};

/// Announcements between the pacer and the load. When it is full the load is behind, and the pacer announces what has
/// come together in one message: nothing is lost by its being small.
const PACE_CHANNEL: usize = 256;

/// Stops of one trial that wait: to drain, to cut, and the end of the session.
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

/// What the load says.
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

/// How the session steers the load.
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
        // Full: as many stops wait already. Closed: the load has ended, and there is nothing left to stop.
        let _ = self.stops.try_send(stop);
    }

    /// Gives up a trial that has not started.
    pub fn abandon(&mut self) {
        self.start = None;
    }
}

/// The other end of a [`LoadHandle`].
pub struct Steering {
    started: oneshot::Receiver<Nanos>,
    stops: mpsc::Receiver<Stop>,
    guard: Arc<Guard>,
}

/// Both ends; the lease is the one of `lease_until`, by boot time.
#[must_use]
pub fn steering(lease_until: &Arc<AtomicU64>) -> (LoadHandle, Steering) {
    let guard = Arc::new(Guard::new(Arc::clone(lease_until)));
    let (start, started) = oneshot::channel();
    let (stops, orders) = mpsc::channel(STOPS);
    let handle = LoadHandle { start: Some(start), stops, guard: Arc::clone(&guard) };
    (handle, Steering { started, stops: orders, guard })
}

/// What a pacer leaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct Paced {
    /// How late after the start it first looked at the clock.
    pub start_skew: Nanos,
    /// How long it was ready to run and did not.
    pub run_queue: Option<Nanos>,
}

/// Paces by a task instead of a thread: what a [`Means`] does where nobody looks at microseconds.
pub fn pace_by_task(
    start: Nanos,
    instants: Vec<Nanos>,
    guard: Arc<Guard>,
    clock: Arc<dyn Clock>,
    announce: mpsc::Sender<Pace>,
) -> impl Future<Output = Paced> + Send {
    let task = tokio::spawn(async move {
        let end = pace_in_task(start, &instants, &guard, &*clock, &announce).await;
        let _ = announce.send(Pace::Ended(end)).await;
    });
    async move {
        let _ = task.await;
        Paced::default()
    }
}

/// What a trial is carried out with.
pub trait Means {
    /// What turns arrivals into traces.
    type Engine: Engine;

    /// Sends the warm-up, and gets connections ready.
    fn prepare(
        &self,
        setup: &Setup,
        clock: &TrialClock,
    ) -> impl Future<Output = Result<Arc<Self::Engine>, StageError>> + Send;

    /// Begins to announce each of `instants`, offsets from `start`, when it is due or by `lead` before. Gives what waits
    /// for the end of that.
    ///
    /// # Errors
    /// When it cannot begin.
    fn pace(
        &self,
        start: Nanos,
        instants: Vec<Nanos>,
        lead: Arc<Lead>,
        guard: Arc<Guard>,
        clock: Arc<dyn Clock>,
        announce: mpsc::Sender<Pace>,
    ) -> std::io::Result<impl Future<Output = Paced> + Send>;

    /// Begins to look at how the agent fares, from the start of the trial. Gives what ends it.
    fn watch(&self, start: Nanos, clock: &Arc<dyn Clock>) -> impl FnOnce(&dyn Clock) -> Health + Send;
}

/// Carries a trial out. Gives the last report; the ones before it go to `reports`.
pub async fn carry_out<M: Means>(
    setup: Setup,
    means: &M,
    steering: Steering,
    reports: &mpsc::Sender<Report>,
) -> Report {
    let Steering { mut started, stops, guard } = steering;
    let clock = Arc::clone(&setup.clock);
    let trial_clock = TrialClock::new(Arc::clone(&clock), clock.monotonic());
    let prepared = tokio::select! {
        prepared = means.prepare(&setup, &trial_clock) => prepared,
        // Called off: a warm-up must not go on loading the engine.
        _ = &mut started => return Report::Abandoned,
    };
    let client = match prepared {
        Ok(client) => client,
        Err(e) => return Report::Prepared(Err(e)),
    };
    let Setup { order, slice, workload, mut spool, counters, .. } = setup;
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
    let health = means.watch(start, &clock);
    let (announce, pace) = mpsc::channel(PACE_CHANNEL);
    let instants: Vec<Nanos> = part.slice.iter().map(|a| a.at).collect();
    let lead = Arc::new(Lead::for_schedule(&instants));
    let pacing = (Arc::clone(&lead), Arc::clone(&guard), Arc::clone(&clock));
    let paced = match means.pace(start, instants, pacing.0, pacing.1, pacing.2, announce) {
        Ok(paced) => paced,
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
    run(&part, sender, Orders { pace, lead, stops }, lease_over, sink).await;
    let mut health = health(&*clock);
    // The dispatcher is drained, so the pacer has nothing left to announce and ends at its next look.
    let paced = paced.await;
    health.pacer_run_queue_seconds = paced.run_queue.map(Nanos::as_secs_f64);
    Report::Drained { spool: spool.finish().await, start_skew: paced.start_skew, health: Box::new(health) }
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
