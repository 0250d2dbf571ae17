//! What was recorded beside a run's traces, cut to its trials: energy, GPUs, hosts, and the engine's own view of what the
//! client saw.
//!
//! The numbers are `common::telemetry`'s; here is only which part of which series belongs to which trial. Host clocks are
//! mapped by the agents' own estimates, recorded with the samples. It must never change a number of the traces.

use std::collections::BTreeMap;
use std::io::Write;

use common::ids::{AgentName, Nanos, TrialId};
use common::offset::DRIFT_DIVISOR;
use common::summary::Numbers;
use common::telemetry::window::{AgentRecords, Counts, Efficiency, EngineWindow, TelemetryWindow};
use common::telemetry::{ClockSample, GpuInfo, Record, Window};
use common::validity::{Reason, ReasonKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::kept::{KeptRun, KeptTrial};
use crate::report::TrialReport;
use crate::store::{AgentSeries, RunStore, StoreError};

/// Before a window: what is asked seldom, such as the power limit, was asked within it.
const BEFORE: Nanos = Nanos::from_secs(15);
/// After a window: readings beyond its edge.
const AFTER: Nanos = Nanos::from_secs(5);

/// Telemetry of one trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialTelemetry {
    /// GPUs, hosts and engine over the trial's window, the drain included.
    #[serde(flatten)]
    pub window: TelemetryWindow,
    /// Energy over what was made of it.
    pub efficiency: Efficiency,
    /// The engine's view beside the client's; none when the engine's metrics were not recorded.
    pub engine_beside_client: Option<BesideClient>,
}

/// What engine and client say of the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BesideClient {
    /// Mean requests in flight by the client.
    pub client_in_flight_mean: Option<f64>,
    /// Mean of running and waiting requests by the engine's gauges.
    pub engine_in_flight_mean: Option<f64>,
    /// They differ by more than a quarter and by more than one.
    pub in_flight_differs: bool,
    /// Known output tokens of the successes, by the client.
    pub client_output_tokens: u64,
    /// Output tokens that the engine counted in the window: those of failures, of warm-ups and of others included.
    pub engine_output_tokens: Option<f64>,
    /// The engine counted fewer than the client was given, by more than one in a hundred and what two seconds of the
    /// window's tokens are: a scrape a second sees each edge no more closely.
    pub tokens_differ: bool,
}

/// Gives each of a run's trials its telemetry, as far as anything was recorded.
///
/// # Errors
/// When what was recorded cannot be read.
pub fn attach(run: &RunStore, kept: &KeptRun, trials: &mut [TrialReport]) -> Result<(), StoreError> {
    // By boots: instants of two of them do not compare.
    let mut boots = Vec::new();
    for (boot, idle) in kept.idle_before.iter().chain([&kept.idle]).enumerate() {
        let series = run.telemetry_series_of(boot)?;
        let idle = idle_watts(&series, *idle);
        boots.push((series, idle));
    }
    for report in trials {
        let trial = kept.trials.iter().find(|t| t.planned.trial == report.trial);
        let recorded = trial.and_then(|t| Some((t.start?, boots.get(t.boot)?)));
        report.telemetry = recorded
            .zip(report.summary.numbers.as_ref())
            .and_then(|((start, (series, idle)), numbers)| of_trial(series, start, numbers, idle));
        if kept.require_gpu
            && report.summary.numbers.is_some()
            && let Some(why) = lacking(report.telemetry.as_ref())
        {
            report.summary.validity.add(Reason::new(ReasonKind::TelemetryLost, why));
        }
    }
    Ok(())
}

/// What is lacking of the energy of the engine's GPUs, for a person; none when nothing is.
fn lacking(telemetry: Option<&TrialTelemetry>) -> Option<String> {
    let window = telemetry.map(|t| &t.window);
    let Some(window) = window.filter(|w| w.totals.gpus > 0) else {
        let left_out = window.is_some_and(|w| w.totals.gpus_left_out > 0);
        let what = if left_out {
            "none of the GPUs that were recorded is the engine's"
        } else {
            "no GPU was recorded"
        };
        return Some(format!("--require-gpu: {what}"));
    };
    let why = || format!("--require-gpu: GPUs were not seen whole: {}", window.why_incomplete().join("; "));
    (!window.totals.complete).then(why)
}

/// What the inventories say of the hardware, for the experiment record: of the GPUs that the engine is not known not to
/// use. Empty when there are none.
#[must_use]
pub fn hardware(series: &[AgentSeries]) -> Map<String, Value> {
    let inventories = series.iter().filter_map(AgentSeries::inventory);
    // Two agents of a host see the same GPUs.
    let mut used: Vec<&GpuInfo> = Vec::new();
    for gpu in inventories.flatten().filter(|gpu| gpu.used_by_engine != Some(false)) {
        if !used.iter().any(|other| other.uuid == gpu.uuid) {
            used.push(gpu);
        }
    }
    let Some(first) = used.first() else { return Map::new() };
    let watts = |mw: u32| f64::from(mw) / 1e3;
    let mut names: Vec<&str> = used.iter().map(|gpu| gpu.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let fields = [
        ("gpu", Some(names.join(", ").into())),
        ("gpu_count", Some(used.len().into())),
        ("power_limit_watts", first.limit_enforced_mw.map(|mw| watts(mw).into())),
        ("driver", first.driver.clone().map(Value::from)),
        ("cuda", first.cuda.clone().map(Value::from)),
        ("memory_bytes", first.memory_total_bytes.map(Value::from)),
        ("vbios", first.vbios.clone().map(Value::from)),
        ("uuids", Some(used.iter().map(|gpu| gpu.uuid.clone()).collect::<Vec<_>>().into())),
    ];
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// A line of `telemetry.jsonl`, but for the record's own fields.
#[derive(Serialize)]
struct Line<'a> {
    kind: &'a str,
    agent: &'a AgentName,
    /// By the coordinator's monotonic clock; null where the agent's clock is not known yet.
    coordinator_ns: Option<Nanos>,
    /// The trial that began last, and the time since its start.
    trial: Option<TrialId>,
    trial_ns: Option<u64>,
    clock_bound_ns: Option<u64>,
    #[serde(flatten)]
    fields: &'a Map<String, Value>,
}

/// A record's kind, in small letters, and its fields.
fn parted(record: &Record) -> serde_json::Result<(String, Map<String, Value>)> {
    let Value::Object(whole) = serde_json::to_value(record)? else { return Ok(Default::default()) };
    let Some((kind, value)) = whole.into_iter().next() else { return Ok(Default::default()) };
    let fields = match value {
        Value::Object(mut fields) => {
            // An event's own kind says more than that it is one.
            if let Some(what) = fields.remove("kind") {
                fields.insert("event".into(), what);
            }
            fields
        }
        gpus => Map::from_iter([("gpus".to_owned(), gpus)]),
    };
    Ok((kind.to_lowercase(), fields))
}

/// Writes every record on a line of its own, agent by agent, in the order in which they were recorded; `trials` are those
/// of the same boot.
///
/// # Errors
/// When it cannot be written.
pub fn export(series: &[AgentSeries], trials: &[&KeptTrial], out: &mut dyn Write) -> std::io::Result<()> {
    placed_lines(series, trials, |line| {
        serde_json::to_writer(&mut *out, line)?;
        out.write_all(b"\n")
    })
}

/// Gives `take` each of those lines, as a value that it may add to.
///
/// # Errors
/// Those of `take`.
pub(crate) fn each_line(
    series: &[AgentSeries],
    trials: &[&KeptTrial],
    mut take: impl FnMut(&mut Value) -> std::io::Result<()>,
) -> std::io::Result<()> {
    placed_lines(series, trials, |line| take(&mut serde_json::to_value(line)?))
}

fn placed_lines(
    series: &[AgentSeries],
    trials: &[&KeptTrial],
    mut take: impl FnMut(&Line<'_>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    for agent in series {
        // What comes before the first estimate is placed by that.
        let mut clock = agent.clocks().first().copied();
        for record in agent.records() {
            if let Record::Clock(c) = record {
                clock = Some(c);
            }
            let at_ns = clock.zip(record.at()).map(|(clock, at)| on_coordinator(at, &clock));
            let started = |at: &Nanos| {
                let before = trials.iter().filter_map(|t| Some((t.start?, t.planned.trial)));
                before.filter(|(start, _)| start <= at).max()
            };
            let trial = at_ns.as_ref().and_then(started);
            let (kind, fields) = parted(&record)?;
            take(&Line {
                kind: &kind,
                agent: agent.agent(),
                coordinator_ns: at_ns,
                trial: trial.map(|(_, trial)| trial),
                trial_ns: at_ns.zip(trial).map(|(at, (start, _))| at.0 - start.0),
                clock_bound_ns: clock.map(|c| c.bound_ns),
                fields: &fields,
            })?;
        }
    }
    Ok(())
}

/// Telemetry of a trial that began at `start` of the coordinator's monotonic clock; none when nothing was recorded
/// then. `idle` is the power of each GPU before any load, watts.
#[must_use]
pub fn of_trial(
    series: &[AgentSeries],
    start: Nanos,
    numbers: &Numbers,
    idle: &BTreeMap<String, f64>,
) -> Option<TrialTelemetry> {
    let window = over(series, Window { from: start, to: start + seconds(numbers.duration_seconds) }, idle)?;
    let counts = Counts {
        output_tokens: (numbers.requests_with_token_counts > 0).then_some(numbers.output_tokens),
        total_tokens: (numbers.requests_with_token_counts > 0
            && numbers.requests_with_prompt_token_counts > 0)
            .then_some(numbers.output_tokens.saturating_add(numbers.input_tokens)),
        requests: Some(numbers.successful),
        good_requests: numbers.good,
        all_requests: numbers.successful + numbers.failed,
        counted_requests: numbers.requests_with_token_counts,
    };
    let engine = window.agents.iter().find_map(|a| a.engine.as_ref());
    Some(TrialTelemetry {
        efficiency: window.efficiency(&counts),
        engine_beside_client: engine.map(|e| beside(e, numbers)),
        window,
    })
}

/// What was recorded in a window of the coordinator's clock; none when that is nothing.
#[must_use]
pub fn over(series: &[AgentSeries], window: Window, idle: &BTreeMap<String, f64>) -> Option<TelemetryWindow> {
    let cut: Vec<_> = (series.iter())
        .filter_map(|s| {
            let (window, bound) = mapped(s.clocks(), window)?;
            let records = s.between(window.from - BEFORE, window.to + AFTER);
            (!records.is_empty()).then(|| (s.agent(), records, window, bound))
        })
        .collect();
    let agents: Vec<AgentRecords<'_>> = cut
        .iter()
        .map(|(agent, records, window, bound)| AgentRecords {
            agent,
            records,
            window: *window,
            clock_bound: Some(*bound),
        })
        .collect();
    (!agents.is_empty()).then(|| TelemetryWindow::of(&agents, idle))
}

/// What an agent recorded in the `length_seconds` from `start` of the coordinator's clock, each with its time after that;
/// none for an inventory, which has no time.
pub(crate) fn placed(series: &AgentSeries, start: Nanos, length_seconds: f64) -> Vec<(Option<f64>, Record)> {
    let window = Window { from: start, to: start + seconds(length_seconds) };
    let Some((window, _)) = mapped(series.clocks(), window) else { return Vec::new() };
    let within = |record: Record| match record.at() {
        Some(at) => window.contains(at).then(|| (Some(window.seconds_at(at)), record)),
        None => Some((None, record)),
    };
    series.between(window.from, window.to).into_iter().filter_map(within).collect()
}

/// The mean power of each GPU while the engine was idle, watts.
#[must_use]
pub fn idle_watts(series: &[AgentSeries], idle: Option<(Nanos, Nanos)>) -> BTreeMap<String, f64> {
    let window = idle.and_then(|(from, to)| over(series, Window { from, to }, &BTreeMap::new()));
    let gpus = window.iter().flat_map(|w| &w.agents).flat_map(|a| &a.gpus);
    gpus.filter_map(|gpu| Some((gpu.uuid.clone(), gpu.energy.mean_power_watts?))).collect()
}

/// A window of the coordinator's clock on the agent's, by the estimate that was made nearest to it; and how far its edges
/// may be off: clocks drift between the estimate and the edges.
fn mapped(clocks: &[ClockSample], window: Window) -> Option<(Window, Nanos)> {
    let here = |c: &ClockSample, at: Nanos| shifted(at, c.offset_ns.saturating_neg());
    let middle = Nanos(window.from.0 / 2 + window.to.0 / 2);
    let clock = clocks.iter().copied().min_by_key(|c| here(c, middle).0.abs_diff(c.at.0))?;
    let window = Window { from: here(&clock, window.from), to: here(&clock, window.to) };
    let away = [window.from, window.to].map(|edge| edge.0.abs_diff(clock.at.0)).into_iter().max()?;
    Some((window, Nanos(clock.bound_ns.saturating_add(away / DRIFT_DIVISOR.unsigned_abs()))))
}

/// An instant of an agent's clock on the coordinator's.
#[must_use]
pub fn on_coordinator(at: Nanos, clock: &ClockSample) -> Nanos {
    shifted(at, clock.offset_ns)
}

fn shifted(at: Nanos, by: i64) -> Nanos {
    Nanos(at.0.saturating_add_signed(by))
}

fn seconds(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}

fn beside(engine: &EngineWindow, numbers: &Numbers) -> BesideClient {
    let engine_mean = match (engine.running_mean, engine.waiting_mean) {
        (Some(running), waiting) => Some(running + waiting.unwrap_or(0.0)),
        (None, _) => None,
    };
    let client_mean = numbers.in_flight.mean;
    let in_flight_differs = client_mean.zip(engine_mean).is_some_and(|(client, engine)| {
        let by = (client - engine).abs();
        by > 1.0 && by > 0.25 * client.max(engine)
    });
    let tokens = engine.generated_tokens;
    let at_edges = 2.0 / numbers.duration_seconds.max(2.0);
    BesideClient {
        client_in_flight_mean: client_mean,
        engine_in_flight_mean: engine_mean,
        in_flight_differs,
        client_output_tokens: numbers.output_tokens,
        engine_output_tokens: tokens,
        tokens_differ: tokens.is_some_and(|engine| engine < (0.99 - at_edges) * numbers.output_tokens as f64),
    }
}

#[cfg(test)]
mod tests;
