//! The objectives of a run, and the share of requests that has to meet them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Slo, SloError, SloMetric, SloScope};
use crate::ids::Nanos;

/// All objectives of a run, without two that limit the same thing. Its serde form is the list of their texts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<Slo>", into = "Vec<Slo>")]
pub struct SloSet {
    slos: Vec<Slo>,
}

impl SloSet {
    /// The objectives, in a fixed order: those on each request first, then by metric.
    ///
    /// # Errors
    /// [`SloError::Duplicate`] when two limit the same thing.
    pub fn new(mut slos: Vec<Slo>) -> Result<Self, SloError> {
        // Stable, so that of two duplicates the one given first is named first.
        slos.sort_by_key(|s| (s.scope, s.metric));
        for pair in slos.windows(2) {
            if let [first, second] = pair
                && (first.scope, first.metric) == (second.scope, second.metric)
            {
                return Err(SloError::Duplicate { first: *first, second: *second });
            }
        }
        Ok(Self { slos })
    }

    /// No objective at all: no goodput, no attainment, no knee.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slos.is_empty()
    }

    /// Every objective.
    pub fn iter(&self) -> impl Iterator<Item = Slo> + '_ {
        self.slos.iter().copied()
    }

    /// Those that each request has to meet.
    pub fn each_request(&self) -> impl Iterator<Item = (SloMetric, Nanos)> + '_ {
        self.slos.iter().filter(|s| s.scope == SloScope::EachRequest).map(|s| (s.metric, s.limit))
    }

    /// Those on a percentile over the trial.
    pub fn over_trial(&self) -> impl Iterator<Item = Slo> + '_ {
        self.slos.iter().copied().filter(|s| s.scope != SloScope::EachRequest)
    }

    /// Whether an objective needs per-event evidence: such a run is refused without it.
    #[must_use]
    pub fn needs_itl_evidence(&self) -> bool {
        self.slos.iter().any(|s| s.metric == SloMetric::Itl)
    }
}

impl TryFrom<Vec<Slo>> for SloSet {
    type Error = SloError;
    fn try_from(slos: Vec<Slo>) -> Result<Self, SloError> {
        Self::new(slos)
    }
}

impl From<SloSet> for Vec<Slo> {
    fn from(set: SloSet) -> Vec<Slo> {
        set.slos
    }
}

/// Objectives with blanks or commas between them; the empty text is no objective.
impl FromStr for SloSet {
    type Err = SloError;
    fn from_str(text: &str) -> Result<Self, SloError> {
        let words = text.split([',', ' ']).filter(|w| !w.is_empty());
        Self::new(words.map(str::parse).collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for SloSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, slo) in self.slos.iter().enumerate() {
            let gap = if i == 0 { "" } else { " " };
            write!(f, "{gap}{slo}")?;
        }
        Ok(())
    }
}

/// The share of scheduled requests that has to be good for a rate to pass: above 0, at most 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Target(f64);

/// Why a target was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a share of requests above 0 and at most 1; write 0.99 or 99%")]
pub struct TargetError(String);

impl Target {
    /// As a share of 1.
    #[must_use]
    pub fn share(self) -> f64 {
        self.0
    }

    /// Whether `met` of `scheduled` requests are enough. Nothing scheduled meets nothing.
    #[must_use]
    pub fn is_met_by(self, met: u64, scheduled: u64) -> bool {
        // One correctly rounded division: 198/200 is the same number as the 0.99 that was read.
        scheduled > 0 && met as f64 / scheduled as f64 >= self.0
    }
}

impl Default for Target {
    /// 99%.
    fn default() -> Self {
        Self(0.99)
    }
}

impl TryFrom<f64> for Target {
    type Error = TargetError;
    fn try_from(v: f64) -> Result<Self, TargetError> {
        if v > 0.0 && v <= 1.0 { Ok(Self(v)) } else { Err(TargetError(v.to_string())) }
    }
}

impl From<Target> for f64 {
    fn from(t: Target) -> f64 {
        t.0
    }
}

impl FromStr for Target {
    type Err = TargetError;
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let refused = || TargetError(format!("{text:?}"));
        let (number, of) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |n| (n.trim(), 100.0));
        let value: f64 = number.parse().map_err(|_| refused())?;
        Self::try_from(value / of).map_err(|_| refused())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Twelve digits hide the last bit of 0.999 × 100 and no digit that anybody gave.
        let percent = format!("{:.12}", self.0 * 100.0);
        write!(f, "{}%", percent.trim_end_matches('0').trim_end_matches('.'))
    }
}
