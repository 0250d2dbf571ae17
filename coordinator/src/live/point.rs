//! The quantities that are drawn over time, and one moment of all of them.

use serde::Serialize;
use serde::ser::SerializeStruct;

/// A quantity of which the live view keeps a time line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Metric {
    /// The configured rate, requests per second; of a ramp, its value then. None for `inf` and a closed loop.
    Offered,
    /// Requests that the agents released, per second.
    Sent,
    /// Requests that ended well, per second.
    Achieved,
    /// Those of them that met every objective on a request, per second.
    Goodput,
    /// Requests that failed, per second.
    Failed,
    /// Requests in flight, as the agents count them.
    InFlight,
    /// Median TTFT of the requests that ended well in that second, seconds.
    TtftP50,
    /// 99th percentile of the same, seconds.
    TtftP99,
    /// The worst dispatch lateness p99 of an agent since the trial's start, seconds.
    LatenessP99,
    /// Power of the engine's GPUs together, watts.
    GpuPower,
    /// Memory in use on the engine's GPUs together, bytes.
    GpuMemory,
    /// Requests that the engine works on, by its own metrics.
    EngineRunning,
    /// Requests that wait in the engine, by its own metrics.
    EngineWaiting,
    /// Share of the engine's KV cache in use, 0 to 1.
    KvCache,
}

impl Metric {
    /// Every metric, in the order in which a point has them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Offered,
        Self::Sent,
        Self::Achieved,
        Self::Goodput,
        Self::Failed,
        Self::InFlight,
        Self::TtftP50,
        Self::TtftP99,
        Self::LatenessP99,
        Self::GpuPower,
        Self::GpuMemory,
        Self::EngineRunning,
        Self::EngineWaiting,
        Self::KvCache,
    ];

    /// How many there are.
    pub const COUNT: usize = 14;

    /// The name in every output, with its unit.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Offered => "offered_per_second",
            Self::Sent => "sent_per_second",
            Self::Achieved => "achieved_per_second",
            Self::Goodput => "goodput_per_second",
            Self::Failed => "failed_per_second",
            Self::InFlight => "in_flight",
            Self::TtftP50 => "ttft_p50_seconds",
            Self::TtftP99 => "ttft_p99_seconds",
            Self::LatenessP99 => "lateness_p99_seconds",
            Self::GpuPower => "gpu_power_watts",
            Self::GpuMemory => "gpu_memory_bytes",
            Self::EngineRunning => "engine_running",
            Self::EngineWaiting => "engine_waiting",
            Self::KvCache => "kv_cache_share",
        }
    }
}

/// The values of one second; none is not known, and never 0.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Values([Option<f64>; Metric::COUNT]);

impl Values {
    /// One of them.
    #[must_use]
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.0[metric as usize]
    }

    /// Sets one of them. What is not finite is not known.
    pub fn set(&mut self, metric: Metric, value: Option<f64>) {
        self.0[metric as usize] = value.filter(|v| v.is_finite());
    }
}

/// A stretch of a time line: one second, or several that were thinned into one, of which the lowest and the highest
/// value of each quantity are left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Number of its last second among all that were ever closed, from 1.
    pub number: u64,
    /// Its start, whole seconds since the live view's.
    pub at_seconds: u32,
    /// Its length, seconds.
    pub span_seconds: u32,
    /// The trial that was under way.
    pub trial: Option<u32>,
    /// Lowest values.
    pub low: Values,
    /// Highest values.
    pub high: Values,
}

impl Point {
    /// This point and the one after it as one.
    #[must_use]
    pub fn with(&self, later: &Self) -> Self {
        let mut merged = *self;
        merged.number = later.number;
        merged.span_seconds = later.at_seconds.saturating_add(later.span_seconds) - self.at_seconds;
        merged.trial = self.trial.or(later.trial);
        for metric in Metric::ALL {
            let of = |choose: fn(f64, f64) -> f64, a: Option<f64>, b: Option<f64>| match (a, b) {
                (Some(a), Some(b)) => Some(choose(a, b)),
                (a, b) => a.or(b),
            };
            merged.low.set(metric, of(f64::min, self.low.get(metric), later.low.get(metric)));
            merged.high.set(metric, of(f64::max, self.high.get(metric), later.high.get(metric)));
        }
        merged
    }
}

/// `high` is left out of a point of one second, where it is `low`.
impl Serialize for Point {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut s = serializer.serialize_struct("Point", 5)?;
        s.serialize_field("at", &self.at_seconds)?;
        s.serialize_field("span", &self.span_seconds)?;
        s.serialize_field("trial", &self.trial)?;
        s.serialize_field("low", &self.low.0)?;
        match self.high == self.low {
            true => s.skip_field("high")?,
            false => s.serialize_field("high", &self.high.0)?,
        }
        s.end()
    }
}
