//! Method 1: the total-energy counter, interpolated at both edges between the readings where it moved.
//!
//! The counter steps about every 100 ms, whatever the polls do, so two plain readings are off by up to a step at each
//! edge. Between two readings where it moved it is taken as linear. A counter that was reset, or that no board could
//! have moved so far, says nothing across that place: the window then has no energy by this method, rather than one
//! that misses a piece.

use super::{EnergyInput, Measured};
use crate::ids::Nanos;
use crate::telemetry::points::largest_gap;
use crate::telemetry::{PowerSample, Window};

/// Fewer readings where the counter moved do not tell its period.
pub const MIN_MOVED: usize = 8;

/// How far beyond its last step the counter is extrapolated, in periods: one, and a poll (a fifth) that sees it late.
const MAX_EXTRAPOLATION_PERIODS: f64 = 1.25;

/// A step that needs more than this many times the power limit was not made by the board.
const MAX_OVER_LIMIT: f64 = 1.5;

/// Where no limit is known: no board draws as much.
pub(super) const MAX_WATTS: f64 = 10_000.0;

/// A reading where the counter moved.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Seconds since the window's start.
    at: f64,
    /// Since the stretch's first reading.
    joules: f64,
}

/// Readings that can be compared: one epoch, never back, never further than a board can go.
#[derive(Debug)]
struct Stretch {
    epoch: u16,
    first_mj: u64,
    last_mj: u64,
    /// When it was last read.
    last_read: f64,
    /// The last value was not there before this.
    last_since: f64,
    steps: Vec<Step>,
}

/// What the counter tells of a window.
#[derive(Debug)]
pub(super) struct Counter {
    /// By this method; none where it cannot be used.
    pub(super) measured: Option<Measured>,
    /// It could not be compared across a place in the window.
    pub(super) reset: bool,
    /// Readings in the window where it moved.
    pub(super) steps: u64,
    /// The longest part of the window without such a reading; none when the counter was not read at all.
    pub(super) largest_step_gap: Option<f64>,
}

/// Time between two steps of the counter: the mean of the usual gaps between readings where it moved, which are those
/// within half of their median. (The median alone is as rough as the polls: 92 ms for polls of 23 ms and steps of 100.)
/// None when fewer than [`MIN_MOVED`] are there. Polls slower than the counter show their own period.
#[must_use]
pub fn counter_period(samples: &[PowerSample]) -> Option<Nanos> {
    super::with_sorted(samples, period_of_sorted)
}

pub(super) fn period_of_sorted(samples: &[PowerSample]) -> Option<Nanos> {
    let mut moved: usize = 0;
    let mut gaps: Vec<u64> = Vec::new();
    let mut last: Option<(u16, u64)> = None;
    let mut last_moved: Option<Nanos> = None;
    for (at, epoch, mj) in samples.iter().filter_map(|s| Some((s.at, s.epoch, s.energy_mj?))) {
        match last {
            Some((e, v)) if e == epoch && mj > v => {
                moved += 1;
                gaps.extend(last_moved.map(|m| at.since(m).0));
                last_moved = Some(at);
            }
            Some((e, v)) if e == epoch && mj == v => {}
            _ => last_moved = None,
        }
        last = Some((epoch, mj));
    }
    if moved < MIN_MOVED || gaps.is_empty() {
        return None;
    }
    gaps.sort_unstable();
    let median = gaps.get(gaps.len() / 2).copied()?;
    gaps.retain(|gap| gap.abs_diff(median) <= median / 2);
    let usual = gaps.iter().map(|&gap| gap as f64).sum::<f64>() / gaps.len() as f64;
    Some(Nanos(usual.round() as u64))
}

/// What the counter tells of `window`, from samples in order of time.
pub(super) fn measure(
    samples: &[PowerSample],
    window: Window,
    input: &EnergyInput,
    period: Option<f64>,
) -> Counter {
    let length = window.seconds();
    let max_watts =
        input.limit_watts.filter(|&limit| limit > 0.0).map_or(MAX_WATTS, |limit| MAX_OVER_LIMIT * limit);
    let (stretches, breaks) = stretches(samples, window, max_watts, period);
    let reset = breaks.iter().any(|&(before, after)| after > 0.0 && before < length);
    let read = !stretches.is_empty();
    let moved = stretches.iter().flat_map(|s| &s.steps).map(|s| s.at);
    let inside: Vec<f64> = moved.filter(|t| (0.0..=length).contains(t)).collect();
    let measured = if reset { None } else { stretches.iter().find_map(|s| s.energy(length, period)) };
    Counter {
        measured,
        reset,
        steps: inside.len() as u64,
        largest_step_gap: read.then(|| largest_gap(inside.iter().copied(), length)),
    }
}

/// Stretches of comparable readings, and between which two instants each break is.
fn stretches(
    samples: &[PowerSample],
    window: Window,
    max_watts: f64,
    period: Option<f64>,
) -> (Vec<Stretch>, Vec<(f64, f64)>) {
    let mut whole: Vec<Stretch> = Vec::new();
    let mut breaks = Vec::new();
    for s in samples {
        let Some(mj) = s.energy_mj else { continue };
        let at = window.seconds_at(s.at);
        let half_width = f64::from(s.width_ns) / 2e9;
        match whole.last_mut() {
            Some(last) if last.goes_on(s.epoch, mj, at + half_width, max_watts) => {
                last.take(mj, at, half_width, period);
            }
            last => {
                breaks.extend(last.map(|l| (l.last_read, at)));
                whole.push(Stretch {
                    epoch: s.epoch,
                    first_mj: mj,
                    last_mj: mj,
                    last_read: at,
                    // Its step was seen by nobody: without a period it may be any time ago.
                    last_since: period.map_or(f64::NEG_INFINITY, |p| at - half_width - 2.0 * p),
                    steps: Vec::new(),
                });
            }
        }
    }
    (whole, breaks)
}

impl Stretch {
    /// Whether a reading can be compared with those before. The power of its step is taken at its least, from the
    /// last moment without the value before to the end of this call: a late poll followed by a prompt one would
    /// otherwise show a step of 100 ms within 10 ms.
    fn goes_on(&self, epoch: u16, mj: u64, read_by: f64, max_watts: f64) -> bool {
        let Some(by) = mj.checked_sub(self.last_mj) else { return false };
        epoch == self.epoch && by as f64 / 1e3 <= max_watts * (read_by - self.last_since)
    }

    fn take(&mut self, mj: u64, at: f64, half_width: f64, period: Option<f64>) {
        if mj > self.last_mj {
            self.steps.push(Step { at, joules: (mj - self.first_mj) as f64 / 1e3 });
            // After a gap the value is still no older than the counter's period; twice it, since that is a median.
            let oldest = period.map_or(f64::NEG_INFINITY, |p| at - 2.0 * p);
            self.last_since = self.last_read.max(oldest) - half_width;
            self.last_mj = mj;
        }
        self.last_read = at;
    }

    fn energy(&self, length: f64, period: Option<f64>) -> Option<Measured> {
        let edges = [self.at(0.0, period)?, self.at(length, period)?];
        Some(Measured {
            joules: (edges[1].joules - edges[0].joules).max(0.0),
            edge_watts: edges.map(|e| e.watts),
            edge_joules: edges.map(|e| e.half_step_joules),
            extrapolated: edges.iter().any(|e| e.beyond > 0.0),
            // Filled in by who knows all readings.
            largest_gap: 0.0,
        })
    }

    /// The counter at `t`; none where that is further from its steps than it may be extrapolated.
    fn at(&self, t: f64, period: Option<f64>) -> Option<Edge> {
        let last = self.steps.len().checked_sub(1).filter(|&last| last > 0)?;
        let next = self.steps.partition_point(|s| s.at <= t).clamp(1, last);
        let (a, b) = (self.steps.get(next - 1)?, self.steps.get(next)?);
        let (apart, step) = (b.at - a.at, b.joules - a.joules);
        let beyond = (a.at - t).max(t - b.at).max(0.0);
        if beyond > MAX_EXTRAPOLATION_PERIODS * period.unwrap_or(apart) {
            return None;
        }
        // Stamps of single steps are rough: the power there is that of a step more on each side.
        let (before, after) =
            (self.steps.get(next.saturating_sub(2))?, self.steps.get((next + 1).min(last))?);
        let watts = (after.joules - before.joules) / (after.at - before.at);
        Some(Edge {
            joules: a.joules + step / apart * (t - a.at),
            watts,
            half_step_joules: step / 2.0 + watts * beyond,
            beyond,
        })
    }
}

/// The counter at an edge.
#[derive(Debug, Clone, Copy)]
struct Edge {
    joules: f64,
    watts: f64,
    /// Half of what the step there holds, and all of what is extrapolated.
    half_step_joules: f64,
    /// Seconds from the nearest step, where there is none outside.
    beyond: f64,
}
