//! The steps without a load: the library, what can be read and what that costs, and the idle GPU.

use common::clock::Clock;
use common::ids::Nanos;
use common::telemetry::{PowerSample, Window};
use serde_json::{Map, Value, json};

use super::super::pace::Steps;
use super::super::{Batch, Signal, Signals, SourceError};
use super::bench::{Bench, METHODS, apart};
use super::{Outcome, Step, made, values};

/// Calls of each signal.
const CALLS: usize = 200;

/// Step 0: the library, and what the driver's own program says.
pub(super) fn library(error: Option<&SourceError>, clock: &dyn Clock) -> Step {
    let began = clock.monotonic();
    let said = std::process::Command::new("nvidia-smi").arg("-q").stdin(std::process::Stdio::null()).output();
    let smi = match said {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => format!("nvidia-smi ended with {}", output.status),
        Err(error) => format!("nvidia-smi: {error}"),
    };
    let outcome = match error {
        Some(error) => Err(error.to_string()),
        None => Ok((values(json!({ "nvidia_smi": smi })), Vec::new())),
    };
    made(0, "library", outcome, (clock.monotonic() - began).as_secs_f64())
}

/// Step 1: each signal many times: whether it answers, and how long that takes. It fails when neither energy nor power
/// can be read.
pub(super) fn capabilities(bench: &mut Bench) -> Outcome {
    let mut found = Map::new();
    let until = bench.clock.monotonic() + bench.time(15.0);
    for signal in Signal::ALL {
        let answer = bench.info.signals.get(signal.name()).cloned().unwrap_or_default();
        let mut entry = values(json!({ "answer": answer }));
        if answer == "ok" && signal != Signal::Faults {
            entry.append(&mut costs(bench, signal, until));
        }
        found.insert(signal.name().to_owned(), Value::Object(entry));
    }
    let mut wrong = Vec::new();
    if ![Signal::Energy, Signal::Average, Signal::Instant].into_iter().any(|signal| bench.has(signal)) {
        let why = bench.info.signals.get(Signal::Energy.name()).cloned().unwrap_or_default();
        wrong.push(format!("neither energy nor power can be read: {why}"));
    }
    Ok((values(json!({ "signals": found })), wrong))
}

/// Calls of one signal: how many, how many failed, and microseconds of one.
fn costs(bench: &mut Bench, signal: Signal, until: Nanos) -> Map<String, Value> {
    let (mut took, mut failed) = (Vec::with_capacity(CALLS), 0u64);
    let others = bench.others();
    while took.len() < CALLS && (took.is_empty() || bench.clock.monotonic() < until) {
        let before = bench.clock.monotonic();
        let failures = if Signals::POWER.has(signal) {
            let mut batch = Batch::default();
            bench.source.power(others, &mut batch).map(|()| batch.failures)
        } else if signal == Signal::Processes {
            let mut batch = Batch::default();
            bench.source.processes(others, &mut batch).map(|()| batch.failures)
        } else {
            let mut batch = Batch::default();
            bench.source.slow(others, Signals::of(&[signal]), &mut batch).map(|()| batch.failures)
        };
        took.push((bench.clock.monotonic() - before).as_secs_f64() * 1e6);
        failed +=
            u64::from(failures.is_err() || failures.is_ok_and(|f| f.iter().any(|f| f.signal == signal)));
    }
    took.sort_unstable_by(f64::total_cmp);
    let at = |p| common::stats::percentile(&took, p);
    values(json!({
        "calls": took.len(), "failed": failed,
        "p50_us": at(50.0), "p99_us": at(99.0), "max_us": took.last(),
    }))
}

/// Step 2: how often each signal moves, and what an idle GPU draws by each method.
pub(super) fn idle(bench: &mut Bench) -> Outcome {
    let series = bench.watch(Nanos::from_millis(5), Signals::NONE, bench.time(20.0));
    let (Some(first), Some(last)) = (series.power.first(), series.power.last()) else {
        return Err("no reading of energy or power".to_owned());
    };
    let mut counter = Steps::default();
    for sample in &series.power {
        if let Some(energy) = sample.energy_mj {
            counter.read(sample.at, energy);
        }
    }
    bench.period = counter.period();
    let window = Window { from: first.at, to: last.at };
    let mut watts = Map::new();
    for (name, samples) in METHODS.iter().zip(apart(&series.power)) {
        watts.insert((*name).to_owned(), json!(bench.energy(&samples, window).mean_power_watts));
    }
    bench.idle_watts =
        ["average_power", "counter", "instant_power"].iter().find_map(|name| watts[*name].as_f64());
    Ok((
        values(json!({
            "readings": series.power.len(),
            "seconds": window.seconds(),
            "period_seconds": {
                "counter": bench.period.map(Nanos::as_secs_f64),
                "average_power": period(&series.power, |s| s.average_mw),
                "instant_power": period(&series.power, |s| s.instant_mw),
            },
            "idle_watts": watts,
        })),
        Vec::new(),
    ))
}

/// The median time between two changes of a reading, seconds; none when it hardly changes, as power may at idle.
fn period(samples: &[PowerSample], read: impl Fn(&PowerSample) -> Option<u32>) -> Option<f64> {
    // Steps counts a number that only rises: that of the changes so far.
    let (mut steps, mut last, mut changes) = (Steps::default(), None, 0);
    for sample in samples {
        let Some(value) = read(sample) else { continue };
        changes += u64::from(last.is_some_and(|last| last != value));
        last = Some(value);
        steps.read(sample.at, changes);
    }
    steps.period().map(Nanos::as_secs_f64)
}
