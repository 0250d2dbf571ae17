//! The time in which kernels of the fake CUDA ran.
//!
//! Owns the reading of the burn file, by which `libfake_cuda.so` in one process heats a GPU of `libfake_nvml.so` in
//! another: a line `from_ns to_ns [uuid]` per kernel, on `CLOCK_MONOTONIC`; without a UUID it is for every GPU.
//! Lines are only ever appended. Kernels that overlap count once. It must never write the file.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use crate::clock::seconds;

/// Intervals that do not touch, in order, each with the sum of those before it.
#[derive(Debug, Default)]
struct Intervals(Vec<Interval>);

#[derive(Debug, Clone, Copy)]
struct Interval {
    from: f64,
    to: f64,
    before: f64,
}

impl Intervals {
    fn add(&mut self, from: f64, to: f64) {
        if to <= from {
            return;
        }
        let touched = self.0.partition_point(|i| i.to < from);
        let after = self.0.partition_point(|i| i.from <= to);
        let mut merged = Interval { from, to, before: 0.0 };
        for old in &self.0[touched..after] {
            merged.from = merged.from.min(old.from);
            merged.to = merged.to.max(old.to);
        }
        self.0.splice(touched..after, [merged]);
        // Usually the last one.
        for i in touched..self.0.len() {
            self.0[i].before =
                i.checked_sub(1).map_or(0.0, |j| self.0[j].before + self.0[j].to - self.0[j].from);
        }
    }

    /// The sum of the intervals before `t`.
    fn until(&self, t: f64) -> f64 {
        match self.0.partition_point(|i| i.from <= t).checked_sub(1) {
            None => 0.0,
            Some(last) => {
                let Interval { from, to, before } = self.0[last];
                before + t.min(to) - from
            }
        }
    }
}

/// A burn file as far as it was read, in seconds of the scenario.
#[derive(Debug)]
pub(crate) struct Burns {
    path: Option<PathBuf>,
    file: Option<File>,
    t0: i64,
    rest: Vec<u8>,
    gpus: Vec<(String, Intervals)>,
}

impl Burns {
    /// Nothing read yet. `t0` is the scenario's zero on `CLOCK_MONOTONIC`, `uuids` its GPUs.
    pub(crate) fn new(path: Option<PathBuf>, t0: i64, uuids: impl Iterator<Item = String>) -> Self {
        let gpus = uuids.map(|uuid| (uuid, Intervals::default())).collect();
        Self { path, file: None, t0, rest: Vec::new(), gpus }
    }

    /// Reads what was appended since the last time. A file that is not there yet is an empty one.
    pub(crate) fn refresh(&mut self) {
        let Some(path) = &self.path else { return };
        if self.file.is_none() {
            self.file = File::open(path).ok();
        }
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.read_to_end(&mut self.rest) {
            eprintln!("fake-nvml: cannot read the burn file {}: {error}", path.display());
        }
        // The last line may be half written.
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else { return };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        for line in String::from_utf8_lossy(&whole).lines() {
            match parse(line, self.t0) {
                Some((uuid, from, to)) => {
                    let of = |gpu: &&mut (String, Intervals)| uuid.as_ref().is_none_or(|uuid| *uuid == gpu.0);
                    self.gpus.iter_mut().filter(of).for_each(|gpu| gpu.1.add(from, to));
                }
                None => eprintln!("fake-nvml: no burn of the form `from_ns to_ns [uuid]`: {line}"),
            }
        }
    }

    /// For how long kernels ran on a GPU from `a` to `b`.
    pub(crate) fn time(&self, gpu: usize, a: f64, b: f64) -> f64 {
        self.gpus.get(gpu).map_or(0.0, |(_, burns)| burns.until(b) - burns.until(a))
    }
}

fn parse(line: &str, t0: i64) -> Option<(Option<String>, f64, f64)> {
    let mut words = line.split_whitespace();
    let mut instant = || Some(seconds(words.next()?.parse::<i64>().ok()? - t0));
    let (from, to) = (instant()?, instant()?);
    Some((words.next().map(str::to_owned), from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_count_once_in_any_order() {
        let mut burns = Intervals::default();
        for (from, to) in
            [(5.0, 6.0), (1.0, 2.0), (1.5, 3.0), (5.5, 5.75), (8.0, 8.0), (0.0, 0.5), (3.0, 4.0)]
        {
            burns.add(from, to);
        }
        assert_eq!(
            [0.0, 0.25, 0.75, 1.0, 2.5, 4.5, 5.5, 9.0].map(|t| burns.until(t)),
            [0.0, 0.25, 0.5, 0.5, 2.0, 3.5, 4.0, 4.5]
        );
    }
}
