//! Closing a trial's books: every arrival has exactly one trace before anything is computed.
//!
//! What an agent did not deliver, because it is gone or could not keep it, becomes a synthetic trace with the agent's
//! name and the reason. It is stored like any other, under incarnation 0, which no process has.

use std::collections::BTreeMap;

use common::ids::{AgentName, Epoch, Incarnation, Seq, TrialId};
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
    /// Traces of each agent, as it sent them.
    pub traces: BTreeMap<AgentName, u64>,
    /// Arrivals without a trace, by the agent that should have carried them.
    pub missing: BTreeMap<AgentName, Vec<Arrival>>,
    /// How many arrivals have none or a synthetic one: of a coordinator that was lost while it closed the trial, say.
    pub unknown: BTreeMap<AgentName, u64>,
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
    let mut seen = vec![Seen::Nothing; usize::try_from(assigned.count).unwrap_or(usize::MAX)];
    for block in run.trial_blocks(trial, epoch)? {
        let block = block?;
        let header = block.header();
        if header.incarnation != SYNTHETIC {
            *stored.traces.entry(header.agent.clone()).or_default() += u64::from(header.count);
        }
        for facts in block.facts()? {
            if let Some(slot) = usize::try_from(facts.index.0).ok().and_then(|i| seen.get_mut(i)) {
                *slot = (*slot).max(if facts.synthetic { Seen::Synthetic } else { Seen::Real });
            }
        }
    }
    let of = |a: &Arrival| seen.get(a.index.0 as usize).copied().unwrap_or(Seen::Nothing);
    for (agent, part) in &assigned.agents {
        let arrivals: Vec<Arrival> = part.slice.iter().copied().filter(|a| of(a) == Seen::Nothing).collect();
        if !arrivals.is_empty() {
            stored.missing.insert(agent.clone(), arrivals);
        }
        let unknown = part.slice.iter().filter(|a| of(a) != Seen::Real).count() as u64;
        if unknown > 0 {
            stored.unknown.insert(agent.clone(), unknown);
        }
    }
    Ok(stored)
}

/// The best that is stored of an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Nothing,
    Synthetic,
    Real,
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

#[cfg(test)]
mod tests {
    use common::ids::Nanos;
    use common::plan::{ArrivalPlan, Extent, Process};
    use common::seed::Seed;

    use super::*;
    use crate::store::tests::{agent, block, run_id, sim};
    use crate::trial::assignment::assign;

    /// A coordinator that was lost while it closed a trial has written some of the synthetic traces.
    #[tokio::test]
    async fn a_synthetic_trace_says_nothing_of_the_fate_of_an_arrival() {
        let (_disk, _index, store) = sim();
        let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
        let ingest = crate::ingest::start(&run).unwrap();
        let plan = ArrivalPlan {
            process: Process::Poisson,
            rate: "4".parse().unwrap(),
            extent: Extent::Requests(6),
        };
        let x = agent("x");
        let assigned = assign(&plan, Seed(1), 1, std::slice::from_ref(&x), None, 0).unwrap();
        ingest.submit(vec![block("x", 0, 0, 2)]).await.unwrap();
        let before = stored(&run, TrialId(0), Epoch(1), &assigned).unwrap();
        assert_eq!((before.traces[&x], before.missing[&x].len(), before.unknown[&x]), (2, 4, 4));
        let some = &before.missing[&x][..3];
        write_synthetic(&ingest, (TrialId(0), Epoch(1)), &x, some, "it was lost").await.unwrap();
        let then = stored(&run, TrialId(0), Epoch(1), &assigned).unwrap();
        assert_eq!((then.traces[&x], then.missing[&x].len(), then.unknown[&x]), (2, 1, 4));
        // Its own trace came after all.
        ingest.submit(vec![block("x", 0, 2, 4)]).await.unwrap();
        let whole = stored(&run, TrialId(0), Epoch(1), &assigned).unwrap();
        assert_eq!(whole.traces[&x], 6);
        assert!(whole.missing.is_empty() && whole.unknown.is_empty());
    }
}
