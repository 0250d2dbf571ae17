//! A trial's state machine: barrier, run, drain. Pure: events in, effects out, time as an argument.
//!
//! Prepare → every agent ready → Arm(T0) → every agent armed → Start → every agent drained. One missing answer calls
//! the trial off before any request. Once it has started it is never patched: an agent that is lost ends it, the
//! others drain, and the trial is invalid. Every wait has a deadline, and what ends it names who is missing.

use std::collections::{BTreeMap, BTreeSet};

use common::fleet::{DrainReport, ReadyReport};
use common::ids::{AgentName, Digest, Epoch, Nanos};

use crate::fleet::ToAgent;

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// From Prepare to the last Ready: workload, slice, warm-up.
    pub prepare: Nanos,
    /// From T0 until the last agent is drained: schedule, the last request's timeout, some grace.
    pub run: Nanos,
    /// From a stop until the last agent is drained: the last request's timeout, some grace.
    pub drain: Nanos,
    /// Shortest lead from Arm to T0.
    pub lead: Nanos,
}

/// Smallest lead with agents on other hosts, and with all on this one (SPEC and DESIGN: 2 s, 0.3 s).
pub const LEAD_REMOTE: Nanos = Nanos(2_000_000_000);
/// See [`LEAD_REMOTE`].
pub const LEAD_LOCAL: Nanos = Nanos(300_000_000);

/// The start waits for as long as clocks are unknown: an agent that claims to know nothing must not put it off for ever.
pub const MAX_CLOCK_BOUND: Nanos = Nanos(1_000_000_000);

/// What happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// An agent is prepared.
    Ready(AgentName, ReadyReport),
    /// An agent knows T0.
    Armed(AgentName),
    /// Every arrival of an agent has its trace.
    Drained(AgentName, DrainReport),
    /// An agent cannot go on.
    Failed(AgentName, String),
    /// An agent is gone.
    Lost(AgentName, String),
    /// The engine ended by itself.
    EngineDied(String),
    /// The operator wants an end; with true, of what is in flight, too.
    Stop(bool),
    /// What is still to be sent is of no use, for this reason.
    Cut(String),
    /// Time passed.
    Tick,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Tell every agent of the trial.
    TellAll(ToAgent),
    /// From here on requests may be sent: to be written down before the agents hear of it.
    Commit,
    /// It is over.
    End(Ending),
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// Before any request, for this reason.
    CalledOff(String),
    /// It ran, from this instant of the coordinator's monotonic clock.
    Ran {
        /// T0.
        start: Nanos,
        /// Who drained, with what.
        drained: BTreeMap<AgentName, DrainReport>,
        /// Who did not, and why.
        lost: BTreeMap<AgentName, String>,
        /// The operator ended it early.
        stopped: bool,
        /// The engine ended by itself, and how.
        engine_died: Option<String>,
        /// What was still to be sent was of no use, and why.
        cut: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq)]
enum Phase {
    Preparing,
    Arming { start: Nanos },
    Running { start: Nanos },
    Over,
}

/// The state.
#[derive(Debug)]
pub struct Machine {
    epoch: Epoch,
    /// The digest that each agent must echo.
    agents: BTreeMap<AgentName, Digest>,
    patience: Patience,
    phase: Phase,
    deadline: Nanos,
    ready: BTreeMap<AgentName, ReadyReport>,
    armed: BTreeSet<AgentName>,
    drained: BTreeMap<AgentName, DrainReport>,
    lost: BTreeMap<AgentName, String>,
    stopped: bool,
    engine_died: Option<String>,
    cut: Option<String>,
}

impl Machine {
    /// A trial that has just been told to prepare, at `now` (monotonic). `agents` maps each agent to its slice's
    /// digest.
    #[must_use]
    pub fn new(epoch: Epoch, agents: BTreeMap<AgentName, Digest>, patience: Patience, now: Nanos) -> Self {
        Self {
            epoch,
            agents,
            patience,
            phase: Phase::Preparing,
            deadline: now + patience.prepare,
            ready: BTreeMap::new(),
            armed: BTreeSet::new(),
            drained: BTreeMap::new(),
            lost: BTreeMap::new(),
            stopped: false,
            engine_died: None,
            cut: None,
        }
    }

    /// What the agents said when they were ready.
    #[must_use]
    pub fn ready(&self) -> &BTreeMap<AgentName, ReadyReport> {
        &self.ready
    }

    /// T0, once it is fixed.
    #[must_use]
    pub fn start(&self) -> Option<Nanos> {
        match self.phase {
            Phase::Arming { start } | Phase::Running { start } => Some(start),
            Phase::Preparing | Phase::Over => None,
        }
    }

    /// Takes an event in at `now` (monotonic).
    pub fn on(&mut self, event: Event, now: Nanos) -> Vec<Effect> {
        if self.phase == Phase::Over {
            return Vec::new();
        }
        match event {
            Event::Ready(agent, report) => self.on_ready(agent, report, now),
            Event::Armed(agent) => self.on_armed(agent, now),
            Event::Drained(agent, report) => self.on_drained(agent, report),
            Event::Failed(agent, reason) | Event::Lost(agent, reason) => self.on_lost(agent, reason, now),
            Event::EngineDied(how) => self.on_engine_died(how, now),
            Event::Stop(cancel) => self.on_stop(cancel, now),
            Event::Cut(why) => self.on_cut(why, now),
            Event::Tick => self.on_tick(now),
        }
    }

    fn on_ready(&mut self, agent: AgentName, report: ReadyReport, now: Nanos) -> Vec<Effect> {
        let Some(expected) = self.agents.get(&agent).filter(|_| self.phase == Phase::Preparing) else {
            return Vec::new();
        };
        if report.slice != *expected {
            return self.call_off(format!("agent {agent} holds another slice than it was given"));
        }
        if report.clock.bound_ns > MAX_CLOCK_BOUND.0 {
            let bound = Nanos(report.clock.bound_ns).as_secs_f64();
            return self.call_off(format!("agent {agent} knows this host's clock only to {bound} s"));
        }
        self.ready.insert(agent, report);
        if self.ready.len() < self.agents.len() {
            return Vec::new();
        }
        // Half a round trip is at most the clock's bound: 20 round trips are 40 bounds.
        let worst_bound = self.ready.values().map(|r| r.clock.bound_ns).max().unwrap_or(0);
        let lead = self.patience.lead.max(Nanos(worst_bound.saturating_mul(40)));
        let start = now + lead;
        self.phase = Phase::Arming { start };
        // Whoever is armed must still hear the word to start before T0.
        self.deadline = now + Nanos(lead.0 / 3 * 2);
        vec![Effect::TellAll(ToAgent::Arm { epoch: self.epoch, start })]
    }

    fn on_armed(&mut self, agent: AgentName, now: Nanos) -> Vec<Effect> {
        let Phase::Arming { start } = self.phase else { return Vec::new() };
        if self.agents.contains_key(&agent) {
            self.armed.insert(agent);
        }
        // The deadline counts even when its tick comes late: a word that is too late must not be given.
        if now >= self.deadline || self.armed.len() < self.agents.len() {
            return self.on_tick(now);
        }
        self.phase = Phase::Running { start };
        self.deadline = start + self.patience.run;
        vec![Effect::Commit, Effect::TellAll(ToAgent::Start(self.epoch))]
    }

    fn on_drained(&mut self, agent: AgentName, report: DrainReport) -> Vec<Effect> {
        if matches!(self.phase, Phase::Running { .. }) && self.agents.contains_key(&agent) {
            self.drained.entry(agent).or_insert(report);
        }
        self.end_if_complete()
    }

    fn end_if_complete(&mut self) -> Vec<Effect> {
        let Phase::Running { start } = self.phase else { return Vec::new() };
        let accounted = |agent: &AgentName| self.drained.contains_key(agent) || self.lost.contains_key(agent);
        if !self.agents.keys().all(accounted) {
            return Vec::new();
        }
        self.phase = Phase::Over;
        let drained = std::mem::take(&mut self.drained);
        let lost = std::mem::take(&mut self.lost);
        let (engine_died, cut, stopped) = (self.engine_died.take(), self.cut.take(), self.stopped);
        vec![Effect::End(Ending::Ran { start, drained, lost, stopped, engine_died, cut })]
    }

    fn on_lost(&mut self, agent: AgentName, reason: String, now: Nanos) -> Vec<Effect> {
        if !self.agents.contains_key(&agent) {
            return Vec::new();
        }
        if !matches!(self.phase, Phase::Running { .. }) {
            return self.call_off(format!("agent {agent}: {reason}"));
        }
        if self.drained.contains_key(&agent) || self.lost.contains_key(&agent) {
            return Vec::new();
        }
        // Patching a trial in mid-flight is where numbers go wrong; trials are short.
        let told = format!("agent {agent} is lost");
        self.lost.insert(agent, reason);
        let mut effects = self.tell_stop(false, told, now);
        effects.extend(self.end_if_complete());
        effects
    }

    /// What is in flight fails by itself; nothing more is sent to nobody.
    fn on_engine_died(&mut self, how: String, now: Nanos) -> Vec<Effect> {
        match self.phase {
            Phase::Running { .. } if self.engine_died.is_none() => {
                self.engine_died = Some(how);
                self.tell_stop(false, "the engine died".into(), now)
            }
            Phase::Running { .. } | Phase::Over => Vec::new(),
            Phase::Preparing | Phase::Arming { .. } => self.call_off(format!("the engine died: {how}")),
        }
    }

    fn tell_stop(&mut self, cancel: bool, reason: String, now: Nanos) -> Vec<Effect> {
        self.deadline = self.deadline.min(now + self.patience.drain);
        vec![Effect::TellAll(ToAgent::Stop { epoch: self.epoch, cancel, reason })]
    }

    fn on_stop(&mut self, cancel: bool, now: Nanos) -> Vec<Effect> {
        self.stopped = true;
        match self.phase {
            Phase::Running { .. } => self.tell_stop(cancel, "stopped by the operator".into(), now),
            _ => self.call_off("stopped by the operator".into()),
        }
    }

    /// What is in flight is answered; nothing more is sent. Of a trial that ends for another reason it is no matter.
    fn on_cut(&mut self, why: String, now: Nanos) -> Vec<Effect> {
        let ends = self.stopped || self.engine_died.is_some() || !self.lost.is_empty() || self.cut.is_some();
        if ends || !matches!(self.phase, Phase::Running { .. }) {
            return Vec::new();
        }
        self.cut = Some(why.clone());
        self.tell_stop(false, why, now)
    }

    fn call_off(&mut self, reason: String) -> Vec<Effect> {
        self.phase = Phase::Over;
        vec![
            Effect::TellAll(ToAgent::Abort { epoch: self.epoch, reason: reason.clone() }),
            Effect::End(Ending::CalledOff(reason)),
        ]
    }

    fn on_tick(&mut self, now: Nanos) -> Vec<Effect> {
        if now < self.deadline {
            return Vec::new();
        }
        let waited = |what: &str, done: &dyn Fn(&AgentName) -> bool| {
            let missing: Vec<&str> = self.agents.keys().filter(|a| !done(a)).map(AgentName::as_str).collect();
            format!("no answer in time: {what} missing from {}", missing.join(", "))
        };
        match self.phase {
            Phase::Preparing => {
                let reason = waited("ready", &|a| self.ready.contains_key(a));
                self.call_off(reason)
            }
            Phase::Arming { .. } => {
                let reason = waited("armed", &|a| self.armed.contains(a));
                self.call_off(reason)
            }
            Phase::Running { .. } => {
                let missing: Vec<AgentName> = self.agents.keys().cloned().collect();
                for agent in missing {
                    if !self.drained.contains_key(&agent) {
                        self.lost.entry(agent).or_insert_with(|| "did not drain in time".into());
                    }
                }
                self.end_if_complete()
            }
            Phase::Over => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
