//! The load thread with streams to read, and the pacer without.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use agent::engine::Prepared;
use agent::health::canary::{self, Samples};
use agent::load::counters::Counters;
use agent::load::lead::Lead;
use agent::load::pacer::pace;
use agent::load::run::{Orders, Pace, Part, Sender, run};
use agent::load::scheduling::Scheduling;
use agent::load::thread::{prepare_thread, runtime};
use anyhow::{Context, ensure};
use common::clock::{Clock, SystemClock};
use common::ids::{ArrivalIndex, Epoch, Nanos};
use common::schedule::Arrival;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::SECONDS;
use crate::bare;
use crate::cpu;
use crate::stats::Lateness;
use crate::support::Rig;

/// Where the load comes from.
pub(crate) struct Streams {
    /// Ports of the two null servers.
    pub(crate) streaming: u16,
    pub(crate) answering: u16,
    pub(crate) connections: usize,
    /// Of the thread that reads and sends.
    pub(crate) core: usize,
    pub(crate) scheduling: Scheduling,
}

/// What was seen.
pub(crate) struct Seen {
    pub(crate) dispatch: Option<Lateness>,
    pub(crate) written: Option<Lateness>,
    pub(crate) read: Lateness,
    /// CPU seconds of the load thread a second.
    pub(crate) cpu: f64,
}

impl Streams {
    /// Reads the streams on a thread of its own and sends arrivals at `instants` beside them.
    pub(crate) fn beside(&self, instants: Option<Vec<Nanos>>) -> anyhow::Result<Seen> {
        let (streaming, answering) = (self.streaming, self.answering);
        let (connections, core, scheduling) = (self.connections, self.core, self.scheduling);
        let work = move || -> anyhow::Result<Seen> {
            cpu::pin(core);
            prepare_thread(scheduling);
            let rigs = (Rig::new(streaming)?, Rig::new(answering)?);
            runtime()?.block_on(beside(rigs, connections, instants, scheduling))
        };
        let thread = std::thread::Builder::new().name("load".into()).spawn(work)?;
        thread.join().map_err(|_| anyhow::anyhow!("the load thread panicked"))?
    }
}

async fn beside(
    (streaming, answering): (Rig, Rig),
    connections: usize,
    instants: Option<Vec<Nanos>>,
    scheduling: Scheduling,
) -> anyhow::Result<Seen> {
    let warmed =
        |rig: Rig, n| async move { rig.client.warm(n).await.map_err(|f| anyhow::anyhow!(f.message)) };
    warmed(streaming.clone(), connections).await?;
    warmed(answering.clone(), 64).await?;
    let over = Arc::new(AtomicBool::new(false));
    let mut streams = JoinSet::new();
    for _ in 0..connections {
        let (rig, over) = (streaming.clone(), Arc::clone(&over));
        streams.spawn(async move {
            while !over.load(Relaxed) {
                let trace = rig.send().await;
                ensure!(trace.facts.outcome.is_success(), "{:?}", trace.facts.outcome);
            }
            Ok(())
        });
    }
    // All of them stream.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let start = SystemClock.monotonic() + Nanos::from_millis(50);
    let samples = Samples::default();
    let canary = tokio::spawn(canary::run(start, Arc::new(SystemClock), samples.clone()));
    let before = cpu::used();
    let late = match instants {
        Some(instants) => Some(paced(&answering, start, instants, scheduling).await?),
        None => {
            tokio::time::sleep(Duration::from_secs_f64(SECONDS)).await;
            None
        }
    };
    let used = cpu::used() - before;
    canary.abort();
    over.store(true, Relaxed);
    while let Some(stream) = streams.join_next().await {
        stream??;
    }
    let read = samples.lateness().context("the canary saw nothing")?;
    let (dispatch, written) = late.map_or((None, None), |(d, w)| (Some(d), Some(w)));
    let read = Lateness::from(read);
    Ok(Seen { dispatch, written, read, cpu: used.as_secs_f64() / SECONDS })
}

/// Sends arrivals as a trial does. Gives how late they were dispatched and written.
async fn paced(
    rig: &Rig,
    start: Nanos,
    instants: Vec<Nanos>,
    scheduling: Scheduling,
) -> anyhow::Result<(Lateness, Lateness)> {
    let slice: Vec<Arrival> =
        (0..).zip(&instants).map(|(i, &at)| Arrival { index: ArrivalIndex(i), at, row: 0 }).collect();
    let rows = vec![Some(Prepared { body: rig.body.clone(), max_tokens: 128, prompt_tokens: None })];
    let part = Part { slice, rows, permits: None, queue_timeout: Nanos::from_secs(60), closed: false };
    let lead = Arc::new(Lead::for_schedule(&instants));
    let (announce, pace_inbox) = mpsc::channel(256);
    let (_keep, stops) = mpsc::channel(1);
    let pacing = Arc::clone(&lead);
    let pacer = std::thread::Builder::new().name("pacer".into()).spawn(move || {
        prepare_thread(scheduling);
        cpu::unpin();
        let end = pace(start, &instants, &pacing, &bare::forever(), &SystemClock, |pace| {
            let _ = announce.blocking_send(pace);
        });
        let _ = announce.blocking_send(Pace::Ended(end));
    })?;
    let clock = rig.clock.clone();
    clock.set_t0(start);
    let counters = Arc::new(Counters::new(Epoch(1), part.slice.len() as u64));
    let sender = Sender { client: Arc::new(rig.client.clone()), clock, counters };
    let (mut dispatch, mut written) = (Vec::new(), Vec::new());
    let mut failed = None;
    run(
        &part,
        sender,
        Orders { pace: pace_inbox, lead, stops },
        || false,
        |trace| {
            let c = &trace.clocks;
            match (trace.facts.outcome.is_success(), c.released, c.written) {
                (true, Some(released), Some(first)) => {
                    dispatch.push(released - c.scheduled);
                    written.push(first - c.scheduled);
                }
                _ => failed = Some(trace.facts.outcome.clone()),
            }
        },
    )
    .await;
    ensure!(failed.is_none(), "{failed:?}");
    pacer.join().map_err(|_| anyhow::anyhow!("the pacer panicked"))?;
    Ok((Lateness::of(dispatch)?, Lateness::of(written)?))
}

/// Paces to nobody.
pub(crate) fn bare_pacer(instants: &[Nanos], scheduling: Scheduling) -> anyhow::Result<Lateness> {
    let instants = instants.to_vec();
    let work = move || -> anyhow::Result<Lateness> {
        prepare_thread(scheduling);
        Lateness::of(bare::lateness(&instants)?)
    };
    let thread = std::thread::Builder::new().name("pacer".into()).spawn(work)?;
    thread.join().map_err(|_| anyhow::anyhow!("the pacer panicked"))?
}
