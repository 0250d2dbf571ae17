//! Methods 2 and 3: the integral of power, by the trapezoid rule.
//!
//! The average of the last second says what the power was half a second ago: it is shifted back by that half, or a
//! window would begin with the half second before it. Instant power is the last resort: the sensor looks at 25 ms of
//! every 100 (Yang, Adamek, Armour, arXiv 2312.02741), so a load that keeps in step with it is seen wrongly by any
//! amount, however fast it is polled. A test shows that; the order of methods must never be turned round.

use super::counter::MAX_WATTS;
use super::{LONGEST_CALL_NS, Measured};
use crate::telemetry::points::Points;
use crate::telemetry::{PowerSample, Window};

/// What the 1 s average averages over, seconds (H100, H200, A100: arXiv 2312.02741, and NVML's documentation).
pub const AVERAGE_SECONDS: f64 = 1.0;

/// Between two values of the sensor, seconds: what is not seen at an edge even by fast polls.
const SENSOR_SECONDS: f64 = 0.1;

/// The 1 s average in watts, each reading in the middle of the second that it speaks of. Readings that no board gives
/// are left out: above [`MAX_WATTS`], or 0 (what a sensor says that is asked too fast).
pub(in crate::telemetry) fn average_points(samples: &[PowerSample], window: Window) -> Points {
    points(samples, window, AVERAGE_SECONDS / 2.0, |s| s.average_mw)
}

/// Instant power in watts.
pub(in crate::telemetry) fn instant_points(samples: &[PowerSample], window: Window) -> Points {
    points(samples, window, 0.0, |s| s.instant_mw)
}

fn points(
    samples: &[PowerSample],
    window: Window,
    back: f64,
    signal: impl Fn(&PowerSample) -> Option<u32>,
) -> Points {
    let timed = samples.iter().filter(|s| s.width_ns <= LONGEST_CALL_NS);
    let read = timed.filter_map(|s| Some((window.seconds_at(s.at) - back, believed(signal(s)?)?)));
    Points::new(read, window.seconds())
}

/// A reading in watts, if a board can have given it.
pub(super) fn believed(milliwatts: u32) -> Option<f64> {
    let watts = f64::from(milliwatts) / 1e3;
    (watts > 0.0 && watts <= MAX_WATTS).then_some(watts)
}

/// Energy from the 1 s average. Sampling has to go on for half a second after the window; the last value is held for
/// at most as long as it averages over.
pub(super) fn by_average(points: &Points) -> Option<Measured> {
    // A load that begins at an edge is spread over the second round it: an eighth of a second of its power is on the
    // wrong side.
    measured(points, AVERAGE_SECONDS, AVERAGE_SECONDS / 8.0)
}

/// Energy from instant power.
pub(super) fn by_instant(points: &Points) -> Option<Measured> {
    measured(points, 2.0 * SENSOR_SECONDS, SENSOR_SECONDS / 2.0)
}

fn measured(points: &Points, hold: f64, blurred_seconds: f64) -> Option<Measured> {
    let integral = points.integral(hold)?;
    let edge = |i: usize| {
        let (watts, gap) = (integral.edges[i], integral.edge_gaps[i]);
        watts * (gap / 2.0 + blurred_seconds)
    };
    Some(Measured {
        joules: integral.sum,
        edge_watts: integral.edges,
        edge_joules: [edge(0), edge(1)],
        extrapolated: integral.held,
        largest_gap: points.largest_gap(),
    })
}
