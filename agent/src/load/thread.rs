//! The load thread: a thread with a runtime of its own for everything between an arrival and its trace.
//!
//! It lives for one trial, from Prepare to the drain, because connections belong to the runtime on which they were
//! opened. What it does is [`super::trial`]'s; here is what it does it with: sockets, a pacing thread, and the kernel's
//! word for how both fared.

use std::sync::Arc;

use common::clock::Clock;
use common::fleet::Health;
use common::ids::Nanos;
use tokio::sync::mpsc;

use super::lead::Lead;
use super::pacer::{Guard, PaceEnd, pace};
use super::run::Pace;
use super::scheduling::Scheduling;
use super::trial::{LoadHandle, Means, Paced, Report, Setup, carry_out, steering};
use super::warmup::{self, StageError};
use crate::engine::{ClientConfig, Replicas, TrialClock};
use crate::health::canary::{self, Samples};
use crate::health::evidence::{self, Snapshot};

/// So many streams have their turn before the dispatcher has its own, and before the sockets are looked at again. By
/// default it is 61: with hundreds of streams that have something to read, an arrival would wait for half a millisecond.
const TURNS: u32 = 4;

/// Starts the load thread. `reports` must have room for the few reports of a trial.
///
/// # Errors
/// When the thread or its runtime cannot be made.
pub fn spawn(
    setup: Setup,
    scheduling: Scheduling,
    reports: mpsc::Sender<Report>,
) -> std::io::Result<LoadHandle> {
    let (handle, steering) = steering(&setup.lease_until);
    let (made, is_made) = std::sync::mpsc::channel();
    let work = move || {
        // Made here: were it dropped by whoever asks for this thread, which may not be had, that would panic.
        let runtime = match runtime() {
            Ok(runtime) => runtime,
            Err(e) => {
                let _ = made.send(Err(e));
                return;
            }
        };
        let _ = made.send(Ok(()));
        prepare_thread(scheduling);
        let last = runtime.block_on(carry_out(setup, &Host { scheduling }, steering, &reports));
        let _ = reports.blocking_send(last);
    };
    std::thread::Builder::new().name("load".into()).spawn(work)?;
    // A thread that dies of a panic has dropped its end.
    is_made.recv().unwrap_or_else(|e| Err(std::io::Error::other(e)))?;
    Ok(handle)
}

/// The runtime of a load thread.
///
/// # Errors
/// When the operating system gives no descriptors for it.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().event_interval(TURNS).build()
}

/// Makes the calling thread one that is woken on time.
pub fn prepare_thread(scheduling: Scheduling) {
    if let Err(e) = scheduling.take() {
        tracing::warn!("{e}");
    }
    // By default the kernel may wake a thread 50 µs late to save power.
    if let Err(e) = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)) {
        tracing::debug!("timer slack stays as it is: {e}");
    }
}

/// A host's means.
struct Host {
    scheduling: Scheduling,
}

impl Means for Host {
    type Engine = Replicas;

    async fn prepare(&self, setup: &Setup, clock: &TrialClock) -> Result<Arc<Replicas>, StageError> {
        let order = &setup.order;
        let engines = |label: String| {
            let (target, run) = (order.target.clone(), order.run.clone());
            let (agent, access) = (setup.agent.clone(), setup.access.clone());
            let config = ClientConfig { target, access, agent, run, trial: label };
            Replicas::new(&config, order.schedule, clock).map_err(|e| StageError::new("prepare", e))
        };
        for client in engines(format!("{}-warmup", order.trial))?.clients() {
            warmup::run(order, &setup.workload, client.clone()).await?;
        }
        let engines = Arc::new(engines(order.trial.to_string())?);
        let wanted = order.warm_connections as usize;
        engines.warm(wanted).await.map_err(|f| StageError::failure("connect", &f))?;
        Ok(engines)
    }

    fn pace(
        &self,
        start: Nanos,
        instants: Vec<Nanos>,
        lead: Arc<Lead>,
        guard: Arc<Guard>,
        clock: Arc<dyn Clock>,
        announce: mpsc::Sender<Pace>,
    ) -> std::io::Result<impl Future<Output = Paced> + Send> {
        let scheduling = self.scheduling;
        let work = move || {
            prepare_thread(scheduling);
            let start_skew = clock.monotonic() - start;
            let end = pace(start, &instants, &lead, &guard, &*clock, |pace| {
                let _ = announce.blocking_send(pace);
            });
            if end != PaceEnd::Complete {
                tracing::warn!("pacing ended early: {end:?}");
            }
            let _ = announce.blocking_send(Pace::Ended(end));
            // The thread is new: all its waiting was in this trial.
            Paced { start_skew, run_queue: evidence::run_queue_delay() }
        };
        let pacer = std::thread::Builder::new().name("pacer".into()).spawn(work)?;
        Ok(async move {
            let paced = crate::aside::run(move || pacer.join()).await;
            paced.ok().and_then(Result::ok).unwrap_or_default()
        })
    }

    fn watch(&self, start: Nanos, clock: &Arc<dyn Clock>) -> impl FnOnce(&dyn Clock) -> Health + Send {
        let samples = Samples::default();
        let canary = tokio::spawn(canary::run(start, Arc::clone(clock), samples.clone()));
        let begin = Snapshot::take(&**clock);
        move |clock: &dyn Clock| {
            canary.abort();
            Health { read_lateness: samples.lateness(), ..begin.until(&Snapshot::take(clock)) }
        }
    }
}
