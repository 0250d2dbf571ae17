//! What the live view shows, in the form in which the page and the terminal get it.
//!
//! Names carry their units. What is not known is none. Nothing secret is in here: neither the join token, nor a key, nor
//! a request's text.

use serde::Serialize;

use super::agents::AgentRow;
use super::machines::{EngineNow, GpuNow};
use super::messages::{Line, Warning};
use super::point::Point;
use super::trials::{KneeRow, RateRow, TrialRow};

/// What the run is about: it does not change.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct About {
    /// The run.
    pub run: String,
    /// Version of this program.
    pub version: &'static str,
    /// The engine's address.
    pub engine: String,
    /// The model; none where the engine is asked for it.
    pub model: Option<String>,
    /// Where the workload comes from.
    pub workload: String,
    /// The shape of the arrivals.
    pub arrivals: String,
    /// The rates are searched for: no trial is known before it is asked for.
    pub searches: bool,
    /// The objectives.
    pub slos: Vec<String>,
    /// The limit of TTFT on each request, seconds, where there is one.
    pub ttft_limit_seconds: Option<f64>,
    /// The share of requests that has to be good.
    pub slo_target: f64,
    /// Traces come while a trial runs; otherwise there is no live TTFT and goodput.
    pub live_latencies: bool,
    /// Lateness p99 above which a trial is late, seconds.
    pub lateness_budget_seconds: f64,
}

/// The trial under way.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct TrialNow {
    /// Its number.
    pub trial: u32,
    /// As it was asked for.
    pub offered: String,
    /// Requests per second; none for `inf` and a closed loop.
    pub offered_per_second: Option<f64>,
    /// Which repeat.
    pub repeat: u32,
    /// The trial that it is sent again for.
    pub rerun_of: Option<u32>,
    /// Arrivals in its schedule.
    pub arrivals: u64,
    /// Length of its schedule, seconds.
    pub length_seconds: Option<f64>,
    /// Since its start, seconds; none before.
    pub since_start_seconds: Option<f64>,
    /// Arrivals that were released.
    pub dispatched: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Arrivals due that wait for a permit.
    pub waiting: u64,
    /// Requests that ended well.
    pub succeeded: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Of the worst agent, seconds.
    pub lateness_p99_seconds: Option<f64>,
    /// Of the requests whose traces came so far, the share that is good; none without objectives and without traces.
    pub attainment_so_far: Option<f64>,
}

/// What changes from second to second, the time lines left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct State {
    /// gathering, preparing, starting, sending, draining, closing or over.
    pub stage: &'static str,
    /// How often the operator asked for an end: 1 drains, 2 cuts.
    pub stop: u8,
    /// How it ended, where it is over.
    pub outcome: Option<String>,
    /// Since the live view's start, seconds.
    pub elapsed_seconds: f64,
    /// What the rest may take, seconds; none where nobody knows.
    pub left_seconds: Option<f64>,
    /// Trials that are planned.
    pub trials_planned: usize,
    /// Those of them that are done.
    pub trials_done: usize,
    /// The trial under way.
    pub trial: Option<TrialNow>,
    /// The agents.
    pub agents: Vec<AgentRow>,
    /// Agents that have no row.
    pub agents_beyond: u64,
    /// The GPUs.
    pub gpus: Vec<GpuNow>,
    /// The engine's own word; none where it is not read.
    pub engine_now: Option<EngineNow>,
    /// Warnings, the newest last.
    pub warnings: Vec<Warning>,
    /// The last lines of the story.
    pub notes: Vec<Line>,
    /// Blocks of traces and frames of records that the live view was too slow to take. The report has them.
    pub missed: u64,
    /// Requests whose traces came too late for the time lines.
    pub late_requests: u64,
}

/// The sweep so far: changes when a trial ends.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Sweep {
    /// What it is about.
    pub about: About,
    /// The trials that are over.
    pub trials: Vec<TrialRow>,
    /// The rates.
    pub rates: Vec<RateRow>,
    /// The knee so far.
    pub knee: Option<KneeRow>,
}

/// Where a reader stands: what it has need not be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Known {
    /// The number of the last point that it has.
    pub point: u64,
    /// The version of the sweep that it has.
    pub sweep: u64,
}

/// What a reader lacks.
#[derive(Debug, Clone)]
pub struct News {
    /// Its points are to be thrown away.
    pub anew: bool,
    /// Points that it lacks.
    pub points: Vec<Point>,
    /// The state now.
    pub state: State,
    /// The sweep, where it changed.
    pub sweep: Option<Sweep>,
    /// Where it stands then.
    pub known: Known,
}
