//! What is kept of a run beside its traces: enough to compute its report again, with other objectives.
//!
//! `run.json` in the run's folder, replaced whole after every sealed trial. A trial that is not in it is not sealed.

use std::collections::BTreeMap;

use common::fleet::Health;
use common::ids::{AgentName, Digest, Epoch, Nanos};
use common::knee::search::Cut;
use common::offset::Estimate;
use common::plan::{Extent, Process};
use common::slo::{SloSet, Target as SloTarget};
use common::summary::{AgentInput, KnownGaps};
use common::validity::{Reason, ValidityLimits};
use serde::{Deserialize, Serialize};

use crate::record;
use crate::retokenize::Retokenizer;
use crate::store::{RunStore, StoreError};
use crate::sweep::PlannedTrial;

/// The file's name.
const FILE: &str = "run.json";

/// The workload beside it, where texts are kept.
pub const WORKLOAD: &str = "workload.jsonl";

/// Raised when a field changes its meaning.
pub const VERSION: u32 = 1;

/// A run, as kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptRun {
    /// [`VERSION`] of the program that wrote it.
    pub version: u32,
    /// The experiment record.
    pub experiment: serde_json::Value,
    /// The shape of the arrivals.
    pub process: Process,
    /// How much each trial sends.
    pub extent: Extent,
    /// The objectives that it was run with.
    pub slos: SloSet,
    /// The share of requests that has to be good.
    pub slo_target: SloTarget,
    /// Where evidence becomes a reason.
    pub limits: ValidityLimits,
    /// The sealed trials, in the order of sending.
    pub trials: Vec<KeptTrial>,
    /// When the engine was idle before the first trial, by the coordinator's monotonic clock.
    #[serde(default)]
    pub idle: Option<(Nanos, Nanos)>,
    /// The same in each earlier boot of the coordinator's host, in whose clocks trials of this run stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle_before: Vec<Option<(Nanos, Nanos)>>,
    /// The trial that is being sent: written down before its first request, and taken back when it is sealed or called
    /// off. One that stands here after a crash is sealed by `resume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<KeptTrial>,
    /// What was asked for, so that `resume` can ask for it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<KeptCommand>,
    /// Which boot of the coordinator's host its instants belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// A trial without the energy of every GPU of the engine is degraded.
    #[serde(default)]
    pub require_gpu: bool,
}

/// A command with its options, as typed and from the configuration file; paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KeptCommand {
    /// `sweep` or `run`.
    pub name: String,
    /// Values by the option's name without dashes; none at all for a flag.
    pub options: BTreeMap<String, Vec<String>>,
    /// Options that were given and whose values may be secret: what stands before `:` or `=` of each.
    pub hidden: BTreeMap<String, Vec<String>>,
}

/// A sealed trial, as kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptTrial {
    /// Rate, repeat and seed.
    #[serde(flatten)]
    pub planned: PlannedTrial,
    /// Under which its traces are stored.
    pub epoch: Epoch,
    /// Arrivals of its schedule.
    pub scheduled: u64,
    /// Digest of its schedule.
    pub schedule_sha256: Digest,
    /// Digest of its workload.
    pub workload_sha256: Digest,
    /// Its agents.
    pub agents: Vec<KeptAgent>,
    /// What is wrong with it beyond what its traces show.
    pub findings: Vec<Reason>,
    /// The search ended it: `scheduled` are the arrivals before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
    /// Its start by the coordinator's monotonic clock; none in runs of before telemetry.
    #[serde(default)]
    pub start: Option<Nanos>,
    /// How often the coordinator's host had been restarted by then: its clock begins anew each time.
    #[serde(default)]
    pub boot: usize,
    /// What came of the gaps between its events, which no other objective changes; none where its books do not balance,
    /// and in runs of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<KnownGaps>,
}

/// An agent of a trial, as kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptAgent {
    /// Its name.
    pub name: AgentName,
    /// Its clock at the end.
    pub clock: Option<Estimate>,
    /// It was lost.
    pub lost: bool,
    /// How it fared; none when it did not say.
    pub health: Option<Health>,
    /// How late its pacer first looked at the clock, nanoseconds after the start.
    pub start_skew: Option<Nanos>,
}

impl KeptAgent {
    /// One of which nothing was heard of how it fared.
    #[must_use]
    pub fn unknown(name: AgentName) -> Self {
        Self { name, clock: None, lost: false, health: None, start_skew: None }
    }

    /// What the analysis needs of it.
    #[must_use]
    pub fn input(&self) -> AgentInput {
        let Self { name, clock, lost, health, start_skew } = self.clone();
        AgentInput { name, clock, start_skew, lost, health }
    }
}

/// Why a kept run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The content.
    #[error("{FILE} of the run cannot be read: {0}")]
    Content(#[from] serde_json::Error),
    /// The run has none.
    #[error("it ended before anything was sent, and has no {FILE}: give its command again")]
    Missing,
    /// A later program wrote it.
    #[error("{FILE} has version {0}; this program reads up to {VERSION}")]
    Version(u32),
}

impl KeptRun {
    /// Keeps it. It waits for the disk.
    ///
    /// # Errors
    /// When the disk refuses; what was kept before stays.
    pub fn write(&self, run: &RunStore) -> Result<(), KeptError> {
        run.write_file(FILE, &serde_json::to_vec_pretty(self)?)?;
        Ok(())
    }

    /// Reads what was kept. It waits for the disk.
    ///
    /// # Errors
    /// When it is missing, not readable or of a later version.
    pub fn read(run: &RunStore) -> Result<Self, KeptError> {
        let bytes = match run.read_file(FILE) {
            Err(StoreError::Disk { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Err(KeptError::Missing);
            }
            read => read?,
        };
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_slice(&bytes)?;
        if version > VERSION {
            return Err(KeptError::Version(version));
        }
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// How often the coordinator's host was restarted in the course of the run.
    #[must_use]
    pub fn restarts(&self) -> usize {
        self.idle_before.len()
    }

    /// Takes note of the boot of this host: true when it is another than before. Where a system does not tell its boots
    /// apart nothing is known, and it is taken for the same.
    pub fn is_booted_anew(&mut self, boot: Option<String>) -> bool {
        let anew = self.boot.as_ref().zip(boot.as_ref()).is_some_and(|(was, is)| was != is);
        if anew {
            self.boot = boot;
            self.idle_before.push(self.idle.take());
        }
        anew
    }

    /// Whether its prompts and outputs are kept.
    #[must_use]
    pub fn has_text(&self) -> bool {
        self.experiment["plan"]["keep_text"] != false
    }

    /// Says in the record which tokenizer counted its text. Gives the file of the one that stood there.
    pub fn set_tokenizer(&mut self, tokenizer: Option<&Retokenizer>) -> Option<String> {
        let record = self.experiment.as_object_mut()?;
        let before = record.insert(record::TOKENIZER.to_owned(), record::tokenizer(tokenizer))?;
        before["file"].as_str().map(str::to_owned)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::store::tests::{run_id, sim};

    /// A run that has nothing yet.
    pub(crate) fn empty() -> KeptRun {
        KeptRun {
            version: VERSION,
            experiment: serde_json::json!({}),
            process: Process::Poisson,
            extent: Extent::Requests(1),
            slos: SloSet::default(),
            slo_target: SloTarget::default(),
            limits: ValidityLimits::default(),
            trials: Vec::new(),
            idle: None,
            idle_before: Vec::new(),
            open: None,
            command: None,
            boot: None,
            require_gpu: false,
        }
    }

    #[test]
    fn another_boot_is_told_only_where_both_are_known() {
        let idle = Some((Nanos(1), Nanos(2)));
        let mut kept = KeptRun { boot: Some("a".into()), idle, ..empty() };
        assert!(!kept.is_booted_anew(Some("a".into())) && !kept.is_booted_anew(None));
        assert_eq!((kept.restarts(), kept.idle), (0, idle));
        assert!(kept.is_booted_anew(Some("b".into())));
        // It is idle anew, and what it drew then is kept for the trials of then.
        assert_eq!((kept.restarts(), kept.idle, &kept.idle_before[..]), (1, None, &[idle][..]));
        let mut unknown = KeptRun { boot: None, idle, ..empty() };
        assert!(!unknown.is_booted_anew(Some("b".into())));
        assert_eq!(unknown.idle, idle);
    }

    #[test]
    fn a_run_that_never_began_says_so() {
        let (_disk, _index, store) = sim();
        let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
        let said = KeptRun::read(&run).unwrap_err().to_string();
        assert!(said.contains("give its command again"), "{said}");
    }
}
