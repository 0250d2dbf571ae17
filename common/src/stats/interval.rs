//! A confidence interval, or the reason why there is none.
//!
//! An interval that is not there is part of the result: whoever shows a number says `no interval` beside it, and why.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A 95% confidence interval, or the reason why there is none. In JSON `{low, high, batches, lag1}`, or `{none}` with
/// `min` and `max` where there are repeats.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Interval {
    /// The value lies within, in the units of the samples.
    Known {
        /// Lower end.
        low: f64,
        /// Upper end.
        high: f64,
        /// Batches that it comes from.
        batches: u32,
        /// Lag-1 correlation of the batches; the largest one where there are repeats.
        lag1: f64,
    },
    /// No interval.
    None {
        /// Why.
        #[serde(rename = "none")]
        reason: NoInterval,
        /// Smallest value over the repeats, where there are any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min: Option<f64>,
        /// Largest value over the repeats, where there are any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<f64>,
    },
}

impl Interval {
    /// No interval, and no repeats.
    #[must_use]
    pub fn none(reason: NoInterval) -> Self {
        Self::None { reason, min: None, max: None }
    }

    /// Lower and upper end.
    #[must_use]
    pub fn ends(&self) -> Option<(f64, f64)> {
        match *self {
            Self::Known { low, high, .. } => Some((low, high)),
            Self::None { .. } => None,
        }
    }

    /// Whether it is there and holds `value`.
    #[must_use]
    pub fn covers(&self, value: f64) -> bool {
        self.ends().is_some_and(|(low, high)| low <= value && value <= high)
    }

    /// The reason, where there is no interval.
    #[must_use]
    pub fn reason(&self) -> Option<NoInterval> {
        match *self {
            Self::Known { .. } => None,
            Self::None { reason, .. } => Some(reason),
        }
    }
}

/// Why there is no interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoInterval {
    /// Rate `inf` or a closed loop: there is no length to cut into batches.
    NoLength,
    /// The load changes over the trial, as in a ramp.
    NotStationary,
    /// No request has the metric, or there is no objective.
    Undefined,
    /// Ten batches would be shorter than ten times the median E2E.
    TooShort,
    /// Too few requests for ten batches, or for a percentile.
    TooFewRequests,
    /// What happens in one batch still shows in the next.
    Correlated,
    /// Fewer than 5 requests missed (or fewer than 5 met) the objectives.
    TooFewMissed,
    /// The largest samples are too few to bound the percentile from above.
    TailTooShort,
    /// A repeat of the rate has no batches, or none is valid.
    NotEveryRepeat,
}

impl NoInterval {
    /// Every reason.
    pub const ALL: &'static [Self] = &[
        Self::NoLength,
        Self::NotStationary,
        Self::Undefined,
        Self::TooShort,
        Self::TooFewRequests,
        Self::Correlated,
        Self::TooFewMissed,
        Self::TailTooShort,
        Self::NotEveryRepeat,
    ];
}

impl fmt::Display for NoInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLength => "no length to cut into batches",
            Self::NotStationary => "the load changes over the trial",
            Self::Undefined => "no samples",
            Self::TooShort => "too short for ten batches",
            Self::TooFewRequests => "too few requests",
            Self::Correlated => "batches correlated",
            Self::TooFewMissed => "fewer than 5 missed",
            Self::TailTooShort => "too few samples beyond the percentile",
            Self::NotEveryRepeat => "not every repeat qualifies",
        })
    }
}
