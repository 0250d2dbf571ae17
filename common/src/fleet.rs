//! What coordinator and agents tell each other, in the domain's own types.

use serde::{Deserialize, Serialize};

use crate::calibration::CalibrationCard;
use crate::dialect::Dialect;
use crate::ids::{AgentName, Digest, Epoch, Incarnation, Nanos, RunId, Seq, TrialId};
use crate::offset::Estimate;
use crate::plan::{BaseUrl, Target};
use crate::probe::EngineProbe;
use crate::trace::FailureKind;

/// Warm-up requests that an agent has in flight at once, unless the concurrency limit is lower. The coordinator's
/// patience with a warm-up follows from it.
pub const WARMUP_AT_ONCE: u32 = 8;

/// What an agent says of itself when it joins.
#[derive(Debug, Clone, PartialEq)]
pub struct Introduction {
    /// Its version.
    pub version: String,
    /// Its name.
    pub name: AgentName,
    /// Drawn at random at its start.
    pub incarnation: Incarnation,
    /// Its host.
    pub host: HostFacts,
    /// It sends no load: it is there for the engine beside it.
    pub observer: bool,
    /// The engine that it launches and stops, if it does.
    pub engine: Option<EngineCard>,
    /// It reads the GPUs of its host.
    pub gpu: bool,
    /// What its host can carry; none where it was never calibrated.
    pub calibration: Option<CalibrationCard>,
}

/// The engine that an agent launches from a recipe on its own host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineCard {
    /// The recipe's name for it.
    pub name: String,
    /// What it is.
    pub dialect: Dialect,
    /// Where it serves, as seen from its host.
    pub base_url: BaseUrl,
}

/// What an agent is to do with the engine.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineOrder {
    /// Stop it, start it again and wait until it is ready. For the agent that launches it.
    Restart,
    /// Empty its prefix cache. For any agent that reaches it.
    EmptyCache(Box<Target>),
    /// Say what is on record of it. For the agent that launches it.
    Describe,
}

/// An agent is to record what happens on its host.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The run that it is for.
    pub run: RunId,
    /// The engine, as far as it is known: its process is looked for on the agent's host.
    pub engine: Option<Target>,
    /// Its metrics are recorded, too.
    pub metrics: bool,
    /// Its dialect has to be found out first; nothing is sent to be answered with text.
    pub find_dialect: bool,
}

/// Where an engine stands that an agent launches, and how an order was carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineState {
    /// The order that this answers; 0 is none.
    pub order: u64,
    /// Where it stands.
    pub stage: EngineStage,
    /// What a person should know: how it goes, or why it failed, with the engine's last words.
    pub message: String,
    /// What is on record of the engine; none where nothing is new.
    pub record: Option<serde_json::Value>,
}

/// Where an engine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineStage {
    /// It was started and does not answer yet.
    Starting,
    /// It can be used.
    Ready,
    /// An order was carried out.
    Done,
    /// It could not be started or stopped, or an order could not be carried out.
    Failed,
    /// It ended by itself.
    Died,
}

/// Facts about a host, for the experiment record.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostFacts {
    /// As the host calls itself.
    pub hostname: String,
    /// Name and release of the kernel.
    pub kernel: String,
    /// As /proc/cpuinfo says.
    pub cpu_model: String,
    /// Cores that the agent may use.
    pub cpus: u32,
    /// Physical memory.
    pub memory_bytes: u64,
    /// Soft limit of open files.
    pub open_files_limit: u64,
}

/// Counters of the trial under way on one agent, all from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// The trial's.
    pub epoch: Epoch,
    /// Arrivals of the agent's slice.
    pub scheduled: u64,
    /// Arrivals released so far.
    pub dispatched: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Requests that ended well.
    pub succeeded: u64,
    /// Requests that did not.
    pub failed: u64,
    /// Arrivals due that wait for a permit.
    pub waiting: u64,
    /// From a histogram: for the live view only.
    pub lateness_p99: Nanos,
    /// Traces that the spool could not take.
    pub traces_lost: u64,
}

/// When agents deliver the traces of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Upload {
    /// As they are spooled.
    #[default]
    During,
    /// When the trial is drained: until then they stay in the spool, and nothing but heartbeats, clock probes and
    /// telemetry goes to the coordinator.
    After,
}

impl Upload {
    /// As in --upload and in the record.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::During => "during",
            Self::After => "after",
        }
    }
}

/// What an agent is to prepare.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialOrder {
    /// The run.
    pub run: RunId,
    /// The trial.
    pub trial: TrialId,
    /// Fences every control message of the trial.
    pub epoch: Epoch,
    /// The engine and how it is asked.
    pub target: Target,
    /// The workload's content hash.
    pub workload: Digest,
    /// The workload's size.
    pub workload_bytes: u64,
    /// Of the whole schedule.
    pub schedule: Digest,
    /// Of the agent's slice.
    pub slice: Digest,
    /// Arrivals of the slice.
    pub slice_count: u64,
    /// The agent's part of the concurrency limit; in a closed loop, its workers.
    pub permits: Option<u32>,
    /// A closed loop: an arrival is due when a worker is free.
    pub closed: bool,
    /// Rows to warm up with; true: the prompt must be altered, for the trial uses the row too.
    pub warmup: Vec<(u32, bool)>,
    /// Idle connections to open before the start.
    pub warm_connections: u32,
    /// When its traces are delivered.
    pub upload: Upload,
}

/// What an agent answers when it is prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyReport {
    /// The trial's.
    pub epoch: Epoch,
    /// Of the slice that the agent holds.
    pub slice: Digest,
    /// Arrivals that it holds.
    pub slice_count: u64,
    /// Its clock against the coordinator's.
    pub clock: Estimate,
    /// What a person should know about the host.
    pub warnings: Vec<String>,
}

/// How an agent fared during a trial: the evidence behind a verdict on the generator.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Health {
    /// How late the reading thread got to run, by a canary that is due there every millisecond. None when the canary
    /// could not be set up.
    pub read_lateness: Option<Lateness>,
    /// Time that the reading thread was ready to run and did not, seconds.
    pub reader_run_queue_seconds: Option<f64>,
    /// Time that the pacing thread was ready to run and did not, seconds.
    pub pacer_run_queue_seconds: Option<f64>,
    /// Time that some task of the host waited for a CPU (pressure stall information), seconds.
    pub cpu_pressure_seconds: Option<f64>,
    /// Time that the hypervisor took from the host, over all cores, seconds.
    pub steal_seconds: Option<f64>,
    /// CPU time of the agent, seconds.
    pub process_cpu_seconds: Option<f64>,
    /// How long was looked at, seconds.
    pub seconds: f64,
    /// Cores that the agent may use.
    pub cores: u32,
}

/// Lateness samples, summed up where they were taken: exact percentiles, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Samples.
    pub n: u64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// What an agent answers when every arrival of its slice has its trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DrainReport {
    /// The trial's.
    pub epoch: Epoch,
    /// Of the agent's process.
    pub incarnation: Incarnation,
    /// Traces of this trial in the spool.
    pub traces: u64,
    /// All numbers below it are spooled.
    pub next_seq: Seq,
    /// Traces that the spool could not take.
    pub traces_lost: u64,
    /// The clock at the end.
    pub clock: Estimate,
    /// Start minus the start that was asked for.
    pub start_skew: Nanos,
    /// How the agent fared.
    pub health: Health,
}

/// Which trial, whose coordinator was lost, an agent is to say and deliver what it holds of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectOrder {
    /// Its run.
    pub run: RunId,
    /// The trial.
    pub trial: TrialId,
    /// Its epoch.
    pub epoch: Epoch,
}

/// What an agent still holds of a trial whose coordinator was lost. Nothing more comes of that trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectReport {
    /// The trial's run.
    pub run: RunId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its processes, this one and earlier ones of the same agent.
    pub held: Vec<Held>,
    /// What is there and cannot be read.
    pub problems: Vec<String>,
}

/// The traces that one process spooled of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The process.
    pub incarnation: Incarnation,
    /// The number of the first: what came before it was sealed and is kept no longer.
    pub first_seq: Seq,
    /// Their numbers end before this one.
    pub next_seq: Seq,
}

/// An agent is to try the engine.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetCheck {
    /// To tell answers apart.
    pub id: u64,
    /// The engine.
    pub target: Target,
    /// The row to send, as a line of a workload file.
    pub row_json: String,
    /// How closely it is looked at.
    pub probe: ProbeDepth,
    /// The target's dialect is to be found out first.
    pub find_dialect: bool,
}

/// How closely an engine is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProbeDepth {
    /// One request and nothing else.
    #[default]
    None,
    /// Also what it says of itself.
    Brief,
    /// Also what it can do, by trying.
    Full,
    /// Not even that request: whether it can be reached.
    Look,
}

/// What came of trying the engine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TargetReport {
    /// Models that the engine lists.
    pub models: Vec<String>,
    /// How the probing request failed.
    pub failure: Option<(FailureKind, String)>,
    /// What the engine answered when it failed.
    pub error_body: String,
    /// Status of the probing request.
    pub http_status: Option<u16>,
    /// TTFT of the probing request, from its dispatch.
    pub ttft: Option<Nanos>,
    /// Its output tokens.
    pub output_tokens: Option<u64>,
    /// What was found out, where that was asked for.
    pub probe: Option<EngineProbe>,
}

/// What became of a trial, as its coordinator knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrialFate {
    /// It knows nothing of it, or has not decided yet.
    Unknown,
    /// It takes traces.
    Open,
    /// It takes none any more: whoever holds some may drop them.
    Sealed,
}
