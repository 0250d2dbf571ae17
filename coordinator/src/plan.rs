//! The effective plan of a run: options and files, validated, with nothing left to default.

use std::path::PathBuf;
use std::sync::Arc;

use common::dialect::Dialect;
use common::fleet::{ProbeDepth, Upload};
use common::ids::{Digest, Nanos};
use common::knee::FailureShare;
use common::knee::search::{Search, SearchSettings};
use common::plan::{ArrivalPlan, Extent, OfferedRate, Process, Target};
use common::seed::Seed;
use common::slo::{SloSet, Target as SloTarget};
use common::validity::ValidityLimits;
use common::workload::Workload;

use crate::retokenize::Retokenizer;
use crate::sweep::PlannedTrial;

/// A workload with its bytes, as agents get them.
#[derive(Debug, Clone)]
pub struct LoadedWorkload {
    /// Where it comes from, for the record.
    pub source: String,
    /// The file's bytes.
    pub bytes: Arc<[u8]>,
    /// Its rows.
    pub rows: Workload,
}

impl LoadedWorkload {
    /// The line of the first row, as it stands in the file.
    #[must_use]
    pub fn first_row(&self) -> String {
        let line = self.rows.rows.first().map_or(1, |r| r.line);
        let line = self.bytes.split(|&b| b == b'\n').nth(line as usize - 1).unwrap_or_default();
        String::from_utf8_lossy(line).trim_start_matches('\u{feff}').to_owned()
    }
}

/// Who sends the load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetPlan {
    /// Agents that this coordinator starts beside itself.
    pub local: usize,
    /// Agents that are started elsewhere and join.
    pub remote: usize,
    /// Where to listen for them.
    pub listen: String,
    /// An agent elsewhere launches the engine, and is waited for.
    pub awaits_engine: bool,
    /// An agent elsewhere reads GPUs, and is waited for.
    pub awaits_gpu: bool,
    /// How long to wait for them.
    pub join_timeout: Nanos,
}

impl FleetPlan {
    /// No agent at all.
    #[must_use]
    pub fn nobody(join_timeout: Nanos) -> Self {
        let listen = "127.0.0.1:0".to_owned();
        Self { local: 0, remote: 0, listen, awaits_engine: false, awaits_gpu: false, join_timeout }
    }
}

/// What is to be found out about the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnginePlan {
    /// What it is, where somebody said so.
    pub dialect: Option<Dialect>,
    /// How closely it is looked at before the first trial.
    pub probe: ProbeDepth,
    /// Nobody said where it is: an agent that launches it may.
    pub base_url_is_default: bool,
    /// An agent that launches it is waited for.
    pub launched: bool,
    /// What is done to it between trials.
    pub between: BetweenTrials,
    /// Its metrics are read while trials run.
    pub scrape: bool,
}

/// What is done to the engine before each trial, so that trials do not warm its prefix cache for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BetweenTrials {
    /// Nothing.
    #[default]
    Nothing,
    /// Its prefix cache is emptied.
    Flush,
    /// It is restarted by the agent that launches it.
    Restart,
}

impl BetweenTrials {
    /// As in --between-trials and in the record.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Flush => "flush",
            Self::Restart => "restart",
        }
    }
}

/// Everything that a run needs to know.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The trials, in the order of sending. Of a search those that it has asked for so far.
    pub trials: Vec<PlannedTrial>,
    /// The rates are searched for, and no trial is known before.
    pub search: Option<SearchSettings>,
    /// The shape of the arrivals.
    pub process: Process,
    /// How much each trial sends.
    pub extent: Extent,
    /// Of everything random.
    pub seed: Seed,
    /// The engine and how it is asked. The model may still be unknown: then it is asked for.
    pub target: Target,
    /// What is sent.
    pub workload: LoadedWorkload,
    /// The objectives.
    pub slos: SloSet,
    /// The share of requests that has to be good.
    pub slo_target: SloTarget,
    /// Do not send rates above one that has failed.
    pub stop_after_knee: bool,
    /// End the sweep after a trial of which more than this share failed.
    pub max_failures: Option<FailureShare>,
    /// Limit of requests in flight, for the whole fleet.
    pub max_concurrency: Option<u32>,
    /// Requests before each trial.
    pub warmup: u32,
    /// Connections that each agent opens before a trial.
    pub warm_connections: u32,
    /// When agents deliver the traces of a trial.
    pub upload: Upload,
    /// Where evidence becomes a reason.
    pub limits: ValidityLimits,
    /// Who sends.
    pub fleet: FleetPlan,
    /// Send nothing unless the power of a GPU is recorded.
    pub require_gpu: bool,
    /// Send also what an agent's host cannot carry, by its calibration.
    pub allow_over_ceiling: bool,
    /// What is to be found out about the engine.
    pub engine: EnginePlan,
    /// What the user says about the experiment.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Counts the tokens of kept text.
    pub tokenizer: Option<Arc<Retokenizer>>,
    /// The data directory.
    pub data: PathBuf,
    /// Where reports go; none is the run's folder in the data directory.
    pub out: Option<PathBuf>,
}

impl Plan {
    /// The arrivals of a trial.
    #[must_use]
    pub fn arrivals(&self, rate: OfferedRate) -> ArrivalPlan {
        ArrivalPlan { process: self.process, rate, extent: self.extent }
    }

    /// The search, where the rates are searched for.
    #[must_use]
    pub fn search(&self) -> Option<Search> {
        let (target, process, extent) = (self.slo_target, self.process, self.extent);
        self.search.map(|settings| Search { settings, target, process, extent })
    }

    /// The workload's digest.
    #[must_use]
    pub fn workload_digest(&self) -> Digest {
        self.workload.rows.digest
    }

    /// What the schedules alone take; a rate of inf takes nobody knows how long, and counts as nothing.
    #[must_use]
    pub fn scheduled_length(&self) -> Nanos {
        let lengths = self.trials.iter().filter_map(|t| self.arrivals(t.rate).length());
        lengths.fold(Nanos::ZERO, |sum, length| sum + length)
    }
}
