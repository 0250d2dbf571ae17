//! Symbols of the driver, its devices and their contexts.

use std::ffi::{c_char, c_int, c_uint};
use std::ptr::null;

use super::{CuResult, Handle, ask, ask_here, handle, number, put, put_text, returned, text};
use crate::code::{Code, described};
use crate::scenario::Device;
use crate::state::{State, current, sleep_until};

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> CuResult {
    if flags != 0 {
        return Code::INVALID_VALUE.0;
    }
    returned(State::init())
}

/// The one question that needs no init.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CuResult {
    let answer = || Ok(State::enter("cuDriverGetVersion")?.state()?.scenario.driver);
    // SAFETY: the caller's pointer.
    returned(answer().and_then(|answer| unsafe { put(version, answer) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(code: c_uint, to: *mut *const c_char) -> CuResult {
    // SAFETY: the caller's pointer.
    let put = |name| unsafe { put(to, name) };
    match described(code) {
        Some((name, _)) => returned(put(name.as_ptr())),
        None => returned(put(null()).and(Err(Code::INVALID_VALUE))),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(code: c_uint, to: *mut *const c_char) -> CuResult {
    // SAFETY: the caller's pointer.
    let put = |text| unsafe { put(to, text) };
    match described(code) {
        Some((_, text)) => returned(put(text.as_ptr())),
        None => returned(put(null()).and(Err(Code::INVALID_VALUE))),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CuResult {
    let answer = ask("cuDeviceGetCount", |state| Ok(state.count() as c_int));
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|answer| unsafe { put(count, answer) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> CuResult {
    let answer = ask("cuDeviceGet", |state| state.device(ordinal).map(|_| ordinal));
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|answer| unsafe { put(device, answer) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetByPCIBusId(device: *mut c_int, bus_id: *const c_char) -> CuResult {
    // SAFETY: the caller's text.
    let bus_id = unsafe { text(bus_id) };
    let answer = bus_id.and_then(|id| ask("cuDeviceGetByPCIBusId", |state| state.ordinal_of(&id)));
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|answer| unsafe { put(device, answer as c_int) }))
}

/// Asks a device.
fn ask_device<T>(call: &str, ordinal: c_int, read: impl FnOnce(&Device) -> Option<T>) -> Result<T, Code> {
    ask(call, |state| read(state.device(ordinal)?.1).ok_or(Code::INVALID_VALUE))
}

/// `name(text, length, device)`.
macro_rules! texts {
    ($($name:ident = $read:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(to: *mut c_char, length: c_int, device: c_int) -> CuResult {
            let read: fn(&Device) -> String = $read;
            let answer = ask_device(stringify!($name), device, |device| Some(read(device)));
            // SAFETY: the caller's pointer and length.
            returned(answer.and_then(|answer| unsafe { put_text(to, length, &answer) }))
        }
    )*};
}

texts! {
    cuDeviceGetName = |device| device.name.clone();
    cuDeviceGetPCIBusId = |device| device.bus_id();
}

/// `name(out, device)`.
macro_rules! getters {
    ($($name:ident -> $out:ty = $read:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(to: *mut $out, device: c_int) -> CuResult {
            let read: fn(&Device) -> $out = $read;
            let answer = ask_device(stringify!($name), device, |device| Some(read(device)));
            // SAFETY: the caller's pointer.
            returned(answer.and_then(|answer| unsafe { put(to, answer) }))
        }
    )*};
}

getters! {
    cuDeviceGetUuid -> [u8; 16] = |device| device.uuid_bytes();
    cuDeviceGetUuid_v2 -> [u8; 16] = |device| device.uuid_bytes();
    cuDeviceTotalMem_v2 -> usize = |device| device.memory_mib << 20;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(to: *mut c_int, attribute: c_int, device: c_int) -> CuResult {
    let answer = ask_device("cuDeviceGetAttribute", device, |device| device.attribute(attribute));
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|answer| unsafe { put(to, answer) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) -> CuResult {
    let answer = ask("cuDevicePrimaryCtxRetain", |state| {
        let (ordinal, _) = state.device(device)?;
        state.retain(ordinal);
        Ok(ordinal)
    });
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|ordinal| unsafe { put(context, handle(ordinal)) }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> CuResult {
    returned(ask("cuDevicePrimaryCtxRelease_v2", |state| {
        let (ordinal, _) = state.device(device)?;
        state.release(ordinal)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Handle) -> CuResult {
    returned(ask("cuCtxSetCurrent", |state| {
        let device = if context.is_null() { None } else { Some(number(context)?) };
        state.set_current(device)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut Handle) -> CuResult {
    let answer = ask("cuCtxGetCurrent", |_| Ok(current().map_or(std::ptr::null_mut(), handle)));
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|answer| unsafe { put(context, answer) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> CuResult {
    let answer = ask_here("cuCtxGetDevice", |_, ordinal| Ok(ordinal as c_int));
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|answer| unsafe { put(device, answer) }))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> CuResult {
    let until = ask_here("cuCtxSynchronize", |state, device| Ok(state.kernels.device_until(device)));
    returned(until.map(sleep_until))
}
