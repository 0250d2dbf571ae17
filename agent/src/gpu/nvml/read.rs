//! Readings of one GPU: each value checked for its own return code and for whether it can be true.
//!
//! A value that the GPU has and that is not answered becomes a failure with its reason, and is none in the sample; a
//! value that it does not have is not asked for.

use common::clock::Clock;
use common::ids::Nanos;
use common::telemetry::{GpuProcesses, GpuSample, PowerSample};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{
    Clock as Which, EccCounter, MemoryError, PerformancePolicy, TemperatureSensor,
};
use nvml_wrapper::error::NvmlError;

use super::super::{Batch, Failure, Signal, Signals, SourceError, bounds};
use super::error;
use super::identity::{AVERAGE, ENERGY, INSTANT, Plan};
use super::raw::{self, Field};

const MEMORY_TEMPERATURE: Field = Field { id: 82, scope: 0 };
const PCIE_SENT: Field = Field { id: 197, scope: 0 };
const PCIE_RECEIVED: Field = Field { id: 198, scope: 0 };
/// All links together (nvml.h: `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX`, KiB; the scope is a link, or `UINT_MAX`).
const NVLINK_SENT: Field = Field { id: 138, scope: u32::MAX };
const NVLINK_RECEIVED: Field = Field { id: 139, scope: u32::MAX };

/// What is asked of one GPU in one pass.
struct Asking<'a> {
    gpu: u8,
    wanted: Signals,
    asked: &'a mut Signals,
    failures: &'a mut Vec<Failure>,
}

impl Asking<'_> {
    /// A value, when it is wanted, answered and can be true.
    fn take<T: Copy + std::fmt::Display, U>(
        &mut self,
        signal: Signal,
        read: impl FnOnce() -> Result<T, SourceError>,
        bound: impl FnOnce(T) -> Option<U>,
    ) -> Option<U> {
        if !self.wanted.has(signal) {
            return None;
        }
        self.asked.insert(signal);
        let value = read().and_then(|value| {
            let untrue = || SourceError::Transient(format!("{signal}: {value} cannot be true"));
            bound(value).ok_or_else(untrue)
        });
        match value {
            Ok(value) => Some(value),
            Err(error) => {
                self.failures.push(Failure { gpu: self.gpu, signal, error });
                None
            }
        }
    }

    fn wants(&self, signals: &[Signal]) -> bool {
        self.wanted.any(Signals::of(signals))
    }
}

fn told<T>(result: Result<T, NvmlError>, signal: Signal) -> Result<T, SourceError> {
    result.map_err(|error| error::of_gpu(&error, signal.name()))
}

/// One of the values of a call that answers several.
fn part<T, U>(
    call: &Result<T, NvmlError>,
    signal: Signal,
    value: impl FnOnce(&T) -> U,
) -> Result<U, SourceError> {
    call.as_ref().map(value).map_err(|error| error::of_gpu(error, signal.name()))
}

/// One of several fields.
fn field<const N: usize>(
    call: &Result<[Result<u64, NvmlError>; N], NvmlError>,
    at: usize,
    signal: Signal,
) -> Result<u64, SourceError> {
    match call {
        Ok(fields) => part(&fields[at], signal, |&value| value),
        Err(error) => Err(error::of_gpu(error, signal.name())),
    }
}

/// The middle of a call and its length.
fn middle(before: Nanos, after: Nanos) -> (Nanos, u32) {
    let width = after - before;
    (before + Nanos(width.0 / 2), u32::try_from(width.0).unwrap_or(u32::MAX))
}

/// Energy and power, in one call where the GPU has it so.
pub(super) fn power(
    gpu: u8,
    device: &Device<'static>,
    plan: &Plan,
    clock: &dyn Clock,
    out: &mut Batch<PowerSample>,
) {
    let wanted = plan.has.both(Signals::POWER);
    let counted = wanted.has(Signal::Energy) && !plan.fields.has(Signal::Energy);
    let by_number = |&signal: &Signal| {
        wanted.has(signal) && plan.usage != Some(signal) && !(counted && signal == Signal::Energy)
    };
    let numbered = [Signal::Energy, Signal::Instant, Signal::Average].iter().any(by_number);

    let before = clock.monotonic();
    let fields =
        if numbered { raw::fields(device, [ENERGY, INSTANT, AVERAGE]) } else { Err(NvmlError::NotSupported) };
    let usage = plan.usage.filter(|&signal| wanted.has(signal)).map(|_| device.power_usage());
    let counter = counted.then(|| device.total_energy_consumption());
    let (at, width_ns) = middle(before, clock.monotonic());

    let energy = || match &counter {
        Some(call) => part(call, Signal::Energy, |&mj| mj),
        None => field(&fields, 0, Signal::Energy),
    };
    let milliwatts = |signal: Signal, place: usize| match &usage {
        Some(call) if plan.usage == Some(signal) => part(call, signal, |&mw| u64::from(mw)),
        _ => field(&fields, place, signal),
    };
    let plausible = |mw| bounds::power(mw, plan.limit_mw);
    let mut ask = Asking { gpu, wanted, asked: &mut out.asked, failures: &mut out.failures };
    let energy_mj = ask.take(Signal::Energy, energy, bounds::energy);
    let instant_mw = ask.take(Signal::Instant, || milliwatts(Signal::Instant, 1), plausible);
    let average_mw = ask.take(Signal::Average, || milliwatts(Signal::Average, 2), plausible);
    if energy_mj.is_some() || instant_mw.is_some() || average_mw.is_some() {
        let sample = PowerSample { gpu, at, width_ns, epoch: 0, energy_mj, instant_mw, average_mw };
        out.samples.push(sample);
    }
}

/// Everything else that is a number, as far as it is `wanted`.
pub(super) fn slow(
    gpu: u8,
    device: &Device<'static>,
    plan: &Plan,
    wanted: Signals,
    clock: &dyn Clock,
    out: &mut Batch<GpuSample>,
) {
    use Signal as S;
    let wanted = wanted.both(plan.has);
    let mut ask = Asking { gpu, wanted, asked: &mut out.asked, failures: &mut out.failures };
    let before = clock.monotonic();
    let mut sample = GpuSample { gpu, ..GpuSample::default() };

    if ask.wants(&[S::MemoryUsed, S::MemoryReserved]) {
        let bound = |bytes| bounds::memory(bytes, plan.total);
        if plan.memory_v1 {
            let v1 = || raw::memory_v1(device).map(|(_, used)| used);
            sample.memory_used_bytes = ask.take(S::MemoryUsed, || told(v1(), S::MemoryUsed), bound);
            let together = || {
                let why = "this driver tells it as part of memory_used_bytes";
                Err(SourceError::Unsupported(format!("{}: {why}", S::MemoryReserved)))
            };
            sample.memory_reserved_bytes = ask.take(S::MemoryReserved, together, bound);
        } else {
            let call = device.memory_info();
            sample.memory_used_bytes =
                ask.take(S::MemoryUsed, || part(&call, S::MemoryUsed, |m| m.used), bound);
            sample.memory_reserved_bytes =
                ask.take(S::MemoryReserved, || part(&call, S::MemoryReserved, |m| m.reserved), bound);
        }
    }
    if ask.wants(&[S::Utilisation, S::MemoryUtilisation]) {
        let call = device.utilization_rates();
        let gpu = || part(&call, S::Utilisation, |u| u64::from(u.gpu));
        sample.utilisation_percent = ask.take(S::Utilisation, gpu, bounds::percent);
        let memory = || part(&call, S::MemoryUtilisation, |u| u64::from(u.memory));
        sample.memory_utilisation_percent = ask.take(S::MemoryUtilisation, memory, bounds::percent);
    }
    let clock_of = |which, signal| told(device.clock_info(which).map(u64::from), signal);
    sample.sm_clock_mhz = ask.take(S::SmClock, || clock_of(Which::SM, S::SmClock), bounds::clock);
    sample.memory_clock_mhz =
        ask.take(S::MemoryClock, || clock_of(Which::Memory, S::MemoryClock), bounds::clock);
    let chip = || told(device.temperature(TemperatureSensor::Gpu).map(u64::from), S::Temperature);
    sample.temperature_c = ask.take(S::Temperature, chip, bounds::temperature);
    let counted = [S::MemoryTemperature, S::PcieSent, S::PcieReceived, S::NvlinkSent, S::NvlinkReceived];
    if ask.wants(&counted) {
        let fields = [MEMORY_TEMPERATURE, PCIE_SENT, PCIE_RECEIVED, NVLINK_SENT, NVLINK_RECEIVED];
        let call = raw::fields(device, fields);
        let memory = || field(&call, 0, S::MemoryTemperature);
        sample.memory_temperature_c = ask.take(S::MemoryTemperature, memory, bounds::temperature);
        sample.pcie_sent_bytes = ask.take(S::PcieSent, || field(&call, 1, S::PcieSent), Some);
        sample.pcie_received_bytes = ask.take(S::PcieReceived, || field(&call, 2, S::PcieReceived), Some);
        let bytes = |kib: u64| kib.checked_mul(1024);
        sample.nvlink_sent_bytes = ask.take(S::NvlinkSent, || field(&call, 3, S::NvlinkSent), bytes);
        sample.nvlink_received_bytes =
            ask.take(S::NvlinkReceived, || field(&call, 4, S::NvlinkReceived), bytes);
    }
    sample.throttle_reasons =
        ask.take(S::ThrottleReasons, || told(raw::throttle_reasons(device), S::ThrottleReasons), Some);
    let held = |policy, signal| told(device.violation_status(policy).map(|v| v.violation_time), signal);
    let nanos = |ns| Some(Nanos(ns));
    sample.power_throttled =
        ask.take(S::PowerThrottled, || held(PerformancePolicy::Power, S::PowerThrottled), nanos);
    sample.thermal_throttled =
        ask.take(S::ThermalThrottled, || held(PerformancePolicy::Thermal, S::ThermalThrottled), nanos);
    // NVML's number for "unknown" is 32.
    let state = || told(device.performance_state().map(|state| state.as_c()), S::PerformanceState);
    sample.performance_state = ask.take(S::PerformanceState, state, |state| (state <= 15).then_some(state));
    let ecc = |kind, signal| told(device.total_ecc_errors(kind, EccCounter::Volatile), signal);
    sample.ecc_corrected = ask.take(S::EccCorrected, || ecc(MemoryError::Corrected, S::EccCorrected), Some);
    sample.ecc_uncorrected =
        ask.take(S::EccUncorrected, || ecc(MemoryError::Uncorrected, S::EccUncorrected), Some);
    let limit = || told(device.enforced_power_limit().map(u64::from), S::Limit);
    sample.limit_enforced_mw = ask.take(S::Limit, limit, bounds::limit);

    (sample.at, _) = middle(before, clock.monotonic());
    // None of it was answered: that is no sample.
    if sample != (GpuSample { gpu, at: sample.at, ..GpuSample::default() }) {
        out.samples.push(sample);
    }
}

/// Who has memory on it.
pub(super) fn processes(gpu: u8, device: &Device<'static>, clock: &dyn Clock, out: &mut Batch<GpuProcesses>) {
    let signal = Signal::Processes;
    out.asked.insert(signal);
    let before = clock.monotonic();
    match raw::processes(device) {
        Ok(processes) => {
            let (at, _) = middle(before, clock.monotonic());
            out.samples.push(GpuProcesses { gpu, at, processes, foreign: None });
        }
        Err(error) => {
            let error = error::of_gpu(&error, signal.name());
            out.failures.push(Failure { gpu, signal, error });
        }
    }
}
