//! What the live view takes of a finished request: four facts, found by the one definition of each.

use common::ids::{AgentName, Epoch, Nanos};
use common::metrics::RequestMetrics;
use common::slo::SloSet;
use common::trace::Facts;
use common::trace::segment::PackedClocks;

/// A finished request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Finished {
    /// Since the trial's start, nanoseconds.
    pub at: Nanos,
    /// It succeeded.
    pub success: bool,
    /// It succeeded and met every objective on a request.
    pub good: bool,
    /// TTFT; none without content.
    pub ttft: Option<Nanos>,
}

/// Traces that were stored of one trial, on their way to the live view: not yet unpacked, and without their texts.
#[derive(Debug)]
pub struct StoredTraces {
    /// Who carried them.
    pub agent: AgentName,
    /// Their trial's.
    pub epoch: Epoch,
    /// Their clocks.
    pub clocks: PackedClocks,
    /// Their facts, as many.
    pub facts: Vec<Facts>,
}

impl StoredTraces {
    /// What they tell, held against `slos`; those that cannot be unpacked tell nothing.
    #[must_use]
    pub fn finished(&self, slos: &SloSet) -> Vec<Finished> {
        let mut finished = Vec::with_capacity(self.facts.len());
        let mut facts = self.facts.iter();
        let read = self.clocks.outlines(|outline, _| {
            let Some(facts) = facts.next() else { return };
            let metrics = RequestMetrics::of_outline(outline, facts);
            finished.push(Finished {
                at: metrics.finished(),
                success: facts.outcome.is_success(),
                good: metrics.losses(facts, slos).is_good(),
                ttft: metrics.ttft,
            });
        });
        if let Err(e) = read {
            // The trace itself is stored; whoever computes the trial says what is wrong with it.
            tracing::debug!(agent = %self.agent, "the live view cannot read traces: {e}");
        }
        finished
    }
}
