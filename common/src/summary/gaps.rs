//! The gaps between the content events of a trial's successes.

use crate::metrics::RequestMetrics;
use crate::stats::{Distribution, Tally};

/// Gaps between content events, which are counted apart from the traces' other numbers: their order does not matter, so
/// that several threads can each count some.
#[derive(Debug, Clone, Default)]
pub struct Gaps {
    /// Proven to be inter-token latencies. A gap is kept once, here or in `unproven`; chunk gaps are both.
    proven: Tally,
    unproven: Tally,
}

impl Gaps {
    /// Adds those of a request, in nanoseconds. A failure's are not asked for.
    pub fn add(&mut self, metrics: &RequestMetrics, gaps: impl IntoIterator<Item = u64>) {
        let tally = if metrics.itl_proven() { &mut self.proven } else { &mut self.unproven };
        gaps.into_iter().for_each(|gap| tally.add(gap));
    }

    /// Takes what another has.
    pub fn absorb(&mut self, other: Self) {
        self.proven.absorb(other.proven);
        self.unproven.absorb(other.unproven);
    }

    /// Of the inter-token latencies, and of the gaps between chunks.
    pub(super) fn distributions(mut self) -> (Distribution, Distribution) {
        let itl = self.proven.distribution();
        if self.unproven.is_empty() {
            return (itl.clone(), itl);
        }
        self.unproven.absorb(self.proven);
        (itl, self.unproven.distribution())
    }
}
