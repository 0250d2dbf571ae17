//! What a scenario file can say, and what is meant where it says nothing.
//!
//! Owns the schema: every key of the JSON is a field of a struct here or in `gpu`, with its unit in its name and its
//! default beside it. An unknown key is an error, so that a test with a misspelt fault does not pass for want of it.
//! A GPU of which nothing is said is an idle H200 with the sensors that were measured on an H100.

mod gpu;

use std::path::PathBuf;

use serde::Deserialize;

use crate::clock::{Clock, monotonic, nanos, seconds};
use crate::code::Code;

pub(crate) use gpu::{Energy, FieldType, Gpu, Process, Sensor, Shown};

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Scenario {
    /// `real` or `manual`.
    clock: ClockKind,
    /// The scenario's zero on `CLOCK_MONOTONIC`: the same for several processes. Real clocks without it start at
    /// the first `nvmlInit`; a manual clock has 0 here.
    t0_ns: Option<i64>,
    /// The scenario's zero in microseconds since the Unix epoch, for a manual clock.
    wall_t0_us: i64,
    /// The driver's version.
    pub(crate) driver: String,
    /// NVML's version.
    pub(crate) nvml: String,
    /// The driver's CUDA version, 13000 for 13.0.
    pub(crate) cuda: i32,
    /// What both forms of init answer instead of success, at all times.
    pub(crate) init_error: Option<Code>,
    /// Where kernels write when they ran; `FAKE_NVML_BURN_FILE` without it.
    pub(crate) burn_file: Option<PathBuf>,
    /// Errors, delays and hangs of single functions.
    calls: Vec<Rule>,
    /// The GPUs, in NVML's order.
    pub(crate) gpus: Vec<Gpu>,
}

/// Which clock.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum ClockKind {
    Real,
    Manual,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            clock: ClockKind::Real,
            t0_ns: None,
            wall_t0_us: 1_700_000_000_000_000,
            driver: "580.159.03".into(),
            nvml: "13.580.159.03".into(),
            cuda: 13000,
            init_error: None,
            burn_file: None,
            calls: Vec::new(),
            gpus: vec![Gpu::default()],
        }
    }
}

/// What is wrong with a function, and when.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// The symbol; a `*` at its end stands for any rest.
    call: String,
    /// Only for this GPU.
    gpu: Option<usize>,
    /// Only for this field of `nvmlDeviceGetFieldValues`: its own return code.
    field: Option<u32>,
    /// From when on.
    #[serde(default = "always")]
    from_s: f64,
    /// Until when.
    #[serde(default = "never")]
    to_s: f64,
    /// What is answered.
    code: Option<Code>,
    /// How long a call takes. A manual clock is moved by it.
    #[serde(default)]
    delay_ms: f64,
    /// A call that is made in the interval returns when the interval is over.
    #[serde(default)]
    hang: bool,
}

fn always() -> f64 {
    f64::NEG_INFINITY
}

fn never() -> f64 {
    f64::INFINITY
}

/// What happens to one call before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Plan {
    /// It returns no earlier than this.
    pub(crate) hang_until: Option<i64>,
    /// It takes this long, in nanoseconds.
    pub(crate) delay: i64,
    /// It fails.
    pub(crate) code: Option<Code>,
}

impl Rule {
    fn check(&self, gpus: usize) -> Result<(), String> {
        let call = &self.call;
        if self.gpu.is_some_and(|gpu| gpu >= gpus) {
            return Err(format!("the rule for {call} names a GPU that is not there"));
        }
        if self.field.is_some() && (self.code.is_none() || self.delay_ms != 0.0 || self.hang) {
            return Err(format!("the rule for a field of {call} can only set its code"));
        }
        if self.code.is_none() && self.delay_ms == 0.0 && !self.hang {
            return Err(format!("the rule for {call} has neither code, delay_ms nor hang"));
        }
        Ok(())
    }

    fn applies(&self, call: &str, gpu: Option<usize>, now: i64) -> bool {
        let named = match self.call.strip_suffix('*') {
            Some(start) => call.starts_with(start),
            None => call == self.call,
        };
        let t = seconds(now);
        let of_gpu = self.gpu.is_none() || self.gpu == gpu;
        named && of_gpu && (self.from_s..self.to_s).contains(&t)
    }
}

impl Scenario {
    /// Reads JSON, and fills in what depends on a GPU's place in the list.
    pub(crate) fn parse(json: &str) -> Result<Self, String> {
        let mut scenario: Self = serde_json::from_str(json).map_err(|error| error.to_string())?;
        for rule in &scenario.calls {
            rule.check(scenario.gpus.len())?;
        }
        for (index, gpu) in scenario.gpus.iter_mut().enumerate() {
            gpu.complete(index)?;
        }
        Ok(scenario)
    }

    /// The clock, started now.
    pub(crate) fn start_clock(&self) -> Clock {
        match self.clock {
            ClockKind::Real => Clock::real(self.t0_ns.unwrap_or_else(monotonic)),
            ClockKind::Manual => {
                Clock::Manual { t0: self.t0_ns.unwrap_or(0), now: 0, wall_t0_us: self.wall_t0_us }
            }
        }
    }

    /// What happens to a call that is made now.
    pub(crate) fn plan(&self, call: &str, gpu: Option<usize>, now: i64) -> Plan {
        let mut plan = Plan::default();
        for rule in self.calls.iter().filter(|rule| rule.field.is_none() && rule.applies(call, gpu, now)) {
            plan.code = plan.code.or(rule.code);
            plan.delay += nanos(rule.delay_ms / 1000.0);
            if rule.hang {
                // The cast saturates: without an end it is for ever.
                plan.hang_until = plan.hang_until.max(Some(nanos(rule.to_s)));
            }
        }
        plan
    }

    /// The return code of a field of a GPU.
    pub(crate) fn field_code(&self, call: &str, gpu: usize, field: u32, now: i64) -> Option<Code> {
        let of_field = |rule: &&Rule| rule.field == Some(field) && rule.applies(call, Some(gpu), now);
        self.calls.iter().find(of_field).and_then(|rule| rule.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;

    #[test]
    fn rules_apply_where_they_say() {
        let scenario = Scenario::parse(
            r#"{"gpus": [{}, {}], "calls": [
                {"call": "nvmlDeviceGetPowerUsage", "gpu": 1, "from_s": 1, "to_s": 2, "code": "NOT_SUPPORTED"},
                {"call": "nvmlDeviceGetP*", "delay_ms": 7},
                {"call": "nvmlDeviceGetName", "from_s": 3, "to_s": 5, "hang": true},
                {"call": "nvmlDeviceGetFieldValues", "field": 186, "code": 12345}]}"#,
        )
        .expect("scenario");
        let plan = |call, gpu, second| scenario.plan(call, Some(gpu), second * SECOND);
        let slow = Plan { delay: 7_000_000, ..Plan::default() };
        assert_eq!(plan("nvmlDeviceGetPowerUsage", 1, 1), Plan { code: Some(Code::NOT_SUPPORTED), ..slow });
        assert_eq!(plan("nvmlDeviceGetPowerUsage", 1, 2), slow);
        assert_eq!(plan("nvmlDeviceGetPowerUsage", 0, 1), slow);
        assert_eq!(plan("nvmlDeviceGetName", 0, 3).hang_until, Some(5 * SECOND));
        assert_eq!(plan("nvmlDeviceGetName", 0, 5), Plan::default());
        assert_eq!(plan("nvmlDeviceGetFieldValues", 0, 1), Plan::default());
        assert_eq!(scenario.field_code("nvmlDeviceGetFieldValues", 1, 186, 0), Some(Code(12345)));
        assert_eq!(scenario.field_code("nvmlDeviceGetFieldValues", 1, 185, 0), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (json, why) in [
            (r#"{"gpu": []}"#, "unknown field `gpu`"),
            (r#"{"gpus": [{"powr_w": 1}]}"#, "unknown field `powr_w`"),
            (r#"{"calls": [{"call": "nvmlShutdown"}]}"#, "neither code"),
            (r#"{"calls": [{"call": "nvmlShutdown", "code": "NOT_THERE"}]}"#, "NOT_THERE"),
            (r#"{"calls": [{"call": "nvmlShutdown", "code": 0}]}"#, "0 is not"),
            (r#"{"calls": [{"call": "x", "gpu": 1, "code": 3}]}"#, "not there"),
            (r#"{"calls": [{"call": "x", "field": 1, "delay_ms": 3}]}"#, "only set its code"),
            (r#"{"gpus": [{"average": {"period_s": 0, "window_s": 1}}]}"#, "period_s"),
        ] {
            let error = Scenario::parse(json).expect_err(json);
            assert!(error.contains(why), "{json}: {error}");
        }
    }
}
