//! Symbols that read something of one GPU.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlFieldValue_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlProcessInfo_t,
    nvmlReturn_t, nvmlSample_t, nvmlUtilization_t, nvmlViolationTime_t,
};

use super::{on_device, put, put_list, put_text, returned};
use crate::code::Code;
use crate::fields::{BUFFERED, UINT};

/// `name(device, arguments, out)`.
macro_rules! getters {
    ($($name:ident($($arg:ident),*) -> $out:ty = $read:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: nvmlDevice_t, $($arg: c_uint,)* out: *mut $out) -> nvmlReturn_t {
            let answer = on_device(stringify!($name), device, $read);
            // SAFETY: the caller's pointer.
            returned(answer.and_then(|answer| unsafe { put(out, answer) }))
        }
    )*};
}

/// `name(device, first out, second out)`.
macro_rules! pairs {
    ($($name:ident -> $out:ty = $read:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: nvmlDevice_t, first: *mut $out, second: *mut $out) -> nvmlReturn_t {
            let answer = on_device(stringify!($name), device, $read);
            returned(answer.and_then(|[a, b]| {
                // SAFETY: the caller's pointers.
                unsafe { put(first, a).and_then(|()| put(second, b)) }
            }))
        }
    )*};
}

/// `name(device, out, length)`.
macro_rules! texts {
    ($($name:ident = $read:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: nvmlDevice_t, out: *mut c_char, length: c_uint) -> nvmlReturn_t {
            let answer = on_device(stringify!($name), device, $read);
            // SAFETY: the caller's pointer and length.
            returned(answer.and_then(|answer| unsafe { put_text(out, length, &answer) }))
        }
    )*};
}

/// Watts of a scenario in NVML's milliwatts.
fn milliwatts(watts: f64) -> c_uint {
    (watts * 1000.0).round() as c_uint
}

texts! {
    nvmlDeviceGetName = |d| Ok(d.gpu.name.clone());
    nvmlDeviceGetUUID = |d| Ok(d.gpu.uuid.clone());
    nvmlDeviceGetSerial = |d| Ok(d.gpu.serial.clone());
    nvmlDeviceGetVbiosVersion = |d| Ok(d.gpu.vbios.clone());
}

getters! {
    nvmlDeviceGetIndex() -> c_uint = |d| Ok(d.index as c_uint);
    nvmlDeviceGetPciInfo_v3() -> nvmlPciInfo_t = |d| Ok(d.pci());
    nvmlDeviceGetArchitecture() -> c_uint = |d| Ok(d.architecture());
    nvmlDeviceGetPowerUsage() -> c_uint = |d| Ok(d.power_usage_mw());
    nvmlDeviceGetTotalEnergyConsumption() -> c_ulonglong = |d| Ok(d.energy_mj());
    nvmlDeviceGetEnforcedPowerLimit() -> c_uint = |d| Ok(milliwatts(d.gpu.limits_w.enforced));
    nvmlDeviceGetPowerManagementLimit() -> c_uint = |d| Ok(milliwatts(d.gpu.limits_w.enforced));
    nvmlDeviceGetPowerManagementDefaultLimit() -> c_uint = |d| Ok(milliwatts(d.gpu.limits_w.default));
    nvmlDeviceGetPersistenceMode() -> c_uint = |d| Ok(d.gpu.persistence.into());
    nvmlDeviceGetTotalEccErrors(kind, _counter) -> c_ulonglong = |d| d.ecc_errors(kind);
    nvmlDeviceGetUtilizationRates() -> nvmlUtilization_t = |d| Ok(d.utilization_rates());
    nvmlDeviceGetMemoryInfo() -> nvmlMemory_t = |d| Ok(d.memory_v1());
    nvmlDeviceGetClockInfo(kind) -> c_uint = |d| d.clock_mhz(kind);
    nvmlDeviceGetMaxClockInfo(kind) -> c_uint = |d| d.max_clock_mhz(kind);
    nvmlDeviceGetTemperature(sensor) -> c_uint = |d| d.temperature_c(sensor);
    nvmlDeviceGetPerformanceState() -> c_uint = |d| Ok(d.gpu.pstate.at(d.t()) as c_uint);
    nvmlDeviceGetCurrentClocksThrottleReasons() -> c_ulonglong = |d| Ok(d.throttle_reasons());
    nvmlDeviceGetCurrentClocksEventReasons() -> c_ulonglong = |d| Ok(d.throttle_reasons());
    nvmlDeviceGetSupportedClocksThrottleReasons() -> c_ulonglong = |d| Ok(d.gpu.throttle_supported);
    nvmlDeviceGetSupportedClocksEventReasons() -> c_ulonglong = |d| Ok(d.gpu.throttle_supported);
    nvmlDeviceGetViolationStatus(policy) -> nvmlViolationTime_t = |d| d.violation(policy);
    nvmlDeviceGetPcieThroughput(counter) -> c_uint = |d| d.pcie_kib_s(counter);
    nvmlDeviceGetCurrPcieLinkGeneration() -> c_uint = |d| Ok(d.gpu.pcie.generation);
    nvmlDeviceGetMaxPcieLinkGeneration() -> c_uint = |d| Ok(d.gpu.pcie.generation);
    nvmlDeviceGetCurrPcieLinkWidth() -> c_uint = |d| Ok(d.gpu.pcie.width);
    nvmlDeviceGetMaxPcieLinkWidth() -> c_uint = |d| Ok(d.gpu.pcie.width);
    nvmlDeviceGetNvLinkState(link) -> c_uint = |d| d.nvlink(link);
}

pairs! {
    nvmlDeviceGetCudaComputeCapability -> c_int = |d| Ok(d.gpu.cc);
    nvmlDeviceGetPowerManagementLimitConstraints -> c_uint
        = |d| Ok([milliwatts(d.gpu.limits_w.min), milliwatts(d.gpu.limits_w.max)]);
    nvmlDeviceGetEccMode -> c_uint = |d| Ok([d.gpu.ecc.current.into(), d.gpu.ecc.pending.into()]);
    nvmlDeviceGetMigMode -> c_uint = |d| d.mig();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's pointer; only the version is set.
    let version = if memory.is_null() { 0 } else { unsafe { (*memory).version } };
    let answer = on_device("nvmlDeviceGetMemoryInfo_v2", device, |d| d.memory_v2(version));
    // SAFETY: as above.
    returned(answer.and_then(|answer| unsafe { put(memory, answer) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetComputeRunningProcesses_v3", device, |d| Ok(d.processes()));
    // SAFETY: the caller's pointers.
    returned(answer.and_then(|list| unsafe { put_list(count, infos, &list) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetMPSComputeRunningProcesses_v3", device, |_| Ok(Vec::new()));
    // SAFETY: the caller's pointers.
    returned(answer.and_then(|list| unsafe { put_list(count, infos, &list) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: nvmlDevice_t,
    count: c_int,
    values: *mut nvmlFieldValue_t,
) -> nvmlReturn_t {
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 || values.is_null() {
        return Code::INVALID_ARGUMENT.0;
    }
    // SAFETY: the caller's array, which it has set to something.
    let values = unsafe { std::slice::from_raw_parts_mut(values, count) };
    returned(on_device("nvmlDeviceGetFieldValues", device, |d| {
        values.iter_mut().for_each(|value| d.fill_field(value));
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSamples(
    device: nvmlDevice_t,
    kind: c_uint,
    last_seen_us: c_ulonglong,
    value_type: *mut c_uint,
    count: *mut c_uint,
    samples: *mut nvmlSample_t,
) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetSamples", device, |d| d.samples(kind, last_seen_us));
    // SAFETY: the caller's pointers.
    returned(unsafe { put(value_type, UINT) }.and_then(|()| {
        if samples.is_null() {
            // SAFETY: as above.
            return unsafe { put(count, BUFFERED) };
        }
        // SAFETY: as above.
        answer.and_then(|list| unsafe { put_list(count, samples, &list) })
    }))
}
