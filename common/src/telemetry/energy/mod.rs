//! Energy of a window of one GPU: one number, with how it was found and how far it can be off.
//!
//! Owns the choice of method: the total-energy counter, else the integral of the 1 s average, else that of instant
//! power, else none. It exists because the plain ways are wrong by a lot: two readings of a counter that steps every
//! 100 ms, or an integral over a sensor that looks at a quarter of the time. It must never give a number without its
//! method, bridge a reset counter, or fill in what was not read. `tests.rs` holds it against a simulated sensor whose
//! true energy is known; the sources of the sensor's numbers are named where they are used.
//!
//! What it measures is the board as its driver reports it, not power at the wall.

mod counter;
mod power;
#[cfg(test)]
pub(crate) mod sensor;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::points::{LONGEST_GAP_SECONDS, LONGEST_GAP_SHARE, largest_gap, too_long};
use super::{PowerSample, Window};
use crate::ids::Nanos;

pub use counter::{MIN_MOVED, counter_period};
pub use power::AVERAGE_SECONDS;
pub(super) use power::{average_points, instant_points};

/// Gain error of the boards' sensors, as a share: it differs between identical boards and no averaging removes it
/// (Yang, Adamek, Armour, arXiv 2312.02741).
pub const SENSOR_ERROR_RELATIVE: f64 = 0.05;

/// Two methods that differ by more than this share are a warning.
pub const METHODS_AGREE_WITHIN: f64 = 0.05;

/// A window of fewer periods of the counter is short: 5 s at 100 ms.
pub const SHORT_WINDOW_PERIODS: f64 = 50.0;

/// A call that takes longer does not say when it looked: its power is left out, and it closes no gap. (Its counter still
/// counts: that lost nothing meanwhile.)
const LONGEST_CALL_NS: u32 = 100_000_000;

/// A period is known to 2 %: without it, a window of 5 s would be short on some boards and not on others.
const KNOWN_TO: f64 = 0.98;

/// The counter's period where none was observed, seconds: that of current boards.
const USUAL_PERIOD_SECONDS: f64 = 0.1;

/// How an energy was found, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Difference of the total-energy counter, interpolated at the edges.
    Counter,
    /// Integral of the 1 s average, shifted back by half a second.
    AveragePower,
    /// Integral of instant power, of which the sensor sees a part only.
    InstantPower,
    /// Not at all.
    #[default]
    None,
}

impl Method {
    /// The name used in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::AveragePower => "average_power",
            Self::InstantPower => "instant_power",
            Self::None => "none",
        }
    }
}

/// What is known beside the samples.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EnergyInput {
    /// The highest power limit that held, watts: a counter that steps by more than 1.5 times it was reset.
    pub limit_watts: Option<f64>,
    /// The counter's period, as the inventory has it; found from the samples where none.
    pub counter_period: Option<Nanos>,
    /// How far the window's edges may be off, when they were mapped from another host's clock.
    pub clock_bound: Option<Nanos>,
}

/// Energy of a window, with the evidence. What is not known is none, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct WindowEnergy {
    /// The energy, joules.
    pub joules: Option<f64>,
    /// How it was found.
    pub method: Method,
    /// The energy over the window's length, watts.
    pub mean_power_watts: Option<f64>,
    /// Readings in the window where the counter moved.
    pub steps: u64,
    /// Between two steps of the counter, seconds.
    pub counter_period_seconds: Option<f64>,
    /// The longest part of the window without a reading of what the method uses (any power signal where the method is
    /// none), seconds.
    pub largest_gap_seconds: Option<f64>,
    /// The longest part of the window without a reading where the counter moved, seconds.
    pub largest_step_gap_seconds: Option<f64>,
    /// What the edges may be off by, both together: half a step each (see the methods), and the clock's bound times
    /// the power there. The sensor's own error is not in it.
    pub edge_error_joules: Option<f64>,
    /// The sensor's error as a share of the energy ([`SENSOR_ERROR_RELATIVE`]); none without energy.
    pub sensor_error_relative: Option<f64>,
    /// The next best method that gives a number.
    pub second_method: Option<Method>,
    /// The energy by it, joules.
    pub second_joules: Option<f64>,
    /// `joules` over `second_joules`.
    pub ratio_to_second: Option<f64>,
    /// Power readings that no board gives and that were left out: 0, or above 10 kW.
    pub unbelievable_readings: u64,
    /// What a reader should know.
    pub flags: EnergyFlags,
}

/// What a reader should know of an energy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EnergyFlags {
    /// The counter went back, stepped by more than 1.5 times the power limit, or its epoch changed in the window: it
    /// was not used.
    pub counter_reset: bool,
    /// The GPU was lost or its driver reloaded in the window.
    pub epoch_changed: bool,
    /// The window is shorter than [`SHORT_WINDOW_PERIODS`] periods of the counter.
    pub short_window: bool,
    /// A stretch longer than 1 s, or than 5 % of the window, was not seen.
    pub gap: bool,
    /// There was no reading outside an edge: the nearest was extended to it.
    pub extrapolated: bool,
    /// The two methods differ by more than [`METHODS_AGREE_WITHIN`].
    pub methods_disagree: bool,
}

/// What one method gives.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Measured {
    joules: f64,
    /// Power at each edge, watts.
    edge_watts: [f64; 2],
    /// What each edge may be off by, the clock's bound left out.
    edge_joules: [f64; 2],
    extrapolated: bool,
    /// Seconds.
    largest_gap: f64,
}

/// The energy of `window` from samples of one GPU, which may be in any order, repeat, and lack any signal. Samples from
/// 1 s before the window to 1 s after it should be among them; more do no harm.
#[must_use]
pub fn window_energy(samples: &[PowerSample], window: Window, input: &EnergyInput) -> WindowEnergy {
    with_sorted(samples, |sorted| of_sorted(sorted, window, input))
}

fn of_sorted(samples: &[PowerSample], window: Window, input: &EnergyInput) -> WindowEnergy {
    let length = window.seconds();
    if length <= 0.0 {
        return WindowEnergy::default();
    }
    let period = input.counter_period.or_else(|| counter::period_of_sorted(samples)).filter(|p| p.0 > 0);
    let period = period.map(Nanos::as_secs_f64);
    let counter = counter::measure(samples, window, input, period);
    let gap = |read: fn(&PowerSample) -> bool| {
        let timed = samples.iter().filter(|s| s.width_ns <= LONGEST_CALL_NS);
        let inside = timed.filter(|s| read(s) && window.contains(s.at));
        largest_gap(inside.map(|s| window.seconds_at(s.at)), length)
    };
    let by_counter = counter.measured.map(|m| Measured { largest_gap: gap(|s| s.energy_mj.is_some()), ..m });
    let methods = [
        (Method::Counter, by_counter),
        (Method::AveragePower, power::by_average(&average_points(samples, window))),
        (Method::InstantPower, power::by_instant(&instant_points(samples, window))),
    ];
    let mut found = methods.into_iter().filter_map(|(method, m)| Some((method, m?)));
    let (best, second) = (found.next(), found.next());

    let seen =
        samples.iter().any(|s| s.energy_mj.is_some() || s.average_mw.is_some() || s.instant_mw.is_some());
    let largest = match best {
        Some((_, m)) => Some(m.largest_gap),
        None => seen.then(|| gap(|s| s.energy_mj.or(s.average_mw.or(s.instant_mw).map(u64::from)).is_some())),
    };
    let between_steps = counter.largest_step_gap.filter(|_| matches!(best, Some((Method::Counter, _))));
    let ratio = best.zip(second).and_then(|((_, a), (_, b))| (b.joules > 0.0).then(|| a.joules / b.joules));
    let bound = input.clock_bound.map_or(0.0, Nanos::as_secs_f64);
    let not_believed = |s: &PowerSample| {
        [s.average_mw, s.instant_mw].into_iter().flatten().filter(|&mw| power::believed(mw).is_none()).count()
    };
    WindowEnergy {
        joules: best.map(|(_, m)| m.joules),
        method: best.map_or(Method::None, |(method, _)| method),
        mean_power_watts: best.map(|(_, m)| m.joules / length),
        steps: counter.steps,
        counter_period_seconds: period,
        largest_gap_seconds: largest,
        largest_step_gap_seconds: counter.largest_step_gap,
        edge_error_joules: best.map(|(_, m)| {
            m.edge_joules.iter().sum::<f64>() + m.edge_watts.iter().map(|watts| watts * bound).sum::<f64>()
        }),
        sensor_error_relative: best.map(|_| SENSOR_ERROR_RELATIVE),
        second_method: second.map(|(method, _)| method),
        second_joules: second.map(|(_, m)| m.joules),
        ratio_to_second: ratio,
        unbelievable_readings: samples
            .iter()
            .filter(|s| window.contains(s.at))
            .map(|s| not_believed(s) as u64)
            .sum(),
        flags: EnergyFlags {
            counter_reset: counter.reset,
            epoch_changed: epoch_changed(samples, window),
            short_window: length < SHORT_WINDOW_PERIODS * KNOWN_TO * period.unwrap_or(USUAL_PERIOD_SECONDS),
            gap: largest.is_some_and(|g| too_long(g, length))
                || between_steps.is_some_and(|g| steps_too_far(g, length, period)),
            extrapolated: best.is_some_and(|(_, m)| m.extrapolated),
            methods_disagree: ratio.is_some_and(|r| (r - 1.0).abs() > METHODS_AGREE_WITHIN),
        },
    }
}

/// As for readings, but in a short window the counter's own period is no gap.
fn steps_too_far(gap: f64, length: f64, period: Option<f64>) -> bool {
    let usual = 3.0 * period.unwrap_or(USUAL_PERIOD_SECONDS);
    gap > LONGEST_GAP_SECONDS || gap > usual.max(LONGEST_GAP_SHARE * length)
}

fn epoch_changed(samples: &[PowerSample], window: Window) -> bool {
    let pairs = samples.iter().zip(samples.iter().skip(1));
    pairs.into_iter().any(|(a, b)| a.epoch != b.epoch && b.at > window.from && a.at < window.to)
}

/// Adds to a sample what another of the same moment has.
fn merge(first: &mut PowerSample, later: &PowerSample) -> bool {
    first.energy_mj = first.energy_mj.or(later.energy_mj);
    first.average_mw = first.average_mw.or(later.average_mw);
    first.instant_mw = first.instant_mw.or(later.instant_mw);
    true
}

/// Hands on `samples` in order of time, one a moment; they are copied only where they are not so already.
fn with_sorted<T>(samples: &[PowerSample], then: impl FnOnce(&[PowerSample]) -> T) -> T {
    let in_order = samples.iter().zip(samples.iter().skip(1)).all(|(a, b)| a.at < b.at);
    let sorted = if in_order {
        Cow::Borrowed(samples)
    } else {
        let mut sorted = samples.to_vec();
        sorted.sort_by_key(|s| s.at);
        sorted.dedup_by(|later, first| later.at == first.at && merge(first, later));
        Cow::Owned(sorted)
    };
    then(&sorted)
}
