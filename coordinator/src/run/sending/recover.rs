//! Going on with a run whose coordinator was lost, or that was ended early.
//!
//! The trial that was under way is closed first: its agents say what they hold of it, under the processes that sent
//! it, and deliver it; what nobody has becomes synthetic. It stays on record as invalid, and its schedule is sent again
//! under another number. It must never take a sealed trial for open: what is sealed does not change.

use std::collections::BTreeSet;

use anyhow::bail;
use common::ids::{AgentName, Nanos};
use common::lease::until_lost;
use common::slo::shown_time;
use common::validity::{Reason, ReasonKind};

use super::{Sending, again};
use crate::fleet::{LEASE, ToAgent};
use crate::kept::{KeptAgent, KeptRun, KeptTrial};
use crate::record::{self, same};
use crate::run::beside::{Passed, pass};
use crate::run::prepare;
use crate::store::RunEvent;
use crate::trial::seal;

impl Sending<'_, '_> {
    /// Closes what was under way, and sends what is left. True when the operator ended it early.
    pub(in crate::run) async fn go_on(&mut self, command_line: &[String]) -> anyhow::Result<bool> {
        // Whoever has not joined was heard last before now, by a coordinator that is gone.
        let since = self.means.clock.boottime();
        std::mem::take(&mut self.run.notes).iter().for_each(|note| self.means.ui.note(note));
        self.means.ui.was_before(&self.run.trials);
        if self.run.is_over() {
            let left = again::left(&self.run.plan.trials, &self.run.kept.trials);
            self.skipped.extend(left.iter().map(|left| left.planned.trial));
            return Ok(false);
        }
        let (fleet, engine) = (self.run.plan.fleet.clone(), self.run.plan.engine);
        if !prepare::join(&fleet, &engine, &mut self.gathering()).await? {
            return Ok(true);
        }
        if let Some(open) = self.run.open.take()
            && !self.close_open(open, since).await?
        {
            return Ok(true);
        }
        if !self.meet(command_line).await? {
            return Ok(true);
        }
        self.every_trial().await
    }

    /// Agents and engine, as before the first trial; they must be what the run is about. False when the operator wants
    /// an end.
    async fn meet(&mut self, command_line: &[String]) -> anyhow::Result<bool> {
        let Some(gathered) = prepare(&mut self.run.plan, self.means).await? else { return Ok(false) };
        let means = &mut *self.means;
        let record = &self.run.kept.experiment;
        let differs =
            same::of_plan(record, &self.run.plan, true).or_else(|| same::of_engine(record, &gathered));
        if let Some(difference) = differs {
            bail!(difference);
        }
        let at = jiff::Timestamp::from_nanosecond(i128::from(means.clock.wall().0))
            .map_or_else(|_| String::new(), |t| t.to_string());
        let entry = record::resumption(&gathered, command_line, &at);
        let (was, is) = (&record["probe"]["engine_version"], &entry["engine"]["revision"]);
        if was != is && !is.is_null() {
            means.ui.note(&format!("note         the engine's version was {was}, and is now {is}"));
        }
        if let Some(experiment) = self.run.kept.experiment.as_object_mut() {
            let list = experiment.entry("resumed").or_insert_with(|| serde_json::json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(entry);
            }
        }
        self.take_up(gathered);
        Ok(true)
    }

    /// Seals a trial that was under way when the coordinator was lost. False when the operator wants an end.
    async fn close_open(&mut self, open: KeptTrial, since: Nanos) -> anyhow::Result<bool> {
        let number = open.planned.trial;
        let names: Vec<AgentName> = open.agents.iter().map(|a| a.name.clone()).collect();
        let assigned = self.assign(&open.planned, &names)?;
        if assigned.digest != open.schedule_sha256 {
            bail!("trial {number} was sent by another version of this program, whose schedules are others");
        }
        self.means
            .ui
            .note(&format!("recover      trial {number} was under way; collecting what was spooled"));
        self.take_traces_of(number, open.epoch, &assigned);
        // Before the seal: an agent that is not there may still send what is of this trial. It may come meanwhile.
        let members = self.means.fleet.registry().members();
        let absent = names.into_iter().filter(|name| !members.contains_key(name)).collect();
        if !self.let_leases_end(&absent, since).await? {
            return Ok(false);
        }
        let Some(there) = self.collect(&open, &assigned).await? else { return Ok(false) };
        self.means.shared.open_trial(None);
        let stored = self.stored(&open.planned, open.epoch, &assigned)?;
        for (agent, arrivals) in &stored.missing {
            let why = match there.contains(agent) {
                true => "the coordinator was lost, and it holds no trace of this arrival",
                false => "the coordinator was lost, and the agent is not there any more",
            };
            let trial = (number, open.epoch);
            seal::write_synthetic(&self.run.ingest, trial, agent, arrivals, why).await?;
        }
        self.means.fleet.tell_all(&ToAgent::Sealed(open.epoch));
        let lost: u64 = stored.unknown.values().sum();
        self.means.ui.note(&format!(
            "recover      trial {number}: {} of {} traces are there; it is sealed as invalid and sent again",
            open.scheduled - lost,
            open.scheduled
        ));
        let agents =
            open.agents.iter().map(|a| KeptAgent { lost: stored.unknown.contains_key(&a.name), ..a.clone() });
        let agents = agents.collect();
        let findings = vec![Reason::new(
            ReasonKind::CoordinatorRestarted,
            format!("the coordinator was lost during the trial; of {lost} requests nobody knows the fate"),
        )];
        self.analyse(KeptTrial { agents, findings, ..open })?;
        Ok(true)
    }

    /// Waits until agents that are not there, and may live on elsewhere, send nothing more: their load must be
    /// neither in the next trial nor in this one after its seal. False when the operator wants an end.
    async fn let_leases_end(&mut self, absent: &BTreeSet<AgentName>, since: Nanos) -> anyhow::Result<bool> {
        let left = until_lost(LEASE, since, self.means.clock.boottime());
        if absent.is_empty() || left == Nanos::ZERO {
            return Ok(true);
        }
        let names: Vec<&str> = absent.iter().map(AgentName::as_str).collect();
        let request = self.run.plan.target.connect_timeout + self.run.plan.target.total_timeout;
        self.means.ui.note(&format!(
            "recover      waiting {:.0} s, until {} may not send any more; what it has in flight may take up to {}",
            left.as_secs_f64().ceil(),
            names.join(", "),
            shown_time(request)
        ));
        let until = self.means.clock.monotonic() + left;
        match pass(until, &mut self.gathering()).await {
            Passed::InTime => Ok(true),
            Passed::Stopped => Ok(false),
            Passed::Without(reason) => bail!(reason),
        }
    }
}

/// Whether a request of this trial may have been sent. The log says so; where the log itself was lost with the index, it
/// may.
pub(super) fn may_have_begun(kept: &KeptRun, open: &KeptTrial, events: &[RunEvent]) -> bool {
    let sealed = kept.trials.iter().any(|t| t.epoch == open.epoch);
    !sealed && began(open.epoch, events)
}

fn began(epoch: common::ids::Epoch, events: &[RunEvent]) -> bool {
    let is = |e: &common::ids::Epoch| *e == epoch;
    let started = events.iter().any(|e| matches!(e, RunEvent::TrialStarted { epoch, .. } if is(epoch)));
    let prepared = events.iter().any(|e| matches!(e, RunEvent::TrialPrepared { epoch, .. } if is(epoch)));
    let rebuilt = events.iter().any(|e| matches!(e, RunEvent::IndexRebuilt { .. }));
    started || (rebuilt && !prepared)
}

#[cfg(test)]
mod tests {
    use common::ids::{Epoch, TrialId};

    use super::*;

    #[test]
    fn what_was_only_prepared_has_not_begun_though_an_index_was_rebuilt_before() {
        let (trial, epoch) = (TrialId(0), Epoch(2));
        let rebuilt = RunEvent::IndexRebuilt { blocks: 1 };
        let prepared = RunEvent::TrialPrepared { trial, epoch };
        let started = RunEvent::TrialStarted { trial, epoch };
        assert!(!began(epoch, &[]) && !began(epoch, std::slice::from_ref(&prepared)));
        assert!(began(epoch, &[prepared.clone(), started]));
        // The log was lost, and with it what it said of this trial.
        assert!(began(epoch, std::slice::from_ref(&rebuilt)));
        assert!(!began(epoch, &[rebuilt, prepared]));
    }
}
