//! How a run begins, or goes on: its folder, its writer, what is kept of it, and what is offered to the agents.
//!
//! It must leave nothing behind that looks like a run when it cannot begin.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use common::ids::{RunId, TrialId};
use common::knee::{TrialRef, lowest_failure, pool_rates};

use super::{Sending, again, recover};
use crate::analysis::{Lines, analyse};
use crate::ingest::{self, IngestHandle};
use crate::kept::{self, KeptCommand, KeptRun, KeptTrial};
use crate::plan::{FleetPlan, Plan};
use crate::record;
use crate::record::same::{self, Difference};
use crate::report::TrialReport;
use crate::run::{Gathered, Means, beside};
use crate::store::{DiskWatch, RunStore, TelemetrySink, WatchedOut};
use crate::sweep::PlannedTrial;

/// The file of traces, written as trials end. It gets its name at the end of the run: until then an older file of
/// that name stays, and a run that fails leaves nothing that looks like a result.
pub(super) struct Traces {
    path: PathBuf,
    pub(super) part: PathBuf,
    pub(super) file: std::io::BufWriter<WatchedOut>,
}

impl Traces {
    fn create(folder: &Path, watch: &DiskWatch) -> anyhow::Result<Self> {
        let part = folder.join("traces.jsonl.part");
        let file = WatchedOut::create(&part, watch).with_context(|| part.display().to_string())?;
        Ok(Self { path: folder.join("traces.jsonl"), part, file: std::io::BufWriter::new(file) })
    }

    pub(super) fn keep(mut self) -> anyhow::Result<PathBuf> {
        self.file.flush().with_context(|| self.part.display().to_string())?;
        std::fs::rename(&self.part, &self.path).with_context(|| self.path.display().to_string())?;
        Ok(self.path.clone())
    }
}

impl Drop for Traces {
    /// What did not get its name is no result.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.part);
    }
}

/// A run whose folder, writer and numbers are there: what may fail without an agent has been done, and no agent was
/// needed for it.
pub struct Opened {
    pub(super) plan: Plan,
    pub(super) store: RunStore,
    pub(super) kept: KeptRun,
    pub(super) ingest: IngestHandle,
    pub(super) telemetry: TelemetrySink,
    pub(super) folder: PathBuf,
    pub(super) traces: Traces,
    pub(super) trials: Vec<TrialReport>,
    /// The trial that was under way when the coordinator was lost.
    pub(super) open: Option<KeptTrial>,
    /// For whoever resumes it.
    pub(super) notes: Vec<String>,
}

impl Opened {
    /// A new run.
    pub(in crate::run) fn begin(
        plan: Plan,
        run: RunId,
        experiment: serde_json::Value,
        command: KeptCommand,
        means: &Means<'_>,
    ) -> anyhow::Result<Self> {
        // Before the run exists: a folder that cannot be written must not leave an empty run behind.
        let elsewhere = plan.out.as_deref().map(|out| elsewhere(out, means.store.watch())).transpose()?;
        let store = means.store.create_run(&run, means.clock.wall())?;
        let kept = KeptRun {
            version: kept::VERSION,
            experiment,
            process: plan.process,
            extent: plan.extent,
            slos: plan.slos.clone(),
            slo_target: plan.slo_target,
            limits: plan.limits,
            trials: Vec::new(),
            idle: None,
            idle_before: Vec::new(),
            open: None,
            command: Some(command),
            boot: record::boot(),
            require_gpu: plan.require_gpu,
        };
        kept.write(&store)?;
        if plan.target.keep_text {
            store.write_file(kept::WORKLOAD, &plan.workload.bytes)?;
        }
        Self::open(plan, store, kept, elsewhere)
    }

    /// A run whose coordinator was lost, or that was ended early. The trials that were sealed are computed again, from
    /// their traces. Where nothing is left to send, the plan wants no agent any more.
    ///
    /// # Errors
    /// When `plan` is another, or the disk refuses.
    pub fn again(mut plan: Plan, store: RunStore, mut kept: KeptRun) -> anyhow::Result<Self> {
        if plan.target.model.is_none() {
            plan.target.model = kept.experiment["plan"]["model"].as_str().map(str::to_owned);
        }
        if let Some(difference) = same::of_plan(&kept.experiment, &plan, false) {
            bail!(difference);
        }
        let mut notes = Vec::new();
        if let Some(Difference { was, is, .. }) = same::of_tokenizer(&kept.experiment, &plan) {
            notes.push(format!(
                "note         the tokenizer was {was}, and is now {is}: every trial is counted by it"
            ));
            kept.set_tokenizer(plan.tokenizer.as_deref());
        }
        kept.is_booted_anew(record::boot());
        let elsewhere = plan.out.as_deref().map(|out| elsewhere(out, store.watch())).transpose()?;
        let events = store.events()?;
        let open = kept.open.clone().filter(|open| recover::may_have_begun(&kept, open, &events));
        if let Some(open) = &open {
            for damage in store.mend(open.planned.trial, open.epoch)? {
                notes.push(format!("recover      {damage}; the agents are asked for it again"));
            }
        }
        let mut opened = Self { open, notes, ..Self::open(plan, store, kept, elsewhere)? };
        opened.take_up_search();
        for trial in opened.kept.trials.clone() {
            let report = opened.numbers(&trial)?;
            opened.trials.push(report);
        }
        if opened.is_over() {
            opened.notes.push("resume       nothing is left to send".to_owned());
            opened.plan.fleet = FleetPlan::nobody(opened.plan.fleet.join_timeout);
        }
        Ok(opened)
    }

    fn open(plan: Plan, store: RunStore, kept: KeptRun, elsewhere: Option<Traces>) -> anyhow::Result<Self> {
        let folder = plan.out.clone().unwrap_or_else(|| store.dir().to_owned());
        let traces = elsewhere.map_or_else(|| Traces::create(&folder, store.watch()), Ok)?;
        let (ingest, telemetry) = (ingest::start(&store)?, store.telemetry_of(kept.restarts())?);
        let (trials, open, notes) = (Vec::new(), None, Vec::new());
        Ok(Self { plan, store, kept, ingest, telemetry, folder, traces, trials, open, notes })
    }

    /// What is asked for.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Numbers and trace lines of a sealed trial.
    pub(super) fn numbers(&mut self, trial: &KeptTrial) -> anyhow::Result<TrialReport> {
        let Traces { part, file, .. } = &mut self.traces;
        // Blocking is right here: no trial is under way, and leases are renewed by the sessions' own tasks, on the
        // runtime's other threads.
        let lines = Lines { out: file, path: part };
        Ok(crate::aside::here(|| {
            let tokenizer = self.plan.tokenizer.as_deref();
            analyse(&self.store, &self.kept, &self.kept.slos, trial, Some(lines), tokenizer)
        })?)
    }

    /// Whether nothing is to be closed, and no trial that is left is of any use.
    pub(super) fn is_over(&self) -> bool {
        let left = again::left(&self.plan.trials, &self.kept.trials);
        self.open.is_none()
            && (self.ended_by().is_some()
                || (left.iter().all(|left| self.is_of_no_use(&left.planned)) && self.asks_for_nothing()))
    }

    /// The trial that ends the sweep by --max-failures.
    pub(super) fn ended_by(&self) -> Option<TrialId> {
        let tries = self.kept.trials.iter().zip(self.trials.iter().map(|report| &report.summary));
        self.plan.max_failures.and_then(|share| again::failed_too_much(share, tries))
    }

    /// With --stop-after-knee: a rate above one that has failed cannot move the knee.
    pub(super) fn is_of_no_use(&self, planned: &PlannedTrial) -> bool {
        let Some(rate) = planned.rate.per_second().filter(|_| self.plan.stop_after_knee) else {
            return false;
        };
        let so_far = pool_rates(self.trials.iter().map(|t| TrialRef {
            rate: t.rate,
            summary: &t.summary,
            cut: t.cut,
        }));
        lowest_failure(&so_far, &self.plan.slos, self.plan.slo_target).is_some_and(|failed| rate > failed)
    }
}

impl<'m, 'a> Sending<'m, 'a> {
    /// From here on agents can deliver what is of this run.
    pub(in crate::run) fn new(run: Opened, means: &'m mut Means<'a>) -> Self {
        let workload = &run.plan.workload;
        means.shared.offer_workload(workload.rows.digest, Arc::clone(&workload.bytes));
        means.shared.open_run(run.store.id().clone(), run.ingest.clone(), run.telemetry.clone());
        // What was skipped may be of use after all: it is taken out when it is sent.
        let skipped = &run.kept.experiment["skipped_trials"];
        let skipped = serde_json::from_value(skipped.clone()).unwrap_or_default();
        Self { run, agents: Vec::new(), launcher: None, engine_orders: 0, means, skipped }
    }

    /// From here on these agents send, and everybody records.
    pub(in crate::run) fn take_up(&mut self, gathered: Gathered) {
        self.agents = gathered.agents;
        self.launcher = gathered.launcher;
        let (run, scrape) = (self.run.store.id(), self.run.plan.engine.scrape);
        beside::observe(&mut self.means.fleet, run, Some(&self.run.plan.target), scrape, false);
    }
}

/// The file of traces in the folder that the user named.
fn elsewhere(out: &Path, watch: &DiskWatch) -> anyhow::Result<Traces> {
    let made = std::fs::create_dir_all(out).map_err(anyhow::Error::from);
    let traces = made.and_then(|()| Traces::create(out, watch));
    traces.with_context(|| format!("--out {}: choose another folder", out.display()))
}
