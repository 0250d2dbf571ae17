//! GPM: means of what the GPU's units did between two samples.
//!
//! Owns the samples, which hold no more than a GPU and an instant: the means follow from the scenario, exactly. Like
//! event sets they are named by numbers.

use std::collections::BTreeMap;

use crate::clock::seconds;
use crate::code::Code;
use crate::scenario::{Gpu, Scenario};

/// All samples; one that was not taken yet is `None`.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    last: usize,
    samples: BTreeMap<usize, Option<(usize, i64)>>,
}

impl Samples {
    /// A new sample.
    pub(crate) fn alloc(&mut self) -> usize {
        self.last += 1;
        self.samples.insert(self.last, None);
        self.last
    }

    /// Takes a sample away.
    pub(crate) fn free(&mut self, sample: usize) -> Result<(), Code> {
        self.samples.remove(&sample).map(|_| ()).ok_or(Code::INVALID_ARGUMENT)
    }

    /// Takes the sample of a GPU now.
    pub(crate) fn take(&mut self, sample: usize, gpu: usize, now: i64) -> Result<(), Code> {
        *self.samples.get_mut(&sample).ok_or(Code::INVALID_ARGUMENT)? = Some((gpu, now));
        Ok(())
    }

    /// The GPU of two samples and the time between them.
    pub(crate) fn between(&self, first: usize, second: usize) -> Result<(usize, f64, f64), Code> {
        let taken = |sample| self.samples.get(&sample).copied().flatten().ok_or(Code::INVALID_ARGUMENT);
        let ((gpu, from), (other, to)) = (taken(first)?, taken(second)?);
        if gpu != other || to <= from {
            return Err(Code::INVALID_ARGUMENT);
        }
        Ok((gpu, seconds(from), seconds(to)))
    }
}

/// Whether a GPU has GPM: Hopper and newer.
pub(crate) fn is_supported(gpu: &Gpu) -> bool {
    gpu.gpm.unwrap_or(gpu.cc[0] >= 9)
}

/// The mean of a metric from `a` to `b`: percent, or MiB/s.
pub(crate) fn metric(scenario: &Scenario, gpu: usize, id: u32, a: f64, b: f64) -> Result<f64, Code> {
    let gpu = scenario.gpus.get(gpu).ok_or(Code::INVALID_ARGUMENT)?;
    let kib_s = match id {
        _ if gpu.gpm_metrics.contains_key(&id) => return Ok(gpu.gpm_metrics[&id].mean(a, b)),
        1 | 2 => return Ok(gpu.utilization_pct.gpu.mean(a, b)),
        10 => return Ok(gpu.utilization_pct.memory.mean(a, b)),
        20 => &gpu.pcie.tx_kib_s,
        21 => &gpu.pcie.rx_kib_s,
        60 => &gpu.nvlink.rx_kib_s,
        61 => &gpu.nvlink.tx_kib_s,
        _ => return Err(Code::NOT_SUPPORTED),
    };
    Ok(kib_s.mean(a, b) / 1024.0)
}
