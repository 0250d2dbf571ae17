//! What is known of a run while it goes on: a pure state machine, told what happens and when.
//!
//! It owns what the page and the terminal show, and exists so that both show the same. Its memory is bounded whatever
//! happens (see each part). It must never define a metric: latencies and goodput come from `common::metrics`, a trial's
//! numbers from its report. It reads no clock; `now` is the coordinator's monotonic clock.

use std::collections::BTreeMap;

use common::fleet::{Progress, Upload};
use common::ids::{AgentName, Nanos, RunId, TrialId};
use common::plan::Process;
use common::slo::{SloSet, Target, shown_time};
use common::telemetry::Record;

use super::agents::{Agents, Totals};
use super::counter::Counter;
use super::lines::Lines;
use super::machines::Machines;
use super::messages::Messages;
use super::outlook::Outlook;
use super::request::Finished;
use super::seconds::{Seconds, Sources, values};
use super::showing::about;
use super::trials::Trials;
use super::view::About;
use crate::plan::Plan;
use crate::report::TrialReport;
use crate::sweep::PlannedTrial;
use crate::trial::drive::Standing;

/// The trial under way.
#[derive(Debug, Clone)]
pub(super) struct Current {
    pub(super) planned: PlannedTrial,
    pub(super) arrivals: u64,
    pub(super) length: Option<Nanos>,
    /// Of a ramp: the rate at its end.
    pub(super) ramp_to: Option<f64>,
    pub(super) began: Nanos,
    /// T0.
    pub(super) start: Option<Nanos>,
    pub(super) totals: Totals,
    /// Released, ended well, failed.
    pub(super) counters: [Counter; 3],
    /// Requests whose traces came, and those that are good.
    pub(super) traced: (u64, u64),
}

impl Current {
    /// The configured rate at this instant of the trial.
    fn offered(&self, since_start: Nanos) -> Option<f64> {
        let from = self.planned.rate.per_second()?;
        let length = self.length?;
        let share = (since_start.as_secs_f64() / length.as_secs_f64()).min(1.0);
        let at = self.ramp_to.map_or(from, |to| from + (to - from) * share);
        (since_start < length).then_some(at)
    }
}

/// The live view of a run.
#[derive(Debug, Clone)]
pub struct Model {
    pub(super) started: Nanos,
    pub(super) about: About,
    pub(super) slos: SloSet,
    pub(super) target: Target,
    pub(super) lateness_budget: Nanos,
    pub(super) sources: Sources,
    pub(super) outlook: Outlook,
    pub(super) current: Option<Current>,
    /// The trial before it.
    pub(super) before: Option<Current>,
    pub(super) closing: bool,
    pub(super) stop: u8,
    pub(super) outcome: Option<String>,
    pub(super) agents: Agents,
    pub(super) machines: Machines,
    pub(super) seconds: Seconds,
    pub(super) lines: Lines,
    pub(super) trials: Trials,
    pub(super) messages: Messages,
    pub(super) missed: u64,
    pub(super) sweep_version: u64,
}

impl Model {
    /// Before the first agent has joined.
    #[must_use]
    pub fn new(run: &RunId, plan: &Plan, now: Nanos) -> Self {
        let traces = plan.upload == Upload::During;
        let goodput = !plan.slos.is_empty();
        let mut model = Self {
            started: now,
            about: about(run, plan),
            slos: plan.slos.clone(),
            target: plan.slo_target,
            lateness_budget: plan.limits.lateness_budget,
            sources: Sources { traces, goodput },
            outlook: Outlook::of(plan),
            current: None,
            before: None,
            closing: false,
            stop: 0,
            outcome: None,
            agents: Agents::default(),
            machines: Machines::default(),
            seconds: Seconds::default(),
            lines: Lines::default(),
            trials: Trials::default(),
            messages: Messages::default(),
            missed: 0,
            sweep_version: 1,
        };
        if !traces {
            let text = "no live TTFT and goodput: with --upload after, traces come when a trial is over";
            model.note(text, now);
        }
        model
    }

    /// The objectives, by which requests are good.
    #[must_use]
    pub fn slos(&self) -> &SloSet {
        &self.slos
    }

    pub(super) fn passed(&self, now: Nanos) -> f64 {
        now.since(self.started).as_secs_f64()
    }

    /// A line of the story. Those that say of themselves that they warn are warnings.
    pub fn note(&mut self, text: &str, now: Nanos) {
        if let Some(warning) = text.strip_prefix("warning ").map(str::trim_start) {
            self.messages.warn(warning, warning, self.passed(now));
        }
        self.messages.note(text, self.passed(now));
    }

    /// A warning; it is kept once.
    pub fn warn(&mut self, text: &str, now: Nanos) {
        self.messages.warn(text, text, self.passed(now));
    }

    /// The model that the engine turned out to serve.
    pub fn serves(&mut self, model: Option<&str>) {
        if self.about.model.as_deref() != model {
            self.about.model = model.map(str::to_owned);
            self.sweep_version += 1;
        }
    }

    /// A trial begins.
    pub fn trial_begins(&mut self, trial: &PlannedTrial, plan: &Plan, arrivals: u64, now: Nanos) {
        self.serves(plan.target.model.as_deref());
        let length = plan.arrivals(trial.rate).length();
        let ramp_to = match plan.process {
            Process::Ramp { to } => Some(to.per_second()),
            _ => None,
        };
        self.outlook.begins(trial, length);
        self.agents.begin_trial();
        self.closing = false;
        self.current = Some(Current {
            planned: *trial,
            arrivals,
            length,
            ramp_to,
            began: now,
            start: None,
            totals: Totals::default(),
            counters: Default::default(),
            traced: (0, 0),
        });
    }

    /// It will start this long after `now`.
    pub fn starting(&mut self, lead: Nanos, now: Nanos) {
        if let Some(current) = &mut self.current {
            let start = now + lead;
            current.start = Some(start);
            current.counters.iter_mut().for_each(|c| c.look(start.since(self.started), 0));
        }
    }

    /// An agent says where it stands.
    pub fn stands(&mut self, agent: &AgentName, standing: &Standing) {
        self.agents.stands(agent, standing);
    }

    /// An agent is taken for lost.
    pub fn lost(&mut self, agent: &AgentName, reason: &str, now: Nanos) {
        self.agents.lost(agent, reason);
        self.messages.warn(
            &format!("lost {agent}"),
            &format!("agent {agent} is lost: {reason}"),
            self.passed(now),
        );
    }

    /// Counters of the fleet.
    pub fn progress(&mut self, fleet: &BTreeMap<AgentName, Progress>, now: Nanos) {
        self.agents.progress(fleet);
        let Some(current) = &mut self.current else { return };
        let totals = Totals::of(fleet);
        current.totals = totals;
        let at = now.since(self.started);
        for (counter, count) in
            current.counters.iter_mut().zip([totals.dispatched, totals.succeeded, totals.failed])
        {
            counter.look(at, count);
        }
        if let Some(second) = self.seconds.at(at) {
            second.in_flight = Some(totals.in_flight as f64);
            second.lateness_p99 = Some(totals.lateness_p99.as_secs_f64());
        }
        self.watch_agents(fleet, now);
    }

    /// What will make the trial late or invalid is said while it can still be seen why.
    fn watch_agents(&mut self, fleet: &BTreeMap<AgentName, Progress>, now: Nanos) {
        let Some(trial) = self.current.as_ref().map(|c| c.planned.trial) else { return };
        let passed = self.passed(now);
        for (agent, counters) in fleet {
            if counters.lateness_p99 > self.lateness_budget {
                let (late, budget) = (counters.lateness_p99, shown_time(self.lateness_budget));
                let text = format!(
                    "trial {trial}: agent {agent} sends late: p99 {:.2} ms, above {budget}",
                    late.as_secs_f64() * 1e3
                );
                self.messages.warn(&format!("late {trial} {agent}"), &text, passed);
            }
            if counters.traces_lost > 0 {
                let text =
                    format!("trial {trial}: agent {agent} could not spool {} traces", counters.traces_lost);
                self.messages.warn(&format!("spool {trial} {agent}"), &text, passed);
            }
        }
    }

    /// Requests of this trial finished, and their traces are stored.
    pub fn finished(&mut self, trial: TrialId, requests: &[Finished]) {
        let Some(current) = self.current.as_mut().filter(|c| c.planned.trial == trial) else { return };
        let Some(start) = current.start else { return };
        let start = start.since(self.started);
        for request in requests {
            current.traced.0 += 1;
            current.traced.1 += u64::from(request.good);
            self.seconds.finished(trial.0, start + request.at, request);
        }
    }

    /// Records of an agent.
    pub fn records(&mut self, agent: &AgentName, records: &[Record], now: Nanos) {
        for record in records {
            let places = (&mut self.seconds, &mut self.agents);
            if let Some(warning) = self.machines.record(agent, record, self.started, places) {
                self.messages.warn(&warning, &warning, now.since(self.started).as_secs_f64());
            }
        }
    }

    /// So many blocks of traces and frames of records could not be taken.
    pub fn missed(&mut self, more: u64, now: Nanos) {
        if more == 0 {
            return;
        }
        self.missed += more;
        self.seconds.are_partial();
        let text = format!(
            "the live view was too slow for {} blocks of traces or records; the report has all of them",
            self.missed
        );
        self.messages.warn("missed", &text, self.passed(now));
    }

    /// A trial is sealed and computed.
    pub fn trial_ended(&mut self, report: &TrialReport, now: Nanos) {
        self.trials.ended(report, &self.slos, self.target);
        self.sweep_version += 1;
        self.before = self.current.take();
        let took = self.before.as_ref().map(|c| now.since(c.began));
        self.outlook.ended(report.rate, report.repeat, took);
        self.closing = true;
    }

    /// A trial that was over before this program began.
    pub fn was_before(&mut self, report: &TrialReport) {
        self.trials.ended(report, &self.slos, self.target);
        self.outlook.ended(report.rate, report.repeat, None);
        self.sweep_version += 1;
    }

    /// How often the operator asked for an end.
    pub fn stopping(&mut self, level: u8) {
        self.stop = level;
    }

    /// The run is over.
    pub fn over(&mut self, outcome: &str, now: Nanos) {
        self.outcome = Some(outcome.to_owned());
        self.current = None;
        self.note(outcome, now);
    }

    /// Time passes: seconds that are over become points.
    pub fn tick(&mut self, now: Nanos) {
        let since = now.since(self.started);
        if let (Some(current), Some(second)) = (&self.current, self.seconds.at(since))
            && let Some(start) = current.start.filter(|start| *start <= now)
        {
            let trial = current.planned.trial.0;
            if *second.trial.get_or_insert(trial) == trial {
                second.offered = current.offered(now - start);
            }
        }
        let none = Default::default();
        while let Some((at, second)) = self.seconds.close(since) {
            // A trial's last seconds are closed when it may be over, and the next under way.
            let known = [&self.current, &self.before].into_iter().flatten();
            let current = known.into_iter().find(|c| Some(c.planned.trial.0) == second.trial);
            let counters = current.map_or(&none, |c| &c.counters);
            self.lines.push(at, second.trial, values(at, &second, counters, self.sources));
        }
    }
}
