//! The numbers of each request that several results need: a column each, in the order in which traces come.
//!
//! Percentiles want them sorted and intervals want them by time, so they are kept once and a list is made of them where
//! one is needed: with millions of requests a second copy of each is what would fill the memory.

use crate::ids::Nanos;
use crate::metrics::{RequestMetrics, Tpot};
use crate::stats::Observation;

/// Stands for a metric that a request does not have. No clock gives it.
const NONE: f64 = f64::NAN;

const SUCCESS: u8 = 1;
const GOOD: u8 = 2;

#[derive(Debug, Default)]
pub(super) struct Requests {
    scheduled: Vec<f64>,
    e2e: Vec<f64>,
    ttft: Vec<f64>,
    tpot: Vec<f64>,
    marks: Vec<u8>,
}

/// A metric that is kept of every request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Metric {
    Ttft,
    Tpot,
    E2e,
}

impl Requests {
    pub(super) fn add(&mut self, metrics: &RequestMetrics, success: bool, good: bool) {
        self.scheduled.push(metrics.outline().scheduled.as_secs_f64());
        self.e2e.push(metrics.e2e.as_secs_f64());
        self.ttft.push(metrics.ttft.map_or(NONE, Nanos::as_secs_f64));
        self.tpot.push(metrics.tpot.map_or(NONE, Tpot::as_secs_f64));
        self.marks.push((u8::from(success) * SUCCESS) | (u8::from(good) * GOOD));
    }

    fn of(&self, metric: Metric) -> &[f64] {
        match metric {
            Metric::Ttft => &self.ttft,
            Metric::Tpot => &self.tpot,
            Metric::E2e => &self.e2e,
        }
    }

    /// Of the successes that have it.
    pub(super) fn observations(&self, metric: Metric) -> Vec<Observation> {
        let rows = self.scheduled.iter().zip(self.of(metric)).zip(&self.marks);
        let has = rows.filter(|((_, value), marks)| **marks & SUCCESS != 0 && !value.is_nan());
        has.map(|((&at, &value), _)| Observation { at, value }).collect()
    }

    /// The values of the successes that have it.
    pub(super) fn values(&self, metric: Metric) -> Vec<f64> {
        let rows = self.of(metric).iter().zip(&self.marks);
        rows.filter(|(value, marks)| **marks & SUCCESS != 0 && !value.is_nan())
            .map(|(&value, _)| value)
            .collect()
    }

    /// The E2E of every request, failures included: the pace of the trial.
    pub(super) fn pace(&self) -> Vec<Observation> {
        self.scheduled.iter().zip(&self.e2e).map(|(&at, &value)| Observation { at, value }).collect()
    }

    /// 1 for each good request and 0 for any other.
    pub(super) fn good(&self) -> Vec<Observation> {
        let rows = self.scheduled.iter().zip(&self.marks);
        rows.map(|(&at, marks)| Observation { at, value: f64::from(u8::from(marks & GOOD != 0)) }).collect()
    }
}
