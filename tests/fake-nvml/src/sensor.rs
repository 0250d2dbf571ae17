//! How the truth looks through sensors.
//!
//! Owns sample periods, windows and the energy counter's steps: the ways in which a real board is wrong about its
//! power. The truth itself ([`Device::joules`]) is exact; everything else here is computed from it and is as exact
//! as the sensor it plays. Sample instants are whole nanoseconds, so that a reading at a step is after the step on
//! every machine. Guarded by `tests/energy.rs` and `tests/sensors.rs`.

use crate::clock::{nanos, seconds};
use crate::code::Code;
use crate::device::Device;
use crate::scenario::{Energy, Sensor, Shown};

/// A rounding error must not take a millijoule from a counter that stands on a whole one.
const ROUNDING_MJ: f64 = 1e-3;

/// The last multiple of a period, after a phase, that is not after `now`.
fn last_multiple(period_s: f64, phase_s: f64, now: i64) -> i64 {
    let (period, phase) = (nanos(period_s).max(1), nanos(phase_s));
    (now - phase).div_euclid(period) * period + phase
}

impl Sensor {
    /// When the reading that is shown at `now` appeared.
    pub(crate) fn appeared(&self, now: i64) -> i64 {
        last_multiple(self.period_s, self.phase_s, now)
    }

    /// What a reading that appeared at `at` says of a quantity with these integrals.
    fn reading(&self, at: i64, area: impl Fn(f64, f64) -> f64) -> f64 {
        let to = seconds(at) - self.lag_s;
        // Without a width it would be 0 / 0.
        let window = self.window_s.max(1e-9);
        self.gain * area(to - window, to) / window
    }
}

impl Device<'_> {
    /// What the board used from `a` to `b`, in joules: the truth.
    pub(crate) fn joules(&self, a: f64, b: f64) -> f64 {
        self.gpu.power_w.area(a, b) + self.gpu.burn_watts * self.burn_time(a, b)
    }

    /// Power in milliwatts, as a sensor shows it at `at`.
    pub(crate) fn power_mw(&self, shown: Shown, at: i64) -> u32 {
        let sensor = match shown {
            Shown::Instant => &self.gpu.instant,
            Shown::Average => &self.gpu.average,
        };
        milliwatts(sensor.reading(sensor.appeared(at), |a, b| self.joules(a, b)))
    }

    /// Power in milliwatts of a scope other than the GPU: 1 is the module, 2 the memory.
    pub(crate) fn scoped_power_mw(&self, shown: Shown, scope: u32) -> Result<u32, Code> {
        let signal = match scope {
            0 => return Ok(self.power_mw(shown, self.now)),
            1 => &self.gpu.module_power_w,
            2 => &self.gpu.memory_power_w,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        let signal = signal.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let sensor = match shown {
            Shown::Instant => &self.gpu.instant,
            Shown::Average => &self.gpu.average,
        };
        Ok(milliwatts(sensor.reading(sensor.appeared(self.now), |a, b| signal.area(a, b))))
    }

    /// `nvmlDeviceGetPowerUsage`.
    pub(crate) fn power_usage_mw(&self) -> u32 {
        self.power_mw(self.gpu.usage, self.now)
    }

    /// The energy counter, in millijoules.
    pub(crate) fn energy_mj(&self) -> u64 {
        let Energy { period_s, phase_s, resolution_mj, start_mj, gain, ref resets_s } = self.gpu.energy;
        let at = seconds(last_multiple(period_s, phase_s, self.now));
        let since = resets_s.iter().copied().filter(|&reset| reset <= at).max_by(f64::total_cmp);
        let (from, start) = since.map_or((0.0, start_mj as f64), |reset| (reset, 0.0));
        let counted = start + gain * self.joules(from, at) * 1000.0 + ROUNDING_MJ;
        let resolution = resolution_mj as f64;
        // The cast saturates at 0.
        (counted / resolution).floor() as u64 * resolution_mj
    }

    /// Utilisation of the GPU in percent, as its sensor shows it at `at`.
    pub(crate) fn gpu_utilization(&self, at: i64) -> u32 {
        let signal = &self.gpu.utilization_pct.gpu;
        self.utilization(at, |a, b| {
            let burnt = self.burn_time(a, b);
            // Where kernels run it is 100, elsewhere what the scenario says, taken as even over the window.
            signal.area(a, b) * (1.0 - burnt / (b - a)) + 100.0 * burnt
        })
    }

    /// Utilisation of the memory in percent, as its sensor shows it at `at`.
    pub(crate) fn memory_utilization(&self, at: i64) -> u32 {
        self.utilization(at, |a, b| self.gpu.utilization_pct.memory.area(a, b))
    }

    fn utilization(&self, at: i64, area: impl Fn(f64, f64) -> f64) -> u32 {
        let sensor = &self.gpu.utilization_pct.sensor;
        sensor.reading(sensor.appeared(at), area).round() as u32
    }

    fn burn_time(&self, a: f64, b: f64) -> f64 {
        self.running.burns.time(self.index, a, b)
    }
}

/// Watts in milliwatts, rounded; what is below 0 is 0.
fn milliwatts(watts: f64) -> u32 {
    (watts * 1000.0).round() as u32
}
