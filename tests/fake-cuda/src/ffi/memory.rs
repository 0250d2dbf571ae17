//! Symbols of device memory.

use std::ffi::{c_uchar, c_void};

use super::{CuResult, Handle, ask_here, put, returned, stream};
use crate::code::Code;
use crate::state::{State, sleep_until};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CuResult {
    let answer = ask_here("cuMemGetInfo_v2", |state, device| state.memory_info(device));
    returned(answer.and_then(|[a, b]| {
        // SAFETY: the caller's pointers.
        unsafe { put(free, a).and_then(|()| put(total, b)) }
    }))
}

fn alloc(call: &str, size: usize) -> Result<u64, Code> {
    ask_here(call, |state, device| {
        let [free, _] = state.memory_info(device)?;
        state.memory.alloc(device, size, free)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(to: *mut u64, size: usize) -> CuResult {
    // SAFETY: the caller's pointer.
    returned(alloc("cuMemAlloc_v2", size).and_then(|address| unsafe { put(to, address) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(to: *mut u64, size: usize, _on: Handle) -> CuResult {
    // SAFETY: the caller's pointer.
    returned(alloc("cuMemAllocAsync", size).and_then(|address| unsafe { put(to, address) }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> CuResult {
    returned(ask_here("cuMemFree_v2", |state, _| state.memory.free(address)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, _on: Handle) -> CuResult {
    returned(ask_here("cuMemFreeAsync", |state, _| state.memory.free(address)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8_v2(address: u64, byte: c_uchar, size: usize) -> CuResult {
    returned(ask_here("cuMemsetD8_v2", |state, _| state.memory.set(address, byte, size)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(address: u64, byte: c_uchar, size: usize, _on: Handle) -> CuResult {
    returned(ask_here("cuMemsetD8Async", |state, _| state.memory.set(address, byte, size)))
}

/// Waits for a stream, as a copy does, and then asks.
fn copy<T>(call: &str, on: Handle, copy: impl FnOnce(&mut State) -> Result<T, Code>) -> Result<T, Code> {
    let (until, answer) =
        ask_here(call, |state, device| Ok((state.kernels.until(device, stream(on)?)?, copy(state)?)))?;
    sleep_until(until);
    Ok(answer)
}

/// What is copied there is not kept, but for the first byte.
///
/// # Safety
///
/// `from` is null or valid for `size` bytes.
unsafe fn host_to_device(call: &str, to: u64, from: *const c_void, size: usize, on: Handle) -> CuResult {
    if from.is_null() || size == 0 {
        return Code::INVALID_VALUE.0;
    }
    // SAFETY: valid for at least a byte.
    let byte = unsafe { from.cast::<u8>().read() };
    returned(copy(call, on, |state| state.memory.set(to, byte, size)))
}

/// # Safety
///
/// `to` is null or valid for `size` bytes.
unsafe fn device_to_host(call: &str, to: *mut c_void, from: u64, size: usize, on: Handle) -> CuResult {
    if to.is_null() {
        return Code::INVALID_VALUE.0;
    }
    let byte = copy(call, on, |state| state.memory.read(from, size));
    // SAFETY: not null, so valid.
    returned(byte.map(|byte| unsafe { to.cast::<u8>().write_bytes(byte, size) }))
}

fn device_to_device(call: &str, to: u64, from: u64, size: usize, on: Handle) -> CuResult {
    returned(copy(call, on, |state| {
        let byte = state.memory.read(from, size)?;
        state.memory.set(to, byte, size)
    }))
}

const DEFAULT: Handle = std::ptr::null_mut();

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, size: usize) -> CuResult {
    // SAFETY: the caller's memory.
    unsafe { host_to_device("cuMemcpyHtoD_v2", to, from, size, DEFAULT) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, size: usize, on: Handle) -> CuResult {
    // SAFETY: the caller's memory.
    unsafe { host_to_device("cuMemcpyHtoDAsync_v2", to, from, size, on) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, size: usize) -> CuResult {
    // SAFETY: the caller's memory.
    unsafe { device_to_host("cuMemcpyDtoH_v2", to, from, size, DEFAULT) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, size: usize, on: Handle) -> CuResult {
    // SAFETY: the caller's memory.
    unsafe { device_to_host("cuMemcpyDtoHAsync_v2", to, from, size, on) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) -> CuResult {
    device_to_device("cuMemcpyDtoD_v2", to, from, size, DEFAULT)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, on: Handle) -> CuResult {
    device_to_device("cuMemcpyDtoDAsync_v2", to, from, size, on)
}
