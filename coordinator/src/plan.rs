//! The effective plan of a run: options and files, validated, with nothing left to default.

use std::path::PathBuf;
use std::sync::Arc;

use common::ids::{Digest, Nanos};
use common::knee::FailureShare;
use common::plan::{ArrivalPlan, Extent, OfferedRate, Process, Target};
use common::seed::Seed;
use common::slo::{SloSet, Target as SloTarget};
use common::validity::ValidityLimits;
use common::workload::Workload;

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

/// Who sends the load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetPlan {
    /// Agents that this coordinator starts beside itself.
    pub local: usize,
    /// Agents that are started elsewhere and join.
    pub remote: usize,
    /// Where to listen for them.
    pub listen: String,
    /// How long to wait for them.
    pub join_timeout: Nanos,
}

/// Everything that a run needs to know.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The trials, in the order of sending.
    pub trials: Vec<PlannedTrial>,
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
    /// Where evidence becomes a reason.
    pub limits: ValidityLimits,
    /// Who sends.
    pub fleet: FleetPlan,
    /// What the user says about the experiment.
    pub metadata: serde_json::Map<String, serde_json::Value>,
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
