//! Symbols that no NVML has: how a test scripts this one. [`super::Control`] is their safe form.

use std::ffi::{c_char, c_int, c_uint};

use super::text;
use crate::clock::seconds;
use crate::device::Device;
use crate::world::{self, Running};

/// Starts a scenario: 0, or -1 with the reason on standard error. Whoever has NVML open must init it again.
#[unsafe(no_mangle)]
unsafe extern "C" fn fake_nvml_load(json: *const c_char) -> c_int {
    // SAFETY: the caller's text.
    let loaded = unsafe { text(json) }.ok_or_else(|| "no text".to_owned());
    match loaded.and_then(|json| world::lock().load(&json)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("fake-nvml: the scenario is refused: {error}");
            -1
        }
    }
}

/// Moves a manual clock: 0, or -1 where there is none.
#[unsafe(no_mangle)]
extern "C" fn fake_nvml_advance_us(us: u64) -> c_int {
    let by = i64::try_from(us.saturating_mul(1000)).unwrap_or(i64::MAX);
    let moved = world::lock().running().is_some_and(|running| running.clock.advance(by));
    world::notify();
    if moved { 0 } else { -1 }
}

/// What a GPU used between two instants of the scenario, exactly; not a number where there is no such GPU.
#[unsafe(no_mangle)]
extern "C" fn fake_nvml_true_joules(gpu: c_uint, from_us: i64, to_us: i64) -> f64 {
    let mut world = world::lock();
    let Some(running) = world.running() else { return f64::NAN };
    running.burns.refresh();
    let running: &Running = running;
    let index = gpu as usize;
    running.scenario.gpus.get(index).map_or(f64::NAN, |gpu| {
        let at = |us: i64| seconds(us.saturating_mul(1000));
        Device { gpu, index, now: running.clock.now(), running }.joules(at(from_us), at(to_us))
    })
}

/// How often a symbol was called since the scenario was loaded.
#[unsafe(no_mangle)]
unsafe extern "C" fn fake_nvml_calls(name: *const c_char) -> u64 {
    // SAFETY: the caller's text.
    unsafe { text(name) }.map_or(0, |name| world::lock().calls(&name))
}

/// The scenario's zero on `CLOCK_MONOTONIC` in nanoseconds; -1 where none is under way.
#[unsafe(no_mangle)]
extern "C" fn fake_nvml_t0_ns() -> i64 {
    world::lock().running().map_or(-1, |running| running.clock.t0())
}
