//! What was recorded beside a trial, as lines over its time: power and memory of GPUs, the engine's queue and KV cache.
//!
//! Samples as they were recorded, thinned (see [`super::thin`]); a gauge that was not offered has no line. Energies are not
//! computed here: they stand in the report.

use common::ids::AgentName;
use common::telemetry::{GpuInfo, Record};
use serde::Serialize;

use super::thin;

/// Points of all lines of a page together.
const MOST_POINTS: usize = 80_000;
/// Of one line at most, and at least.
const MOST_OF_A_LINE: usize = 600;
const LEAST_OF_A_LINE: usize = 16;

/// A line of a chart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Line {
    /// `power_watts`, `memory_bytes`, `engine_running`, `engine_waiting` or `kv_cache_share`.
    pub(super) what: &'static str,
    /// Whose it is, for a person.
    pub(super) of: String,
    /// Seconds after the trial's start, ascending.
    pub(super) seconds: Vec<f64>,
    pub(super) values: Vec<f64>,
    /// Samples that there were.
    pub(super) samples: usize,
}

/// What a line is of, whose it is, and its points.
type Found = (&'static str, String, Vec<(f64, f64)>);

/// The lines of what an agent recorded; `records` with their time after the trial's start, in any order.
pub(super) fn lines(agent: &AgentName, records: &[(Option<f64>, Record)]) -> Vec<Line> {
    let mut gpus: &[GpuInfo] = &[];
    let mut found: Vec<Found> = Vec::new();
    let mut add = |what: &'static str, of: String, at: f64, value: Option<f64>| {
        let Some(value) = value.filter(|v| v.is_finite()) else { return };
        match found.iter_mut().find(|(w, o, _)| *w == what && *o == of) {
            Some((_, _, points)) => points.push((at, value)),
            None => found.push((what, of, vec![(at, value)])),
        }
    };
    for (at, record) in records {
        if let Record::Inventory(inventory) = record {
            gpus = inventory;
        }
        let Some(at) = *at else { continue };
        match record {
            Record::Power(s) if used(gpus, s.gpu) => {
                let watts = s.average_mw.or(s.instant_mw).map(|mw| f64::from(mw) / 1e3);
                add("power_watts", named(agent, gpus, s.gpu), at, watts);
            }
            Record::Gpu(s) if used(gpus, s.gpu) => {
                add("memory_bytes", named(agent, gpus, s.gpu), at, s.memory_used_bytes.map(|b| b as f64));
            }
            Record::Engine(s) => {
                add("engine_running", "running".to_owned(), at, s.running);
                add("engine_waiting", "waiting".to_owned(), at, s.waiting);
                add("kv_cache_share", "KV cache in use".to_owned(), at, s.kv_cache_usage);
            }
            _ => {}
        }
    }
    let line = |(what, of, mut points): Found| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let samples = points.len();
        let (seconds, values) = points.into_iter().unzip();
        Line { what, of, seconds, values, samples }
    };
    found.into_iter().map(line).collect()
}

/// Thins the lines of one of so many trials.
pub(super) fn thinned(lines: &mut [Line], trials: usize) {
    let each = MOST_POINTS / (trials.max(1) * lines.len().max(1));
    for line in lines {
        let points = line.seconds.drain(..).zip(line.values.drain(..)).collect();
        let kept = thin::series(points, each.clamp(LEAST_OF_A_LINE, MOST_OF_A_LINE));
        (line.seconds, line.values) = kept.into_iter().unzip();
    }
}

/// Those of others are no part of what was measured.
fn used(gpus: &[GpuInfo], gpu: u8) -> bool {
    gpus.get(usize::from(gpu)).is_none_or(|gpu| gpu.used_by_engine != Some(false))
}

fn named(agent: &AgentName, gpus: &[GpuInfo], gpu: u8) -> String {
    match gpus.get(usize::from(gpu)) {
        Some(info) => format!("{agent} GPU {} ({})", info.index, info.name),
        None => format!("{agent} GPU {gpu}"),
    }
}

#[cfg(test)]
mod tests {
    use common::ids::Nanos;
    use common::telemetry::{EngineSample, PowerSample};

    use super::*;

    #[test]
    fn a_gauge_that_is_not_offered_has_no_line_and_a_gpu_of_others_neither() {
        let gpu = |used| GpuInfo { name: "H".into(), used_by_engine: Some(used), ..GpuInfo::default() };
        let power = |gpu| PowerSample { gpu, average_mw: Some(1500), ..PowerSample::default() };
        let engine = EngineSample { at: Nanos(1), running: Some(0.0), ..EngineSample::default() };
        let records = [
            (None, Record::Inventory(vec![gpu(true), gpu(false)])),
            (Some(2.0), Record::Power(power(0))),
            (Some(1.0), Record::Power(power(0))),
            (Some(1.0), Record::Power(power(1))),
            (Some(1.5), Record::Engine(engine)),
        ];
        let found = lines(&"a".parse().unwrap(), &records);
        let seen: Vec<_> = found.iter().map(|l| (l.what, l.seconds.clone(), l.values.clone())).collect();
        // A queue of 0 is a reading; the cache was not told, and is not 0.
        assert_eq!(
            seen,
            [("power_watts", vec![1.0, 2.0], vec![1.5, 1.5]), ("engine_running", vec![1.5], vec![0.0])]
        );
    }
}
