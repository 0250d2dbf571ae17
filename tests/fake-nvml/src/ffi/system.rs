//! Symbols of the library and the driver as a whole, and those that find a GPU.

use std::ffi::{c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use super::{handle, put, put_text, returned, text};
use crate::code::{self, Code};
use crate::scenario::Gpu;
use crate::world::{Running, World};

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    returned(World::init("nvmlInit_v2"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    returned(World::init("nvmlInitWithFlags"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    returned(World::shutdown("nvmlShutdown"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: nvmlReturn_t) -> *const c_char {
    code::text(code).as_ptr()
}

/// Asks the driver.
fn on_system<T>(call: &'static str, ask: impl FnOnce(&Running) -> Result<T, Code>) -> Result<T, Code> {
    ask(World::enter(call, None)?.open()?)
}

macro_rules! texts {
    ($($name:ident = $read:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(to: *mut c_char, length: c_uint) -> nvmlReturn_t {
            let answer = on_system(stringify!($name), $read);
            // SAFETY: the caller's pointer and length.
            returned(answer.and_then(|answer| unsafe { put_text(to, length, &answer) }))
        }
    )*};
}

texts! {
    nvmlSystemGetDriverVersion = |running| Ok(running.scenario.driver.clone());
    nvmlSystemGetNVMLVersion = |running| Ok(running.scenario.nvml.clone());
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(to: *mut c_int) -> nvmlReturn_t {
    let answer = on_system("nvmlSystemGetCudaDriverVersion_v2", |running| Ok(running.scenario.cuda));
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|version| unsafe { put(to, version) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(to: *mut c_uint) -> nvmlReturn_t {
    let count = on_system("nvmlDeviceGetCount_v2", |running| Ok(running.scenario.gpus.len() as c_uint));
    // SAFETY: the caller's pointer.
    returned(count.and_then(|count| unsafe { put(to, count) }))
}

/// Finds a GPU that is there and not lost.
fn find(call: &'static str, is_it: impl Fn(usize, &Gpu) -> bool, none: Code) -> Result<nvmlDevice_t, Code> {
    on_system(call, |running| {
        let gpus = running.scenario.gpus.iter().enumerate();
        let (index, _) = gpus.clone().find(|(index, gpu)| is_it(*index, gpu)).ok_or(none)?;
        running.device(index)?;
        Ok(handle(index))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(place: c_uint, to: *mut nvmlDevice_t) -> nvmlReturn_t {
    let found =
        find("nvmlDeviceGetHandleByIndex_v2", |index, _| index == place as usize, Code::INVALID_ARGUMENT);
    // SAFETY: the caller's pointer.
    returned(found.and_then(|device| unsafe { put(to, device) }))
}

/// A bus id whose domain may have four digits or eight, in any case.
fn same_bus(one: &str, other: &str) -> bool {
    let normal = |id: &str| id.to_ascii_lowercase().trim_start_matches('0').to_owned();
    normal(one) == normal(other)
}

macro_rules! handles_by_text {
    ($($name:ident = $is_it:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(wanted: *const c_char, to: *mut nvmlDevice_t) -> nvmlReturn_t {
            // SAFETY: the caller's text.
            let Some(wanted) = (unsafe { text(wanted) }) else { return Code::INVALID_ARGUMENT.0 };
            let is_it: fn(&Gpu, &str) -> bool = $is_it;
            let found = find(stringify!($name), |_, gpu| is_it(gpu, &wanted), Code::NOT_FOUND);
            // SAFETY: the caller's pointer.
            returned(found.and_then(|device| unsafe { put(to, device) }))
        }
    )*};
}

handles_by_text! {
    nvmlDeviceGetHandleByUUID = |gpu, uuid| gpu.uuid == uuid;
    nvmlDeviceGetHandleByPciBusId_v2 = |gpu, pci| same_bus(&gpu.pci, pci);
}
