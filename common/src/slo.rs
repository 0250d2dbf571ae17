//! Service level objectives: what a request, or a trial, has to meet to count as good.
//!
//! Owns how an objective is written (`ttft=1s`, `p99:ttft=1s`) and read. What the metrics mean is in
//! [`crate::metrics`]; whether a trial met its objectives is in [`crate::summary`]. An objective's serde form is its
//! text, so that a stored plan, a report and a command line say the same words. It must never change a limit while
//! reading it: a time is read in integer nanoseconds, and what is shown reads back as the same objective (a property
//! test guards that).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::Nanos;

/// A metric that an objective can limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SloMetric {
    /// First content − scheduled.
    Ttft,
    /// (Last content − first content)/(output tokens − 1).
    Tpot,
    /// Finished − scheduled.
    E2e,
    /// The largest proven gap between two tokens of one request.
    Itl,
}

impl SloMetric {
    /// Every metric, in the order in which they are shown.
    pub const ALL: &'static [Self] = &[Self::Ttft, Self::Tpot, Self::E2e, Self::Itl];

    /// The name used on the command line and in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::E2e => "e2e",
            Self::Itl => "itl",
        }
    }
}

/// A percentile above 0 and at most 100, exact to a thousandth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percentile {
    thousandths: u32,
}

impl Percentile {
    /// Of 100.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.thousandths) / 1000.0
    }

    fn parse(digits: &str) -> Option<Self> {
        let thousandths = u32::try_from(decimal(digits, 1000)?).ok()?;
        (1..=100_000).contains(&thousandths).then_some(Self { thousandths })
    }
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", shown_decimal(u64::from(self.thousandths), 1000))
    }
}

/// Over what an objective is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SloScope {
    /// Each request has to meet it; attainment is the share that does.
    EachRequest,
    /// The percentile over the trial has to meet it; a failure counts as infinite.
    Trial(Percentile),
}

/// One objective: a metric must be at most `limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Slo {
    /// Over what it is taken.
    pub scope: SloScope,
    /// What is limited.
    pub metric: SloMetric,
    /// The largest value that still meets the objective. Never 0.
    pub limit: Nanos,
}

/// Why an objective was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SloError {
    /// Not `metric=time`.
    #[error("SLO {0:?}: expected METRIC=TIME, as in ttft=1s, or pNN:METRIC=TIME, as in p99:ttft=1s")]
    Form(String),
    /// A metric that has no objective.
    #[error("SLO {text:?}: unknown metric {metric:?}; known are ttft, tpot, e2e and itl")]
    Metric {
        /// As given.
        text: String,
        /// The part that is wrong.
        metric: String,
    },
    /// Not a percentile.
    #[error(
        "SLO {text:?}: {percentile:?} is not a percentile; write p50, p99 or p99.9 (above 0, at most 100)"
    )]
    Percentile {
        /// As given.
        text: String,
        /// The part that is wrong.
        percentile: String,
    },
    /// Not a time.
    #[error("SLO {text:?}: {source}")]
    Time {
        /// As given.
        text: String,
        /// What is wrong with the time.
        source: TimeError,
    },
    /// Two limits for one thing.
    #[error("SLO \"{first}\" and SLO \"{second}\" limit the same thing: give only one of them")]
    Duplicate {
        /// The earlier one.
        first: Slo,
        /// The later one.
        second: Slo,
    },
}

/// Why a time was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// Not a number with a unit.
    #[error("{0:?} is not a time; write 0.5 (seconds), 500ms or 1s")]
    NotATime(String),
    /// Nothing meets it.
    #[error("a limit of 0 cannot be met")]
    Zero,
}

/// Reads a time above zero: a bare number is seconds, otherwise a decimal with `s`, `ms`, `us` or `ns`, or anything
/// that humantime knows, such as `1m 30s`.
///
/// # Errors
/// See [`TimeError`].
pub fn parse_time(text: &str) -> Result<Nanos, TimeError> {
    let text = text.trim();
    let refused = || TimeError::NotATime(text.to_owned());
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let scale = match unit.trim() {
        "" | "s" | "sec" => Some(1_000_000_000),
        "ms" => Some(1_000_000),
        "us" | "µs" => Some(1_000),
        "ns" => Some(1),
        _ => None,
    };
    let nanos = match scale {
        Some(scale) => Nanos(decimal(number, scale).ok_or_else(refused)?),
        None => Nanos::from(humantime::parse_duration(text).map_err(|_| refused())?),
    };
    if nanos == Nanos::ZERO { Err(TimeError::Zero) } else { Ok(nanos) }
}

/// A decimal such as `1.5` times `scale`, rounded to the nearest integer; none for anything else, or if too large.
/// Integers throughout: a limit read through floating point could move by a nanosecond.
fn decimal(text: &str, scale: u64) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.chars().all(|c| c.is_ascii_digit());
    if whole.is_empty() && part.is_empty() || !digits(whole) || !digits(part) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Twelve digits are beyond a picosecond; more cannot change the rounding by more than that.
    let part = &part[..part.len().min(12)];
    let unit = 10u128.pow(part.len() as u32);
    let part: u128 = if part.is_empty() { 0 } else { part.parse().ok()? };
    let fraction = (part * u128::from(scale) + unit / 2) / unit;
    whole.checked_mul(scale)?.checked_add(u64::try_from(fraction).ok()?)
}

/// `value/scale` as a decimal without trailing zeros; `scale` is a power of ten.
fn shown_decimal(value: u64, scale: u64) -> String {
    let (whole, part) = (value / scale, value % scale);
    if part == 0 {
        return whole.to_string();
    }
    let width = scale.ilog10() as usize;
    let part = format!("{part:0width$}");
    format!("{whole}.{}", part.trim_end_matches('0'))
}

/// A time in the largest unit that leaves a whole part, exact: `1.5s`, `50ms`.
#[must_use]
pub fn shown_time(time: Nanos) -> String {
    let (scale, unit) = match time.0 {
        0 => (1_000_000_000, "s"),
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    format!("{}{unit}", shown_decimal(time.0, scale))
}

impl FromStr for Slo {
    type Err = SloError;
    fn from_str(text: &str) -> Result<Self, SloError> {
        let (left, time) = text.split_once('=').ok_or_else(|| SloError::Form(text.to_owned()))?;
        let (scope, metric) = match left.split_once(':') {
            None => (SloScope::EachRequest, left),
            Some((percentile, metric)) => {
                let parsed = percentile.trim().strip_prefix(['p', 'P']).and_then(Percentile::parse);
                let refused = || SloError::Percentile {
                    text: text.to_owned(),
                    percentile: percentile.trim().to_owned(),
                };
                (SloScope::Trial(parsed.ok_or_else(refused)?), metric)
            }
        };
        let metric = metric.trim();
        let known = SloMetric::ALL.iter().copied().find(|m| m.name().eq_ignore_ascii_case(metric));
        let metric =
            known.ok_or_else(|| SloError::Metric { text: text.to_owned(), metric: metric.to_owned() })?;
        let limit = parse_time(time).map_err(|source| SloError::Time { text: text.to_owned(), source })?;
        Ok(Self { scope, metric, limit })
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let SloScope::Trial(percentile) = self.scope {
            write!(f, "{percentile}:")?;
        }
        write!(f, "{}={}", self.metric.name(), shown_time(self.limit))
    }
}

impl TryFrom<String> for Slo {
    type Error = SloError;
    fn try_from(s: String) -> Result<Self, SloError> {
        s.parse()
    }
}

impl From<Slo> for String {
    fn from(s: Slo) -> String {
        s.to_string()
    }
}

mod set;
pub use set::{SloSet, Target, TargetError};

#[cfg(test)]
mod tests;
