//! How a trial is closed: its traces collected, what cannot come written as synthetic, its numbers computed, and all of
//! it kept.

use std::collections::BTreeMap;
use std::time::Duration;

use common::fleet::{DrainReport, Upload};
use common::ids::{AgentName, Epoch};
use common::summary::KnownGaps;
use common::validity::{Reason, ReasonKind};

use super::Sending;
use crate::fleet::{Change, ToAgent};
use crate::kept::KeptTrial;
use crate::store::RunEvent;
use crate::sweep::PlannedTrial;
use crate::trial::assignment::Assigned;
use crate::trial::seal::{self, Stored};

/// How long the last traces of agents that are drained may take to arrive. Where they keep a trial's traces until its
/// drain, so long may pass until the next of them: how much there is, and how thin the network, nobody knows before.
pub(super) const COLLECT_WITHIN: Duration = Duration::from_secs(60);

/// Traces that take longer than this to come, with `--upload after`, are told of.
const TOLD_AFTER: std::time::Duration = std::time::Duration::from_secs(3);

/// Agents whose last traces did not come, each with the reason.
#[derive(Debug, Default)]
pub(super) struct NotArrived {
    /// They are gone.
    pub(super) lost: BTreeMap<AgentName, String>,
    /// They are there, and would be as late another time.
    pub(super) late: BTreeMap<AgentName, String>,
    /// The operator did not wait: what is missing is missing for that reason, and the trial is to be sent again.
    pub(super) cut: bool,
}

impl Sending<'_, '_> {
    /// Waits for the traces that agents say they have: for those of each until it is lost, and for all of them no longer
    /// than [`COLLECT_WITHIN`] (with `--upload after`, than that without any, and until the operator's second word). What
    /// keeps one agent's, such as a full disk here, keeps those of every other.
    pub(super) async fn arrive(&mut self, drained: &BTreeMap<AgentName, DrainReport>) -> NotArrived {
        let ingest = self.run.ingest.clone();
        let mut waiting: BTreeMap<&AgentName, &DrainReport> = drained.iter().collect();
        let mut missing = NotArrived::default();
        let mut deadline = tokio::time::Instant::now() + COLLECT_WITHIN;
        let (mut stored, mut stop) = (ingest.counters().traces, self.means.stop.clone());
        let after = self.run.plan.upload == Upload::After;
        // The word that cut the trial's requests is not meant for their traces.
        let may_cut = after && *stop.borrow() < 2;
        let (tell_at, mut told) = (tokio::time::Instant::now() + TOLD_AFTER, !may_cut);
        loop {
            waiting.retain(|agent, report| ingest.mark(agent, report.incarnation) < report.next_seq);
            let Some((agent, report)) = waiting.first_key_value().map(|(agent, report)| (*agent, *report))
            else {
                return missing;
            };
            let now = ingest.counters().traces;
            if after && std::mem::replace(&mut stored, now) != now {
                deadline = tokio::time::Instant::now() + COLLECT_WITHIN;
            }
            tokio::select! {
                arrived = ingest.wait_for(agent, report.incarnation, report.next_seq) => {
                    if let Err(e) = arrived {
                        missing.late.insert(agent.clone(), e.to_string());
                        waiting.remove(agent);
                    }
                }
                change = self.means.fleet.next() => if let Change::Lost(agent, reason) = change
                    && waiting.remove(&agent).is_some()
                {
                    missing.lost.insert(agent, reason);
                },
                Ok(_) = stop.wait_for(|level| *level > 1), if may_cut => {
                    let why = "the operator did not wait for its traces".to_owned();
                    missing.cut = true;
                    missing.late.extend(waiting.keys().map(|agent| ((*agent).clone(), why.clone())));
                    return missing;
                }
                () = tokio::time::sleep_until(tell_at), if !told => {
                    told = true;
                    let n = waiting.len();
                    self.means.ui.note(&format!(
                        "delivery     the traces of {n} agents are on their way (ctrl-c twice gives them up, and resume sends the trial again)"
                    ));
                }
                () = tokio::time::sleep_until(deadline) => {
                    let why = format!("its traces did not arrive within {COLLECT_WITHIN:?}");
                    missing.late.extend(waiting.keys().map(|agent| ((*agent).clone(), why.clone())));
                    return missing;
                }
            }
        }
    }

    /// Takes no more traces of a trial, and writes those that cannot come any more. Gives what is wrong, `reasons` among
    /// it.
    pub(super) async fn seal(
        &mut self,
        planned: &PlannedTrial,
        epoch: Epoch,
        assigned: &Assigned,
        drained: BTreeMap<AgentName, DrainReport>,
        mut reasons: BTreeMap<AgentName, String>,
    ) -> anyhow::Result<BTreeMap<AgentName, String>> {
        self.means.shared.open_trial(None);
        let trial = (planned.trial, epoch);
        let stored = self.stored(planned, epoch, assigned)?;
        for (agent, report) in &drained {
            let wrong = if stored.traces.get(agent).copied().unwrap_or(0) != report.traces {
                Some(format!("it says that it sent {} traces, which is not so", report.traces))
            } else {
                let why = match self.run.plan.upload {
                    Upload::During => "",
                    Upload::After => "; with --upload after it must have room for all of a trial",
                };
                (report.traces_lost > 0).then(|| format!("its spool lost {} traces{why}", report.traces_lost))
            };
            if let Some(reason) = wrong {
                // What did not arrive in time is the reason already.
                reasons.entry(agent.clone()).or_insert(reason);
            }
        }
        for (agent, arrivals) in stored.missing {
            let reason = reasons.entry(agent.clone()).or_insert_with(|| "its traces are not complete".into());
            seal::write_synthetic(&self.run.ingest, trial, &agent, &arrivals, reason).await?;
        }
        self.means.fleet.tell_all(&ToAgent::Sealed(epoch));
        Ok(reasons)
    }

    /// What is stored of a trial.
    pub(super) fn stored(
        &self,
        planned: &PlannedTrial,
        epoch: Epoch,
        assigned: &Assigned,
    ) -> anyhow::Result<Stored> {
        Ok(crate::aside::here(|| seal::stored(&self.run.store, planned.trial, epoch, assigned))?)
    }

    /// Computes a sealed trial; then it is kept.
    pub(super) fn analyse(&mut self, mut trial: KeptTrial) -> anyhow::Result<()> {
        let report = self.run.numbers(&trial)?;
        trial.gaps = report.summary.numbers.as_ref().map(|n| KnownGaps::of(&n.latency_seconds));
        let sealed = RunEvent::TrialSealed {
            trial: trial.planned.trial,
            epoch: trial.epoch,
            verdict: report.summary.validity.verdict.name().into(),
            scheduled: report.summary.conservation.scheduled,
            recorded: report.summary.conservation.recorded,
        };
        self.means.ui.trial_ended(&report);
        // What was measured is reported, also when it cannot be kept.
        self.run.trials.push(report);
        self.run.kept.trials.push(trial);
        self.run.kept.open = None;
        self.run.store.append_event(&sealed)?;
        self.run.kept.write(&self.run.store)?;
        Ok(())
    }
}

pub(super) fn findings(
    stopped: bool,
    engine_died: Option<&str>,
    reasons: &BTreeMap<AgentName, String>,
    gave_up: &BTreeMap<AgentName, String>,
) -> Vec<Reason> {
    let of = |kind, reasons: &BTreeMap<AgentName, String>| {
        reasons.iter().map(|(agent, reason)| Reason::of_agent(kind, agent, reason)).collect::<Vec<_>>()
    };
    let mut findings = of(ReasonKind::AgentLost, reasons);
    findings.extend(of(ReasonKind::GeneratorFailure, gave_up));
    if let Some(how) = engine_died {
        findings.push(Reason::new(ReasonKind::EngineDied, format!("the engine died: {how}")));
    }
    if stopped {
        findings.push(Reason::new(ReasonKind::Interrupted, "stopped by the operator"));
    }
    findings
}
