//! How arrivals are asked for: process, rate and extent, validated. With a seed they are a schedule.
//!
//! Owns what a plan of arrivals means and which plans are refused. It never makes an arrival: `process` does.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::Nanos;

/// Arrivals beyond this are refused: at 32 bytes each the schedule alone would be over 3 GB.
pub const MAX_ARRIVALS: u64 = 100_000_000;

/// A finite arrival rate above zero, in requests per second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Rate(f64);

impl Rate {
    /// Requests per second.
    #[must_use]
    pub fn per_second(self) -> f64 {
        self.0
    }
}

/// Why a rate was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rate {0} is not a number of requests per second above 0 and at most 1000000 (or `inf`)")]
pub struct RateError(String);

impl TryFrom<f64> for Rate {
    type Error = RateError;
    fn try_from(v: f64) -> Result<Self, RateError> {
        // Below one in a day or above a million a second is a slip of the keyboard, not a load.
        if v.is_finite() && (1e-5..=1e6).contains(&v) { Ok(Self(v)) } else { Err(RateError(v.to_string())) }
    }
}

impl From<Rate> for f64 {
    fn from(r: Rate) -> f64 {
        r.0
    }
}

/// The configured arrival rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferedRate {
    /// λ.
    PerSecond(Rate),
    /// All at 0.
    Infinite,
    /// No rate at all: so many workers, each sending its next request when its last ends. It shows what a closed loop
    /// hides, and is never to be taken for a rate.
    Closed(u32),
}

impl OfferedRate {
    /// λ, or none for `inf`.
    #[must_use]
    pub fn per_second(self) -> Option<f64> {
        match self {
            Self::PerSecond(r) => Some(r.per_second()),
            Self::Infinite | Self::Closed(_) => None,
        }
    }

    /// Workers of a closed loop.
    #[must_use]
    pub fn workers(self) -> Option<u32> {
        match self {
            Self::Closed(workers) => Some(workers),
            Self::PerSecond(_) | Self::Infinite => None,
        }
    }
}

impl FromStr for OfferedRate {
    type Err = RateError;
    fn from_str(s: &str) -> Result<Self, RateError> {
        let s = s.trim();
        if s.eq_ignore_ascii_case("inf") {
            return Ok(Self::Infinite);
        }
        // As it is displayed, for what was kept of a run.
        if let Some(workers) = s.strip_prefix("closed ") {
            return workers.parse().map(Self::Closed).map_err(|_| RateError(format!("{s:?}")));
        }
        let value: f64 = s.parse().map_err(|_| RateError(format!("{s:?}")))?;
        Rate::try_from(value).map(Self::PerSecond).map_err(|_| RateError(s.to_owned()))
    }
}

impl fmt::Display for OfferedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerSecond(r) => r.0.fmt(f),
            Self::Infinite => f.write_str("inf"),
            Self::Closed(workers) => write!(f, "closed {workers}"),
        }
    }
}

/// The shape of the arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "process", rename_all = "snake_case")]
pub enum Process {
    /// Exponential gaps.
    Poisson,
    /// i/λ.
    Constant,
    /// Groups of `size`, `size`/λ apart.
    Burst {
        /// Requests that arrive at one instant.
        size: u32,
    },
    /// Gaps of a gamma distribution with mean 1/λ.
    Gamma {
        /// Standard deviation of a gap over its mean: 1 is Poisson, above it arrivals come in clusters. Above
        /// [`MIN_CV`] and at most [`MAX_CV`].
        cv: f64,
    },
    /// Poisson with a rate that moves linearly from λ to another over the length L of the plan.
    Ramp {
        /// The rate at L, and after it.
        to: Rate,
    },
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson => f.write_str("poisson"),
            Self::Constant => f.write_str("constant"),
            Self::Burst { size } => write!(f, "burst of {size}"),
            Self::Gamma { cv } => write!(f, "gamma with a coefficient of variation of {cv}"),
            Self::Ramp { to } => write!(f, "poisson ramping to {}/s", to.per_second()),
        }
    }
}

/// How much is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// This many arrivals.
    Requests(u64),
    /// The arrivals of this long.
    Duration(Nanos),
}

/// A coefficient of variation has to be above this: what is more regular is `constant`.
pub const MIN_CV: f64 = 0.01;
/// A coefficient of variation is at most this: beyond it a trial is a few clusters and says nothing of its rate.
pub const MAX_CV: f64 = 100.0;

/// Process, rate and extent: with a seed they are a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ArrivalPlan {
    /// The shape.
    pub process: Process,
    /// λ.
    pub rate: OfferedRate,
    /// How much.
    pub extent: Extent,
}

/// Why an arrival plan cannot be run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ArrivalError {
    /// Nothing would be sent.
    #[error("--requests must be at least 1")]
    NoRequests,
    /// Nothing would be sent.
    #[error("--duration must be above 0")]
    NoDuration,
    /// Without a rate a duration does not say how many.
    #[error("a rate of inf sends everything at once: say how many with --requests, not --duration")]
    EndlessDuration,
    /// The schedule would not fit into memory.
    #[error(
        "{0} arrivals are more than the {MAX_ARRIVALS} that one trial may have: lower the rate or the duration"
    )]
    TooMany(u64),
    /// A closed loop of nobody.
    #[error("--concurrency must be at least 1")]
    NoWorkers,
    /// A closed loop has no schedule, so a duration does not say how many.
    #[error(
        "a closed loop sends as fast as the engine answers: say how many with --requests, not --duration"
    )]
    ClosedDuration,
    /// A burst of nothing.
    #[error("--burst-size must be at least 1")]
    EmptyBurst,
    /// Not a variation that a gamma process is drawn for.
    #[error("--cv must be above {MIN_CV} and at most {MAX_CV}, not {0}")]
    Cv(f64),
    /// A rate of inf sends everything at 0, whatever the process says.
    #[error("a rate of inf sends everything at once: {0} would be ignored")]
    ShapeOfInfinite(&'static str),
}

impl ArrivalPlan {
    /// Says whether the plan can be run.
    ///
    /// # Errors
    /// See [`ArrivalError`].
    pub fn validate(&self) -> Result<(), ArrivalError> {
        match (self.process, self.rate) {
            (Process::Burst { size: 0 }, _) => return Err(ArrivalError::EmptyBurst),
            // Written so that not-a-number is refused too.
            (Process::Gamma { cv }, _) if !(cv > MIN_CV && cv <= MAX_CV) => return Err(ArrivalError::Cv(cv)),
            (Process::Gamma { .. }, OfferedRate::Infinite) => {
                return Err(ArrivalError::ShapeOfInfinite("--cv"));
            }
            (Process::Ramp { .. }, OfferedRate::Infinite) => {
                return Err(ArrivalError::ShapeOfInfinite("--rate-end"));
            }
            (_, OfferedRate::Closed(0)) => return Err(ArrivalError::NoWorkers),
            (_, OfferedRate::Closed(_)) if matches!(self.extent, Extent::Duration(_)) => {
                return Err(ArrivalError::ClosedDuration);
            }
            _ => {}
        }
        let expected = match (self.extent, self.mean_rate()) {
            (Extent::Requests(0), _) => return Err(ArrivalError::NoRequests),
            (Extent::Duration(Nanos(0)), _) => return Err(ArrivalError::NoDuration),
            (Extent::Duration(_), None) => return Err(ArrivalError::EndlessDuration),
            (Extent::Requests(n), _) => n,
            (Extent::Duration(d), Some(rate)) => (d.as_secs_f64() * rate).ceil() as u64,
        };
        if expected > MAX_ARRIVALS { Err(ArrivalError::TooMany(expected)) } else { Ok(()) }
    }

    /// Expected arrivals per second over L: λ, and for a ramp the middle of its two rates. None for `inf`.
    #[must_use]
    pub fn mean_rate(&self) -> Option<f64> {
        let from = self.rate.per_second()?;
        Some(match self.process {
            Process::Ramp { to } => from.midpoint(to.per_second()),
            _ => from,
        })
    }

    /// L: the duration asked for, or N over the mean rate (N/λ; for a ramp, L is where the integral of its rate
    /// reaches N). None for `inf`, which has no length.
    #[must_use]
    pub fn length(&self) -> Option<Nanos> {
        match (self.extent, self.mean_rate()) {
            (Extent::Duration(d), _) => Some(d),
            (Extent::Requests(n), Some(rate)) => Some(Nanos::from_secs_f64(n as f64 / rate)),
            (Extent::Requests(_), None) => None,
        }
    }

    /// Whether the load is the same from beginning to end. Where it is not, there is no interval and no saturation to
    /// speak of: what changes is the load.
    #[must_use]
    pub fn is_stationary(&self) -> bool {
        self.rate.per_second().is_some() && !matches!(self.process, Process::Ramp { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_that_are_no_load_are_refused() {
        for bad in ["0", "-1", "nan", "NaN", "-inf", "1e9", "", "x", "4/s"] {
            let e = bad.parse::<OfferedRate>().expect_err(bad);
            assert!(e.to_string().contains("requests per second"), "{e}");
        }
        assert_eq!("inf".parse::<OfferedRate>().unwrap(), OfferedRate::Infinite);
        assert_eq!(" 2.5".parse::<OfferedRate>().unwrap().per_second(), Some(2.5));
    }

    #[test]
    fn extents_that_cannot_be_run_are_refused() {
        let plan = |rate: &str, extent| ArrivalPlan {
            process: Process::Poisson,
            rate: rate.parse().unwrap(),
            extent,
        };
        let long = Extent::Duration(Nanos::from_secs(1_000_000));
        assert_eq!(plan("1", Extent::Requests(0)).validate(), Err(ArrivalError::NoRequests));
        assert_eq!(plan("inf", long).validate(), Err(ArrivalError::EndlessDuration));
        assert!(matches!(plan("1000", long).validate(), Err(ArrivalError::TooMany(_))));
        assert_eq!(plan("4", Extent::Requests(200)).length(), Some(Nanos::from_secs(50)));
        let shaped = |process, rate: &str| {
            let rate = rate.parse().unwrap();
            ArrivalPlan { process, rate, extent: Extent::Requests(10) }.validate()
        };
        for cv in [0.0, MIN_CV, -1.0, 101.0, f64::NAN, f64::INFINITY] {
            let refused = shaped(Process::Gamma { cv }, "4").expect_err("no such variation").to_string();
            assert!(refused.contains("--cv must be above 0.01 and at most 100"), "{refused}");
        }
        assert_eq!(shaped(Process::Gamma { cv: MAX_CV }, "4"), Ok(()));
        assert_eq!(shaped(Process::Gamma { cv: 2.0 }, "inf"), Err(ArrivalError::ShapeOfInfinite("--cv")));
        let ramp = Process::Ramp { to: Rate(8.0) };
        assert_eq!(shaped(ramp, "inf"), Err(ArrivalError::ShapeOfInfinite("--rate-end")));
    }

    #[test]
    fn a_ramp_is_as_long_as_its_mean_rate_says() {
        let ramp = |extent| ArrivalPlan {
            process: Process::Ramp { to: Rate(8.0) },
            rate: OfferedRate::PerSecond(Rate(2.0)),
            extent,
        };
        assert_eq!(ramp(Extent::Requests(50)).length(), Some(Nanos::from_secs(10)));
        assert_eq!(ramp(Extent::Duration(Nanos::from_secs(3))).length(), Some(Nanos::from_secs(3)));
        assert_eq!(ramp(Extent::Requests(50)).mean_rate(), Some(5.0));
        assert!(!ramp(Extent::Requests(50)).is_stationary());
        let text = serde_json::to_string(&ramp(Extent::Requests(50)).process).unwrap();
        assert_eq!(text, r#"{"process":"ramp","to":8.0}"#);
        let gamma: Process = serde_json::from_str(r#"{"process":"gamma","cv":0.5}"#).unwrap();
        assert_eq!(gamma, Process::Gamma { cv: 0.5 });
    }
}
