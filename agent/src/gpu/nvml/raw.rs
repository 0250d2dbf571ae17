//! Calls that the safe wrapper of NVML does not offer, or offers in a form that panics or loses something.
//!
//! Why they are needed: field values with a scope and with all seven types of value, each with its own return code; the
//! first version of the memory call, which is all that drivers before R510 and some small boards have; the reasons for
//! throttling with the bits that the wrapper does not know; processes in a buffer of ours; a set of events that does not
//! panic when the library cannot free it; and closing and opening without unloading the library.
//!
//! This is one of two files of the agent in which `unsafe` is allowed (the other is `cuda/raw.rs`). What it relies on:
//! a symbol of the library has the type that NVML's header gives it (the bindings are generated from that header), and
//! a device's handle comes from the same library. It must never keep a pointer that was given to the library beyond the
//! call.

#![allow(unsafe_code, reason = "calls of a C library; see the module's documentation")]
// Errors of the wrapper hold a library's message: they are the rare case.
#![allow(clippy::result_large_err)]

use std::ffi::c_int;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as c;

/// Something to read by number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    /// NVML's number.
    pub(super) id: u32,
    /// Of which part: 0 is the GPU, 1 the module, 2 the memory.
    pub(super) scope: u32,
}

/// Several fields in one call; each has an answer of its own.
pub(super) fn fields<const N: usize>(
    device: &Device<'_>,
    wanted: [Field; N],
) -> Result<[Result<u64, NvmlError>; N], NvmlError> {
    let call = *nvml_sym(device.nvml().lib().nvmlDeviceGetFieldValues.as_ref())?;
    let mut values = wanted.map(|field| c::nvmlFieldValue_t {
        fieldId: field.id,
        scopeId: field.scope,
        timestamp: 0,
        latencyUsec: 0,
        valueType: c::nvmlValueType_enum_NVML_VALUE_TYPE_COUNT,
        // What the library leaves alone is not an answer.
        nvmlReturn: c::nvmlReturn_enum_NVML_ERROR_NO_DATA,
        value: c::nvmlValue_t { ullVal: 0 },
    });
    // SAFETY: `values` holds N values, lives until the call is over, and the handle is this library's.
    let code = unsafe { call(device.handle(), N as c_int, values.as_mut_ptr()) };
    nvml_try(code)?;
    Ok(values.map(|value| nvml_try(value.nvmlReturn).and_then(|()| number(&value))))
}

/// The number in a field, when it is one that is not below 0.
fn number(field: &c::nvmlFieldValue_t) -> Result<u64, NvmlError> {
    let value = &field.value;
    // SAFETY: all members of the union are plain numbers, and all its bytes were set to 0 before.
    let number = unsafe {
        match field.valueType {
            c::nvmlValueType_enum_NVML_VALUE_TYPE_DOUBLE => {
                Some(value.dVal).filter(|v| v.is_finite() && *v >= 0.0).map(|v| v.round() as u64)
            }
            c::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT => Some(u64::from(value.uiVal)),
            c::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG
            | c::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG => Some(value.ullVal),
            c::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG => u64::try_from(value.sllVal).ok(),
            c::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT => u64::try_from(value.siVal).ok(),
            c::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_SHORT => Some(u64::from(value.usVal)),
            _ => None,
        }
    };
    number.ok_or(NvmlError::UnexpectedVariant(field.valueType))
}

/// Total and used bytes; what the driver reserves is part of what is used.
pub(super) fn memory_v1(device: &Device<'_>) -> Result<(u64, u64), NvmlError> {
    let call = *nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut memory = c::nvmlMemory_t { total: 0, free: 0, used: 0 };
    // SAFETY: `memory` is the structure of this version of the call.
    nvml_try(unsafe { call(device.handle(), &mut memory) })?;
    Ok((memory.total, memory.used))
}

/// Why clocks are held back, all bits.
pub(super) fn throttle_reasons(device: &Device<'_>) -> Result<u64, NvmlError> {
    let call = *nvml_sym(device.nvml().lib().nvmlDeviceGetCurrentClocksThrottleReasons.as_ref())?;
    let mut reasons = 0;
    // SAFETY: the call writes one number.
    nvml_try(unsafe { call(device.handle(), &mut reasons) })?;
    Ok(reasons)
}

/// Processes that fit into the first buffer; a GPU has seldom more than a handful.
const FEW: usize = 64;
/// As many as are ever asked for.
const MANY: usize = 4096;

/// Processes with a compute context, with their bytes where they are told.
pub(super) fn processes(device: &Device<'_>) -> Result<Vec<(u32, Option<u64>)>, NvmlError> {
    let call = *nvml_sym(device.nvml().lib().nvmlDeviceGetComputeRunningProcesses_v3.as_ref())?;
    let none = c::nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
    let mut found = vec![none; FEW];
    loop {
        let mut count = found.len() as u32;
        // SAFETY: `found` holds `count` structures of this version of the call.
        let code = unsafe { call(device.handle(), &mut count, found.as_mut_ptr()) };
        if code == c::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE && found.len() < MANY {
            found.resize(MANY, none);
            continue;
        }
        nvml_try(code)?;
        found.truncate(count as usize);
        let bytes = |process: &c::nvmlProcessInfo_t| {
            Some(process.usedGpuMemory).filter(|&bytes| bytes != c::NVML_VALUE_NOT_AVAILABLE as u64)
        };
        return Ok(found.iter().map(|process| (process.pid, bytes(process))).collect());
    }
}

/// Closes the library and opens it again without unloading it. Every handle from before is dead afterwards, so nobody
/// else may be in a call.
pub(super) fn reopen(nvml: &Nvml) -> Result<(), NvmlError> {
    let open = *nvml_sym(nvml.lib().nvmlInit_v2.as_ref())?;
    // SAFETY: neither call takes an argument.
    unsafe {
        // Without this call the library only counts that it is open twice, which is harmless.
        if let Ok(close) = nvml.lib().nvmlShutdown.as_ref() {
            let _ = close();
        }
        nvml_try(open())
    }
}

/// A handle as it is compared, and never used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(usize);

/// The handle of a device.
pub(super) fn handle(device: &Device<'_>) -> Handle {
    // SAFETY: it is only compared.
    Handle(unsafe { device.handle() } as usize)
}

/// A set of events, of errors that the driver reports.
#[derive(Debug)]
pub(super) struct Events {
    nvml: &'static Nvml,
    set: c::nvmlEventSet_t,
}

// SAFETY: a set may be used by any thread, one at a time; there is no shared reference to it.
unsafe impl Send for Events {}

impl Events {
    /// An empty one.
    pub(super) fn new(nvml: &'static Nvml) -> Result<Self, NvmlError> {
        let lib = nvml.lib();
        nvml_sym(lib.nvmlEventSetWait_v2.as_ref())?;
        nvml_sym(lib.nvmlDeviceRegisterEvents.as_ref())?;
        let create = *nvml_sym(lib.nvmlEventSetCreate.as_ref())?;
        let mut events = Self { nvml, set: std::ptr::null_mut() };
        // SAFETY: the call writes one handle.
        nvml_try(unsafe { create(&mut events.set) })?;
        Ok(events)
    }

    /// Takes the errors of a device in.
    pub(super) fn register(&mut self, device: &Device<'_>) -> Result<(), NvmlError> {
        let call = *nvml_sym(self.nvml.lib().nvmlDeviceRegisterEvents.as_ref())?;
        // SAFETY: both handles are this library's.
        nvml_try(unsafe { call(device.handle(), c::nvmlEventTypeXidCriticalError as _, self.set) })
    }

    /// The next error: whose, and its number. A time-out is an error of its own.
    pub(super) fn wait(&mut self, milliseconds: u32) -> Result<(Handle, u64), NvmlError> {
        let call = *nvml_sym(self.nvml.lib().nvmlEventSetWait_v2.as_ref())?;
        let mut data = c::nvmlEventData_t {
            device: std::ptr::null_mut(),
            eventType: 0,
            eventData: 0,
            gpuInstanceId: 0,
            computeInstanceId: 0,
        };
        // SAFETY: `data` is the structure of this version of the call, and the set is this library's.
        nvml_try(unsafe { call(self.set, &mut data, milliseconds) })?;
        Ok((Handle(data.device as usize), data.eventData))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let (false, Ok(free)) = (self.set.is_null(), self.nvml.lib().nvmlEventSetFree.as_ref()) {
            // SAFETY: the set is this library's, and this is its end.
            let _ = unsafe { free(self.set) };
        }
    }
}
