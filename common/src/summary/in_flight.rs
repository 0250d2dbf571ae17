//! Requests in flight: half-open intervals from the first byte written to the end.

use crate::ids::Nanos;
use crate::trace::Outline;

#[derive(Debug, Default)]
pub(super) struct Spans {
    spans: Vec<(u64, u64)>,
    /// 128 bits: a million requests of 10 minutes already come near the end of 64.
    total: u128,
}

impl Spans {
    /// A request that was never released was never in flight. One that lasted no time adds nothing.
    pub(super) fn add(&mut self, clocks: &Outline) {
        let Some(start) = clocks.written.or(clocks.released) else { return };
        let length = clocks.finished.since(start);
        if length > Nanos::ZERO {
            self.spans.push((start.0, clocks.finished.0));
            self.total += u128::from(length.0);
        }
    }

    /// Σ (finished − start) / W.
    pub(super) fn mean(&self, window: Nanos) -> Option<f64> {
        (window > Nanos::ZERO).then(|| self.total as f64 / window.0 as f64)
    }

    /// Start and end of each, nanoseconds.
    pub(super) fn spans(&self) -> &[(u64, u64)] {
        &self.spans
    }

    /// One that ends at the instant at which another starts is not in flight with it.
    pub(super) fn peak(&self) -> u64 {
        let mut starts: Vec<u64> = self.spans.iter().map(|&(start, _)| start).collect();
        let mut ends: Vec<u64> = self.spans.iter().map(|&(_, end)| end).collect();
        starts.sort_unstable();
        ends.sort_unstable();
        let (mut ended, mut peak) = (0, 0);
        for (started, start) in starts.iter().enumerate() {
            ended += ends.iter().skip(ended).take_while(|&end| end <= start).count();
            peak = peak.max(started + 1 - ended);
        }
        peak as u64
    }
}
