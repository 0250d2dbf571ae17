//! `agent gpu-check`: what must be known of a kind of GPU before its numbers are trusted, found out in a few minutes.
//!
//! It owns the list of steps and their report. Each step is done, or left out with a reason; two of them can fail: what
//! should be readable must be (step 1), and it must move under a load that is known (step 6). The others are records:
//! how often counters and sensors move, whether it matters how often they are read, what is seen of a load that
//! switches, how late each signal is, what the GPU can do, and what reading it costs.
//!
//! It must never change a clock, a limit or a mode, and never take a value that is not there for 0. The schema of the
//! report is in docs/gpu.md. Guarded by `tests/gpu/checks.rs`, against scripted libraries.

mod bench;
mod load;
mod quiet;
mod selftest;

use std::sync::Arc;

use common::clock::Clock;
use common::ids::Nanos;
use common::telemetry::GpuInfo;
use serde::Serialize;
use serde_json::{Map, Value};

use super::command::CheckOptions;
use super::nvml::NvmlSource;
use super::probe::CudaView;
use super::{GpuSource, SourceError};
use bench::Bench;

/// The whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// `"1"`.
    pub schema_version: &'static str,
    /// Of the agent.
    pub version: &'static str,
    /// About how long it was to take.
    pub seconds: f64,
    /// How long it took.
    pub took_seconds: f64,
    /// Neither step 1 nor step 6 failed.
    pub passed: bool,
    /// The GPU that was checked, by its position in `gpus`.
    pub gpu: Option<u8>,
    /// All GPUs.
    pub gpus: Vec<GpuInfo>,
    /// What CUDA shows.
    pub cuda: Option<CudaView>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Its number in the list of docs/gpu.md.
    pub step: u8,
    /// What it is about.
    pub name: &'static str,
    /// How it went.
    pub status: Status,
    /// Why it failed or was left out.
    pub reason: Option<String>,
    /// How long it took.
    pub took_seconds: f64,
    /// What it found.
    pub values: Map<String, Value>,
}

/// How a step went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It was done.
    Ok,
    /// What it asserts does not hold.
    Failed,
    /// It could not be done.
    Skipped,
}

/// What a step came to: its values, and what is wrong; or why it was left out.
type Outcome = Result<(Map<String, Value>, Vec<String>), String>;

/// Steps that can fail the whole.
const DECIDE: [u8; 2] = [1, 6];

/// What the steps take when they take their full time.
const FULL_SECONDS: f64 = 240.0;

/// The most that may be asked for, and that it takes.
const MOST_SECONDS: f64 = 300.0;

/// What it may take beyond what was asked for: children take their time to start.
const GRACE_SECONDS: f64 = 60.0;

/// Does all steps.
#[must_use]
pub fn run(options: &CheckOptions, clock: &Arc<dyn Clock>) -> Report {
    let seconds =
        if options.seconds.is_finite() { options.seconds.clamp(1.0, MOST_SECONDS) } else { FULL_SECONDS };
    let start = clock.monotonic();
    let mut source = NvmlSource::new(options.library(), Arc::clone(clock));
    let found = source.inventory();
    let mut report = Report {
        schema_version: "1",
        version: env!("CARGO_PKG_VERSION"),
        seconds,
        took_seconds: 0.0,
        passed: true,
        gpu: None,
        gpus: Vec::new(),
        cuda: None,
        steps: vec![quiet::library(found.as_ref().err(), &**clock)],
    };
    match found {
        Ok(found) if found.gpus.len() > usize::from(options.gpu) => {
            report.gpu = Some(options.gpu);
            report.gpus.clone_from(&found.gpus);
            let trouble =
                found.trouble.into_iter().find(|(gpu, _)| *gpu == options.gpu).map(|(_, error)| error);
            let bench = Bench::new(
                Box::new(source),
                Arc::clone(clock),
                options.gpu,
                &found.gpus,
                seconds / FULL_SECONDS,
            );
            steps(&mut report, bench, trouble, start);
        }
        Ok(found) => {
            let reason = format!("there is no GPU {}, but {}", options.gpu, found.gpus.len());
            report.gpus = found.gpus;
            skip_all(&mut report, &reason);
        }
        Err(error) => skip_all(&mut report, &error.to_string()),
    }
    report.passed = !report.steps.iter().any(|s| DECIDE.contains(&s.step) && s.status == Status::Failed);
    report.took_seconds = (clock.monotonic() - start).as_secs_f64();
    report
}

fn steps(report: &mut Report, mut bench: Bench, trouble: Option<SourceError>, start: Nanos) {
    let end = start + Nanos::from_secs_f64((report.seconds + GRACE_SECONDS).min(MOST_SECONDS));
    let clock = Arc::clone(&bench.clock);
    let mut step =
        |step: u8, name: &'static str, bench: &mut Bench, does: &mut dyn FnMut(&mut Bench) -> Outcome| {
            let began = clock.monotonic();
            let outcome = match &trouble {
                // That nothing can be read is what step 1 is there to say.
                Some(error) if step == 1 => Ok((Map::new(), vec![error.to_string()])),
                Some(error) => Err(error.to_string()),
                None if began >= end && !DECIDE.contains(&step) => {
                    Err("no time was left; give it more with --seconds".to_owned())
                }
                None => does(bench),
            };
            report.steps.push(made(step, name, outcome, (clock.monotonic() - began).as_secs_f64()));
        };
    step(1, NAMES[0], &mut bench, &mut quiet::capabilities);
    step(2, NAMES[1], &mut bench, &mut quiet::idle);
    // What decides comes first: the others may run out of time.
    step(6, NAMES[5], &mut bench, &mut selftest::moves);
    step(3, NAMES[2], &mut bench, &mut load::poll_rates);
    step(4, NAMES[3], &mut bench, &mut load::squares);
    step(5, NAMES[4], &mut bench, &mut load::lags);
    step(7, NAMES[6], &mut bench, &mut load::ceilings);
    step(8, NAMES[7], &mut bench, &mut load::observer);
    step(9, NAMES[8], &mut bench, &mut |_| Err(END_TO_END.to_owned()));
    report.steps.sort_by_key(|step| step.step);
    report.cuda = bench.view.ok();
}

const NAMES: [&str; 9] = [
    "capabilities",
    "idle",
    "poll_rates",
    "square_loads",
    "lags",
    "self_test",
    "ceilings",
    "observer_effect",
    "end_to_end",
];

const END_TO_END: &str =
    "needs a coordinator and an engine on this host: run one with telemetry and look at its joules per token";

fn skip_all(report: &mut Report, reason: &str) {
    for (step, name) in (1u8..).zip(NAMES) {
        report.steps.push(made(step, name, Err(reason.to_owned()), 0.0));
    }
}

fn made(step: u8, name: &'static str, outcome: Outcome, took_seconds: f64) -> Step {
    let (status, reason, values) = match outcome {
        Ok((values, wrong)) if wrong.is_empty() => (Status::Ok, None, values),
        Ok((values, wrong)) => (Status::Failed, Some(wrong.join("; ")), values),
        Err(reason) => (Status::Skipped, Some(reason), Map::new()),
    };
    Step { step, name, status, reason, took_seconds, values }
}

/// A JSON object as the values of a step.
fn values(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => Map::from_iter([("value".to_owned(), other)]),
    }
}
