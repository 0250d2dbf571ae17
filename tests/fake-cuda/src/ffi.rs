//! The C boundary: the only module that may hold `unsafe`.
//!
//! Owns the exported symbols and everything done with pointers. A symbol here checks its pointers, goes through one of
//! the doors of [`State`], and writes the answer down; it must decide nothing itself. Handles are numbers dressed up
//! as pointers ([`handle`], [`number`]) and are never dereferenced.
//!
//! Safety of all symbols: a caller passes null or a pointer that is valid for the type and length that `cuda.h`
//! gives. That is C's contract and nothing here can check it.

#![allow(non_snake_case, reason = "the names are the driver's")]

mod device;
mod memory;
mod module;
mod stream;

use std::ffi::{CStr, c_char, c_uint, c_void};

use crate::code::Code;
use crate::state::{Lock, State};

/// `CUresult`.
type CuResult = c_uint;
/// Every handle but that of a device.
type Handle = *mut c_void;

/// Handles start here: not null, not one of the small numbers that name special streams, and no address.
const FIRST: usize = 0x1000;
const STEP: usize = 0x10;

/// A number as a handle.
fn handle(number: usize) -> Handle {
    std::ptr::without_provenance_mut(FIRST + number * STEP)
}

/// The number of a handle.
fn number(handle: Handle) -> Result<usize, Code> {
    let offset = handle.addr().checked_sub(FIRST).ok_or(Code::INVALID_HANDLE)?;
    if offset % STEP == 0 { Ok(offset / STEP) } else { Err(Code::INVALID_HANDLE) }
}

/// The number of a stream: null and the two special ones are the default stream.
fn stream(handle: Handle) -> Result<usize, Code> {
    if handle.addr() <= 2 { Ok(0) } else { number(handle) }
}

/// A result in C.
fn returned(result: Result<(), Code>) -> CuResult {
    match result {
        Ok(()) => 0,
        Err(Code(code)) => code,
    }
}

/// Goes through the door for what needs `cuInit`, and asks.
fn ask<T>(call: &str, ask: impl FnOnce(&mut State) -> Result<T, Code>) -> Result<T, Code> {
    ask(State::enter_initialised(call)?.state()?)
}

/// Goes through the door for what needs a context, and asks with its device.
fn ask_here<T>(call: &str, ask: impl FnOnce(&mut State, usize) -> Result<T, Code>) -> Result<T, Code> {
    let (mut lock, device): (Lock, usize) = State::enter_context(call)?;
    ask(lock.state()?, device)
}

/// Writes an answer where the caller wants it.
///
/// # Safety
///
/// `to` is null or valid for a `T`.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so valid.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a text with its end mark, cut where there is no room, as the driver does.
///
/// # Safety
///
/// `to` is null or valid for `length` characters.
unsafe fn put_text(to: *mut c_char, length: i32, text: &str) -> Result<(), Code> {
    let room = usize::try_from(length).unwrap_or(0);
    if to.is_null() || room == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let kept = text.len().min(room - 1);
    // SAFETY: valid for `room`, which is more than what is kept.
    unsafe {
        to.copy_from_nonoverlapping(text.as_ptr().cast(), kept);
        to.add(kept).write(0);
    }
    Ok(())
}

/// A caller's text.
///
/// # Safety
///
/// `text` is null or ends with a null character.
unsafe fn text(text: *const c_char) -> Result<String, Code> {
    if text.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so it ends.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
