//! Symbols of streams and events.

use std::ffi::c_uint;

use super::{CuResult, Handle, ask, ask_here, handle, number, put, returned, stream};
use crate::code::Code;
use crate::kernels::now;
use crate::state::sleep_until;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(created: *mut Handle, _flags: c_uint) -> CuResult {
    let answer = ask_here("cuStreamCreate", |state, device| Ok(state.kernels.create(device)));
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|answer| unsafe { put(created, handle(answer)) }))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(destroyed: Handle) -> CuResult {
    returned(ask_here("cuStreamDestroy_v2", |state, device| {
        state.kernels.destroy(device, number(destroyed)?)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(on: Handle) -> CuResult {
    let until = ask_here("cuStreamSynchronize", |state, device| state.kernels.until(device, stream(on)?));
    returned(until.map(sleep_until))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(on: Handle, event: Handle, _flags: c_uint) -> CuResult {
    returned(ask_here("cuStreamWaitEvent", |state, device| {
        state.kernels.wait_event(number(event)?, device, stream(on)?)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(created: *mut Handle, _flags: c_uint) -> CuResult {
    let answer = ask_here("cuEventCreate", |state, _| Ok(state.kernels.create_event()));
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|answer| unsafe { put(created, handle(answer)) }))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: Handle) -> CuResult {
    returned(ask("cuEventDestroy_v2", |state| state.kernels.destroy_event(number(event)?)))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: Handle, on: Handle) -> CuResult {
    returned(ask_here("cuEventRecord", |state, device| {
        state.kernels.record(number(event)?, device, stream(on)?)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: Handle) -> CuResult {
    returned(ask("cuEventQuery", |state| match state.kernels.event(number(event)?)? {
        Some(over) if over > now() => Err(Code::NOT_READY),
        _ => Ok(()),
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: Handle) -> CuResult {
    let over = ask("cuEventSynchronize", |state| state.kernels.event(number(event)?));
    returned(over.map(|over| sleep_until(over.unwrap_or(0))))
}

/// Milliseconds between two events that are over.
fn elapsed_ms(call: &str, from: Handle, to: Handle) -> Result<f32, Code> {
    ask(call, |state| {
        let over = |event| state.kernels.event(number(event)?)?.ok_or(Code::INVALID_HANDLE);
        let (from, to) = (over(from)?, over(to)?);
        if from.max(to) > now() { Err(Code::NOT_READY) } else { Ok((to - from) as f32 / 1e6) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(ms: *mut f32, from: Handle, to: Handle) -> CuResult {
    let answer = elapsed_ms("cuEventElapsedTime", from, to);
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|answer| unsafe { put(ms, answer) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime_v2(ms: *mut f32, from: Handle, to: Handle) -> CuResult {
    let answer = elapsed_ms("cuEventElapsedTime_v2", from, to);
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|answer| unsafe { put(ms, answer) }))
}
