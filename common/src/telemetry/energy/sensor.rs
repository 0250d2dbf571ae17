//! A power sensor whose truth is known, for the tests: loads in closed form, seen as NVML shows a Hopper board.
//!
//! Every `period` a new value appears: the counter in whole millijoules, the mean of the last second, the mean of the
//! last 25 ms (arXiv 2312.02741). Between two of them every poll reads the same.

use std::f64::consts::TAU;

use crate::ids::Nanos;
use crate::telemetry::{PowerSample, Window};

/// Where the tests' time begins: a host is not started at the first sample.
pub(crate) const START: Nanos = Nanos(1_000_000_000_000);

/// Power over time; times are seconds since [`START`] and may be before it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Load {
    /// Watts.
    Constant(f64),
    /// From `watts` at 0, by `slope` watts a second.
    Ramp { watts: f64, slope: f64 },
    /// `high` for the first `duty` of every `period`, else `low`; the first begins at `phase`.
    Square { low: f64, high: f64, period: f64, duty: f64, phase: f64 },
    /// `mean` ± `swing`.
    Sine { mean: f64, swing: f64, period: f64 },
}

impl Load {
    /// Energy from 0 to `t`, joules.
    fn until(self, t: f64) -> f64 {
        match self {
            Self::Constant(watts) => watts * t,
            Self::Ramp { watts, slope } => watts * t + slope * t * t / 2.0,
            Self::Square { low, high, period, duty, phase } => {
                let cycles = (t - phase) / period;
                let on = cycles.floor() * duty + (cycles - cycles.floor()).min(duty);
                low * t + (high - low) * on * period
            }
            Self::Sine { mean, swing, period } => mean * t - swing * period / TAU * (TAU * t / period).cos(),
        }
    }

    /// Energy from `a` to `b`, joules.
    pub(crate) fn between(self, a: f64, b: f64) -> f64 {
        self.until(b) - self.until(a)
    }
}

/// The sensor of one board.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sensor {
    pub(crate) load: Load,
    /// Between two values, seconds.
    pub(crate) period: f64,
    /// Of its first value after 0, seconds.
    pub(crate) phase: f64,
    /// Polls are up to this late, seconds, as threads are.
    pub(crate) late: f64,
}

impl Sensor {
    /// As on a Hopper board; its values appear between polls of 20 ms, whatever floating point makes of these.
    pub(crate) fn new(load: Load) -> Self {
        Self { load, period: 0.1, phase: 0.013_7, late: 0.0 }
    }

    /// What a poll at `t` seconds after [`START`] reads.
    pub(crate) fn read(self, t: f64) -> PowerSample {
        let shown = ((t - self.phase) / self.period).floor() * self.period + self.phase;
        let milliwatts =
            |window: f64| (self.load.between(shown - window, shown) / window * 1e3).round() as u32;
        PowerSample {
            at: instant(t),
            width_ns: 200_000,
            // The counter began long ago.
            energy_mj: Some((1e9 + self.load.between(-10.0, shown) * 1e3).floor() as u64),
            instant_mw: Some(milliwatts(0.025)),
            average_mw: Some(milliwatts(1.0)),
            ..PowerSample::default()
        }
    }

    /// Polls every `poll` seconds in `[from, to]`, each as late as its number decides.
    pub(crate) fn polls(self, from: f64, to: f64, poll: f64) -> Vec<PowerSample> {
        let late = |i: u32| f64::from(i.wrapping_mul(2_654_435_761) >> 16) / 65_536.0 * self.late;
        let times = (0..).map(|i| from + f64::from(i) * poll + late(i));
        times.take_while(|&t| t <= to).map(|t| self.read(t)).collect()
    }
}

/// `t` seconds after [`START`].
pub(crate) fn instant(t: f64) -> Nanos {
    START + Nanos::from_secs_f64(t)
}

/// From `from` to `to`, in seconds after [`START`].
pub(crate) fn window(from: f64, to: f64) -> Window {
    Window { from: instant(from), to: instant(to) }
}
