//! The gaps between the content events of a trial's successes.
//!
//! No objective changes them. They are by far the most samples of a trial, so that a trial that was summarised once keeps
//! what came of them ([`KnownGaps`]), and is summarised again without counting them.

use serde::{Deserialize, Serialize};

use super::LatencySeconds;
use crate::metrics::RequestMetrics;
use crate::stats::{Distribution, Tally};

/// What came of the gaps of a trial's successes, seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownGaps {
    itl: Distribution,
    chunk_gap: Distribution,
}

impl KnownGaps {
    /// Of a trial that was summarised.
    #[must_use]
    pub fn of(latency: &LatencySeconds) -> Self {
        Self { itl: latency.itl.clone(), chunk_gap: latency.chunk_gap.clone() }
    }
}

/// Gaps between content events, which are counted apart from the traces' other numbers: their order does not matter, so
/// that several threads can each count some.
#[derive(Debug, Clone, Default)]
pub struct Gaps {
    /// Proven to be inter-token latencies. A gap is kept once, here or in `unproven`; chunk gaps are both.
    proven: Tally,
    unproven: Tally,
    known: Option<KnownGaps>,
}

impl Gaps {
    /// Adds those of a request, in nanoseconds. A failure's are not asked for.
    pub fn add(&mut self, metrics: &RequestMetrics, gaps: impl IntoIterator<Item = u64>) {
        let tally = if metrics.itl_proven() { &mut self.proven } else { &mut self.unproven };
        gaps.into_iter().for_each(|gap| tally.add(gap));
    }

    /// What is known already: none are to be added.
    #[must_use]
    pub fn known(known: KnownGaps) -> Self {
        Self { known: Some(known), ..Self::default() }
    }

    /// Takes what another has. What one of them knows already stands.
    pub fn absorb(&mut self, other: Self) {
        self.known = self.known.take().or(other.known);
        self.proven.absorb(other.proven);
        self.unproven.absorb(other.unproven);
    }

    /// Of the inter-token latencies, and of the gaps between chunks.
    pub(super) fn distributions(mut self) -> (Distribution, Distribution) {
        if let Some(KnownGaps { itl, chunk_gap }) = self.known {
            return (itl, chunk_gap);
        }
        let itl = self.proven.distribution();
        if self.unproven.is_empty() {
            return (itl.clone(), itl);
        }
        self.unproven.absorb(self.proven);
        (itl, self.unproven.distribution())
    }
}
