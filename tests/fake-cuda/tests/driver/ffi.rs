//! What `cudarc` leaves unsafe, as the tests need it.
//!
//! The only module of these tests that may hold `unsafe`. Nothing here is guarded but what is said: it is called in a
//! child that may end.

#![allow(unsafe_code, reason = "cudarc's functions on devices, modules and launches have no safe form")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute, CUfunction, CUmodule};
use cudarc::driver::{DriverError, result};

/// Whether there is a library to load.
pub(crate) fn is_present() -> bool {
    // SAFETY: it only loads the library.
    unsafe { sys::is_culib_present() }
}

/// `cuInit` with its code as a number: the bindings take one that they do not know for another.
pub(crate) fn raw_init() -> i32 {
    // SAFETY: that is its type.
    let init = unsafe { sys::culib().get::<unsafe extern "C" fn(u32) -> i32>(b"cuInit\0") };
    // SAFETY: it may be called at any time.
    init.map_or(-1, |init| unsafe { init(0) })
}

/// The driver's version.
pub(crate) fn version() -> i32 {
    let mut version = 0;
    // SAFETY: a valid pointer.
    unsafe { sys::cuDriverGetVersion(&mut version) };
    version
}

/// The bus id of a device.
pub(crate) fn bus_id(device: CUdevice) -> Result<String, DriverError> {
    let mut text = [0 as c_char; 32];
    // SAFETY: a valid pointer and its length; the text ends.
    unsafe {
        sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as i32, device).result()?;
        Ok(CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
    }
}

/// An attribute of a device.
pub(crate) fn attribute(device: CUdevice, attribute: CUdevice_attribute) -> Result<i32, DriverError> {
    // SAFETY: a device of the driver's.
    unsafe { result::device::get_attribute(device, attribute) }
}

/// The memory of a device.
pub(crate) fn total_mem(device: CUdevice) -> Result<usize, DriverError> {
    // SAFETY: a device of the driver's.
    unsafe { result::device::total_mem(device) }
}

/// Loads PTX.
pub(crate) fn load(ptx: &str) -> Result<CUmodule, DriverError> {
    let ptx = CString::new(ptx).expect("a text");
    // SAFETY: the text ends and outlives the call.
    unsafe { result::module::load_data(ptx.as_ptr().cast::<c_void>()) }
}

/// A kernel of a module.
pub(crate) fn function(module: CUmodule, name: &str) -> Result<CUfunction, DriverError> {
    let name = CString::new(name).expect("a text");
    // SAFETY: a module of the driver's.
    unsafe { result::module::get_function(module, name) }
}

/// Launches a kernel without arguments on the default stream.
pub(crate) fn launch(function: CUfunction) -> Result<(), DriverError> {
    // SAFETY: a function of the driver's, which takes no arguments.
    unsafe { result::launch_kernel(function, (1, 1, 1), (1, 1, 1), 0, ptr::null_mut(), &mut []) }
}

/// Allocates, sets, reads back and frees, and says what was read.
pub(crate) fn through_memory(size: usize, byte: u8) -> Result<u8, DriverError> {
    let mut read = [0_u8; 16];
    // SAFETY: the allocation is as long as what is set and longer than what is read.
    unsafe {
        let address = result::malloc_sync(size)?;
        result::memset_d8_sync(address, byte, size)?;
        result::memcpy_dtoh_sync(&mut read, address)?;
        result::free_sync(address)?;
    }
    Ok(read[15])
}
