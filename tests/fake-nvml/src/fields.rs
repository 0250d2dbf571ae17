//! `nvmlDeviceGetFieldValues` and `nvmlDeviceGetSamples`: values that carry their own type and, the first, their
//! own return code.
//!
//! Owns which field is which reading, and how often a buffered sample is taken. A field that is not known here and
//! not in the scenario must be NOT_SUPPORTED by itself, and never fail the call.

use nvml_wrapper_sys::bindings::{nvmlFieldValue_t, nvmlSample_t, nvmlValue_t};

use crate::clock::nanos;
use crate::code::Code;
use crate::device::Device;
use crate::scenario::{FieldType, Shown};

/// The symbol, for rules on single fields.
const CALL: &str = "nvmlDeviceGetFieldValues";
/// How many samples NVML keeps.
pub(crate) const BUFFERED: u32 = 120;

/// `nvmlValueType_t`.
const DOUBLE: u32 = 0;
/// The type of every sample.
pub(crate) const UINT: u32 = 1;
const ULONG: u32 = 2;
const ULONGLONG: u32 = 3;
const SLONGLONG: u32 = 4;
const SINT: u32 = 5;
const USHORT: u32 = 6;

/// A value and its type.
type Typed = (u32, nvmlValue_t);

fn uint(value: u32) -> Typed {
    (UINT, nvmlValue_t { uiVal: value })
}

fn ulonglong(value: u64) -> Typed {
    (ULONGLONG, nvmlValue_t { ullVal: value })
}

impl FieldType {
    // The casts saturate.
    fn show(self, value: f64) -> Typed {
        match self {
            Self::Double => (DOUBLE, nvmlValue_t { dVal: value }),
            Self::Uint => uint(value.round() as u32),
            Self::Ulong => (ULONG, nvmlValue_t { ulVal: value.round() as _ }),
            Self::Ulonglong => ulonglong(value.round() as u64),
            Self::Slonglong => (SLONGLONG, nvmlValue_t { sllVal: value.round() as i64 }),
            Self::Sint => (SINT, nvmlValue_t { siVal: value.round() as i32 }),
            Self::Ushort => (USHORT, nvmlValue_t { usVal: value.round() as u16 }),
        }
    }
}

impl Device<'_> {
    /// Fills in a field that names itself and its scope.
    pub(crate) fn fill_field(&self, field: &mut nvmlFieldValue_t) {
        field.timestamp = i64::try_from(self.running.clock.wall_us(self.now)).unwrap_or(i64::MAX);
        field.latencyUsec = 0;
        match self.field(field.fieldId, field.scopeId) {
            Ok((kind, value)) => {
                (field.nvmlReturn, field.valueType, field.value) = (0, kind, value);
            }
            // As NVML does: type and value are what they were.
            Err(Code(code)) => field.nvmlReturn = code,
        }
    }

    fn field(&self, id: u32, scope: u32) -> Result<Typed, Code> {
        if let Some(code) = self.running.scenario.field_code(CALL, self.index, id, self.now) {
            return Err(code);
        }
        if let Some(field) = self.gpu.fields.get(&id) {
            return Ok(field.shown_as.show(field.value.at(self.t())));
        }
        let since_start = |signal: &crate::signal::Signal| signal.area(0.0, self.t());
        let kib = |kib: f64| ulonglong(kib.round() as u64);
        let limits = &self.gpu.limits_w;
        let watts = |watts: f64| uint((watts * 1000.0).round() as u32);
        Ok(match id {
            74..=79 => ulonglong(self.violation_ns(id - 74)?),
            80..=81 => ulonglong(self.violation_ns(id - 70)?),
            82 => uint(self.memory_temperature_c()?),
            83 => ulonglong(self.energy_mj()),
            138 => kib(since_start(&self.gpu.nvlink.tx_kib_s)),
            139 => kib(since_start(&self.gpu.nvlink.rx_kib_s)),
            185 => uint(self.scoped_power_mw(Shown::Average, scope)?),
            186 => uint(self.scoped_power_mw(Shown::Instant, scope)?),
            187 => watts(limits.min),
            188 => watts(limits.max),
            189 => watts(limits.default),
            190 | 192 => watts(limits.enforced),
            // Counters of bytes.
            197 => kib(since_start(&self.gpu.pcie.tx_kib_s) * 1024.0),
            198 => kib(since_start(&self.gpu.pcie.rx_kib_s) * 1024.0),
            _ => return Err(Code::NOT_SUPPORTED),
        })
    }

    /// Buffered samples of power (0) and utilisation (1, 2) after a time, the oldest first.
    pub(crate) fn samples(&self, kind: u32, last_seen_us: u64) -> Result<Vec<nvmlSample_t>, Code> {
        let sensor = match kind {
            0 => &self.gpu.instant,
            1 | 2 => &self.gpu.utilization_pct.sensor,
            _ => return Err(Code::NOT_SUPPORTED),
        };
        let clock = &self.running.clock;
        let (period, newest) = (nanos(sensor.period_s), sensor.appeared(self.now));
        let mut samples: Vec<nvmlSample_t> = (0..i64::from(BUFFERED))
            .map(|i| newest - i * period)
            .take_while(|&at| clock.wall_us(at) > last_seen_us)
            .map(|at| {
                let value = match kind {
                    0 => self.power_mw(Shown::Instant, at),
                    1 => self.gpu_utilization(at),
                    _ => self.memory_utilization(at),
                };
                nvmlSample_t { timeStamp: clock.wall_us(at), sampleValue: nvmlValue_t { uiVal: value } }
            })
            .collect();
        samples.reverse();
        if samples.is_empty() { Err(Code::NOT_FOUND) } else { Ok(samples) }
    }
}
