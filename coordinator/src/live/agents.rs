//! The agents as a table: where each stands, what it counts, how late it sends.

use std::collections::BTreeMap;

use common::fleet::Progress;
use common::ids::{AgentName, Nanos};
use serde::Serialize;

use crate::trial::drive::Standing;

/// Rows that are kept: more agents than a person reads one by one. The sums are over all of them.
pub const MOST_AGENTS: usize = 256;

/// Characters of why one is lost.
const LONGEST_REASON: usize = 500;

/// One agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct AgentRow {
    /// Its name.
    pub name: String,
    /// Where it stands: preparing, ready, sending, drained or lost.
    pub standing: &'static str,
    /// Arrivals of its slice.
    pub scheduled: u64,
    /// Those that it released.
    pub dispatched: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests that ended well.
    pub succeeded: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Arrivals due that wait for a permit.
    pub waiting: u64,
    /// Dispatch lateness p99 since the trial's start, seconds; none before its first counters.
    pub lateness_p99_seconds: Option<f64>,
    /// Traces that its spool could not take.
    pub traces_lost: u64,
    /// Cores that its process keeps busy; none where it is not recorded.
    pub cpu_cores: Option<f64>,
    /// Share of its host's CPU time that is used, 0 to 1; none where it is not recorded.
    pub host_cpu_share: Option<f64>,
    /// Half width of the interval that surely holds its clock's offset, seconds.
    pub clock_bound_seconds: Option<f64>,
    /// Why it is lost.
    pub lost: Option<String>,
}

/// All agents of the run.
#[derive(Debug, Clone, Default)]
pub(super) struct Agents {
    rows: BTreeMap<String, AgentRow>,
    /// Agents that have no row.
    pub beyond: u64,
}

impl Agents {
    /// The row of an agent; none when there is no room for another.
    pub(super) fn row(&mut self, name: &AgentName) -> Option<&mut AgentRow> {
        if self.rows.len() >= MOST_AGENTS && !self.rows.contains_key(name.as_str()) {
            return None;
        }
        let new = || AgentRow { name: name.to_string(), ..AgentRow::default() };
        Some(self.rows.entry(name.to_string()).or_insert_with(new))
    }

    /// Rows by name.
    pub(super) fn rows(&self) -> impl Iterator<Item = &AgentRow> {
        self.rows.values()
    }

    /// A trial begins: what was counted before is of another.
    pub(super) fn begin_trial(&mut self) {
        for row in self.rows.values_mut().filter(|row| row.lost.is_none()) {
            let (name, cpu_cores, host_cpu_share) =
                (std::mem::take(&mut row.name), row.cpu_cores, row.host_cpu_share);
            let clock_bound_seconds = row.clock_bound_seconds;
            *row = AgentRow { name, cpu_cores, host_cpu_share, clock_bound_seconds, ..AgentRow::default() };
        }
    }

    /// An agent says where it stands.
    pub(super) fn stands(&mut self, name: &AgentName, standing: &Standing) {
        let Some(row) = self.row(name) else { return };
        row.standing = match standing {
            Standing::Preparing => "preparing",
            Standing::Ready { .. } => "ready",
            Standing::Drained { .. } => "drained",
        };
        // One that was lost is not given another order; this one is back.
        row.lost = None;
        if let Standing::Ready { clock_bound } | Standing::Drained { clock_bound } = standing {
            row.clock_bound_seconds = Some(clock_bound.as_secs_f64());
        }
    }

    /// An agent is lost.
    pub(super) fn lost(&mut self, name: &AgentName, reason: &str) {
        if let Some(row) = self.row(name) {
            let reason = reason.chars().take(LONGEST_REASON).collect();
            (row.standing, row.in_flight, row.lost) = ("lost", 0, Some(reason));
        }
    }

    /// Counters of the fleet.
    pub(super) fn progress(&mut self, fleet: &BTreeMap<AgentName, Progress>) {
        for (name, counters) in fleet {
            let Some(row) = self.row(name) else { continue };
            if row.standing != "drained" && row.lost.is_none() {
                row.standing = "sending";
            }
            row.scheduled = counters.scheduled;
            row.dispatched = counters.dispatched;
            row.in_flight = if row.lost.is_some() { 0 } else { counters.in_flight };
            (row.succeeded, row.failed) = (counters.succeeded, counters.failed);
            row.waiting = counters.waiting;
            row.lateness_p99_seconds = Some(counters.lateness_p99.as_secs_f64());
            row.traces_lost = counters.traces_lost;
        }
        self.beyond = (fleet.len() as u64).saturating_sub(self.rows.len() as u64);
    }
}

/// Sums over all agents of a trial, those without a row included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Totals {
    /// See [`Progress::dispatched`].
    pub dispatched: u64,
    /// See [`Progress::in_flight`].
    pub in_flight: u64,
    /// See [`Progress::succeeded`].
    pub succeeded: u64,
    /// See [`Progress::failed`].
    pub failed: u64,
    /// See [`Progress::waiting`].
    pub waiting: u64,
    /// See [`Progress::traces_lost`].
    pub traces_lost: u64,
    /// The worst of the agents.
    pub lateness_p99: Nanos,
}

impl Totals {
    /// Of these counters.
    #[must_use]
    pub(super) fn of(fleet: &BTreeMap<AgentName, Progress>) -> Self {
        let sum = |field: fn(&Progress) -> u64| fleet.values().map(field).sum();
        Self {
            dispatched: sum(|c| c.dispatched),
            in_flight: sum(|c| c.in_flight),
            succeeded: sum(|c| c.succeeded),
            failed: sum(|c| c.failed),
            waiting: sum(|c| c.waiting),
            traces_lost: sum(|c| c.traces_lost),
            lateness_p99: fleet.values().map(|c| c.lateness_p99).max().unwrap_or_default(),
        }
    }
}
