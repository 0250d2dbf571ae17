//! What is recorded beside the engine, besides traces: GPUs, hosts, the engine's own metrics.
//!
//! It owns the samples, in units that no vendor decides, and what they amount to over a window ([`energy`],
//! [`window`]). It exists so that a number such as joules per token has one definition and says how it was found.
//! Absent is absent: what a source does not give is none, with its reason in the inventory, and never 0.
//!
//! Stamps are the agent's monotonic clock, like those of traces; they are mapped to trial time at analysis, with the
//! bound of the clock model. [`series`] is the one form in which records travel and are kept.
//!
//! It must never read a clock or a device, and never turn what is missing into a number: the property tests of
//! [`energy`] hold it against a simulated sensor whose truth is known.

pub mod energy;
mod points;
pub mod series;
pub mod window;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::Nanos;

/// A stretch of time by one agent's monotonic clock: the only clock that its records know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Its first instant.
    pub from: Nanos,
    /// Its last instant.
    pub to: Nanos,
}

impl Window {
    /// Its length in seconds; 0 where `to` is not after `from`.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.to.since(self.from).as_secs_f64()
    }

    /// Whether `at` lies in it, edges included.
    #[must_use]
    pub fn contains(self, at: Nanos) -> bool {
        (self.from..=self.to).contains(&at)
    }

    /// Seconds from its start to `at`; negative before it.
    #[must_use]
    pub fn seconds_at(self, at: Nanos) -> f64 {
        if at < self.from { -self.from.since(at).as_secs_f64() } else { at.since(self.from).as_secs_f64() }
    }
}

/// One thing that was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// The GPUs of the host; a new inventory replaces the one before.
    Inventory(Vec<GpuInfo>),
    /// Energy and power of one GPU.
    Power(PowerSample),
    /// Everything else of one GPU that moves.
    Gpu(GpuSample),
    /// Who uses a GPU.
    Processes(GpuProcesses),
    /// The host.
    Host(HostSample),
    /// The engine's own metrics.
    Engine(EngineSample),
    /// Something happened.
    Event(Event),
    /// The agent's clock against the coordinator's.
    Clock(ClockSample),
}

impl Record {
    /// When, by the agent's monotonic clock; none for an inventory.
    #[must_use]
    pub fn at(&self) -> Option<Nanos> {
        match self {
            Self::Inventory(_) => None,
            Self::Power(s) => Some(s.at),
            Self::Gpu(s) => Some(s.at),
            Self::Processes(s) => Some(s.at),
            Self::Host(s) => Some(s.at),
            Self::Engine(s) => Some(s.at),
            Self::Event(e) => Some(e.at),
            Self::Clock(c) => Some(c.at),
        }
    }
}

/// What a GPU is. Its position in the inventory is how samples name it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GpuInfo {
    /// What tells it from every other.
    pub uuid: String,
    /// `00000000:19:00.0`: an eight-digit domain.
    pub pci_bus_id: String,
    /// The driver's number for it, which is not CUDA's.
    pub index: u32,
    /// Its product name.
    pub name: String,
    /// Major and minor.
    pub compute_capability: Option<(i32, i32)>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// Version of the library that was asked.
    pub library: Option<String>,
    /// CUDA that the driver speaks, such as 13.0.
    pub cuda: Option<String>,
    /// Version of its firmware.
    pub vbios: Option<String>,
    /// Memory in all.
    pub memory_total_bytes: Option<u64>,
    /// The power limit that holds, milliwatts.
    pub limit_enforced_mw: Option<u32>,
    /// The limit that it came with.
    pub limit_default_mw: Option<u32>,
    /// The limits that could be set.
    pub limit_range_mw: Option<(u32, u32)>,
    /// Persistence mode.
    pub persistence: Option<bool>,
    /// It is split into instances: power and utilisation are of all of them.
    pub mig: Option<bool>,
    /// Error correction is on.
    pub ecc: Option<bool>,
    /// Generation of the PCIe link.
    pub pcie_generation: Option<u32>,
    /// Lanes of the PCIe link.
    pub pcie_width: Option<u32>,
    /// Between two steps of its energy counter, as observed.
    pub counter_period: Option<Nanos>,
    /// Of each signal: `ok`, or why there is none.
    pub signals: BTreeMap<String, String>,
    /// The engine uses it: only these are summed.
    pub used_by_engine: Option<bool>,
}

/// Energy and power of one GPU, read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PowerSample {
    /// Position in the inventory.
    pub gpu: u8,
    /// Middle of the call.
    pub at: Nanos,
    /// How long the call took, nanoseconds.
    pub width_ns: u32,
    /// Raised when the counter cannot be compared with what was before: the GPU was lost, the driver reloaded.
    pub epoch: u16,
    /// The total energy counter, millijoules.
    pub energy_mj: Option<u64>,
    /// Power over the sensor's shortest window, milliwatts.
    pub instant_mw: Option<u32>,
    /// Power over about a second, milliwatts.
    pub average_mw: Option<u32>,
}

/// What moves slowly on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GpuSample {
    /// Position in the inventory.
    pub gpu: u8,
    /// Middle of the calls.
    pub at: Nanos,
    /// Memory in use, what the driver reserves left out.
    pub memory_used_bytes: Option<u64>,
    /// Memory that the driver reserves.
    pub memory_reserved_bytes: Option<u64>,
    /// Share of the last sensor period in which any kernel ran, percent. An engine under load is near 100 always.
    pub utilisation_percent: Option<u32>,
    /// The same for its memory's bus.
    pub memory_utilisation_percent: Option<u32>,
    /// Clock of the multiprocessors.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory.
    pub memory_clock_mhz: Option<u32>,
    /// Of the chip, degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Of the memory, degrees Celsius.
    pub memory_temperature_c: Option<u32>,
    /// Why clocks are held back now: the vendor's mask, NVML's bits.
    pub throttle_reasons: Option<u64>,
    /// Time held back by the power limit, since the driver's start.
    pub power_throttled: Option<Nanos>,
    /// Time held back by temperature, since the driver's start.
    pub thermal_throttled: Option<Nanos>,
    /// P0 is the fastest.
    pub performance_state: Option<u32>,
    /// Corrected memory errors since the driver's start.
    pub ecc_corrected: Option<u64>,
    /// Uncorrected memory errors since the driver's start.
    pub ecc_uncorrected: Option<u64>,
    /// Bytes sent over PCIe, a counter.
    pub pcie_sent_bytes: Option<u64>,
    /// Bytes received over PCIe, a counter.
    pub pcie_received_bytes: Option<u64>,
    /// Bytes sent over all NVLinks, a counter.
    pub nvlink_sent_bytes: Option<u64>,
    /// Bytes received over all NVLinks, a counter.
    pub nvlink_received_bytes: Option<u64>,
    /// The power limit that holds, milliwatts.
    pub limit_enforced_mw: Option<u32>,
}

/// Who has memory on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GpuProcesses {
    /// Position in the inventory.
    pub gpu: u8,
    /// When.
    pub at: Nanos,
    /// Process ids as the host numbers them, with bytes where they are told.
    pub processes: Vec<(u32, Option<u64>)>,
    /// Those of them that are not the engine's; none where it is not known who the engine is.
    pub foreign: Option<Vec<u32>>,
}

/// A host, mostly as counters: differences over a window are what counts.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct HostSample {
    /// When.
    pub at: Nanos,
    /// CPU time of all cores that was used, stolen time left out, seconds.
    pub cpu_busy_seconds: Option<f64>,
    /// CPU time of all cores, seconds.
    pub cpu_total_seconds: Option<f64>,
    /// CPU time that a hypervisor took, seconds.
    pub steal_seconds: Option<f64>,
    /// CPU time of this agent, seconds.
    pub agent_cpu_seconds: Option<f64>,
    /// Files that this agent has open.
    pub agent_open_files: Option<u64>,
    /// Resident memory of this agent.
    pub agent_memory_bytes: Option<u64>,
    /// CPU time of the engine's processes, those that have ended included as far as they were seen; seconds.
    pub engine_cpu_seconds: Option<f64>,
    /// Processes of the engine.
    pub engine_processes: Option<u32>,
    /// Resident memory of the engine's processes.
    pub engine_memory_bytes: Option<u64>,
    /// Memory that could be had.
    pub memory_available_bytes: Option<u64>,
    /// Bytes received on all interfaces but loopback, a counter.
    pub network_received_bytes: Option<u64>,
    /// Bytes sent on all interfaces but loopback, a counter.
    pub network_sent_bytes: Option<u64>,
}

/// The engine's own metrics, under names of ours: gauges as they stand, counters since its start.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EngineSample {
    /// Middle of the scrape.
    pub at: Nanos,
    /// Requests that are being worked on.
    pub running: Option<f64>,
    /// Requests that wait.
    pub waiting: Option<f64>,
    /// Share of the KV cache in use, 0 to 1; of several caches the fullest.
    pub kv_cache_usage: Option<f64>,
    /// Prompt tokens looked up in the prefix cache, a counter.
    pub prefix_queries: Option<f64>,
    /// Prompt tokens found there, a counter.
    pub prefix_hits: Option<f64>,
    /// Requests that lost their place in the batch, a counter.
    pub preemptions: Option<f64>,
    /// Output tokens, a counter.
    pub generated_tokens: Option<f64>,
    /// Prompt tokens, a counter.
    pub prompt_tokens: Option<f64>,
    /// The engine's own TTFT.
    pub ttft: Option<EngineHistogram>,
    /// The engine's own queue times.
    pub queue_time: Option<EngineHistogram>,
    /// The engine's own request times.
    pub e2e: Option<EngineHistogram>,
}

/// A histogram of times that the engine keeps, or a summary: counters since its start, all of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EngineHistogram {
    /// Sum of the times, seconds.
    pub sum: f64,
    /// Their number.
    pub count: f64,
    /// Of each bucket its upper bound, seconds, and how many times were not above that; ascending. `+Inf` is left out
    /// because it is `count`. A summary has none.
    pub buckets: Vec<(f64, f64)>,
}

/// The coordinator's monotonic clock minus the agent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClockSample {
    /// When.
    pub at: Nanos,
    /// The offset.
    pub offset_ns: i64,
    /// Half the width of the interval that surely holds it.
    pub bound_ns: u64,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Nanos,
    /// To which GPU, by its position in the inventory; none: to the source as a whole.
    pub gpu: Option<u8>,
    /// What.
    pub kind: EventKind,
    /// The number that the driver gives it: of an Xid, its code.
    pub code: Option<u64>,
    /// For a person.
    pub message: String,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The library is not there.
    SourceAbsent,
    /// The driver is not there, or another version than the library.
    DriverUnusable,
    /// It may not be asked.
    Denied,
    /// There are no GPUs.
    NoDevices,
    /// There are GPUs and nothing can be read of them.
    NoTelemetry,
    /// Telemetry runs.
    Running,
    /// A signal that was there is gone, or comes again.
    Degraded,
    /// No sample for a second: a call hangs.
    Stalled,
    /// The GPU is gone.
    Lost,
    /// It is back.
    Back,
    /// The driver reports an error of the GPU.
    Xid,
    /// Somebody else uses the engine's GPU.
    ForeignProcess,
    /// Samples were dropped because nobody took them.
    Dropped,
    /// The engine's metrics cannot be read, or can again.
    Metrics,
}

impl EventKind {
    /// Nothing can be read of any GPU, until something else is said.
    #[must_use]
    pub fn is_absence(self) -> bool {
        use EventKind::{Denied, DriverUnusable, NoDevices, NoTelemetry, SourceAbsent};
        matches!(self, SourceAbsent | DriverUnusable | Denied | NoDevices | NoTelemetry)
    }

    /// The name used in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SourceAbsent => "source_absent",
            Self::DriverUnusable => "driver_unusable",
            Self::Denied => "denied",
            Self::NoDevices => "no_devices",
            Self::NoTelemetry => "no_telemetry",
            Self::Running => "running",
            Self::Degraded => "degraded",
            Self::Stalled => "stalled",
            Self::Lost => "lost",
            Self::Back => "back",
            Self::Xid => "xid",
            Self::ForeignProcess => "foreign_process",
            Self::Dropped => "dropped",
            Self::Metrics => "metrics",
        }
    }
}
