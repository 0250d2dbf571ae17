//! What telemetry amounts to over a window: per GPU, per host, per engine, and in all.
//!
//! Owns the numbers that stand beside a trial's. It exists so that every report and phase computes them alike. Each is
//! none where it cannot be known, and a GPU whose window was not seen whole says so with its reason; it must never sum
//! over GPUs that the engine does not use, nor show a sum that lacks one of those that it does. `tests.rs` holds the
//! sums against closed forms.

mod engine;
mod gpu;
mod host;
#[cfg(test)]
mod tests;
mod totals;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Record, Window};
use crate::ids::{AgentName, Nanos};

pub use engine::EngineWindow;
pub use gpu::{AT_LIMIT, AveragePower, GpuWindow, Incomplete};
pub use host::HostWindow;
pub use totals::{Counts, Efficiency, GpuTotals};

/// What an energy is of, printed with every number.
pub const BOUNDARY: &str = "GPU board, NVML; not wall power";

/// What one agent recorded, and the window by its clock.
#[derive(Debug, Clone, Copy)]
pub struct AgentRecords<'a> {
    /// The agent.
    pub agent: &'a AgentName,
    /// Its records in the order of their sequence numbers: the last inventory before the window, and everything from
    /// at least 1 s before it to 1 s after it.
    pub records: &'a [Record],
    /// The window, by this agent's monotonic clock.
    pub window: Window,
    /// How far the window's edges may be off on this clock; none when it needs no mapping.
    pub clock_bound: Option<Nanos>,
}

/// Telemetry of a window, of all agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TelemetryWindow {
    /// What the energies are of: [`BOUNDARY`].
    pub boundary: String,
    /// Length of the window, seconds.
    pub window_seconds: f64,
    /// Each agent's host.
    pub agents: Vec<AgentWindow>,
    /// The GPUs that the engine uses, together.
    pub totals: GpuTotals,
}

/// Telemetry of a window, of one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentWindow {
    /// The agent.
    pub agent: AgentName,
    /// The GPUs of its host, in the order of the inventory.
    pub gpus: Vec<GpuWindow>,
    /// Its host; none when nothing of it was recorded in the window.
    pub host: Option<HostWindow>,
    /// The engine beside it, by the engine's own metrics; none when there are none in the window.
    pub engine: Option<EngineWindow>,
}

impl TelemetryWindow {
    /// What the agents' records amount to. `idle_watts` is the power of a GPU before any load, by its uuid.
    #[must_use]
    pub fn of(agents: &[AgentRecords<'_>], idle_watts: &BTreeMap<String, f64>) -> Self {
        let agents_seen: Vec<AgentWindow> = agents.iter().map(|a| AgentWindow::of(a, idle_watts)).collect();
        Self {
            boundary: BOUNDARY.to_owned(),
            // One window on several clocks: its length differs by their drift only.
            window_seconds: agents.iter().map(|a| a.window.seconds()).fold(0.0, f64::max),
            totals: GpuTotals::of(agents_seen.iter().flat_map(|a| &a.gpus)),
            agents: agents_seen,
        }
    }

    /// Why GPUs that the engine uses were not seen whole, each reason once.
    #[must_use]
    pub fn why_incomplete(&self) -> Vec<String> {
        let gpus = totals::distinct(self.agents.iter().flat_map(|a| &a.gpus));
        let used = gpus.iter().filter(|gpu| gpu.used_by_engine != Some(false));
        let reasons: BTreeSet<String> =
            used.flat_map(|gpu| gpu.incomplete.iter().map(ToString::to_string)).collect();
        reasons.into_iter().collect()
    }

    /// The energy of the engine's GPUs over what was made of it.
    #[must_use]
    pub fn efficiency(&self, counts: &Counts) -> Efficiency {
        Efficiency::of(self.totals.energy_joules, counts)
    }
}

impl AgentWindow {
    fn of(from: &AgentRecords<'_>, idle_watts: &BTreeMap<String, f64>) -> Self {
        let hosts = from.records.iter().filter_map(|r| if let Record::Host(s) = r { Some(*s) } else { None });
        let engines = from
            .records
            .iter()
            .filter_map(|r| if let Record::Engine(s) = r { Some(s.clone()) } else { None });
        Self {
            agent: from.agent.clone(),
            gpus: gpu::gpu_windows(from, idle_watts),
            host: HostWindow::of(&hosts.collect::<Vec<_>>(), from.window),
            engine: EngineWindow::of(&engines.collect::<Vec<_>>(), from.window),
        }
    }
}
