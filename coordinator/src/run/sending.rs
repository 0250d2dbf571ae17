//! The trials of a run, one after the other, and what they leave: traces, kept run, report.

mod again;
mod begin;
mod close;
mod collect;
mod engine;
mod hopeless;
mod recover;
mod search;
mod traces;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use common::disk::{Disk, OsDisk};
use common::fleet::DrainReport;
use common::ids::{AgentName, Epoch, TrialId};
use common::validity::{Reason, ReasonKind};

use super::{Means, RunOutcome, beside};
use crate::fleet::ToAgent;
use crate::kept::{KeptAgent, KeptTrial};
use crate::report::{Report, html, to_json};
use crate::store::RunEvent;
use crate::sweep::PlannedTrial;
use crate::telemetry;
use crate::trial::assignment::{Assigned, assign};
use crate::trial::drive::{TrialCase, drive};
use crate::trial::machine::Ending;
use again::Left;
pub use begin::Opened;
use hopeless::Looking;

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
    run: Opened,
    agents: Vec<AgentName>,
    /// The agent that launches the engine.
    launcher: Option<AgentName>,
    /// Of orders about the engine.
    engine_orders: u64,
    means: &'m mut Means<'a>,
    /// Trials of the plan that were not sent, because what was measured made them useless.
    skipped: BTreeSet<TrialId>,
}

impl Sending<'_, '_> {
    /// Sends every trial that is still of use. True when the operator ended it early.
    pub(super) async fn every_trial(&mut self) -> anyhow::Result<bool> {
        let (store, required) = (self.run.store.clone(), self.run.plan.require_gpu);
        let boot = self.run.kept.restarts();
        if !beside::gpus(&store, boot, required, &mut self.gathering()).await? {
            return Ok(true);
        }
        if self.run.kept.idle.is_none() {
            self.run.kept.idle = beside::idle(&mut self.gathering()).await?;
        }
        self.run.take_up_search();
        let mut left = again::left(&self.run.plan.trials, &self.run.kept.trials);
        while let Some(next) = left.pop_front().or_else(|| self.searched()) {
            if self.ends(&next, &left) {
                return Ok(false);
            }
            if self.run.is_of_no_use(&next.planned) {
                let PlannedTrial { trial, rate, .. } = next.planned;
                self.means.ui.note(&format!("trial {trial} at {rate}/s is skipped: a lower rate fails"));
                self.skipped.insert(trial);
                continue;
            }
            self.skipped.remove(&next.planned.trial);
            let planned = next.numbered(&self.run.plan.trials, &self.run.kept.trials);
            if *self.means.stop.borrow() > 0 || !self.cold(&planned).await? {
                return Ok(true);
            }
            self.leave_out_who_is_gone()?;
            match self.trial(planned).await? {
                Sent::Whole => {}
                Sent::Stopped => return Ok(true),
                Sent::WithLoss { lost, sealed } => {
                    left.push_front(self.again(next, planned.trial, &lost, sealed)?);
                }
            }
        }
        Ok(false)
    }

    /// Whether the sweep ends before `next`: then that and all that is `left` are skipped.
    fn ends(&mut self, next: &Left, left: &VecDeque<Left>) -> bool {
        let (Some(trial), Some(share)) = (self.run.ended_by(), self.run.plan.max_failures) else {
            return false;
        };
        self.skipped.extend([next].into_iter().chain(left).map(|left| left.planned.trial));
        self.means.ui.note(&format!("the sweep ends: more than {share} of trial {trial}'s requests failed"));
        true
    }

    /// One trial.
    async fn trial(&mut self, planned: PlannedTrial) -> anyhow::Result<Sent> {
        let assigned = self.assign(&planned, &self.agents)?;
        self.means.ui.trial_begins(&planned, self.run.plan.trials.len(), &self.run.plan, assigned.count);
        let epoch = self.run.store.next_epoch()?;
        self.run.store.append_event(&RunEvent::TrialPrepared { trial: planned.trial, epoch })?;
        self.run.kept.open = Some(self.to_be_sent(planned, epoch, &assigned));
        self.run.kept.write(&self.run.store)?;
        self.take_traces_of(planned.trial, epoch, &assigned);
        let case = self.case(&planned, epoch);
        let started = RunEvent::TrialStarted { trial: planned.trial, epoch };
        let store = self.run.store.clone();
        let of = (&planned, epoch, assigned.count);
        let mut watch = Looking::at(&mut *self.means.ui, &self.run.plan, &store, of);
        let ending = drive(
            &case,
            &assigned,
            &mut self.means.fleet,
            &*self.means.clock,
            &mut self.means.stop,
            || store.append_event(&started),
            &mut watch,
        )
        .await?;
        match ending {
            Ending::CalledOff(reason) => {
                self.means.shared.open_trial(None);
                let event = RunEvent::TrialCancelled { trial: planned.trial, epoch, reason: reason.clone() };
                self.run.store.append_event(&event)?;
                self.run.kept.open = None;
                self.run.kept.write(&self.run.store)?;
                let lost = self.gone(&reason);
                match *self.means.stop.borrow() > 0 {
                    true => Ok(Sent::Stopped),
                    // Nothing was sent.
                    false if !lost.is_empty() => Ok(Sent::WithLoss { lost, sealed: false }),
                    false => Err(anyhow!("trial {}: {reason}", planned.trial)),
                }
            }
            Ending::Ran { start, drained, mut lost, stopped, engine_died, cut } => {
                // Its last answers may have been cut, and all agents drained, before its end was told.
                let (engine_died, unknown) = match engine_died {
                    None => match self.engine_is_dead().await {
                        Ok(died) => (died, None),
                        Err(e) => (None, Some(e)),
                    },
                    known => (known, None),
                };
                // An agent that is gone after its last request is as lost as one that goes before.
                let missing = self.arrive(&drained).await;
                let stopped = stopped || missing.cut;
                lost.extend(missing.lost);
                let reasons =
                    lost.iter().map(|(a, why)| (a.clone(), why.clone())).chain(missing.late).collect();
                let agents = self.kept_agents(&drained, &lost);
                let reasons = self.seal(&planned, epoch, &assigned, drained, reasons).await?;
                let told = self.told(planned.trial, epoch)?;
                let engine_died = match (engine_died, told.silence()) {
                    (None, Some(silence)) if self.launcher.is_none() => {
                        self.engine_is_gone(epoch, &silence).await
                    }
                    (known, _) => known,
                };
                let whole = lost.is_empty() && !stopped && engine_died.is_none();
                let cut = cut.filter(|_| whole);
                let gave_up = if whole && cut.is_none() { told.gave_up() } else { BTreeMap::new() };
                let left_away = match &cut {
                    Some(_) => self.cut_of(planned.trial, epoch, assigned.count)?,
                    None => None,
                };
                let mut findings = close::findings(stopped, engine_died.as_deref(), &reasons, &gave_up);
                findings.extend(left_away.and(cut).map(|why| Reason::new(ReasonKind::CutBySearch, why)));
                let (scheduled, cut) = left_away.unzip();
                let sealed = KeptTrial {
                    agents,
                    scheduled: scheduled.unwrap_or(assigned.count),
                    findings,
                    cut,
                    start: Some(start),
                    ..self.to_be_sent(planned, epoch, &assigned)
                };
                // Nobody asks for the slices any more, and the analysis needs the memory.
                drop(assigned);
                self.means.shared.offer_slices(epoch, []);
                self.analyse(sealed)?;
                if let Some(e) = unknown.filter(|_| lost.is_empty()) {
                    return Err(e.context(format!("after trial {}", planned.trial)));
                }
                if let Some(how) = engine_died {
                    bail!("the engine died during trial {}: {how}; the run ends here", planned.trial);
                }
                let disturbed = if lost.is_empty() { gave_up } else { lost };
                Ok(match (stopped, disturbed.is_empty()) {
                    (true, _) => Sent::Stopped,
                    (false, true) => Sent::Whole,
                    (false, false) => Sent::WithLoss { lost: disturbed, sealed: true },
                })
            }
        }
    }

    /// Who carries what of a trial, were it sent by `agents`.
    fn assign(&self, planned: &PlannedTrial, agents: &[AgentName]) -> anyhow::Result<Assigned> {
        let arrivals = self.run.plan.arrivals(planned.rate);
        let rows = self.run.plan.workload.rows.rows.len() as u32;
        // A closed loop's workers are its permits.
        let permits = planned.rate.workers().or(self.run.plan.max_concurrency);
        let (seed, warmup) = (planned.seed, self.run.plan.warmup);
        // With many arrivals and agents it takes the processor for seconds.
        Ok(crate::aside::here(|| assign(&arrivals, seed, rows, agents, permits, warmup))?)
    }

    /// From here on traces of this trial are taken, each from the agent that carries it.
    fn take_traces_of(&self, trial: TrialId, epoch: Epoch, assigned: &Assigned) {
        let slices = assigned.agents.iter().map(|(agent, a)| (agent.clone(), Arc::clone(&a.slice)));
        self.means.shared.offer_slices(epoch, slices);
        self.means.shared.open_trial(Some((trial, epoch)));
    }

    /// What is kept of a trial before its first request.
    fn to_be_sent(&self, planned: PlannedTrial, epoch: Epoch, assigned: &Assigned) -> KeptTrial {
        KeptTrial {
            planned,
            epoch,
            scheduled: assigned.count,
            schedule_sha256: assigned.digest,
            workload_sha256: self.run.plan.workload_digest(),
            agents: assigned.agents.keys().cloned().map(KeptAgent::unknown).collect(),
            findings: Vec::new(),
            cut: None,
            start: None,
            boot: self.run.kept.restarts(),
            gaps: None,
        }
    }

    fn case(&self, planned: &PlannedTrial, epoch: Epoch) -> TrialCase {
        TrialCase {
            run: self.run.store.id().clone(),
            trial: planned.trial,
            epoch,
            target: self.run.plan.target.clone(),
            workload: self.run.plan.workload_digest(),
            workload_bytes: self.run.plan.workload.bytes.len() as u64,
            warm_connections: self.run.plan.warm_connections,
            upload: self.run.plan.upload,
            local: self.run.plan.fleet.remote == 0,
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
        if let Some(record) = self.run.kept.experiment.as_object_mut() {
            record.insert("skipped_trials".into(), serde_json::json!(self.skipped));
        }
        let synced = self.run.telemetry.sync().map_err(anyhow::Error::from);
        beside::add_hardware(&self.run.store, &mut self.run.kept);
        let closed = self.run.ingest.close().await.map_err(anyhow::Error::from);
        let noted = self.run.store.append_event(&event).map_err(anyhow::Error::from);
        let kept = self.run.kept.write(&self.run.store).map_err(anyhow::Error::from);
        tracing::debug!(counters = ?self.run.ingest.counters(), "the run is over");
        let mut trials = std::mem::take(&mut self.run.trials);
        let attached =
            telemetry::attach(&self.run.store, &self.run.kept, &mut trials).map_err(anyhow::Error::from);
        let recorded = synced.and(attached);
        if trials.is_empty() {
            let error = error.or_else(|| closed.and(noted).and(kept).err());
            return RunOutcome { report: None, files: Vec::new(), interrupted, error };
        }
        let run = self.run.store.id().clone();
        let (restarts, sealed) = (self.run.kept.restarts(), std::mem::take(&mut self.run.kept.trials));
        let report =
            Report::new(run, self.run.kept.experiment, self.run.kept.slos, self.run.kept.slo_target, trials);
        let mut files = Vec::new();
        let path = self.run.folder.join("report.json");
        let written = to_json(&report).map_err(anyhow::Error::from).and_then(|json| {
            let watch = self.means.store.watch();
            watch
                .during(&path, || OsDisk.replace(&path, json.as_bytes()))
                .with_context(|| path.display().to_string())?;
            files.push(path);
            files.push(self.run.traces.keep()?);
            let page = self.run.folder.join("report.html");
            let tokenizer = self.run.plan.tokenizer.as_deref();
            let sources = html::Sources { run: &self.run.store, trials: &sealed, restarts, tokenizer };
            // Reading every trace again is no sign of a disk that does not answer.
            let points = crate::aside::here(|| html::gather(&report, sources))?;
            watch.during(&page, || html::write_gathered(&page, &report, &points))?;
            files.push(page);
            // The largest of them, and the least: last.
            files.extend(beside::export(&self.run.store, restarts, &sealed, &self.run.folder)?);
            Ok(())
        });
        error = error.or_else(|| written.and(closed).and(noted).and(kept).and(recorded).err());
        RunOutcome { report: Some(report), files, interrupted, error }
    }
}
