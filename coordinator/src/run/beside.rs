//! What is recorded beside a run: who is to record it, the idle engine before the first trial, and the last samples after
//! the last.
//!
//! Nothing here may hold up a trial, and a run without any telemetry is a run.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use common::fleet::{Introduction, Observation};
use common::ids::{Nanos, RunId};
use common::plan::Target;
use common::slo::shown_time;
use common::telemetry::Record;

use super::prepare::join;
use super::{Gathering, engine};
use crate::fleet::{Change, Fleet};
use crate::kept::{KeptRun, KeptTrial};
use crate::plan::{EnginePlan, FleetPlan};
use crate::record;
use crate::store::RunStore;
use crate::telemetry;

/// How long the idle engine is looked at: ten steps of a counter that moves every 100 ms are one part in a hundred at
/// each edge, and fifty are two in a thousand.
const IDLE: Duration = Duration::from_secs(5);
/// From the first record to the window of a capture.
const LEAD: Nanos = Nanos::from_secs(5);
/// Between two lines about a capture.
const SAY_EVERY: Nanos = Nanos::from_secs(10);
/// For the first samples: finding out how often a counter moves takes three seconds.
const FIRST_SAMPLES: Nanos = Nanos::from_secs(12);
/// After the last trial, so that energy has readings beyond the window's edge and they have arrived.
const LAST_SAMPLES: Duration = Duration::from_millis(2500);

/// Has every agent record, those that join later included, and one of them the engine's metrics, too, where the engine
/// is known. With `find_dialect` it finds out which.
pub(super) fn observe(fleet: &mut Fleet, run: &RunId, engine: Option<&Target>, find_dialect: bool) {
    let members = fleet.registry().members();
    // The nearest to the engine; of several the first by name.
    let near = |i: &Introduction| (i.engine.is_some(), i.gpu, i.observer);
    let scraper =
        members.iter().rev().max_by_key(|(_, m)| near(&m.introduction)).map(|(name, _)| name.clone());
    let what = Observation { run: run.clone(), engine: engine.cloned(), metrics: false, find_dialect };
    fleet.observe(what, scraper);
}

/// Some member reads GPUs.
fn reads_gpus(fleet: &Fleet) -> bool {
    fleet.registry().members().values().any(|m| m.introduction.gpu)
}

/// Looks at the idle engine, where there are GPUs to look at: when it was, by the monotonic clock.
pub(super) async fn idle(with: &mut Gathering<'_>) -> anyhow::Result<Option<(Nanos, Nanos)>> {
    if !reads_gpus(with.fleet) {
        return Ok(None);
    }
    with.ui
        .note(&format!("idle         {} s without load, for the power of the idle engine", IDLE.as_secs()));
    let from = with.clock.monotonic();
    let mut stop = with.stop.clone();
    let over = tokio::time::sleep(IDLE);
    tokio::pin!(over);
    loop {
        tokio::select! {
            change = with.fleet.next() => {
                if let Change::Lost(agent, reason) = change {
                    anyhow::bail!("agent {agent}: {reason}");
                }
            }
            () = &mut over => return Ok(Some((from, with.clock.monotonic()))),
            _ = stop.wait_for(|level| *level > 0) => return Ok(None),
        }
    }
}

/// When a capture was, by the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct Captured {
    /// Its begin.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
    /// The operator ended it early.
    pub interrupted: bool,
}

/// Waits for the agents, and for the engine that one of them launches, and lets them record for `length`. `target` is
/// the engine whose metrics are recorded, where it is known. None when the operator stopped it before.
///
/// # Errors
/// Who is missing, or was lost.
pub async fn capture(
    run: &RunId,
    plan: &FleetPlan,
    engine: &EnginePlan,
    mut target: Option<Target>,
    length: Nanos,
    mut with: Gathering<'_>,
) -> anyhow::Result<Option<Captured>> {
    if !join(plan, engine, &mut with).await? {
        return Ok(None);
    }
    let launcher = with.fleet.registry().launcher().map(|(name, card)| (name.clone(), card.clone()));
    let mut dialect = engine.dialect;
    if let Some((name, card)) = launcher {
        let state = with.fleet.engine(&name).cloned();
        if engine::ready(&name, state, &mut with).await?.is_none() {
            return Ok(None);
        }
        dialect = dialect.or(Some(card.dialect));
        target.get_or_insert_with(|| Target::plain(card.base_url.clone()));
    }
    if let (Some(target), Some(dialect)) = (&mut target, dialect) {
        target.dialect = dialect;
    }
    observe(with.fleet, run, target.as_ref(), dialect.is_none());
    // What is recorded first has no reading before it: the window begins a moment later.
    let begun = with.clock.monotonic();
    let from = begun + LEAD;
    with.ui.note(&format!("capture      {} from now on; ctrl-c ends it early", shown_time(length)));
    let interrupted = wait(from, length, &mut with).await?;
    let to = with.clock.monotonic().min(from + length);
    tokio::time::sleep(LAST_SAMPLES).await;
    // Ended before it began: what there is is shown, and its first readings have none before them.
    let from = if to > from { from } else { begun };
    Ok(Some(Captured { from, to, interrupted }))
}

/// Lets time pass until `length` after `from`. True when the operator ended it early.
async fn wait(from: Nanos, length: Nanos, with: &mut Gathering<'_>) -> anyhow::Result<bool> {
    let mut stop = with.stop.clone();
    let mut said = from;
    while with.clock.monotonic() < from + length {
        tokio::select! {
            change = with.fleet.next() => {
                if let Change::Lost(agent, reason) = change {
                    anyhow::bail!("agent {agent}: {reason}");
                }
                if let Some(how) = with.fleet.engine_death() {
                    anyhow::bail!("the engine died: {how}");
                }
            }
            _ = stop.wait_for(|level| *level > 0) => return Ok(true),
        }
        let now = with.clock.monotonic();
        if now > said + SAY_EVERY {
            said = now;
            let passed = (now - from).as_secs_f64();
            with.ui.note(&format!("             {passed:.0} s of {}", shown_time(length)));
        }
    }
    Ok(false)
}

/// Writes the series of a run without trials into its folder, when there are any.
///
/// # Errors
/// When it cannot be read or written.
pub fn export_series(store: &RunStore) -> anyhow::Result<Option<PathBuf>> {
    export(store, &[], store.dir())
}

/// Says what is missing of the GPUs' telemetry; with `required`, nothing may be. It waits a little for the first
/// samples.
pub(super) async fn gpus(store: &RunStore, required: bool, with: &mut Gathering<'_>) -> anyhow::Result<()> {
    if !required && !reads_gpus(with.fleet) {
        return Ok(());
    }
    let deadline = with.clock.monotonic() + FIRST_SAMPLES;
    loop {
        let series = tokio::task::block_in_place(|| store.telemetry_series())?;
        if series.iter().any(|s| s.records.iter().any(is_power)) {
            return Ok(());
        }
        let missing: Vec<String> = (series.iter())
            .filter_map(|s| Some(format!("agent {}: {}", s.agent, absence(&s.records)?)))
            .collect();
        if !missing.is_empty() || with.clock.monotonic() >= deadline {
            let why = match missing.as_slice() {
                [] if !reads_gpus(with.fleet) => "no agent was started with --gpu".to_owned(),
                [] => "nothing was read yet; see the agent's log".to_owned(),
                said => said.join("; "),
            };
            if required {
                anyhow::bail!("--require-gpu: no power of a GPU is recorded: {why}");
            }
            with.ui.note(&format!("gpu          nothing is recorded: {why}"));
            return Ok(());
        }
        let _ = tokio::time::timeout(Duration::from_millis(300), with.fleet.next()).await;
    }
}

/// It says what a GPU draws.
fn is_power(record: &Record) -> bool {
    matches!(record, Record::Power(p) if p.energy_mj.or(p.average_mw.map(u64::from)).is_some())
}

/// Why no GPU is read, by an agent's last word on it.
fn absence(records: &[Record]) -> Option<&str> {
    let last = records.iter().rev().find_map(|record| match record {
        Record::Event(e) if e.kind.is_absence() => Some(Some(e.message.as_str())),
        Record::Inventory(gpus) if !gpus.is_empty() => Some(None),
        _ => None,
    });
    last.flatten()
}

/// Waits for the last samples, where energies depend on them.
pub(super) async fn last_samples(fleet: &Fleet) {
    if reads_gpus(fleet) {
        tokio::time::sleep(LAST_SAMPLES).await;
    }
}

/// Puts what was found out about the hardware into the record.
pub(super) fn add_hardware(store: &RunStore, kept: &mut KeptRun) {
    let found = store.telemetry_series().map(|series| telemetry::hardware(&series));
    match (found, kept.experiment.as_object_mut()) {
        (Ok(hardware), Some(record)) if !hardware.is_empty() => record::add_hardware(record, hardware),
        (Ok(_), _) => {}
        (Err(e), _) => tracing::warn!("the record lacks the hardware: {e}"),
    }
}

/// Writes the series beside the traces, when there are any.
pub(super) fn export(
    store: &RunStore,
    trials: &[KeptTrial],
    folder: &Path,
) -> anyhow::Result<Option<PathBuf>> {
    let series = store.telemetry_series()?;
    if series.is_empty() {
        return Ok(None);
    }
    let path = folder.join("telemetry.jsonl");
    let part = folder.join("telemetry.jsonl.part");
    let write = || -> anyhow::Result<()> {
        let mut out = BufWriter::new(std::fs::File::create(&part)?);
        telemetry::export(&series, trials, &mut out)?;
        out.flush()?;
        Ok(std::fs::rename(&part, &path)?)
    };
    write().with_context(|| path.display().to_string())?;
    Ok(Some(path))
}
