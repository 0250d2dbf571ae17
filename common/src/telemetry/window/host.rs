//! One host over a window: shares and rates from differences of its counters.

use serde::{Deserialize, Serialize};

use crate::telemetry::points::Points;
use crate::telemetry::{HostSample, Window};

/// What a host did in a window. What is not known is none, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct HostWindow {
    /// Share of its CPU time that was used, 0 to 1; stolen time is not in it.
    pub cpu_share: Option<f64>,
    /// Share of its CPU time that a hypervisor took, 0 to 1.
    pub steal_share: Option<f64>,
    /// Cores that the agent kept busy.
    pub agent_cpu_cores: Option<f64>,
    /// Cores that the engine's processes kept busy.
    pub engine_cpu_cores: Option<f64>,
    /// Most processes of the engine at once.
    pub engine_processes_peak: Option<u64>,
    /// Most resident memory of the engine's processes, bytes.
    pub engine_memory_peak_bytes: Option<u64>,
    /// Most resident memory of the agent, bytes.
    pub agent_memory_peak_bytes: Option<u64>,
    /// Most files that the agent had open.
    pub agent_open_files_peak: Option<u64>,
    /// Least memory that could be had, bytes.
    pub memory_available_min_bytes: Option<u64>,
    /// Received over the network adapters, bytes a second.
    pub network_received_bytes_per_second: Option<f64>,
    /// Sent over the network adapters, bytes a second.
    pub network_sent_bytes_per_second: Option<f64>,
    /// Samples in the window.
    pub samples: u64,
    /// The longest part of the window without one, seconds.
    pub largest_gap_seconds: f64,
}

impl HostWindow {
    /// What `samples`, in any order, amount to over `window`; none when none of them is in it.
    #[must_use]
    pub fn of(samples: &[HostSample], window: Window) -> Option<Self> {
        let length = window.seconds();
        let signal = |of: &dyn Fn(&HostSample) -> Option<f64>| {
            Points::new(samples.iter().filter_map(|s| Some((window.seconds_at(s.at), of(s)?))), length)
        };
        let all = signal(&|_| Some(0.0));
        if length <= 0.0 || all.inside().is_empty() {
            return None;
        }
        let rose = |of: fn(&HostSample) -> Option<f64>| signal(&of).delta().known();
        let count = |of: fn(&HostSample) -> Option<u64>| signal(&|s| of(s).map(|n| n as f64));
        let peak = |of: fn(&HostSample) -> Option<u64>| count(of).max().map(|n| n as u64);
        let per_second = |of: fn(&HostSample) -> Option<u64>| count(of).delta().known().map(|n| n / length);
        let total = rose(|s| s.cpu_total_seconds).filter(|&t| t > 0.0);
        let share = |of: fn(&HostSample) -> Option<f64>| Some(rose(of)? / total?);
        Some(Self {
            cpu_share: share(|s| s.cpu_busy_seconds),
            steal_share: share(|s| s.steal_seconds),
            agent_cpu_cores: rose(|s| s.agent_cpu_seconds).map(|s| s / length),
            engine_cpu_cores: rose(|s| s.engine_cpu_seconds).map(|s| s / length),
            engine_processes_peak: peak(|s| s.engine_processes.map(u64::from)),
            engine_memory_peak_bytes: peak(|s| s.engine_memory_bytes),
            agent_memory_peak_bytes: peak(|s| s.agent_memory_bytes),
            agent_open_files_peak: peak(|s| s.agent_open_files),
            memory_available_min_bytes: count(|s| s.memory_available_bytes).min().map(|n| n as u64),
            network_received_bytes_per_second: per_second(|s| s.network_received_bytes),
            network_sent_bytes_per_second: per_second(|s| s.network_sent_bytes),
            samples: all.inside().len() as u64,
            largest_gap_seconds: all.largest_gap(),
        })
    }
}
