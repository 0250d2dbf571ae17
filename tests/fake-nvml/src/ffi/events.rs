//! Symbols of event sets.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlReturn_t};

use super::{handle, index, on_device, put, returned};
use crate::code::Code;
use crate::events::{self, XID};
use crate::world::{World, notify};

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) -> nvmlReturn_t {
    let created = || Ok(World::enter("nvmlEventSetCreate", None)?.open()?.sets.create());
    // SAFETY: the caller's pointer.
    returned(created().and_then(|number| unsafe { put(set, handle(number)) }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: nvmlEventSet_t) -> nvmlReturn_t {
    let freed = || -> Result<(), Code> {
        World::enter("nvmlEventSetFree", None)?.open()?.sets.free(index(set)?)?;
        notify();
        Ok(())
    };
    returned(freed())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSupportedEventTypes(
    device: nvmlDevice_t,
    types: *mut c_ulonglong,
) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetSupportedEventTypes", device, |_| Ok(XID));
    // SAFETY: the caller's pointer.
    returned(answer.and_then(|answer| unsafe { put(types, answer) }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(
    device: nvmlDevice_t,
    types: c_ulonglong,
    set: nvmlEventSet_t,
) -> nvmlReturn_t {
    let registered = || -> Result<(), Code> {
        let (gpu, set) = (index(device)?, index(set)?);
        let mut world = World::enter("nvmlDeviceRegisterEvents", Some(gpu))?;
        let running = world.open()?;
        let now = running.device(gpu)?.now;
        running.sets.register(set, gpu, types, now)
    };
    returned(registered())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait_v2(
    set: nvmlEventSet_t,
    data: *mut nvmlEventData_t,
    timeout_ms: c_uint,
) -> nvmlReturn_t {
    let waited = || {
        events::enter("nvmlEventSetWait_v2")?;
        let event = events::wait_for_event(index(set)?, timeout_ms)?;
        Ok(nvmlEventData_t {
            device: handle(event.gpu),
            eventType: XID,
            eventData: event.xid,
            gpuInstanceId: u32::MAX,
            computeInstanceId: u32::MAX,
        })
    };
    // SAFETY: the caller's pointer.
    returned(waited().and_then(|event| unsafe { put(data, event) }))
}
