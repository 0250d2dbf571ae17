//! What is recorded beside a run: who is to record it, the idle engine before the first trial, and the last samples after
//! the last.
//!
//! Nothing here may hold up a trial, and a run without any telemetry is a run.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use common::fleet::{Introduction, Observation};
use common::ids::{AgentName, Nanos, RunId};
use common::plan::Target;
use common::slo::shown_time;
use common::telemetry::Record;

use super::prepare::join;
use super::{Gathering, engine};
use crate::fleet::{Change, Fleet};
use crate::kept::{KeptRun, KeptTrial};
use crate::plan::{EnginePlan, FleetPlan};
use crate::record;
use crate::store::{AgentSeries, RunStore};
use crate::telemetry;

/// How long the idle engine is looked at: ten steps of a counter that moves every 100 ms are one part in a hundred at
/// each edge, and fifty are two in a thousand.
const IDLE: Nanos = Nanos::from_secs(5);
/// From the first record to the window of a capture.
const LEAD: Nanos = Nanos::from_secs(5);
/// Between two looks for the first samples.
const LOOK: Nanos = Nanos::from_millis(300);
/// Between two lines about a capture.
const SAY_EVERY: Nanos = Nanos::from_secs(10);
/// For the first samples: finding out how often a counter moves takes three seconds.
const FIRST_SAMPLES: Nanos = Nanos::from_secs(12);
/// After the last trial, so that energy has readings beyond the window's edge and they have arrived.
const LAST_SAMPLES: Duration = Duration::from_millis(2500);

/// Has every agent record, those that join later included, and one of them the engine's metrics, too, where the engine
/// is known. With `find_dialect` it finds out which.
pub(super) fn observe(
    fleet: &mut Fleet,
    run: &RunId,
    engine: Option<&Target>,
    scrape: bool,
    find_dialect: bool,
) {
    let members = fleet.registry().members();
    // The nearest to the engine; of several the first by name.
    let near = |i: &Introduction| (i.engine.is_some(), i.gpu, i.observer);
    let scraper =
        members.iter().rev().max_by_key(|(_, m)| near(&m.introduction)).map(|(name, _)| name.clone());
    let what = Observation { run: run.clone(), engine: engine.cloned(), metrics: false, find_dialect };
    fleet.observe(what, scraper.filter(|_| scrape));
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
    let seconds = IDLE.as_secs_f64();
    with.ui.note(&format!("idle         {seconds} s without load, for the power of the idle engine"));
    let from = with.clock.monotonic();
    match pass(from + IDLE, with).await {
        Passed::InTime => Ok(Some((from, with.clock.monotonic()))),
        Passed::Stopped => Ok(None),
        Passed::Without(reason) => anyhow::bail!(reason),
    }
}

/// How a time passed.
pub(super) enum Passed {
    InTime,
    /// The operator wants an end.
    Stopped,
    /// Somebody is gone without whom it makes no sense.
    Without(String),
}

/// Lets time pass until an instant, and hears what happens meanwhile.
pub(super) async fn pass(until: Nanos, with: &mut Gathering<'_>) -> Passed {
    let mut stop = with.stop.clone();
    loop {
        let left = until - with.clock.monotonic();
        if left == Nanos::ZERO {
            return Passed::InTime;
        }
        tokio::select! {
            change = with.fleet.next() => {
                if let Change::Lost(agent, reason) = change {
                    return Passed::Without(format!("agent {agent}: {reason}"));
                }
                if let Some(how) = with.fleet.engine_death() {
                    return Passed::Without(format!("the engine died: {how}"));
                }
            }
            () = tokio::time::sleep(left.to_duration()) => {}
            _ = stop.wait_for(|level| *level > 0) => return Passed::Stopped,
        }
    }
}

/// When a capture was, by the monotonic clock.
#[derive(Debug, Clone)]
pub struct Captured {
    /// Its begin.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
    /// The operator ended it early.
    pub interrupted: bool,
    /// Why it ended early otherwise.
    pub cut: Option<String>,
}

/// Waits for the agents, and for the engine that one of them launches, and lets them record for `length`. `target` is
/// the engine whose metrics are recorded, where it is known. None when the operator stopped it before.
///
/// # Errors
/// Who is missing, or was lost.
pub async fn capture(
    store: &RunStore,
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
    observe(with.fleet, store.id(), target.as_ref(), target.is_some(), dialect.is_none());
    if !gpus(store, 0, false, &mut with).await? {
        return Ok(None);
    }
    // What is recorded first has no reading before it: the window begins a moment later.
    let begun = with.clock.monotonic();
    let from = begun + LEAD;
    with.ui.note(&format!("capture      {} from now on; ctrl-c ends it early", shown_time(length)));
    let passed = wait(from, length, &mut with).await;
    let to = with.clock.monotonic().min(from + length);
    tokio::time::sleep(LAST_SAMPLES).await;
    // Ended before it began: what there is is shown, and its first readings have none before them.
    let from = if to > from { from } else { begun };
    let interrupted = matches!(passed, Passed::Stopped);
    let cut = if let Passed::Without(reason) = passed { Some(reason) } else { None };
    Ok(Some(Captured { from, to, interrupted, cut }))
}

/// Lets time pass until `length` after `from`, and says how far it is.
async fn wait(from: Nanos, length: Nanos, with: &mut Gathering<'_>) -> Passed {
    let end = from + length;
    let mut next = from;
    while next < end {
        next = (next + SAY_EVERY).min(end);
        match pass(next, with).await {
            Passed::InTime if next < end => {
                let passed = (next - from).as_secs_f64();
                with.ui.note(&format!("             {passed:.0} s of {}", shown_time(length)));
            }
            Passed::InTime => {}
            early => return early,
        }
    }
    Passed::InTime
}

/// Writes the series of a run without trials into its folder, when there are any.
///
/// # Errors
/// When it cannot be read or written.
pub fn export_series(store: &RunStore) -> anyhow::Result<Option<PathBuf>> {
    export(store, 0, &[], store.dir())
}

/// Waits a little until every agent that reads GPUs has said what they draw, or why it cannot; and says what is missing.
/// With `required` somebody must be able to. False when the operator stopped it.
pub(super) async fn gpus(
    store: &RunStore,
    boot: usize,
    required: bool,
    with: &mut Gathering<'_>,
) -> anyhow::Result<bool> {
    if !required && !reads_gpus(with.fleet) {
        return Ok(true);
    }
    let deadline = with.clock.monotonic() + FIRST_SAMPLES;
    loop {
        let series = crate::aside::here(|| store.telemetry_series_of(boot))?;
        let of = |name: &AgentName| series.iter().find(|s| s.agent() == name);
        let members = with.fleet.registry().members().iter().filter(|(_, m)| m.introduction.gpu);
        let mut words: BTreeMap<&AgentName, Option<Word>> = BTreeMap::new();
        members.for_each(|(name, _)| _ = words.insert(name, of(name).and_then(word)));
        let late = with.clock.monotonic() >= deadline;
        if late || words.values().all(Option::is_some) {
            let missing = missing(&words);
            let nobody = !words.values().any(|word| matches!(word, Some(Word::Draws)));
            if required && nobody {
                let why = if words.is_empty() { "no agent was started with --gpu" } else { &missing };
                anyhow::bail!("--require-gpu: no power of a GPU is recorded: {why}");
            }
            if !missing.is_empty() {
                with.ui.note(&format!("gpu          nothing is recorded: {missing}"));
            }
            return Ok(true);
        }
        match pass(with.clock.monotonic() + LOOK, with).await {
            Passed::InTime => {}
            Passed::Stopped => return Ok(false),
            Passed::Without(reason) => anyhow::bail!(reason),
        }
    }
}

/// What an agent says of its GPUs.
enum Word {
    /// What they draw.
    Draws,
    /// Why it cannot read them.
    Absent(String),
}

/// Who reads no GPU, and why.
fn missing(words: &BTreeMap<&AgentName, Option<Word>>) -> String {
    let missing = words.iter().filter_map(|(agent, word)| match word {
        Some(Word::Draws) => None,
        Some(Word::Absent(why)) => Some(format!("agent {agent}: {why}")),
        None => Some(format!("agent {agent}: nothing was read yet; see its log")),
    });
    missing.collect::<Vec<_>>().join("; ")
}

/// It says what a GPU draws.
fn is_power(record: &Record) -> bool {
    matches!(record, Record::Power(p) if p.energy_mj.or(p.average_mw.map(u64::from)).is_some())
}

/// An agent's last word on whether it reads GPUs; none when it has said nothing yet.
fn word(series: &AgentSeries) -> Option<Word> {
    series.records().fold(None, |before, record| match record {
        record if is_power(&record) => Some(Word::Draws),
        Record::Event(e) if e.gpu.is_none() && e.kind.is_absence() => Some(Word::Absent(e.message)),
        // There are some after all, and nothing was read of them yet.
        Record::Inventory(gpus) if !gpus.is_empty() => before.filter(|word| matches!(word, Word::Draws)),
        _ => before,
    })
}

/// Waits for the last samples, where energies depend on them.
pub(super) async fn last_samples(fleet: &Fleet) {
    if reads_gpus(fleet) {
        tokio::time::sleep(LAST_SAMPLES).await;
    }
}

/// Puts what was found out about the hardware into the record.
pub(super) fn add_hardware(store: &RunStore, kept: &mut KeptRun) {
    let found = store.telemetry_series_of(kept.restarts()).map(|series| telemetry::hardware(&series));
    match (found, kept.experiment.as_object_mut()) {
        (Ok(hardware), Some(record)) if !hardware.is_empty() => record::add_hardware(record, hardware),
        (Ok(_), _) => {}
        (Err(e), _) => tracing::warn!("the record lacks the hardware: {e}"),
    }
}

/// Writes the series beside the traces, when there are any.
pub(super) fn export(
    store: &RunStore,
    restarts: usize,
    trials: &[KeptTrial],
    folder: &Path,
) -> anyhow::Result<Option<PathBuf>> {
    let boots = (0..=restarts).map(|boot| store.telemetry_series_of(boot)).collect::<Result<Vec<_>, _>>()?;
    let path = folder.join("telemetry.jsonl");
    let part = folder.join("telemetry.jsonl.part");
    if boots.iter().all(Vec::is_empty) {
        // One of another run must not stand beside this one's traces.
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).context(path.display().to_string());
            }
            _ => return Ok(None),
        }
    }
    let write = || -> anyhow::Result<()> {
        let mut out = BufWriter::new(std::fs::File::create(&part)?);
        for (boot, series) in boots.iter().enumerate() {
            let trials: Vec<&KeptTrial> = trials.iter().filter(|t| t.boot == boot).collect();
            telemetry::export(series, &trials, &mut out)?;
        }
        out.flush()?;
        Ok(std::fs::rename(&part, &path)?)
    };
    if let Err(e) = write() {
        let _ = std::fs::remove_file(&part);
        return Err(e.context(path.display().to_string()));
    }
    Ok(Some(path))
}
