//! From a sealed trial's stored traces to its summary and its lines of `traces.jsonl`, in one pass.

use std::io::Write;
use std::path::Path;

use common::ids::{AgentName, Epoch, TrialId};
use common::summary::{Sample, Summariser, TrialInput, TrialSummary};
use common::trace::Trace;

use crate::report::{TraceRow, write_trace};
use crate::store::RunStore;
use crate::trial::seal::{SealError, ledger};

/// Why a trial cannot be analysed.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The stored traces.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The file of traces.
    #[error("{path}: {error}")]
    Write {
        /// Which.
        path: String,
        /// What the disk says.
        error: std::io::Error,
    },
}

/// Summarises a trial and appends its traces to `out` (named `path` in errors). It waits for the disk.
///
/// # Errors
/// See [`AnalysisError`].
pub fn analyse(
    run: &RunStore,
    (trial, epoch): (TrialId, Epoch),
    input: TrialInput<'_>,
    out: &mut impl Write,
    path: &Path,
) -> Result<TrialSummary, AnalysisError> {
    let agents: Vec<&AgentName> = input.agents.iter().map(|a| &a.name).collect();
    let mut selection = ledger(run, trial, epoch, input.scheduled)?.selection();
    let mut summariser = Summariser::new(input);
    for block in run.trial_blocks(trial, epoch).map_err(SealError::from)? {
        let block = block.map_err(SealError::from)?;
        let name = &block.header().agent;
        // A stranger's traces get a position that no agent has: the books will say so.
        let agent = agents.iter().position(|a| *a == name).map_or(u16::MAX, |p| p as u16);
        for trace in block.traces().map_err(SealError::from)? {
            if !selection.counts(&trace.facts) {
                continue;
            }
            let Trace { clocks, facts, .. } = &trace;
            summariser.add(Sample { agent, clocks, facts });
            write_trace(out, TraceRow { trial, agent: name, trace: &trace })
                .map_err(|error| AnalysisError::Write { path: path.display().to_string(), error })?;
        }
    }
    Ok(summariser.finish())
}
