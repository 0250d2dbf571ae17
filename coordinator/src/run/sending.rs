//! The trials of a run, one after the other, and what they leave: traces, kept run, report.

mod again;
mod engine;

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use common::disk::{Disk, OsDisk};
use common::fleet::DrainReport;
use common::ids::{AgentName, Epoch, RunId, TrialId};
use common::knee::{TrialRef, failures_exceed, lowest_failure, pool_rates};
use common::validity::{Reason, ReasonKind};

use super::{Gathered, Means, RunOutcome, beside};
use crate::analysis::{Lines, analyse};
use crate::fleet::ToAgent;
use crate::ingest::{self, IngestHandle};
use crate::kept::{self, KeptAgent, KeptRun, KeptTrial};
use crate::plan::Plan;
use crate::report::{Report, TrialReport, to_json};
use crate::store::{RunEvent, RunStore, TelemetrySink};
use crate::sweep::PlannedTrial;
use crate::telemetry;
use crate::trial::assignment::{Assigned, assign};
use crate::trial::drive::{TrialCase, drive};
use crate::trial::machine::Ending;
use crate::trial::seal;

/// How long a drained agent's last traces may take to arrive.
const COLLECT_WITHIN: Duration = Duration::from_secs(60);

/// How a trial went.
enum Sent {
    Whole,
    /// The operator ended it early.
    Stopped,
    /// Agents were lost in it, each with a reason. It is sealed, or nothing was sent.
    WithLoss {
        lost: BTreeMap<AgentName, String>,
        sealed: bool,
    },
}

/// A run whose trials are being sent.
pub(super) struct Sending<'m, 'a> {
    plan: Plan,
    agents: Vec<AgentName>,
    /// The agent that launches the engine.
    launcher: Option<AgentName>,
    /// Of orders about the engine.
    engine_orders: u64,
    telemetry: TelemetrySink,
    kept: KeptRun,
    means: &'m mut Means<'a>,
    store: RunStore,
    ingest: IngestHandle,
    folder: PathBuf,
    traces: Traces,
    trials: Vec<TrialReport>,
    /// Trials that were not sent, because what was measured made them useless.
    skipped: Vec<TrialId>,
    /// Numbers of trials beyond the planned ones.
    numbers_used: u32,
}

/// The file of traces, written as trials end. It gets its name at the end of the run: until then an older file of
/// that name stays, and a run that fails leaves nothing that looks like a result.
struct Traces {
    path: PathBuf,
    part: PathBuf,
    file: std::io::BufWriter<std::fs::File>,
}

impl Traces {
    fn create(folder: &Path) -> anyhow::Result<Self> {
        let part = folder.join("traces.jsonl.part");
        let file = std::fs::File::create(&part).with_context(|| part.display().to_string())?;
        Ok(Self { path: folder.join("traces.jsonl"), part, file: std::io::BufWriter::new(file) })
    }

    fn keep(mut self) -> anyhow::Result<PathBuf> {
        self.file.flush().with_context(|| self.part.display().to_string())?;
        std::fs::rename(&self.part, &self.path).with_context(|| self.path.display().to_string())?;
        Ok(self.path)
    }

    fn discard(self) {
        let _ = std::fs::remove_file(&self.part);
    }
}

impl<'m, 'a> Sending<'m, 'a> {
    pub(super) fn begin(
        plan: Plan,
        run: RunId,
        gathered: Gathered,
        experiment: serde_json::Value,
        means: &'m mut Means<'a>,
    ) -> anyhow::Result<Self> {
        // Before the run exists: a folder that cannot be written must not leave an empty run behind.
        let elsewhere = plan.out.as_deref().map(|out| {
            let made = std::fs::create_dir_all(out).map_err(anyhow::Error::from);
            let traces = made.and_then(|()| Traces::create(out));
            traces.with_context(|| format!("--out {}: choose another folder", out.display()))
        });
        let elsewhere = elsewhere.transpose()?;
        let store = means.store.create_run(&run, means.clock.wall())?;
        let folder = plan.out.clone().unwrap_or_else(|| store.dir().to_owned());
        let traces = elsewhere.map_or_else(|| Traces::create(&folder), Ok)?;
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
            require_gpu: plan.require_gpu,
        };
        kept.write(&store)?;
        if plan.target.keep_text {
            store.write_file("workload.jsonl", &plan.workload.bytes)?;
        }
        let ingest = ingest::start(&store)?;
        means.shared.offer_workload(plan.workload_digest(), Arc::clone(&plan.workload.bytes));
        let telemetry = store.telemetry()?;
        means.shared.open_run(run.clone(), ingest.clone(), telemetry.clone());
        beside::observe(&mut means.fleet, &run, Some(&plan.target), plan.engine.scrape, false);
        Ok(Self {
            plan,
            agents: gathered.agents,
            launcher: gathered.launcher,
            engine_orders: 0,
            telemetry,
            kept,
            means,
            store,
            ingest,
            folder,
            traces,
            trials: Vec::new(),
            skipped: Vec::new(),
            numbers_used: 0,
        })
    }

    /// Sends every trial that is still of use. True when the operator ended it early.
    pub(super) async fn every_trial(&mut self) -> anyhow::Result<bool> {
        let (store, required) = (self.store.clone(), self.plan.require_gpu);
        if !beside::gpus(&store, required, &mut self.gathering()).await? {
            return Ok(true);
        }
        self.kept.idle = beside::idle(&mut self.gathering()).await?;
        let mut left: VecDeque<(PlannedTrial, u32)> = self.plan.trials.iter().map(|t| (*t, 0)).collect();
        while let Some((planned, reruns)) = left.pop_front() {
            if self.is_of_no_use(&planned) {
                let PlannedTrial { trial, rate, .. } = planned;
                self.means.ui.note(&format!("trial {trial} at {rate}/s is skipped: a lower rate fails"));
                self.skipped.push(planned.trial);
                continue;
            }
            if *self.means.stop.borrow() > 0 || !self.cold(&planned).await? {
                return Ok(true);
            }
            match self.trial(planned).await? {
                Sent::Whole => {}
                Sent::Stopped => return Ok(true),
                Sent::WithLoss { lost, sealed } => {
                    left.push_front((self.again(planned, reruns, &lost, sealed)?, reruns + 1));
                    continue;
                }
            }
            if let (Some(share), Some(last)) = (self.plan.max_failures, self.trials.last())
                && failures_exceed(&last.summary, share)
            {
                self.skipped.extend(left.iter().map(|(t, _)| t.trial));
                self.means.ui.note(&format!(
                    "the sweep ends: more than {share} of trial {}'s requests failed",
                    planned.trial
                ));
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// With --stop-after-knee: a rate above one that has failed cannot move the knee.
    fn is_of_no_use(&self, planned: &PlannedTrial) -> bool {
        let Some(rate) = planned.rate.per_second().filter(|_| self.plan.stop_after_knee) else {
            return false;
        };
        let so_far = pool_rates(self.trials.iter().map(|t| TrialRef { rate: t.rate, summary: &t.summary }));
        lowest_failure(&so_far, &self.plan.slos, self.plan.slo_target).is_some_and(|failed| rate > failed)
    }

    /// One trial.
    async fn trial(&mut self, planned: PlannedTrial) -> anyhow::Result<Sent> {
        let arrivals = self.plan.arrivals(planned.rate);
        let rows = self.plan.workload.rows.rows.len() as u32;
        // A closed loop's workers are its permits.
        let permits = planned.rate.workers().or(self.plan.max_concurrency);
        let assigned = assign(&arrivals, planned.seed, rows, &self.agents, permits, self.plan.warmup)?;
        self.means.ui.trial_begins(&planned, self.plan.trials.len(), &self.plan, assigned.count);
        let epoch = self.store.next_epoch()?;
        self.store.append_event(&RunEvent::TrialPrepared { trial: planned.trial, epoch })?;
        let slices = assigned.agents.iter().map(|(agent, a)| (agent.clone(), Arc::clone(&a.slice)));
        self.means.shared.offer_slices(epoch, slices);
        self.means.shared.open_trial(Some((planned.trial, epoch)));
        let case = self.case(&planned, epoch);
        let started = RunEvent::TrialStarted { trial: planned.trial, epoch };
        let store = self.store.clone();
        let ending = drive(
            &case,
            &assigned,
            &mut self.means.fleet,
            &*self.means.clock,
            &mut self.means.stop,
            || store.append_event(&started),
            &mut *self.means.ui,
        )
        .await?;
        match ending {
            Ending::CalledOff(reason) => {
                self.means.shared.open_trial(None);
                let event = RunEvent::TrialCancelled { trial: planned.trial, epoch, reason: reason.clone() };
                self.store.append_event(&event)?;
                let lost = self.gone(&reason);
                match *self.means.stop.borrow() > 0 {
                    true => Ok(Sent::Stopped),
                    // Nothing was sent.
                    false if !lost.is_empty() => Ok(Sent::WithLoss { lost, sealed: false }),
                    false => Err(anyhow!("trial {}: {reason}", planned.trial)),
                }
            }
            Ending::Ran { start, drained, lost, stopped, engine_died } => {
                // Its last answers may have been cut, and all agents drained, before its end was told.
                let (engine_died, unknown) = match engine_died {
                    None => match self.engine_is_dead().await {
                        Ok(died) => (died, None),
                        Err(e) => (None, Some(e)),
                    },
                    known => (known, None),
                };
                let agents = self.kept_agents(&drained, &lost);
                let reasons = self.seal(&planned, epoch, &assigned, drained, &lost).await?;
                let trial = KeptTrial {
                    planned,
                    epoch,
                    scheduled: assigned.count,
                    schedule_sha256: assigned.digest,
                    workload_sha256: self.plan.workload_digest(),
                    agents,
                    findings: findings(stopped, engine_died.as_deref(), &reasons),
                    start: Some(start),
                };
                self.analyse(trial)?;
                if let Some(e) = unknown.filter(|_| lost.is_empty()) {
                    return Err(e.context(format!("after trial {}", planned.trial)));
                }
                if let Some(how) = engine_died {
                    bail!("the engine died during trial {}: {how}; the run ends here", planned.trial);
                }
                Ok(match (stopped, lost.is_empty()) {
                    (true, _) => Sent::Stopped,
                    (false, true) => Sent::Whole,
                    (false, false) => Sent::WithLoss { lost, sealed: true },
                })
            }
        }
    }

    fn case(&self, planned: &PlannedTrial, epoch: Epoch) -> TrialCase {
        TrialCase {
            run: self.store.id().clone(),
            trial: planned.trial,
            epoch,
            target: self.plan.target.clone(),
            workload: self.plan.workload_digest(),
            workload_bytes: self.plan.workload.bytes.len() as u64,
            warm_connections: self.plan.warm_connections,
            local: self.plan.fleet.remote == 0,
            closed: planned.rate.workers().is_some(),
            launcher: self.launcher.clone(),
        }
    }

    fn kept_agents(
        &self,
        drained: &BTreeMap<AgentName, DrainReport>,
        lost: &BTreeMap<AgentName, String>,
    ) -> Vec<KeptAgent> {
        let kept = |name: &AgentName| KeptAgent {
            name: name.clone(),
            clock: drained.get(name).map(|d| d.clock),
            lost: lost.contains_key(name),
            health: drained.get(name).map(|d| d.health),
            start_skew: drained.get(name).map(|d| d.start_skew),
        };
        self.agents.iter().map(kept).collect()
    }

    /// Waits for the traces that agents say they have, and writes those that cannot come. Gives what is wrong.
    async fn seal(
        &mut self,
        planned: &PlannedTrial,
        epoch: Epoch,
        assigned: &Assigned,
        drained: BTreeMap<AgentName, DrainReport>,
        lost: &BTreeMap<AgentName, String>,
    ) -> anyhow::Result<BTreeMap<AgentName, String>> {
        let mut reasons = lost.clone();
        for (agent, report) in &drained {
            let arrived = self.ingest.wait_for(agent, report.incarnation, report.next_seq);
            if tokio::time::timeout(COLLECT_WITHIN, arrived).await.is_err() {
                reasons.insert(agent.clone(), format!("its traces did not arrive within {COLLECT_WITHIN:?}"));
            }
        }
        self.means.shared.open_trial(None);
        let trial = (planned.trial, epoch);
        let stored =
            tokio::task::block_in_place(|| seal::stored(&self.store, planned.trial, epoch, assigned))?;
        for (agent, report) in &drained {
            let wrong = if stored.traces.get(agent).copied().unwrap_or(0) != report.traces {
                Some(format!("it says that it sent {} traces, which is not so", report.traces))
            } else {
                (report.traces_lost > 0).then(|| format!("its spool lost {} traces", report.traces_lost))
            };
            if let Some(reason) = wrong {
                // What did not arrive in time is the reason already.
                reasons.entry(agent.clone()).or_insert(reason);
            }
        }
        for (agent, arrivals) in stored.missing {
            let reason = reasons.entry(agent.clone()).or_insert_with(|| "its traces are not complete".into());
            seal::write_synthetic(&self.ingest, trial, &agent, &arrivals, reason).await?;
        }
        self.means.fleet.tell_all(&ToAgent::Sealed(epoch));
        Ok(reasons)
    }

    /// Numbers and trace lines of a sealed trial; then it is kept.
    fn analyse(&mut self, trial: KeptTrial) -> anyhow::Result<()> {
        let Traces { part, file, .. } = &mut self.traces;
        // Blocking is right here: no trial is under way, and leases are renewed by the sessions' own tasks, on the
        // runtime's other threads.
        let lines = Lines { out: file, path: part };
        let report = tokio::task::block_in_place(|| {
            let tokenizer = self.plan.tokenizer.as_deref();
            analyse(&self.store, &self.kept, &self.kept.slos, &trial, Some(lines), tokenizer)
        })?;
        let sealed = RunEvent::TrialSealed {
            trial: trial.planned.trial,
            epoch: trial.epoch,
            verdict: report.summary.validity.verdict.name().into(),
            scheduled: report.summary.conservation.scheduled,
            recorded: report.summary.conservation.recorded,
        };
        self.means.ui.trial_ended(&report);
        // What was measured is reported, also when it cannot be kept.
        self.trials.push(report);
        self.kept.trials.push(trial);
        self.store.append_event(&sealed)?;
        self.kept.write(&self.store)?;
        Ok(())
    }

    /// The report of what was measured, whatever ended the run. What cannot be written any more (the disk is full,
    /// say) is an error beside the report, not instead of it.
    pub(super) async fn finish(mut self, ended: anyhow::Result<bool>) -> RunOutcome {
        let (interrupted, mut error) = match ended {
            Ok(interrupted) => (interrupted, None),
            Err(e) => (false, Some(e)),
        };
        let event = match (&error, interrupted) {
            (Some(e), _) => RunEvent::RunInterrupted { reason: format!("{e:#}") },
            (None, true) => RunEvent::RunInterrupted { reason: "stopped by the operator".into() },
            (None, false) => RunEvent::RunFinished,
        };
        self.describe_engine().await;
        beside::last_samples(&self.means.fleet).await;
        self.means.shared.close_run();
        self.means.fleet.tell_all(&ToAgent::Goodbye("the run is over".into()));
        if let Some(record) = self.kept.experiment.as_object_mut() {
            record.insert("skipped_trials".into(), serde_json::json!(self.skipped));
        }
        let synced = self.telemetry.sync().map_err(anyhow::Error::from);
        beside::add_hardware(&self.store, &mut self.kept);
        let closed = self.ingest.close().await.map_err(anyhow::Error::from);
        let noted = self.store.append_event(&event).map_err(anyhow::Error::from);
        let kept = self.kept.write(&self.store).map_err(anyhow::Error::from);
        tracing::debug!(counters = ?self.ingest.counters(), "the run is over");
        let mut trials = std::mem::take(&mut self.trials);
        let attached = telemetry::attach(&self.store, &self.kept, &mut trials).map_err(anyhow::Error::from);
        let recorded = synced.and(attached);
        if trials.is_empty() {
            self.traces.discard();
            let error = error.or_else(|| closed.and(noted).and(kept).err());
            return RunOutcome { report: None, files: Vec::new(), interrupted, error };
        }
        let run = self.store.id().clone();
        let sealed = std::mem::take(&mut self.kept.trials);
        let report = Report::new(run, self.kept.experiment, self.kept.slos, self.kept.slo_target, trials);
        let mut files = Vec::new();
        let path = self.folder.join("report.json");
        let written = to_json(&report).map_err(anyhow::Error::from).and_then(|json| {
            OsDisk.replace(&path, json.as_bytes()).with_context(|| path.display().to_string())?;
            files.push(path);
            files.push(self.traces.keep()?);
            // The largest of them, and the least: last.
            files.extend(beside::export(&self.store, &sealed, &self.folder)?);
            Ok(())
        });
        error = error.or_else(|| written.and(closed).and(noted).and(kept).and(recorded).err());
        RunOutcome { report: Some(report), files, interrupted, error }
    }
}

fn findings(stopped: bool, engine_died: Option<&str>, reasons: &BTreeMap<AgentName, String>) -> Vec<Reason> {
    let mut findings: Vec<Reason> = reasons
        .iter()
        .map(|(agent, reason)| Reason::of_agent(ReasonKind::AgentLost, agent, reason))
        .collect();
    if let Some(how) = engine_died {
        findings.push(Reason::new(ReasonKind::EngineDied, format!("the engine died: {how}")));
    }
    if stopped {
        findings.push(Reason::new(ReasonKind::Interrupted, "stopped by the operator"));
    }
    findings
}
