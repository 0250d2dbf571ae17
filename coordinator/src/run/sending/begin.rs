//! How a run begins, or goes on: its folder, its writer, what is kept of it, and what is offered to the agents.
//!
//! It must leave nothing behind that looks like a run when it cannot begin.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use common::ids::RunId;

use super::Sending;
use crate::ingest;
use crate::kept::{self, KeptCommand, KeptRun};
use crate::plan::Plan;
use crate::record;
use crate::run::{Gathered, Means, beside};
use crate::store::RunStore;

/// The file of traces, written as trials end. It gets its name at the end of the run: until then an older file of
/// that name stays, and a run that fails leaves nothing that looks like a result.
pub(super) struct Traces {
    path: PathBuf,
    pub(super) part: PathBuf,
    pub(super) file: std::io::BufWriter<std::fs::File>,
}

impl Traces {
    fn create(folder: &Path) -> anyhow::Result<Self> {
        let part = folder.join("traces.jsonl.part");
        let file = std::fs::File::create(&part).with_context(|| part.display().to_string())?;
        Ok(Self { path: folder.join("traces.jsonl"), part, file: std::io::BufWriter::new(file) })
    }

    pub(super) fn keep(mut self) -> anyhow::Result<PathBuf> {
        self.file.flush().with_context(|| self.part.display().to_string())?;
        std::fs::rename(&self.part, &self.path).with_context(|| self.path.display().to_string())?;
        Ok(self.path)
    }

    pub(super) fn discard(self) {
        let _ = std::fs::remove_file(&self.part);
    }
}

impl<'m, 'a> Sending<'m, 'a> {
    /// A new run, by the agents that were gathered.
    pub(in crate::run) fn begin(
        plan: Plan,
        run: RunId,
        gathered: Gathered,
        experiment: serde_json::Value,
        command: KeptCommand,
        means: &'m mut Means<'a>,
    ) -> anyhow::Result<Self> {
        // Before the run exists: a folder that cannot be written must not leave an empty run behind.
        let elsewhere = plan.out.as_deref().map(elsewhere).transpose()?;
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
            open: None,
            command: Some(command),
            boot: record::boot(),
            require_gpu: plan.require_gpu,
        };
        kept.write(&store)?;
        if plan.target.keep_text {
            store.write_file(kept::WORKLOAD, &plan.workload.bytes)?;
        }
        let mut sending = Self::open(plan, store, kept, elsewhere, means)?;
        sending.take_up(gathered);
        Ok(sending)
    }

    /// A run whose coordinator was lost, or that was ended early. It has no agents yet. The trials that were sealed
    /// are computed again, from their traces.
    pub(in crate::run) fn resume(
        plan: Plan,
        store: RunStore,
        kept: KeptRun,
        means: &'m mut Means<'a>,
    ) -> anyhow::Result<Self> {
        let elsewhere = plan.out.as_deref().map(elsewhere).transpose()?;
        if let Some(open) = &kept.open {
            for damage in store.mend(open.planned.trial, open.epoch)? {
                means.ui.note(&format!("recover      {damage}; the agents are asked for it again"));
            }
        }
        let mut sending = Self::open(plan, store, kept, elsewhere, means)?;
        for trial in sending.kept.trials.clone() {
            let report = sending.numbers(&trial)?;
            sending.trials.push(report);
        }
        Ok(sending)
    }

    fn open(
        plan: Plan,
        store: RunStore,
        kept: KeptRun,
        elsewhere: Option<Traces>,
        means: &'m mut Means<'a>,
    ) -> anyhow::Result<Self> {
        let folder = plan.out.clone().unwrap_or_else(|| store.dir().to_owned());
        let traces = elsewhere.map_or_else(|| Traces::create(&folder), Ok)?;
        let ingest = ingest::start(&store)?;
        means.shared.offer_workload(plan.workload_digest(), Arc::clone(&plan.workload.bytes));
        let telemetry = store.telemetry()?;
        means.shared.open_run(store.id().clone(), ingest.clone(), telemetry.clone());
        Ok(Self {
            plan,
            agents: Vec::new(),
            launcher: None,
            engine_orders: 0,
            telemetry,
            kept,
            means,
            store,
            ingest,
            folder,
            traces,
            trials: Vec::new(),
            skipped: BTreeSet::new(),
        })
    }

    /// From here on these agents send, and everybody records.
    pub(super) fn take_up(&mut self, gathered: Gathered) {
        self.agents = gathered.agents;
        self.launcher = gathered.launcher;
        let (run, scrape) = (self.store.id(), self.plan.engine.scrape);
        beside::observe(&mut self.means.fleet, run, Some(&self.plan.target), scrape, false);
    }
}

/// The file of traces in the folder that the user named.
fn elsewhere(out: &Path) -> anyhow::Result<Traces> {
    let made = std::fs::create_dir_all(out).map_err(anyhow::Error::from);
    let traces = made.and_then(|()| Traces::create(out));
    traces.with_context(|| format!("--out {}: choose another folder", out.display()))
}
