//! The C boundary: the only module that may hold `unsafe`.
//!
//! Owns the exported symbols and everything done with pointers. A symbol here checks its pointers, goes through
//! [`World::enter`], asks a safe function elsewhere and writes the answer down; it must decide nothing itself.
//! Handles are numbers dressed up as pointers ([`handle`], [`index`]) and are never dereferenced.
//!
//! Safety of all symbols: a caller passes null or a pointer that is valid for the type and length that `nvml.h`
//! gives. That is C's contract and nothing here can check it.

#![allow(non_snake_case, reason = "the names are NVML's")]

mod client;
mod device;
mod events;
mod gpm;
mod script;
mod system;

use std::ffi::{CStr, c_char, c_uint};

use nvml_wrapper_sys::bindings::nvmlReturn_t;

use crate::code::Code;
use crate::device::Device;
use crate::world::World;

pub use client::Control;

/// Handles start here: not null, and no address of anything.
const FIRST: usize = 0x1000;
const STEP: usize = 0x10;

/// A number as a handle.
fn handle<T>(index: usize) -> *mut T {
    std::ptr::without_provenance_mut(FIRST + index * STEP)
}

/// The number of a handle.
fn index<T>(handle: *mut T) -> Result<usize, Code> {
    let offset = handle.addr().checked_sub(FIRST).ok_or(Code::INVALID_ARGUMENT)?;
    if offset % STEP == 0 { Ok(offset / STEP) } else { Err(Code::INVALID_ARGUMENT) }
}

/// A result in C.
fn returned(result: Result<(), Code>) -> nvmlReturn_t {
    match result {
        Ok(()) => 0,
        Err(Code(code)) => code,
    }
}

/// Goes through the door with a GPU and asks it.
fn on_device<T>(
    call: &'static str,
    device: *mut nvml_wrapper_sys::bindings::nvmlDevice_st,
    ask: impl FnOnce(&Device<'_>) -> Result<T, Code>,
) -> Result<T, Code> {
    let gpu = index(device)?;
    let mut world = World::enter(call, Some(gpu))?;
    let running = world.open()?;
    ask(&running.device(gpu)?)
}

/// Writes an answer where the caller wants it.
///
/// # Safety
///
/// `to` is null or valid for a `T`.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    // SAFETY: not null, so valid.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a text with its end mark.
///
/// # Safety
///
/// `to` is null or valid for `length` characters.
unsafe fn put_text(to: *mut c_char, length: c_uint, text: &str) -> Result<(), Code> {
    if to.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    // SAFETY: valid for `length`, which is more than the text.
    unsafe {
        to.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

/// A caller's text.
///
/// # Safety
///
/// `text` is null or ends with a null character.
unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: not null, so it ends.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Copies a list out, as NVML's functions of two passes do: without room, only the length is told.
///
/// # Safety
///
/// `count` is null or valid, and `to` is null or valid for `*count` items.
unsafe fn put_list<T: Copy>(count: *mut c_uint, to: *mut T, list: &[T]) -> Result<(), Code> {
    if count.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    // SAFETY: not null, so valid.
    let room = unsafe { count.read() } as usize;
    // SAFETY: as above.
    unsafe { count.write(list.len() as c_uint) };
    if list.is_empty() {
        return Ok(());
    }
    if to.is_null() || room < list.len() {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    // SAFETY: valid for `room`, which is no less than the list.
    unsafe { to.copy_from_nonoverlapping(list.as_ptr(), list.len()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    #[test]
    fn handles_are_numbers_and_nothing_else_is_a_handle() {
        assert_eq!(index(handle::<u8>(7)), Ok(7));
        for address in [0, 1, FIRST + 1] {
            assert_eq!(index(std::ptr::without_provenance_mut::<u8>(address)), Err(Code::INVALID_ARGUMENT));
        }
    }

    #[test]
    fn what_has_no_room_is_not_written() {
        let mut room = [b'x' as c_char; 4];
        let mut put = |length, what| unsafe { put_text(room.as_mut_ptr(), length, what) };
        assert_eq!(put(3, "abc"), Err(Code::INSUFFICIENT_SIZE));
        assert_eq!(put(4, "abc"), Ok(()));
        assert_eq!(unsafe { text(room.as_ptr()) }.as_deref(), Some("abc"));
        assert_eq!(unsafe { text(null()) }, None);
        assert_eq!(unsafe { put_text(null_mut(), 9, "abc") }, Err(Code::INVALID_ARGUMENT));
        assert_eq!(unsafe { super::put(null_mut(), 1) }, Err(Code::INVALID_ARGUMENT));

        let (mut count, mut items) = (2, [0_u8; 3]);
        assert_eq!(
            unsafe { put_list(&mut count, items.as_mut_ptr(), &[1, 2, 3]) },
            Err(Code::INSUFFICIENT_SIZE)
        );
        assert_eq!((count, items), (3, [0; 3]));
        assert_eq!(unsafe { put_list(&mut count, items.as_mut_ptr(), &[1, 2]) }, Ok(()));
        assert_eq!((count, items), (2, [1, 2, 0]));
        assert_eq!(unsafe { put_list(&mut count, null_mut::<u8>(), &[]) }, Ok(()));
        assert_eq!(unsafe { put_list(null_mut(), items.as_mut_ptr(), &[1]) }, Err(Code::INVALID_ARGUMENT));
    }
}
