//! Symbols of modules and kernels.

use std::ffi::{c_char, c_uint, c_void};

use super::{CuResult, Handle, ask_here, handle, number, put, returned, stream, text};

/// The image is PTX: text. A binary is refused as text that is none.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut Handle, image: *const c_void) -> CuResult {
    // SAFETY: the caller's text; a binary has a null character in its first bytes.
    let answer = unsafe { text(image.cast()) }
        .and_then(|ptx| ask_here("cuModuleLoadData", |state, _| state.load(&ptx)));
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|answer| unsafe { put(module, handle(answer)) }))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: Handle) -> CuResult {
    returned(ask_here("cuModuleUnload", |state, _| state.unload(number(module)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    function: *mut Handle,
    module: Handle,
    name: *const c_char,
) -> CuResult {
    // SAFETY: the caller's text.
    let answer = unsafe { text(name) }
        .and_then(|name| ask_here("cuModuleGetFunction", |state, _| state.function(number(module)?, &name)));
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|answer| unsafe { put(function, handle(answer)) }))
}

/// The grid, the block and the arguments do not matter: a kernel is a time.
#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: Handle,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared_bytes: c_uint,
    on: Handle,
    _arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> CuResult {
    returned(ask_here("cuLaunchKernel", |state, device| state.launch(number(function)?, device, stream(on)?)))
}
