//! One GPU over a window.
//!
//! Owns what is said of a board: its energy (from [`energy`](crate::telemetry::energy)), its power against its limit,
//! the time for which it was held back, memory, clocks, temperature, errors. Time held back comes from the driver's
//! counters; the sampled reasons stand beside as evidence and must never be turned into a time.

mod collect;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::AgentRecords;
use crate::ids::Nanos;
use crate::stats::{Samples, percentile};
use crate::telemetry::energy::{EnergyInput, WindowEnergy, average_points, instant_points, window_energy};
use crate::telemetry::points::{LONGEST_GAP_SECONDS, Points};
use crate::telemetry::{GpuSample, Window};
use collect::{Collected, collect};

/// At the limit: this share of it or more.
pub const AT_LIMIT: f64 = 0.98;

/// NVML's bits of the reasons why clocks are held back (`nvmlClocksThrottleReason*` in nvml.h), by name.
const REASONS: [&str; 9] = [
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
];

/// What one GPU did in a window. What is not known is none, never 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GpuWindow {
    /// What tells it from every other; `unknown-` and its position where there is no inventory.
    pub uuid: String,
    /// Its product name.
    pub name: String,
    /// The engine uses it; none when nobody knows.
    pub used_by_engine: Option<bool>,
    /// It is split into instances: power and utilisation are of all of them.
    pub mig: Option<bool>,
    /// Its energy, with how it was found.
    pub energy: WindowEnergy,
    /// Its power before any load, watts.
    pub idle_watts: Option<f64>,
    /// The energy less what idling would have taken, joules. It stands beside the energy, never instead.
    pub energy_above_idle_joules: Option<f64>,
    /// The 1 s average.
    pub average_power: AveragePower,
    /// The highest instant power, watts: over the sensor's shortest window, so not to be compared with the above.
    pub instant_power_peak_watts: Option<f64>,
    /// The power limit that held, watts: the lowest, where it changed.
    pub limit_watts: Option<f64>,
    /// The limit changed in the window.
    pub limit_changed: Option<bool>,
    /// 1 − mean power / limit.
    pub headroom_mean: Option<f64>,
    /// 1 − peak of the 1 s average / limit.
    pub headroom_min: Option<f64>,
    /// Time with a 1 s average of at least 98 % of the limit, seconds.
    pub at_limit_seconds: Option<f64>,
    /// Time held back by the power limit, seconds, by the driver's counter.
    pub power_throttled_seconds: Option<f64>,
    /// Time held back by temperature, seconds, by the driver's counter.
    pub thermal_throttled_seconds: Option<f64>,
    /// Of `reasons_samples`, how many showed each reason: evidence only, a reason between samples is not seen.
    pub reasons: BTreeMap<String, u64>,
    /// Samples that told the reasons.
    pub reasons_samples: u64,
    /// Most memory in use, bytes: an engine's pool included, so that it is a reservation.
    pub memory_peak_bytes: Option<u64>,
    /// Least memory in use, bytes.
    pub memory_min_bytes: Option<u64>,
    /// Memory in all, bytes.
    pub memory_total_bytes: Option<u64>,
    /// 5th percentile of the multiprocessors' clock, MHz.
    pub sm_clock_p5_mhz: Option<f64>,
    /// Its median, MHz.
    pub sm_clock_p50_mhz: Option<f64>,
    /// Temperature of the window's first sample, degrees Celsius.
    pub temperature_start_c: Option<f64>,
    /// Of its last.
    pub temperature_end_c: Option<f64>,
    /// The highest.
    pub temperature_peak_c: Option<f64>,
    /// The highest of the memory.
    pub memory_temperature_peak_c: Option<f64>,
    /// Median utilisation, percent: the share of time in which any kernel ran, near 100 at every load.
    pub utilisation_p50_percent: Option<f64>,
    /// Its 95th percentile, percent.
    pub utilisation_p95_percent: Option<f64>,
    /// Xid errors in the window; none when nobody listened (the inventory's signal `xid` is not `ok`), and when the driver
    /// did not say of which GPU one was.
    pub xid_errors: Option<u64>,
    /// The same by their code, as far as it was told.
    pub xid_codes: BTreeMap<u64, u64>,
    /// Corrected memory errors in the window.
    pub ecc_corrected: Option<u64>,
    /// Uncorrected memory errors in the window.
    pub ecc_uncorrected: Option<u64>,
    /// Bytes sent over PCIe in the window.
    pub pcie_sent_bytes: Option<f64>,
    /// Bytes received over PCIe in the window.
    pub pcie_received_bytes: Option<f64>,
    /// Bytes sent over all NVLinks in the window.
    pub nvlink_sent_bytes: Option<f64>,
    /// Bytes received over all NVLinks in the window.
    pub nvlink_received_bytes: Option<f64>,
    /// Processes that are not the engine's and had memory on it; none where that is not known.
    pub foreign_processes: Option<u64>,
    /// Samples of energy and power in the window.
    pub power_samples: u64,
    /// The same a second: the cadence that was reached.
    pub power_readings_per_second: Option<f64>,
    /// Other samples in the window.
    pub samples: u64,
    /// The longest part of the window without one of these, seconds; none when there are none.
    pub largest_sample_gap_seconds: Option<f64>,
    /// Signals that cannot be read, and why.
    pub absent: BTreeMap<String, String>,
    /// The window was seen whole.
    pub complete: bool,
    /// Why not.
    pub incomplete: Vec<Incomplete>,
}

/// Power as the sensor averages it over 1 s; each reading counts for the middle of its second.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct AveragePower {
    /// Mean over time, watts.
    pub mean_watts: Option<f64>,
    /// Median of the readings, watts.
    pub p50_watts: Option<f64>,
    /// 95th percentile of the readings, watts.
    pub p95_watts: Option<f64>,
    /// Highest reading, watts.
    pub peak_watts: Option<f64>,
}

/// Why a GPU's window was not seen whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Incomplete {
    /// No inventory says what GPU it is.
    NoInventory,
    /// No method gives its energy.
    NoEnergy,
    /// A stretch longer than 1 s, or than 5 % of the window, has no reading of its energy.
    EnergyGap,
    /// Its counters began anew.
    EpochChanged,
    /// The GPU was lost.
    Lost,
    /// Nothing but energy and power was sampled.
    NoSamples,
    /// A stretch longer than 1 s has no such sample.
    SampleGap,
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoInventory => "no inventory says what GPU it is",
            Self::NoEnergy => "nothing gives its energy",
            Self::EnergyGap => "a stretch has no reading of its energy",
            Self::EpochChanged => "its counters began anew",
            Self::Lost => "the GPU was lost",
            Self::NoSamples => "nothing but energy and power was sampled",
            Self::SampleGap => "a stretch has no sample",
        })
    }
}

/// The GPUs of one agent in the order of its inventories.
pub(super) fn gpu_windows(from: &AgentRecords<'_>, idle_watts: &BTreeMap<String, f64>) -> Vec<GpuWindow> {
    let collected = collect(from.records, from.window);
    collected.into_iter().map(|gpu| of(&gpu, from, idle_watts.get(&gpu.info.uuid).copied())).collect()
}

fn of(gpu: &Collected, from: &AgentRecords<'_>, idle_watts: Option<f64>) -> GpuWindow {
    let (window, info) = (from.window, &gpu.info);
    let length = window.seconds();
    let signal = |of: &dyn Fn(&GpuSample) -> Option<f64>| {
        Points::new(gpu.samples.iter().filter_map(|s| Some((window.seconds_at(s.at), of(s)?))), length)
    };
    let number = |of: fn(&GpuSample) -> Option<u32>| signal(&|s| of(s).map(f64::from));
    let counter = |of: fn(&GpuSample) -> Option<u64>| signal(&|s| of(s).map(|n| n as f64));
    let seconds = |of: fn(&GpuSample) -> Option<Nanos>| signal(&|s| of(s).map(Nanos::as_secs_f64));
    let spread = |points: &Points, p: f64| percentile(Samples::new(points.values().collect()).sorted(), p);

    let limits = signal(&|s| s.limit_enforced_mw.map(|mw| f64::from(mw) / 1e3));
    let limit_known = info.limit_enforced_mw.map(|mw| f64::from(mw) / 1e3);
    // Limits are read rarely: the last before the window holds in it.
    let in_force = Samples::new(limits.held().iter().map(|p| p.1).collect());
    let (lowest, highest) = (in_force.sorted().first().copied(), in_force.sorted().last().copied());
    let limit = lowest.or(limit_known);
    let input = EnergyInput {
        limit_watts: limits.highest().into_iter().chain(limit_known).reduce(f64::max),
        counter_period: info.counter_period,
        clock_bound: from.clock_bound,
    };
    let energy = window_energy(&gpu.power, window, &input);
    let average = average_points(&gpu.power, window);
    let share = |watts: Option<f64>| Some(1.0 - watts? / limit.filter(|&l| l > 0.0)?);
    let average_power = AveragePower {
        mean_watts: average.mean(),
        p50_watts: spread(&average, 50.0),
        p95_watts: spread(&average, 95.0),
        peak_watts: average.max(),
    };

    let sampled = signal(&|_| Some(0.0));
    let samples = sampled.inside().len() as u64;
    let incomplete = incomplete(gpu, &energy, samples, sampled.largest_gap());
    let (reasons, reasons_samples) = reasons(&gpu.samples, window);
    let (clock, temperature) = (number(|s| s.sm_clock_mhz), number(|s| s.temperature_c));
    let (memory, utilisation) = (counter(|s| s.memory_used_bytes), number(|s| s.utilisation_percent));
    let power_samples = gpu.power.iter().filter(|s| window.contains(s.at)).count() as u64;
    let listened = !gpu.xids.is_empty() || info.signals.get("xid").is_some_and(|s| s == "ok");
    let mut xid_codes = BTreeMap::new();
    gpu.xids.iter().flatten().for_each(|&code| *xid_codes.entry(code).or_default() += 1);

    GpuWindow {
        uuid: info.uuid.clone(),
        name: info.name.clone(),
        used_by_engine: info.used_by_engine,
        mig: info.mig,
        energy,
        idle_watts,
        energy_above_idle_joules: energy.joules.zip(idle_watts).map(|(j, watts)| j - watts * length),
        average_power,
        instant_power_peak_watts: instant_points(&gpu.power, window).max(),
        limit_watts: limit,
        limit_changed: lowest.map(|low| highest > Some(low)),
        headroom_mean: share(average_power.mean_watts),
        headroom_min: share(average_power.peak_watts),
        // A sum of nothing is -0 in Rust.
        at_limit_seconds: average_power
            .mean_watts
            .and(limit)
            .map(|l| average.seconds_at_least(AT_LIMIT * l) + 0.0),
        power_throttled_seconds: seconds(|s| s.power_throttled).delta().known(),
        thermal_throttled_seconds: seconds(|s| s.thermal_throttled).delta().known(),
        reasons,
        reasons_samples,
        memory_peak_bytes: memory.max().map(|b| b as u64),
        memory_min_bytes: memory.min().map(|b| b as u64),
        memory_total_bytes: info.memory_total_bytes,
        sm_clock_p5_mhz: spread(&clock, 5.0),
        sm_clock_p50_mhz: spread(&clock, 50.0),
        temperature_start_c: temperature.values().next(),
        temperature_end_c: temperature.values().last(),
        temperature_peak_c: temperature.max(),
        memory_temperature_peak_c: number(|s| s.memory_temperature_c).max(),
        utilisation_p50_percent: spread(&utilisation, 50.0),
        utilisation_p95_percent: spread(&utilisation, 95.0),
        xid_errors: (listened && !gpu.xids_of_unknown).then_some(gpu.xids.len() as u64),
        xid_codes,
        ecc_corrected: counter(|s| s.ecc_corrected).change().map(|n| n as u64),
        ecc_uncorrected: counter(|s| s.ecc_uncorrected).change().map(|n| n as u64),
        pcie_sent_bytes: counter(|s| s.pcie_sent_bytes).delta().known(),
        pcie_received_bytes: counter(|s| s.pcie_received_bytes).delta().known(),
        nvlink_sent_bytes: counter(|s| s.nvlink_sent_bytes).delta().known(),
        nvlink_received_bytes: counter(|s| s.nvlink_received_bytes).delta().known(),
        foreign_processes: gpu.foreign.as_ref().map(|pids| pids.len() as u64),
        power_samples,
        samples,
        largest_sample_gap_seconds: (samples > 0).then(|| sampled.largest_gap()),
        power_readings_per_second: (length > 0.0).then(|| power_samples as f64 / length),
        absent: info
            .signals
            .iter()
            .filter(|(_, why)| *why != "ok")
            .map(|(s, w)| (s.clone(), w.clone()))
            .collect(),
        complete: incomplete.is_empty(),
        incomplete,
    }
}

fn incomplete(gpu: &Collected, energy: &WindowEnergy, samples: u64, sample_gap: f64) -> Vec<Incomplete> {
    let reasons = [
        (!gpu.known, Incomplete::NoInventory),
        (energy.joules.is_none(), Incomplete::NoEnergy),
        (energy.flags.gap, Incomplete::EnergyGap),
        (energy.flags.epoch_changed, Incomplete::EpochChanged),
        (gpu.lost, Incomplete::Lost),
        (samples == 0, Incomplete::NoSamples),
        (samples > 0 && sample_gap > LONGEST_GAP_SECONDS, Incomplete::SampleGap),
    ];
    reasons.into_iter().filter(|(holds, _)| *holds).map(|(_, reason)| reason).collect()
}

/// How many samples in the window showed each reason, and how many told any (none of them is a reason too).
fn reasons(samples: &[GpuSample], window: Window) -> (BTreeMap<String, u64>, u64) {
    let mut seen = BTreeMap::new();
    let mut told = 0;
    let mut stamps = BTreeSet::new();
    for s in samples.iter().filter(|s| window.contains(s.at) && stamps.insert(s.at)) {
        let Some(mask) = s.throttle_reasons else { continue };
        told += 1;
        for bit in (0..u64::BITS).filter(|bit| mask >> bit & 1 == 1) {
            let name = REASONS.get(bit as usize).map_or_else(|| format!("bit_{bit}"), |&n| n.to_owned());
            *seen.entry(name).or_default() += 1;
        }
    }
    (seen, told)
}
