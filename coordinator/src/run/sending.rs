//! The trials of a run, one after the other, and what they leave: traces, kept run, report.

mod again;
mod begin;
mod close;
mod engine;
mod recover;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use common::disk::{Disk, OsDisk};
use common::fleet::DrainReport;
use common::ids::{AgentName, Epoch, TrialId};
use common::knee::{TrialRef, failures_exceed, lowest_failure, pool_rates};

use super::{Means, RunOutcome, beside};
use crate::fleet::ToAgent;
use crate::ingest::IngestHandle;
use crate::kept::{KeptAgent, KeptRun, KeptTrial};
use crate::plan::Plan;
use crate::report::{Report, TrialReport, to_json};
use crate::store::{RunEvent, RunStore, TelemetrySink};
use crate::sweep::PlannedTrial;
use crate::telemetry;
use crate::trial::assignment::{Assigned, assign};
use crate::trial::drive::{TrialCase, drive};
use crate::trial::machine::Ending;
use begin::Traces;

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
    skipped: BTreeSet<TrialId>,
}

impl Sending<'_, '_> {
    /// Sends every trial that is still of use. True when the operator ended it early.
    pub(super) async fn every_trial(&mut self) -> anyhow::Result<bool> {
        let (store, required) = (self.store.clone(), self.plan.require_gpu);
        if !beside::gpus(&store, required, &mut self.gathering()).await? {
            return Ok(true);
        }
        if self.kept.idle.is_none() {
            self.kept.idle = beside::idle(&mut self.gathering()).await?;
        }
        let mut left = again::left(&self.plan.trials, &self.kept.trials);
        while let Some(next) = left.pop_front() {
            if self.is_of_no_use(&next.planned) {
                let PlannedTrial { trial, rate, .. } = next.planned;
                self.means.ui.note(&format!("trial {trial} at {rate}/s is skipped: a lower rate fails"));
                self.skipped.insert(trial);
                continue;
            }
            let planned = next.numbered(&self.plan.trials, &self.kept.trials);
            if *self.means.stop.borrow() > 0 || !self.cold(&planned).await? {
                return Ok(true);
            }
            match self.trial(planned).await? {
                Sent::Whole => {}
                Sent::Stopped => return Ok(true),
                Sent::WithLoss { lost, sealed } => {
                    left.push_front(self.again(next, planned.trial, &lost, sealed)?);
                    continue;
                }
            }
            if let (Some(share), Some(last)) = (self.plan.max_failures, self.trials.last())
                && failures_exceed(&last.summary, share)
            {
                self.skipped.extend(left.iter().map(|t| t.planned.trial));
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
        let assigned = self.assign(&planned, &self.agents)?;
        self.means.ui.trial_begins(&planned, self.plan.trials.len(), &self.plan, assigned.count);
        let epoch = self.store.next_epoch()?;
        self.store.append_event(&RunEvent::TrialPrepared { trial: planned.trial, epoch })?;
        self.kept.open = Some(self.to_be_sent(planned, epoch, &assigned));
        self.kept.write(&self.store)?;
        self.take_traces_of(planned.trial, epoch, &assigned);
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
                self.kept.open = None;
                self.kept.write(&self.store)?;
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
                self.analyse(KeptTrial {
                    agents,
                    findings: close::findings(stopped, engine_died.as_deref(), &reasons),
                    start: Some(start),
                    ..self.to_be_sent(planned, epoch, &assigned)
                })?;
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

    /// Who carries what of a trial, were it sent by `agents`.
    fn assign(&self, planned: &PlannedTrial, agents: &[AgentName]) -> anyhow::Result<Assigned> {
        let arrivals = self.plan.arrivals(planned.rate);
        let rows = self.plan.workload.rows.rows.len() as u32;
        // A closed loop's workers are its permits.
        let permits = planned.rate.workers().or(self.plan.max_concurrency);
        Ok(assign(&arrivals, planned.seed, rows, agents, permits, self.plan.warmup)?)
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
            workload_sha256: self.plan.workload_digest(),
            agents: assigned.agents.keys().cloned().map(KeptAgent::unknown).collect(),
            findings: Vec::new(),
            start: None,
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
