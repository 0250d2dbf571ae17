//! What stands below the table of what was recorded beside the traces: energy by rate, hosts, and where the engine's own
//! view differs from the client's. Only what there is.

use std::collections::BTreeMap;

use common::telemetry::energy::Method;
use common::telemetry::window::TelemetryWindow;

use super::energy::{Energy, RateEnergy};
use super::notes::{named, wrap};
use super::table::{number, percent};
use super::{Report, TrialReport};
use crate::telemetry::TrialTelemetry;

/// Hosts that are shown; the rest is in `report.json`.
const HOSTS_SHOWN: usize = 4;

pub(super) fn beside(report: &Report, lines: &mut Vec<String>) {
    let with: Vec<(&TrialReport, &TrialTelemetry)> =
        report.trials.iter().filter_map(|t| Some((t, t.telemetry.as_ref()?))).collect();
    if with.is_empty() {
        return;
    }
    if let Some(of_rates) = report.energy() {
        energy(&of_rates, lines);
        foreign(&with, lines);
    } else if let Some(left_out) =
        with.iter().map(|(_, t)| t.window.totals.gpus_left_out).max().filter(|n| *n > 0)
    {
        let text = format!("No energy: {left_out} GPUs were recorded, and the engine uses none of them.");
        wrap(&text, "", lines);
    }
    differences(&with, lines);
    hosts(with.iter().map(|(_, t)| &t.window), lines);
}

/// A window without trials, for people.
#[must_use]
pub fn render_window(window: &TelemetryWindow) -> String {
    let mut lines = vec![format!("{:.1} s", window.window_seconds)];
    for gpu in window.agents.iter().flat_map(|a| &a.gpus) {
        let mut said = Vec::new();
        said.extend(gpu.energy.joules.map(|j| format!("{} J by {}", number(j), gpu.energy.method.name())));
        said.extend(gpu.energy.mean_power_watts.map(|w| format!("{} W mean", number(w))));
        said.extend(gpu.average_power.peak_watts.map(|w| format!("{} W peak of a second", number(w))));
        said.extend(gpu.limit_watts.map(|w| format!("limit {} W", number(w))));
        said.extend(
            gpu.memory_peak_bytes.map(|b| format!("{:.1} GiB at most", b as f64 / f64::from(1 << 30))),
        );
        if !gpu.complete {
            let reasons: Vec<String> = gpu.incomplete.iter().map(ToString::to_string).collect();
            said.push(format!("not seen whole: {}", reasons.join("; ")));
        }
        wrap(&format!("{} {}: {}", gpu.name, gpu.uuid, said.join(", ")), "", &mut lines);
    }
    if let Some(joules) = window.totals.energy_joules {
        wrap(&format!("Together {} J ({}).", number(joules), window.boundary), "", &mut lines);
    }
    for engine in window.agents.iter().filter_map(|a| a.engine.as_ref()) {
        let mut said = Vec::new();
        said.extend(engine.running_mean.map(|n| format!("{} running on the mean", number(n))));
        said.extend(engine.waiting_mean.map(|n| format!("{} waiting", number(n))));
        said.extend(engine.generated_tokens.map(|n| format!("{} tokens in all", number(n))));
        wrap(&format!("Engine, by its own metrics: {}.", said.join(", ")), "", &mut lines);
    }
    hosts(std::iter::once(window), &mut lines);
    lines.join("\n") + "\n"
}

/// What stands above a column of the energies, and its value.
pub(super) type Column = (&'static str, fn(&RateEnergy) -> Option<f64>);

pub(super) const COLUMNS: [Column; 7] = [
    ("J", |r| r.energy_joules),
    ("±J", |r| r.edge_error_joules),
    ("W mean", |r| r.mean_power_watts),
    ("J/token", |r| r.joules_per_output_token),
    ("J/request", |r| r.joules_per_request),
    ("J/good req", |r| r.joules_per_good_request),
    ("good/s/W", |r| r.goodput_per_watt),
];

/// Energy and what was made of it, by rate.
fn energy(energy: &Energy, lines: &mut Vec<String>) {
    let Energy { boundary, gpus, .. } = energy;
    let trials = "a trial, median over the trials of the rate";
    let what = if *gpus == 1 { "1 GPU".to_owned() } else { format!("{gpus} GPUs") };
    wrap(&format!("Energy of {what} ({boundary}), {trials}:"), "", lines);
    let mut heads = format!("{:>10}", "req/s");
    heads.extend(COLUMNS.iter().map(|(head, _)| format!("{head:>12}")));
    lines.push(heads);
    for rate in &energy.rates {
        let mut row = format!("{:>10}", rate.offered_rate);
        let cells = COLUMNS.iter().map(|(_, value)| value(rate).map_or_else(|| "-".to_owned(), significant));
        row.extend(cells.map(|cell| format!("{cell:>12}")));
        lines.push(row);
    }
    for rate in energy.rates.iter().filter(|rate| !rate.complete) {
        let why = match rate.incomplete.as_slice() {
            [] => "nothing was recorded".to_owned(),
            reasons => reasons.join("; "),
        };
        wrap(&format!("The energy at {} was not seen whole: {why}.", named(&rate.offered_rate)), "", lines);
    }
    methods(energy, lines);
    tokens(energy, lines);
    held_back(energy, lines);
    if let Some(best) = &energy.most_efficient_rate {
        let text = format!(
            "Of the rates that meet the objectives, {} takes the least energy for an output token.",
            named(best)
        );
        wrap(&text, "", lines);
    }
}

/// How the energies were found, where it is not by the counter everywhere.
fn methods(energy: &Energy, lines: &mut Vec<String>) {
    let others = |rate: &&RateEnergy| rate.methods.iter().any(|method| *method != Method::Counter);
    for rate in energy.rates.iter().filter(others) {
        let methods: Vec<&str> = rate.methods.iter().map(|method| method.name()).collect();
        let text =
            format!("The energy at {} was found by {}.", named(&rate.offered_rate), methods.join(" and "));
        wrap(&text, "", lines);
    }
}

/// Energy over output tokens that lacks some of them.
fn tokens(energy: &Energy, lines: &mut Vec<String>) {
    for rate in &energy.rates {
        let Some(share) = rate.requests_without_tokens_share.filter(|share| *share > 0.0) else { continue };
        let text = format!(
            "Output tokens of {}% of the requests at {} are in no sum (failed, or not counted); their energy is.",
            percent(share),
            named(&rate.offered_rate)
        );
        wrap(&text, "", lines);
    }
}

/// Rates at which a GPU was slower than it could be.
fn held_back(energy: &Energy, lines: &mut Vec<String>) {
    for rate in &energy.rates {
        let causes =
            [(rate.power_throttled_share, "its power limit"), (rate.thermal_throttled_share, "heat")];
        for (share, cause) in causes {
            let Some(share) = share.filter(|share| *share >= 0.01) else { continue };
            let (share, rate) = (percent(share), named(&rate.offered_rate));
            wrap(&format!("At {rate} a GPU was held back by {cause} for {share}% of a trial."), "", lines);
        }
    }
}

/// Three digits that count: goodput per watt may be far below 1.
pub(super) fn significant(v: f64) -> String {
    if v.abs() >= 0.1 || v == 0.0 { number(v) } else { format!("{v:.2e}") }
}

/// That others had memory on the engine's GPUs, and in which trials.
fn foreign(with: &[(&TrialReport, &TrialTelemetry)], lines: &mut Vec<String>) {
    let shared = |t: &TrialTelemetry| t.window.totals.gpus_with_foreign_processes.is_some_and(|n| n > 0);
    let trials: Vec<String> =
        with.iter().filter(|(_, t)| shared(t)).map(|(trial, _)| trial.trial.to_string()).collect();
    if !trials.is_empty() {
        let text = format!(
            "Other processes used the engine's GPUs, and their energy is in the sums: trials {}.",
            trials.join(", ")
        );
        wrap(&text, "", lines);
    }
}

/// Where the engine says otherwise than the client.
fn differences(with: &[(&TrialReport, &TrialTelemetry)], lines: &mut Vec<String>) {
    for (trial, telemetry) in with {
        let Some(beside) = telemetry.engine_beside_client else { continue };
        let shown = |n: Option<f64>| n.map_or_else(|| "?".to_owned(), number);
        if beside.in_flight_differs {
            let text = format!(
                "In flight, trial {}: {} on the mean by the client, {} by the engine's gauges.",
                trial.trial,
                shown(beside.client_in_flight_mean),
                shown(beside.engine_in_flight_mean)
            );
            wrap(&text, "", lines);
        }
        if beside.tokens_differ {
            let text = format!(
                "Output tokens, trial {}: {} by the client, {} by the engine's counter.",
                trial.trial,
                beside.client_output_tokens,
                shown(beside.engine_output_tokens)
            );
            wrap(&text, "", lines);
        }
    }
}

/// The busiest that each host was.
fn hosts<'a>(windows: impl Iterator<Item = &'a TelemetryWindow>, lines: &mut Vec<String>) {
    let mut most: BTreeMap<&str, [Option<f64>; 4]> = BTreeMap::new();
    for agent in windows.flat_map(|w| &w.agents) {
        let Some(host) = &agent.host else { continue };
        let now = [host.cpu_share, host.agent_cpu_cores, host.engine_cpu_cores, host.steal_share];
        let sofar = most.entry(agent.agent.as_str()).or_default();
        for (most, now) in sofar.iter_mut().zip(now) {
            *most = match (*most, now) {
                (Some(a), Some(b)) => Some(a.max(b)),
                (a, b) => a.or(b),
            };
        }
    }
    for (agent, [cpu, own, engine, steal]) in most.iter().take(HOSTS_SHOWN) {
        let mut said = Vec::new();
        said.extend(cpu.map(|share| format!("{}% of its CPU", percent(share))));
        said.extend(own.map(|cores| format!("agent {} cores", number(cores))));
        said.extend(engine.map(|cores| format!("engine {} cores", number(cores))));
        said.extend(steal.filter(|share| *share >= 0.01).map(|share| format!("{}% stolen", percent(share))));
        wrap(&format!("Host of {agent}, at most: {}.", said.join(", ")), "", lines);
    }
}
