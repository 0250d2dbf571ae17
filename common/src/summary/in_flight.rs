//! Requests in flight: half-open intervals from the first byte written to the end.

use crate::ids::Nanos;
use crate::trace::Clocks;

#[derive(Debug, Default)]
pub(super) struct Intervals {
    starts: Vec<u64>,
    ends: Vec<u64>,
    /// 128 bits: a million requests of 10 minutes already come near the end of 64.
    total: u128,
}

impl Intervals {
    /// A request that was never released was never in flight. One that lasted no time adds nothing.
    pub(super) fn add(&mut self, clocks: &Clocks) {
        let Some(start) = clocks.written.or(clocks.released) else { return };
        let length = clocks.finished.since(start);
        if length > Nanos::ZERO {
            self.starts.push(start.0);
            self.ends.push(clocks.finished.0);
            self.total += u128::from(length.0);
        }
    }

    /// Σ (finished − start) / W.
    pub(super) fn mean(&self, window: Nanos) -> Option<f64> {
        (window > Nanos::ZERO).then(|| self.total as f64 / window.0 as f64)
    }

    /// One that ends at the instant at which another starts is not in flight with it.
    pub(super) fn peak(mut self) -> u64 {
        self.starts.sort_unstable();
        self.ends.sort_unstable();
        let (mut ended, mut peak) = (0, 0);
        for (started, start) in self.starts.iter().enumerate() {
            ended += self.ends.iter().skip(ended).take_while(|&end| end <= start).count();
            peak = peak.max(started + 1 - ended);
        }
        peak as u64
    }
}
