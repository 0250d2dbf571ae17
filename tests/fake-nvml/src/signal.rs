//! Quantities over time, and their exact integrals.
//!
//! Owns what a scenario can say of a changing quantity: a constant, straight lines between points, square waves,
//! and their sum; and steps, for what has no value in between. A test compares a measurement with the integral, so
//! every integral here has a closed form: nothing in this module may sample or approximate.
//!
//! Time is in seconds of the scenario. Guarded by the unit tests below and by `tests/energy.rs`.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

/// A quantity that changes along straight lines, with square waves on top.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Signal {
    points: Vec<Point>,
    squares: Vec<Square>,
}

/// A corner of the line. `area` is the integral from the first point to this one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    t: f64,
    value: f64,
    area: f64,
}

/// `high` for the first `duty` of every period, else `low`; `low` alone outside `from_s..to_s`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Square {
    low: f64,
    high: f64,
    period_s: f64,
    duty: f64,
    #[serde(default)]
    from_s: f64,
    to_s: Option<f64>,
}

impl Square {
    fn checked(self) -> Result<Self, String> {
        if !(self.period_s > 0.0 && self.period_s.is_finite()) {
            return Err(format!("a square wave's period_s must be above 0, it is {}", self.period_s));
        }
        if !(0.0..=1.0).contains(&self.duty) {
            return Err(format!("a square wave's duty must be from 0 to 1, it is {}", self.duty));
        }
        Ok(self)
    }

    fn at(&self, t: f64) -> f64 {
        let running = t >= self.from_s && self.to_s.is_none_or(|to| t < to);
        let in_period = (t - self.from_s).rem_euclid(self.period_s);
        if running && in_period < self.duty * self.period_s { self.high } else { self.low }
    }

    /// How long it was high before `t`.
    fn high_time(&self, t: f64) -> f64 {
        let run = (self.to_s.map_or(t, |to| t.min(to)) - self.from_s).max(0.0);
        let periods = (run / self.period_s).floor();
        let rest = run - periods * self.period_s;
        let on = self.duty * self.period_s;
        periods * on + rest.min(on)
    }

    fn area(&self, a: f64, b: f64) -> f64 {
        self.low * (b - a) + (self.high - self.low) * (self.high_time(b) - self.high_time(a))
    }
}

impl Signal {
    /// The same value at all times.
    pub(crate) fn constant(value: f64) -> Self {
        Self { points: vec![Point { t: 0.0, value, area: 0.0 }], squares: Vec::new() }
    }

    fn new(points: &[(f64, f64)], squares: Vec<Square>) -> Result<Self, String> {
        let mut line: Vec<Point> = Vec::with_capacity(points.len());
        for &(t, value) in points {
            let area = match line.last() {
                None => 0.0,
                Some(before) if t >= before.t => before.area + (before.value + value) / 2.0 * (t - before.t),
                Some(before) => return Err(format!("points must be in order: {t} follows {}", before.t)),
            };
            line.push(Point { t, value, area });
        }
        let squares = squares.into_iter().map(Square::checked).collect::<Result<_, _>>()?;
        Ok(Self { points: line, squares })
    }

    /// The value at `t`. At a jump (two points at one time) it is the later one.
    pub(crate) fn at(&self, t: f64) -> f64 {
        let next = self.points.partition_point(|point| point.t <= t);
        let line = match (next.checked_sub(1).map(|i| self.points[i]), self.points.get(next)) {
            (Some(a), Some(b)) => a.value + (b.value - a.value) * (t - a.t) / (b.t - a.t),
            (Some(only), None) => only.value,
            (None, Some(only)) => only.value,
            (None, None) => 0.0,
        };
        line + self.squares.iter().map(|square| square.at(t)).sum::<f64>()
    }

    /// The integral from `a` to `b`.
    pub(crate) fn area(&self, a: f64, b: f64) -> f64 {
        self.line_area(b) - self.line_area(a)
            + self.squares.iter().map(|square| square.area(a, b)).sum::<f64>()
    }

    /// The mean from `a` to `b`, or the value where they are the same.
    pub(crate) fn mean(&self, a: f64, b: f64) -> f64 {
        if b > a { self.area(a, b) / (b - a) } else { self.at(a) }
    }

    /// The line's integral from its first point to `t`, negative before it.
    fn line_area(&self, t: f64) -> f64 {
        let next = self.points.partition_point(|point| point.t <= t);
        match next.checked_sub(1).map(|i| self.points[i]) {
            // The line to `t` is a trapezoid of its own.
            Some(a) => {
                let here = match self.points.get(next) {
                    Some(b) => a.value + (b.value - a.value) * (t - a.t) / (b.t - a.t),
                    None => a.value,
                };
                a.area + (a.value + here) / 2.0 * (t - a.t)
            }
            None => self.points.first().map_or(0.0, |first| first.value * (t - first.t)),
        }
    }
}

/// A number, `[[t, value], ...]`, or `{"points": [...], "square": {...}, "squares": [...]}`.
impl<'de> Deserialize<'de> for Signal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = Signal;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a number, [[t, value], ...] or {"points", "square", "squares"}"#)
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Signal, E> {
                Ok(Signal::constant(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Signal, E> {
                Ok(Signal::constant(value as f64))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Signal, E> {
                Ok(Signal::constant(value as f64))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Signal, A::Error> {
                let mut points = Vec::new();
                while let Some(point) = seq.next_element()? {
                    points.push(point);
                }
                Signal::new(&points, Vec::new()).map_err(de::Error::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Signal, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Parts {
                    #[serde(default)]
                    points: Vec<(f64, f64)>,
                    square: Option<Square>,
                    #[serde(default)]
                    squares: Vec<Square>,
                }
                let parts = Parts::deserialize(de::value::MapAccessDeserializer::new(map))?;
                let squares = parts.square.into_iter().chain(parts.squares).collect();
                Signal::new(&parts.points, squares).map_err(de::Error::custom)
            }
        }

        deserializer.deserialize_any(Form)
    }
}

/// What keeps a value until the next step: `[[t, value], ...]` in the order of time; 0 before the first.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(try_from = "Vec<(f64, u64)>")]
pub(crate) struct Steps(Vec<(f64, u64)>);

impl TryFrom<Vec<(f64, u64)>> for Steps {
    type Error = &'static str;

    fn try_from(steps: Vec<(f64, u64)>) -> Result<Self, Self::Error> {
        if steps.is_sorted_by_key(|step| step.0) { Ok(Self(steps)) } else { Err("steps must be in order") }
    }
}

impl Steps {
    /// The same value at all times.
    pub(crate) fn constant(value: u64) -> Self {
        Self(vec![(f64::NEG_INFINITY, value)])
    }

    /// The value at `t`.
    pub(crate) fn at(&self, t: f64) -> u64 {
        self.0.iter().rev().find(|step| step.0 <= t).map_or(0, |step| step.1)
    }

    /// How long, from 0 to `t`, the value had one of the bits of `mask`.
    pub(crate) fn time_with(&self, mask: u64, t: f64) -> f64 {
        let ends = self.0.iter().skip(1).map(|step| step.0).chain([f64::INFINITY]);
        self.0
            .iter()
            .zip(ends)
            .filter(|((_, value), _)| value & mask != 0)
            .map(|((from, _), to)| (to.min(t) - from.max(0.0)).max(0.0))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(json: &str) -> Signal {
        serde_json::from_str(json).expect(json)
    }

    /// The midpoint rule is exact on a piece without a corner: on a grid of 1 ms, which has every corner of the
    /// signals below, it gives the same area.
    fn by_midpoints(signal: &Signal, a: f64, b: f64) -> f64 {
        let parts = ((b - a) * 1000.0).round() as usize;
        let width = (b - a) / parts as f64;
        (0..parts).map(|i| signal.at(a + (i as f64 + 0.5) * width) * width).sum()
    }

    #[test]
    fn areas_are_those_of_the_values() {
        for json in [
            "70",
            "[[0, 70], [2, 70], [2, 500], [5, 100.5]]",
            r#"{"square": {"low": 120, "high": 550, "period_s": 0.8, "duty": 0.5, "from_s": 0.5, "to_s": 4.0}}"#,
            r#"{"points": [[1, 50], [3, 90]], "squares": [{"low": 0, "high": 300, "period_s": 0.1, "duty": 0.3},
                {"low": 10, "high": 20, "period_s": 2, "duty": 0.25}]}"#,
        ] {
            let signal = signal(json);
            for (a, b) in [(-1.0, 0.5), (0.0, 7.0), (1.234, 4.321), (3.0, 3.001)] {
                let (got, want) = (signal.area(a, b), by_midpoints(&signal, a, b));
                assert!((got - want).abs() < 1e-6, "{json} {a}..{b}: {got} and {want}");
            }
        }
    }

    #[test]
    fn areas_of_known_shapes_are_exact() {
        let close = |got: f64, want: f64| assert!((got - want).abs() < 1e-9, "{got} and {want}");
        close(signal("[[0, 100], [10, 300]]").area(0.0, 10.0), 2000.0);
        close(signal("[[0, 100], [10, 300]]").area(-1.0, 0.0), 100.0);
        close(signal("[[0, 100], [10, 300]]").area(10.0, 11.0), 300.0);
        let square = r#"{"square": {"low": 100, "high": 500, "period_s": 0.1, "duty": 0.3}}"#;
        close(signal(square).area(0.0, 1.0), 220.0);
        close(signal(square).area(0.03, 0.1), 7.0);
        close(signal(square).area(-1.0, 0.0), 100.0);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (json, why) in [
            ("[[1, 1], [0, 1]]", "points must be in order"),
            (r#"{"square": {"low": 0, "high": 1, "period_s": 0, "duty": 0.5}}"#, "period_s"),
            (r#"{"square": {"low": 0, "high": 1, "period_s": 1, "duty": 1.5}}"#, "duty"),
            (r#"{"pionts": []}"#, "pionts"),
            (r#""70""#, "a number"),
        ] {
            let error = serde_json::from_str::<Signal>(json).expect_err(json).to_string();
            assert!(error.contains(why), "{json}: {error}");
        }
    }

    #[test]
    fn steps_hold_and_their_time_is_summed() {
        let steps: Steps = serde_json::from_str("[[1, 4], [2, 0], [3, 36]]").expect("steps");
        assert_eq!([0.0, 1.0, 1.9, 2.0, 9.0].map(|t| steps.at(t)), [0, 4, 4, 0, 36]);
        assert_eq!([0.5, 1.5, 2.5, 4.0].map(|t| steps.time_with(4, t)), [0.0, 0.5, 1.0, 2.0]);
        assert_eq!(Steps::constant(1).time_with(1, 3.0), 3.0);
    }
}
