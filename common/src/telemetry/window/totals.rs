//! The engine's GPUs together, and their energy over what was made of it.

use serde::{Deserialize, Serialize};

use super::GpuWindow;
use crate::telemetry::energy::{Method, SENSOR_ERROR_RELATIVE};

/// The GPUs that the engine uses, together: all of them where nobody knows which those are.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GpuTotals {
    /// GPUs that are summed: those of which it is not known that the engine does not use them.
    pub gpus: u64,
    /// GPUs that are left out: the engine does not use them.
    pub gpus_left_out: u64,
    /// Of those summed, how many are so only because nobody knows whether the engine uses them.
    pub gpus_of_unknown_use: u64,
    /// Of those summed, how many have no energy: then there is no sum.
    pub gpus_without_energy: u64,
    /// Of those summed, how many were not seen whole.
    pub gpus_incomplete: u64,
    /// Of those summed, on how many other processes had memory; none where that is not known of any.
    pub gpus_with_foreign_processes: Option<u64>,
    /// Their energy, joules; none when one has none.
    pub energy_joules: Option<f64>,
    /// Their energy less what idling would have taken, joules; none when it is not known of one.
    pub energy_above_idle_joules: Option<f64>,
    /// What the edges may be off by, joules: added up, since all have the same edges.
    pub edge_error_joules: Option<f64>,
    /// The sensors' error as a share of the energy, added up too: nobody says that they are independent.
    pub sensor_error_relative: Option<f64>,
    /// Their mean power, watts.
    pub mean_power_watts: Option<f64>,
    /// Their power limits, watts; none when one is not known.
    pub limit_watts: Option<f64>,
    /// How their energies were found, each way once, best first.
    pub methods: Vec<Method>,
    /// There are such GPUs, and each was seen whole.
    pub complete: bool,
}

/// Each GPU once: of those that several agents of a host report, by who saw it best. That the engine uses it is taken
/// from whoever knows.
pub(super) fn distinct<'a>(gpus: impl IntoIterator<Item = &'a GpuWindow>) -> Vec<GpuWindow> {
    let mut once: Vec<GpuWindow> = Vec::new();
    let worth = |g: &GpuWindow| (g.complete, g.energy.joules.is_some(), g.used_by_engine.is_some());
    for gpu in gpus {
        let known = once
            .iter_mut()
            .find(|g| g.uuid == gpu.uuid && !g.incomplete.contains(&super::Incomplete::NoInventory));
        match known {
            Some(other) => {
                let used = [other.used_by_engine, gpu.used_by_engine];
                if worth(other) < worth(gpu) {
                    *other = gpu.clone();
                }
                other.used_by_engine = used.into_iter().flatten().reduce(|a, b| a || b);
            }
            None => once.push(gpu.clone()),
        }
    }
    once
}

impl GpuTotals {
    /// The sum over `gpus`.
    #[must_use]
    pub fn of<'a>(gpus: impl IntoIterator<Item = &'a GpuWindow>) -> Self {
        let (used, left_out): (Vec<GpuWindow>, Vec<_>) =
            distinct(gpus).into_iter().partition(|g| g.used_by_engine != Some(false));
        let count = |which: fn(&GpuWindow) -> bool| used.iter().filter(|g| which(g)).count() as u64;
        let sum = |of: fn(&GpuWindow) -> Option<f64>| -> Option<f64> {
            (!used.is_empty()).then(|| used.iter().map(of).sum::<Option<f64>>())?
        };
        let mut methods: Vec<Method> = used.iter().map(|g| g.energy.method).collect();
        methods.sort_unstable();
        methods.dedup();
        let energy_joules = sum(|g| g.energy.joules);
        Self {
            gpus: used.len() as u64,
            gpus_left_out: left_out.len() as u64,
            gpus_of_unknown_use: count(|g| g.used_by_engine.is_none()),
            gpus_without_energy: count(|g| g.energy.joules.is_none()),
            gpus_incomplete: count(|g| !g.complete),
            gpus_with_foreign_processes: used
                .iter()
                .any(|g| g.foreign_processes.is_some())
                .then(|| count(|g| g.foreign_processes > Some(0))),
            energy_joules,
            energy_above_idle_joules: sum(|g| g.energy_above_idle_joules),
            edge_error_joules: sum(|g| g.energy.edge_error_joules),
            sensor_error_relative: energy_joules.map(|_| SENSOR_ERROR_RELATIVE),
            mean_power_watts: sum(|g| g.energy.mean_power_watts),
            limit_watts: sum(|g| g.limit_watts),
            methods,
            complete: !used.is_empty() && used.iter().all(|g| g.complete),
        }
    }
}

/// What was made in the window; none where it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Known output tokens of successes.
    pub output_tokens: Option<u64>,
    /// Known prompt and output tokens of successes.
    pub total_tokens: Option<u64>,
    /// Successes.
    pub requests: Option<u64>,
    /// Successes that meet every request SLO.
    pub good_requests: Option<u64>,
    /// Scheduled arrivals.
    pub all_requests: u64,
    /// Successes whose output tokens are known.
    pub counted_requests: u64,
}

/// Energy over what was made of it: none where the energy or the count is unknown or 0.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Efficiency {
    /// Joules per output token.
    pub joules_per_output_token: Option<f64>,
    /// Joules per prompt or output token.
    pub joules_per_total_token: Option<f64>,
    /// Joules per success.
    pub joules_per_request: Option<f64>,
    /// Joules per success that meets every SLO.
    pub joules_per_good_request: Option<f64>,
    /// Share of all requests whose output tokens are not in the sums, because they failed or are not known: the energy
    /// went into them, too.
    pub requests_without_tokens_share: Option<f64>,
    /// Good requests a second, per watt. Both are over the same window, so it is good requests per joule.
    pub goodput_per_watt: Option<f64>,
}

impl Efficiency {
    pub(super) fn of(energy_joules: Option<f64>, counts: &Counts) -> Self {
        let energy = energy_joules.filter(|&joules| joules > 0.0);
        let per = |count: Option<u64>| Some(energy? / count.filter(|&n| n > 0)? as f64);
        Self {
            joules_per_output_token: per(counts.output_tokens),
            joules_per_total_token: per(counts.total_tokens),
            joules_per_request: per(counts.requests),
            joules_per_good_request: per(counts.good_requests),
            requests_without_tokens_share: energy.filter(|_| counts.all_requests > 0).map(|_| {
                1.0 - counts.counted_requests.min(counts.all_requests) as f64 / counts.all_requests as f64
            }),
            goodput_per_watt: per(counts.good_requests).map(|joules| 1.0 / joules),
        }
    }
}
