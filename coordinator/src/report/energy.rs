//! Energy by rate: what the engine's GPUs took, over what was made of it.
//!
//! The trials of a rate are pooled as the rate's other numbers are: medians over its valid trials, or over all where none
//! is valid. It must never name a rate as the best whose energy was not seen whole, or that misses an objective.

use std::collections::BTreeSet;

use common::knee::RateResult;
use common::slo::{SloSet, Target};
use common::telemetry::energy::Method;
use common::telemetry::window::{BOUNDARY, GpuWindow};
use serde::Serialize;

use super::TrialReport;
use crate::telemetry::TrialTelemetry;

/// Energy over the rates of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Energy {
    /// What the energies are of.
    pub boundary: &'static str,
    /// GPUs that are summed: the most of any trial.
    pub gpus: u64,
    /// Each rate of which something is known, lowest first.
    pub rates: Vec<RateEnergy>,
    /// Of the rates that meet every objective and were seen whole, the one that takes the least energy for an output
    /// token; none without objectives, or where there is no such rate.
    pub most_efficient_rate: Option<String>,
}

/// Energy at one rate: medians over its trials; none where no trial knows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RateEnergy {
    /// The rate, as `rates[].offered_rate`.
    pub offered_rate: String,
    /// Trials that the medians are over.
    pub trials: u64,
    /// Energy of a trial, joules.
    pub energy_joules: Option<f64>,
    /// What its edges may be off by, joules.
    pub edge_error_joules: Option<f64>,
    /// Energy less what idling would have taken, joules.
    pub energy_above_idle_joules: Option<f64>,
    /// Mean power, watts.
    pub mean_power_watts: Option<f64>,
    /// Joules per output token.
    pub joules_per_output_token: Option<f64>,
    /// Joules per prompt or output token.
    pub joules_per_total_token: Option<f64>,
    /// Joules per success.
    pub joules_per_request: Option<f64>,
    /// Joules per success that meets every objective.
    pub joules_per_good_request: Option<f64>,
    /// Good requests a second, per watt.
    pub goodput_per_watt: Option<f64>,
    /// Share of all requests whose output tokens are not in the sums: what went into them is in the energy.
    pub requests_without_tokens_share: Option<f64>,
    /// The most of a trial for which a GPU was held back by the power limit, as a share of the trial.
    pub power_throttled_share: Option<f64>,
    /// The same by temperature.
    pub thermal_throttled_share: Option<f64>,
    /// How the energies were found, each way once, best first.
    pub methods: Vec<Method>,
    /// Every GPU was seen whole in every trial.
    pub complete: bool,
    /// Why not, each reason once.
    pub incomplete: Vec<String>,
    /// The rate meets every objective; none where that is not decided.
    pub meets_objectives: Option<bool>,
}

impl Energy {
    /// What the trials' telemetry amounts to by rate; none when no GPU was recorded.
    #[must_use]
    pub fn of(trials: &[TrialReport], rates: &[RateResult], slos: &SloSet, target: Target) -> Option<Self> {
        let gpus = trials.iter().filter_map(|t| Some(t.telemetry.as_ref()?.window.totals.gpus)).max()?;
        if gpus == 0 {
            return None;
        }
        let rates: Vec<RateEnergy> = (rates.iter())
            .filter_map(|rate| {
                let meets =
                    rate.is_decided(target) && rate.offered_rate_per_second.is_some() && !slos.is_empty();
                RateEnergy::of(trials, rate, meets.then(|| rate.passes(target)))
            })
            .collect();
        let most_efficient_rate = (rates.iter())
            .filter(|rate| rate.complete && rate.meets_objectives == Some(true))
            .filter_map(|rate| Some((rate.joules_per_output_token?, rate)))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, rate)| rate.offered_rate.clone());
        Some(Self { boundary: BOUNDARY, gpus, rates, most_efficient_rate })
    }
}

impl RateEnergy {
    fn of(trials: &[TrialReport], rate: &RateResult, meets_objectives: Option<bool>) -> Option<Self> {
        let of_rate: Vec<&TrialTelemetry> = (trials.iter())
            .filter(|t| t.rate.to_string() == rate.offered_rate)
            .filter(|t| !rate.decided || t.summary.validity.is_valid())
            .filter_map(|t| t.telemetry.as_ref())
            .collect();
        if of_rate.is_empty() {
            return None;
        }
        let of = |value: fn(&TrialTelemetry) -> Option<f64>| median(of_rate.iter().filter_map(|t| value(t)));
        let mut methods: Vec<Method> =
            of_rate.iter().flat_map(|t| t.window.totals.methods.iter().copied()).collect();
        methods.sort_unstable();
        methods.dedup();
        let incomplete: BTreeSet<String> = of_rate.iter().flat_map(|t| t.window.why_incomplete()).collect();
        Some(Self {
            offered_rate: rate.offered_rate.clone(),
            trials: of_rate.len() as u64,
            energy_joules: of(|t| t.window.totals.energy_joules),
            edge_error_joules: of(|t| t.window.totals.edge_error_joules),
            energy_above_idle_joules: of(|t| t.window.totals.energy_above_idle_joules),
            mean_power_watts: of(|t| t.window.totals.mean_power_watts),
            joules_per_output_token: of(|t| t.efficiency.joules_per_output_token),
            joules_per_total_token: of(|t| t.efficiency.joules_per_total_token),
            joules_per_request: of(|t| t.efficiency.joules_per_request),
            joules_per_good_request: of(|t| t.efficiency.joules_per_good_request),
            goodput_per_watt: of(|t| t.efficiency.goodput_per_watt),
            requests_without_tokens_share: of(|t| t.efficiency.requests_without_tokens_share),
            power_throttled_share: held_back(&of_rate, |gpu| gpu.power_throttled_seconds),
            thermal_throttled_share: held_back(&of_rate, |gpu| gpu.thermal_throttled_seconds),
            methods,
            complete: of_rate.iter().all(|t| t.window.totals.complete),
            incomplete: incomplete.into_iter().collect(),
            meets_objectives,
        })
    }
}

/// The largest share of a trial for which one of the engine's GPUs was held back.
fn held_back(of_rate: &[&TrialTelemetry], seconds: fn(&GpuWindow) -> Option<f64>) -> Option<f64> {
    let of_trial = |t: &&TrialTelemetry| {
        let gpus = t.window.agents.iter().flat_map(|a| &a.gpus);
        let used = gpus.filter(|gpu| gpu.used_by_engine != Some(false));
        Some(used.filter_map(seconds).reduce(f64::max)? / t.window.window_seconds)
    };
    of_rate.iter().filter_map(of_trial).filter(|share| share.is_finite()).reduce(f64::max)
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len();
    (n > 0).then(|| f64::midpoint(values[(n - 1) / 2], values[n / 2]))
}
