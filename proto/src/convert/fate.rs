//! What became of trials.

use common::fleet::TrialFate;
use common::ids::{Epoch, RunId, TrialId};

use super::{WireError, run_id};
use crate::v1;
use crate::v1::fates_reply::Fate as Wire;

/// More trials than any run has.
const MAX_TRIALS: usize = 1 << 16;

impl v1::FatesRequest {
    /// Asks for these trials of a run.
    #[must_use]
    pub fn of(run: &RunId, trials: &[(TrialId, Epoch)]) -> Self {
        let trials = trials.iter().map(|(trial, epoch)| v1::TrialKey { trial: trial.0, epoch: epoch.0 });
        Self { run_id: run.to_string(), trials: trials.collect() }
    }
}

impl TryFrom<v1::FatesRequest> for (RunId, Vec<(TrialId, Epoch)>) {
    type Error = WireError;
    fn try_from(r: v1::FatesRequest) -> Result<Self, WireError> {
        if r.trials.len() > MAX_TRIALS {
            return Err(WireError::new("FatesRequest", "trials", "more than 65536"));
        }
        let trials = r.trials.iter().map(|t| (TrialId(t.trial), Epoch(t.epoch))).collect();
        Ok((run_id(&r.run_id, "FatesRequest")?, trials))
    }
}

impl From<Vec<TrialFate>> for v1::FatesReply {
    fn from(fates: Vec<TrialFate>) -> Self {
        let wire = |fate: TrialFate| match fate {
            TrialFate::Unknown => Wire::Unspecified,
            TrialFate::Open => Wire::Open,
            TrialFate::Sealed => Wire::Sealed,
        };
        Self { fates: fates.into_iter().map(|fate| wire(fate).into()).collect() }
    }
}

/// A fate of a later version says nothing to this one.
impl From<v1::FatesReply> for Vec<TrialFate> {
    fn from(reply: v1::FatesReply) -> Self {
        let fates = reply.fates.into_iter().map(|fate| match Wire::try_from(fate) {
            Ok(Wire::Open) => TrialFate::Open,
            Ok(Wire::Sealed) => TrialFate::Sealed,
            Ok(Wire::Unspecified) | Err(_) => TrialFate::Unknown,
        });
        fates.collect()
    }
}
