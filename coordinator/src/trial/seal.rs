//! Closing a trial's books: every arrival has exactly one trace before anything is computed.
//!
//! What an agent did not deliver, because it is gone or could not keep it, becomes a synthetic trace with the agent's
//! name and the reason. It is stored like any other, under incarnation 0, which no process has.

use std::collections::BTreeMap;

use common::ids::{AgentName, ArrivalIndex, Epoch, Incarnation, Seq, TrialId};
use common::schedule::Arrival;
use common::trace::segment::{BLOCK_TRACES, Block, BlockOrigin};
use common::trace::{Failure, FailureKind, Trace, Unsent};

use super::assignment::Assigned;
use crate::ingest::{IngestError, IngestHandle};
use crate::store::{Ledger, RunStore, StoreError};

/// The incarnation of traces that the coordinator writes.
pub const SYNTHETIC: Incarnation = Incarnation(0);

/// Why a trial cannot be sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store's writer.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// A stored block.
    #[error("a stored block cannot be read: {0}")]
    Segment(#[from] common::trace::segment::SegmentError),
}

/// The books of a trial's stored traces. It waits for the disk.
///
/// # Errors
/// When the store cannot be read.
pub fn ledger(run: &RunStore, trial: TrialId, epoch: Epoch, scheduled: u64) -> Result<Ledger, SealError> {
    let mut ledger = Ledger::new(scheduled);
    for block in run.trial_blocks(trial, epoch)? {
        ledger.enter_block(&block?)?;
    }
    Ok(ledger)
}

/// What is stored of a trial when nothing more is taken.
#[derive(Debug, Default)]
pub struct Stored {
    /// Traces of each agent.
    pub traces: BTreeMap<AgentName, u64>,
    /// Arrivals without a trace, by the agent that should have carried them.
    pub missing: BTreeMap<AgentName, Vec<Arrival>>,
}

/// Looks at every stored block of a trial, once. It waits for the disk.
///
/// # Errors
/// When the store cannot be read.
pub fn stored(
    run: &RunStore,
    trial: TrialId,
    epoch: Epoch,
    assigned: &Assigned,
) -> Result<Stored, SealError> {
    let mut stored = Stored::default();
    let mut seen = vec![false; usize::try_from(assigned.count).unwrap_or(usize::MAX)];
    for block in run.trial_blocks(trial, epoch)? {
        let block = block?;
        let header = block.header();
        *stored.traces.entry(header.agent.clone()).or_default() += u64::from(header.count);
        for facts in block.facts()? {
            if let Some(slot) = usize::try_from(facts.index.0).ok().and_then(|i| seen.get_mut(i)) {
                *slot = true;
            }
        }
    }
    let absent = |index: ArrivalIndex| !seen.get(index.0 as usize).copied().unwrap_or(false);
    for (agent, part) in &assigned.agents {
        let arrivals: Vec<Arrival> = part.slice.iter().copied().filter(|a| absent(a.index)).collect();
        if !arrivals.is_empty() {
            stored.missing.insert(agent.clone(), arrivals);
        }
    }
    Ok(stored)
}

/// Stores a synthetic trace for each of an agent's `arrivals`.
///
/// # Errors
/// When the store refuses.
pub async fn write_synthetic(
    ingest: &IngestHandle,
    (trial, epoch): (TrialId, Epoch),
    agent: &AgentName,
    arrivals: &[Arrival],
    reason: &str,
) -> Result<(), SealError> {
    let origin = BlockOrigin { agent: agent.clone(), incarnation: SYNTHETIC, trial, epoch };
    for part in arrivals.chunks(BLOCK_TRACES) {
        let traces: Vec<Trace> = part.iter().map(|a| synthetic(a, reason)).collect();
        let first: Seq = ingest.mark(agent, SYNTHETIC);
        ingest.submit(vec![Block::encode(&origin, first, &traces)?]).await?;
    }
    Ok(())
}

fn synthetic(arrival: &Arrival, reason: &str) -> Trace {
    let unsent = Unsent {
        index: arrival.index,
        scheduled: arrival.at,
        row: arrival.row,
        requested_tokens: 0,
        prompt_tokens: None,
    };
    let mut trace = Trace::unsent(unsent, Failure::new(FailureKind::AgentLost, reason), arrival.at);
    trace.facts.synthetic = true;
    trace
}
