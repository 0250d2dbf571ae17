//! The run service: carries out a plan, from the first agent that joins to the report.
//!
//! `coordinator sweep` and `coordinator run` are clients of it. It owns the order of things: nothing is stored before
//! the engine has answered, nothing is sent before it is written down, nothing is computed before the books are
//! closed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use common::clock::Clock;
use common::disk::{Disk, OsDisk};
use common::fleet::{DrainReport, HostFacts, TargetReport};
use common::ids::{AgentName, Epoch, RunId, TrialId};
use common::validity::{Reason, ReasonKind};

use crate::analysis::{Lines, analyse};
use crate::fleet::{Change, Fleet, FromAgent, ToAgent};
use crate::ingest::{self, IngestHandle};
use crate::kept::{self, KeptAgent, KeptRun, KeptTrial};
use crate::plan::Plan;
use crate::record::record;
use crate::report::{Report, TrialReport, to_json};
use crate::rpc::Shared;
use crate::store::{RunEvent, RunStore, Store};
use crate::sweep::PlannedTrial;
use crate::trial::assignment::{Assigned, assign};
use crate::trial::drive::{StopLevel, TrialCase, Watch, drive};
use crate::trial::machine::Ending;
use crate::trial::seal;

/// How long a drained agent's last traces may take to arrive.
const COLLECT_WITHIN: Duration = Duration::from_secs(60);

/// How long trying the engine may take beyond the request's own timeouts.
const CHECK_GRACE: Duration = Duration::from_secs(10);

/// What somebody who watches a run is told.
pub trait Ui: Watch {
    /// Something to know.
    fn note(&mut self, text: &str);
    /// A trial begins.
    fn trial_begins(&mut self, trial: &PlannedTrial, of: usize, plan: &Plan, arrivals: u64);
    /// A trial is sealed and analysed.
    fn trial_ended(&mut self, report: &TrialReport);
}

/// What a run leaves.
pub struct RunOutcome {
    /// The report; none when it ended before the first trial did.
    pub report: Option<Report>,
    /// Files written.
    pub files: Vec<PathBuf>,
    /// The operator ended it early.
    pub interrupted: bool,
    /// Why it ended before its last trial.
    pub error: Option<anyhow::Error>,
}

/// What a run works with.
pub struct Means<'a> {
    /// The fleet.
    pub fleet: Fleet,
    /// The services.
    pub shared: Arc<Shared>,
    /// The store.
    pub store: Store,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The operator's wishes.
    pub stop: StopLevel,
    /// Who watches.
    pub ui: &'a mut dyn Ui,
}

/// Waits for the agents, tries the engine, sends every trial and writes the report.
///
/// # Errors
/// When it fails before the first trial; later errors are in the outcome, beside what was measured.
pub async fn run(
    mut plan: Plan,
    run: RunId,
    command_line: &[String],
    mut means: Means<'_>,
) -> anyhow::Result<RunOutcome> {
    let prepared = prepare(&mut plan, &mut means).await;
    if let Err(e) = &prepared {
        // The first line: what may follow are the engine's own words, which do not belong in an agent's log.
        let reason = e.to_string().lines().next().unwrap_or_default().to_owned();
        means.fleet.tell_all(&ToAgent::Goodbye(format!("the run ends: {reason}")));
    }
    let Some(agents) = prepared? else {
        means.fleet.tell_all(&ToAgent::Goodbye("stopped by the operator".into()));
        let files = Vec::new();
        return Ok(RunOutcome { report: None, files, interrupted: true, error: None });
    };
    let record = record(&plan, &agents, command_line);
    let agents = agents.into_iter().map(|(name, _)| name).collect();
    let mut sending = Sending::begin(plan, run, agents, record, means)?;
    let ended = sending.every_trial().await;
    sending.finish(ended).await
}

/// Agents and engine. None when the operator stopped it.
async fn prepare(
    plan: &mut Plan,
    means: &mut Means<'_>,
) -> anyhow::Result<Option<Vec<(AgentName, HostFacts)>>> {
    let wanted = plan.fleet.local + plan.fleet.remote;
    if !wait_for_agents(plan, wanted, means).await? {
        return Ok(None);
    }
    means.fleet.complete();
    let members = means.fleet.registry().members();
    let agents: Vec<_> = members.iter().map(|(n, m)| (n.clone(), m.introduction.host.clone())).collect();
    let names: Vec<AgentName> = agents.iter().map(|(name, _)| name.clone()).collect();
    // Every trial must be possible before the first is sent.
    if let Some(limit) = plan.max_concurrency
        && (limit as usize) < wanted
    {
        bail!(
            "--max-concurrency {limit} is less than one for each of {wanted} agents; raise it or use fewer agents"
        );
    }
    let Some(reports) = check_target(plan, &names, means).await? else { return Ok(None) };
    let models =
        reports.values().find(|r| !r.models.is_empty()).map(|r| r.models.as_slice()).unwrap_or_default();
    match (&plan.target.model, models) {
        (None, [first, rest @ ..]) => {
            let note =
                if rest.is_empty() { String::new() } else { format!(" (the first of {})", models.len()) };
            means.ui.note(&format!("model        {first}, as the engine lists it{note}"));
            plan.target.model = Some(first.clone());
        }
        (None, []) => means.ui.note("model        none: the engine lists none and --model was not given"),
        (Some(_), _) => {}
    }
    Ok(Some(agents))
}

async fn wait_for_agents(plan: &Plan, wanted: usize, means: &mut Means<'_>) -> anyhow::Result<bool> {
    let deadline = means.clock.monotonic() + plan.fleet.join_timeout;
    let mut stop = means.stop.clone();
    while !means.fleet.registry().is_full() {
        let change = tokio::select! {
            change = means.fleet.next() => change,
            _ = stop.wait_for(|level| *level > 0) => return Ok(false),
        };
        match change {
            Change::Joined(name) => {
                let so_far = means.fleet.registry().members().len();
                means.ui.note(&format!("agent        {name} joined ({so_far} of {wanted})"));
            }
            Change::Lost(name, reason) => bail!("agent {name}: {reason}"),
            Change::Said(..) | Change::Tick => {}
        }
        if means.clock.monotonic() >= deadline && !means.fleet.registry().is_full() {
            let joined: Vec<&str> = means.fleet.registry().members().keys().map(AgentName::as_str).collect();
            let who = if joined.is_empty() { "none".to_owned() } else { joined.join(", ") };
            bail!(
                "{} of {wanted} agents joined within {}: {who}; start the others with `agent --join HOST:PORT`",
                joined.len(),
                humantime(plan.fleet.join_timeout)
            );
        }
    }
    Ok(true)
}

fn humantime(time: common::ids::Nanos) -> String {
    common::slo::shown_time(time)
}

/// One probing request by every agent: each of them must reach the engine.
async fn check_target(
    plan: &Plan,
    agents: &[AgentName],
    means: &mut Means<'_>,
) -> anyhow::Result<Option<BTreeMap<AgentName, TargetReport>>> {
    let row = plan.workload.rows.rows.first().map(|r| r.line).unwrap_or(1);
    let line = plan.workload.bytes.split(|&b| b == b'\n').nth(row as usize - 1).unwrap_or_default();
    let row_json = String::from_utf8_lossy(line).trim_start_matches('\u{feff}').to_owned();
    let target = Box::new(plan.target.clone());
    means.fleet.tell_all(&ToAgent::Check { id: 1, target, row_json });
    let mut reports = BTreeMap::new();
    let patience =
        (plan.target.connect_timeout + plan.target.connect_timeout + plan.target.total_timeout).to_duration();
    let deadline = tokio::time::sleep(patience + CHECK_GRACE);
    tokio::pin!(deadline);
    let mut stop = means.stop.clone();
    while reports.len() < agents.len() {
        tokio::select! {
            change = means.fleet.next() => match change {
                Change::Said(agent, FromAgent::Target(_, report)) => {
                    if let Some((kind, message)) = &report.failure {
                        bail!(refusal(plan, &agent, kind.name(), message, &report));
                    }
                    reports.insert(agent, *report);
                }
                Change::Lost(agent, reason) => bail!("agent {agent} was lost while it tried the engine: {reason}"),
                _ => {}
            },
            () = &mut deadline => {
                let missing: Vec<&str> =
                    agents.iter().filter(|a| !reports.contains_key(*a)).map(AgentName::as_str).collect();
                bail!("no answer in time about the engine from {}", missing.join(", "));
            }
            _ = stop.wait_for(|level| *level > 0) => return Ok(None),
        }
    }
    Ok(Some(reports))
}

/// The engine's own words, verbatim.
fn refusal(plan: &Plan, agent: &AgentName, kind: &str, message: &str, report: &TargetReport) -> String {
    let mut text =
        format!("agent {agent} cannot use the engine at {}: {kind}: {message}", plan.target.base_url);
    if !report.error_body.is_empty() {
        text.push_str(&format!("\nthe engine answered:\n{}", report.error_body));
    }
    text
}

/// A run whose trials are being sent.
struct Sending<'a> {
    plan: Plan,
    agents: Vec<AgentName>,
    kept: KeptRun,
    means: Means<'a>,
    store: RunStore,
    ingest: IngestHandle,
    folder: PathBuf,
    traces: Traces,
    trials: Vec<TrialReport>,
}

/// The file of traces, written as trials end.
struct Traces {
    path: PathBuf,
    file: std::io::BufWriter<std::fs::File>,
}

impl<'a> Sending<'a> {
    fn begin(
        plan: Plan,
        run: RunId,
        agents: Vec<AgentName>,
        experiment: serde_json::Value,
        means: Means<'a>,
    ) -> anyhow::Result<Self> {
        let store = means.store.create_run(&run, means.clock.wall())?;
        let folder = plan.out.clone().unwrap_or_else(|| store.dir().to_owned());
        std::fs::create_dir_all(&folder).with_context(|| format!("--out {}", folder.display()))?;
        let kept = KeptRun {
            version: kept::VERSION,
            experiment,
            process: plan.process,
            extent: plan.extent,
            slos: plan.slos.clone(),
            slo_target: plan.slo_target,
            limits: plan.limits,
            trials: Vec::new(),
        };
        kept.write(&store)?;
        if plan.target.keep_text {
            store.write_file("workload.jsonl", &plan.workload.bytes)?;
        }
        let path = folder.join("traces.jsonl");
        let file = std::fs::File::create(&path).with_context(|| path.display().to_string())?;
        let traces = Traces { path, file: std::io::BufWriter::new(file) };
        let ingest = ingest::start(&store)?;
        means.shared.offer_workload(plan.workload_digest(), Arc::clone(&plan.workload.bytes));
        means.shared.open_run(run, ingest.clone());
        Ok(Self { plan, agents, kept, means, store, ingest, folder, traces, trials: Vec::new() })
    }

    /// Sends every trial. True when the operator ended it early.
    async fn every_trial(&mut self) -> anyhow::Result<bool> {
        for planned in self.plan.trials.clone() {
            if *self.means.stop.borrow() > 0 || self.trial(planned).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// One trial. True when the operator ended it early.
    async fn trial(&mut self, planned: PlannedTrial) -> anyhow::Result<bool> {
        let arrivals = self.plan.arrivals(planned.rate);
        let rows = self.plan.workload.rows.rows.len() as u32;
        let assigned =
            assign(&arrivals, planned.seed, rows, &self.agents, self.plan.max_concurrency, self.plan.warmup)?;
        self.means.ui.trial_begins(&planned, self.plan.trials.len(), &self.plan, assigned.count);
        let epoch = self.store.next_epoch()?;
        self.store.append_event(&RunEvent::TrialPrepared { trial: planned.trial, epoch })?;
        let slices = assigned.agents.iter().map(|(agent, a)| (agent.clone(), Arc::clone(&a.slice)));
        self.means.shared.offer_slices(epoch, slices);
        self.means.shared.open_trial(Some((planned.trial, epoch)));
        let case = self.case(planned.trial, epoch);
        let started = RunEvent::TrialStarted { trial: planned.trial, epoch };
        let store = self.store.clone();
        let ending = drive(
            &case,
            &assigned,
            &mut self.means.fleet,
            &*self.means.clock,
            &mut self.means.stop,
            || store.append_event(&started),
            self.means.ui,
        )
        .await?;
        match ending {
            Ending::CalledOff(reason) => {
                self.means.shared.open_trial(None);
                let event = RunEvent::TrialCancelled { trial: planned.trial, epoch, reason: reason.clone() };
                self.store.append_event(&event)?;
                if *self.means.stop.borrow() > 0 {
                    Ok(true)
                } else {
                    Err(anyhow!("trial {}: {reason}", planned.trial))
                }
            }
            Ending::Ran { drained, lost, stopped, .. } => {
                let agents = self.kept_agents(&drained, &lost);
                let reasons = self.seal(&planned, epoch, &assigned, drained, &lost).await?;
                let trial = KeptTrial {
                    planned,
                    epoch,
                    scheduled: assigned.count,
                    schedule_sha256: assigned.digest,
                    workload_sha256: self.plan.workload_digest(),
                    agents,
                    findings: findings(stopped, &reasons),
                };
                self.analyse(trial)?;
                match lost.first_key_value() {
                    Some((agent, reason)) => {
                        Err(anyhow!("agent {agent} is lost ({reason}); the run ends here"))
                    }
                    None => Ok(stopped),
                }
            }
        }
    }

    fn case(&self, trial: TrialId, epoch: Epoch) -> TrialCase {
        TrialCase {
            run: self.store.id().clone(),
            trial,
            epoch,
            target: self.plan.target.clone(),
            workload: self.plan.workload_digest(),
            workload_bytes: self.plan.workload.bytes.len() as u64,
            warm_connections: self.plan.warm_connections,
            local: self.plan.fleet.remote == 0,
            closed: false,
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
            } else if report.traces_lost > 0 {
                reasons.insert(agent.clone(), format!("its spool lost {} traces", report.traces_lost));
            }
        }
        self.means.shared.open_trial(None);
        let trial = (planned.trial, epoch);
        for (agent, arrivals) in seal::missing(&self.store, planned.trial, epoch, assigned)? {
            let reason = reasons.entry(agent.clone()).or_insert_with(|| "its traces are not complete".into());
            seal::write_synthetic(&self.ingest, trial, &agent, &arrivals, reason).await?;
        }
        self.means.fleet.tell_all(&ToAgent::Sealed(epoch));
        Ok(reasons)
    }

    /// Numbers and trace lines of a sealed trial; then it is kept.
    fn analyse(&mut self, trial: KeptTrial) -> anyhow::Result<()> {
        let Traces { path, file } = &mut self.traces;
        // Blocking is right here: no trial is under way, and leases are kept by the sessions' own threads.
        let lines = Lines { out: file, path };
        let report = tokio::task::block_in_place(|| {
            analyse(&self.store, &self.kept, &self.kept.slos, &trial, Some(lines))
        })?;
        file.flush().with_context(|| path.display().to_string())?;
        self.store.append_event(&RunEvent::TrialSealed {
            trial: trial.planned.trial,
            epoch: trial.epoch,
            verdict: report.summary.validity.verdict.name().into(),
            scheduled: report.summary.conservation.scheduled,
            recorded: report.summary.conservation.recorded,
        })?;
        self.kept.trials.push(trial);
        self.kept.write(&self.store)?;
        self.means.ui.trial_ended(&report);
        self.trials.push(report);
        Ok(())
    }

    /// The report of what was measured, whatever ended the run.
    async fn finish(mut self, ended: anyhow::Result<bool>) -> anyhow::Result<RunOutcome> {
        let (interrupted, error) = match ended {
            Ok(interrupted) => (interrupted, None),
            Err(e) => (false, Some(e)),
        };
        let event = match (&error, interrupted) {
            (Some(e), _) => RunEvent::RunInterrupted { reason: format!("{e:#}") },
            (None, true) => RunEvent::RunInterrupted { reason: "stopped by the operator".into() },
            (None, false) => RunEvent::RunFinished,
        };
        let noted = self.store.append_event(&event);
        self.means.shared.close_run();
        self.means.fleet.tell_all(&ToAgent::Goodbye("the run is over".into()));
        self.ingest.close().await?;
        noted?;
        tracing::debug!(counters = ?self.ingest.counters(), "the run is over");
        let trials = std::mem::take(&mut self.trials);
        if trials.is_empty() {
            // Nothing half-written: a run without a trial leaves no files that look like results.
            let _ = std::fs::remove_file(&self.traces.path);
            let files = Vec::new();
            return Ok(RunOutcome { report: None, files, interrupted, error });
        }
        let run = self.store.id().clone();
        let report = Report::new(run, self.kept.experiment, self.kept.slos, self.kept.slo_target, trials);
        let path = self.folder.join("report.json");
        OsDisk.replace(&path, to_json(&report)?.as_bytes()).with_context(|| path.display().to_string())?;
        let files = vec![path, self.traces.path.clone()];
        Ok(RunOutcome { report: Some(report), files, interrupted, error })
    }
}

fn findings(stopped: bool, reasons: &BTreeMap<AgentName, String>) -> Vec<Reason> {
    let mut findings: Vec<Reason> = reasons
        .iter()
        .map(|(agent, reason)| Reason::of_agent(ReasonKind::AgentLost, agent, reason))
        .collect();
    if stopped {
        findings.push(Reason::new(ReasonKind::Interrupted, "stopped by the operator"));
    }
    findings
}
