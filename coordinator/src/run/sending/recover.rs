//! Going on with a run whose coordinator was lost, or that was ended early.
//!
//! The trial that was under way is closed first: its agents say what they hold of it, under the processes that sent
//! it, and deliver it; what nobody has becomes synthetic. It stays on record as invalid, and its schedule is sent again
//! under another number. It must never take a sealed trial for open: what is sealed does not change.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use common::fleet::{CollectOrder, CollectReport, Held};
use common::ids::{AgentName, Nanos, TrialId};
use common::validity::{Reason, ReasonKind};
use tokio::time::timeout;

use super::close::COLLECT_WITHIN;
use super::{Sending, again};
use crate::fleet::{Change, FromAgent, ToAgent};
use crate::kept::{KeptAgent, KeptRun, KeptTrial};
use crate::record::{self, same};
use crate::run::prepare;
use crate::store::RunEvent;
use crate::trial::seal;

/// For agents to end what they have of a trial under way and to say what they hold. What is in flight is cut, so that
/// takes no longer than a disk does.
const SAY_WITHIN: Nanos = Nanos::from_secs(60);

/// What agents hold of a trial. None when the operator wants an end.
type Collected = Option<BTreeMap<AgentName, Vec<Held>>>;

impl Sending<'_, '_> {
    /// Closes what was under way, and sends what is left. True when the operator ended it early.
    pub(in crate::run) async fn go_on(&mut self, command_line: &[String]) -> anyhow::Result<bool> {
        self.forget_other_boots();
        let events = self.store.events()?;
        let open = self.kept.open.clone().filter(|open| may_have_begun(&self.kept, open, &events));
        let left = again::left(&self.plan.trials, &self.kept.trials).len() + usize::from(open.is_some());
        if left == 0 {
            return Ok(false);
        }
        let (fleet, engine) = (self.plan.fleet.clone(), self.plan.engine);
        if !prepare::join(&fleet, &engine, &mut self.gathering()).await? {
            return Ok(true);
        }
        if let Some(open) = open
            && !self.close_open(open).await?
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
        if self.plan.target.model.is_none() {
            self.plan.target.model = self.kept.experiment["plan"]["model"].as_str().map(str::to_owned);
        }
        let Some(gathered) = prepare(&mut self.plan, self.means).await? else { return Ok(false) };
        let means = &mut *self.means;
        let record = &self.kept.experiment;
        let differs = same::of_plan(record, &self.plan, true).or_else(|| same::of_engine(record, &gathered));
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
        if let Some(experiment) = self.kept.experiment.as_object_mut() {
            let list = experiment.entry("resumed").or_insert_with(|| serde_json::json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(entry);
            }
        }
        self.take_up(gathered);
        Ok(true)
    }

    /// Seals a trial that was under way when the coordinator was lost. False when the operator wants an end.
    async fn close_open(&mut self, open: KeptTrial) -> anyhow::Result<bool> {
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
        let Some(held) = self.collect(&open, &names).await? else { return Ok(false) };
        for (agent, processes) in &held {
            self.fetch_held(agent, processes, number).await?;
        }
        self.means.shared.open_trial(None);
        let stored = self.stored(&open.planned, open.epoch, &assigned)?;
        let mut missing = BTreeMap::new();
        for (agent, arrivals) in stored.missing {
            let why = match held.contains_key(&agent) {
                true => "the coordinator was lost, and it holds no trace of this arrival",
                false => "the coordinator was lost, and the agent is not there any more",
            };
            let trial = (number, open.epoch);
            seal::write_synthetic(&self.ingest, trial, &agent, &arrivals, why).await?;
            missing.insert(agent, arrivals.len());
        }
        self.means.fleet.tell_all(&ToAgent::Sealed(open.epoch));
        let lost: usize = missing.values().sum();
        self.means.ui.note(&format!(
            "recover      trial {number}: {} of {} traces are there; it is sealed as invalid and sent again",
            open.scheduled - lost as u64,
            open.scheduled
        ));
        let agents =
            open.agents.iter().map(|a| KeptAgent { lost: missing.contains_key(&a.name), ..a.clone() });
        let agents = agents.collect();
        let findings = vec![Reason::new(
            ReasonKind::CoordinatorRestarted,
            format!("the coordinator was lost during the trial; of {lost} requests nobody knows the fate"),
        )];
        self.analyse(KeptTrial { agents, findings, ..open })?;
        Ok(true)
    }

    /// Asks the agents of a trial what they hold of it.
    async fn collect(&mut self, open: &KeptTrial, names: &[AgentName]) -> anyhow::Result<Collected> {
        let run = self.store.id().clone();
        let wanted = CollectOrder { run: run.clone(), trial: open.planned.trial, epoch: open.epoch };
        let order = || ToAgent::Collect(wanted.clone());
        let means = &mut *self.means;
        let mut stop = means.stop.clone();
        let members = means.fleet.registry().members();
        let mut waiting: BTreeSet<AgentName> =
            names.iter().filter(|name| members.contains_key(*name)).cloned().collect();
        for absent in names.iter().filter(|name| !waiting.contains(*name)) {
            means.ui.note(&format!(
                "recover      agent {absent} is not there; what it holds cannot be collected"
            ));
        }
        waiting.iter().for_each(|agent| means.fleet.tell(agent, order()));
        let mut held = BTreeMap::new();
        let deadline = means.clock.monotonic() + SAY_WITHIN;
        while !waiting.is_empty() {
            let change = tokio::select! {
                change = means.fleet.next() => change,
                _ = stop.wait_for(|level| *level > 0) => return Ok(None),
            };
            match change {
                Change::Said(agent, FromAgent::Collected(report)) if is_of(&report, &run, open) => {
                    for problem in &report.problems {
                        means.ui.note(&format!("recover      agent {agent}: {problem}"));
                    }
                    if waiting.remove(&agent) {
                        held.insert(agent, report.held);
                    }
                }
                // Over a new connection: the order may have been lost with the old one.
                Change::Joined(agent) if waiting.contains(&agent) => means.fleet.tell(&agent, order()),
                Change::Lost(agent, reason) => bail!("agent {agent}: {reason}; resume again when it is back"),
                _ => {}
            }
            if means.clock.monotonic() >= deadline && !waiting.is_empty() {
                let missing: Vec<&str> = waiting.iter().map(AgentName::as_str).collect();
                bail!("{} did not say what they hold of the trial; see their logs", missing.join(", "));
            }
        }
        Ok(Some(held))
    }

    /// Waits until everything that an agent holds of the trial is stored.
    async fn fetch_held(&self, agent: &AgentName, held: &[Held], trial: TrialId) -> anyhow::Result<()> {
        for Held { incarnation, first_seq, next_seq } in held.iter().copied() {
            self.ingest.skip_to(agent, incarnation, first_seq).await?;
            let arrived = self.ingest.wait_for(agent, incarnation, next_seq);
            timeout(COLLECT_WITHIN, arrived).await.with_context(|| {
                format!(
                    "agent {agent}: its traces of trial {trial} did not arrive; see its log, and resume again"
                )
            })??;
        }
        Ok(())
    }

    /// Instants of another boot's clock say nothing: what was recorded beside those trials is not theirs any more.
    fn forget_other_boots(&mut self) {
        let boot = record::boot();
        if self.kept.boot == boot {
            return;
        }
        self.means.ui.note(
            "note         this host was restarted: what was recorded beside earlier trials is left out",
        );
        self.kept.boot = boot;
        self.kept.idle = None;
        self.kept.trials.iter_mut().for_each(|t| t.start = None);
    }
}

fn is_of(report: &CollectReport, run: &common::ids::RunId, open: &KeptTrial) -> bool {
    report.run == *run && report.epoch == open.epoch
}

/// Whether a request of this trial may have been sent. The log says so; where it was lost with the index, it may.
fn may_have_begun(kept: &KeptRun, open: &KeptTrial, events: &[RunEvent]) -> bool {
    let sealed = kept.trials.iter().any(|t| t.epoch == open.epoch);
    let begun = events.iter().any(|event| match event {
        RunEvent::TrialStarted { epoch, .. } => *epoch == open.epoch,
        RunEvent::IndexRebuilt { .. } => true,
        _ => false,
    });
    begun && !sealed
}
