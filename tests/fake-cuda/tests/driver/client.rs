//! The child: a client of the driver that says what it found, a `> key value` a line.

use cudarc::driver::sys::CUdevice_attribute;
use cudarc::driver::{CudaContext, DriverError, result};

use crate::ffi;
use crate::harness::TASK;

/// Two kernels, as PTX that the real driver takes.
const PTX: &str = ".version 7.0\n.target sm_70\n.address_size 64\n\
    .visible .entry burn()\n{\n ret;\n}\n.visible .entry read_stream()\n{\n ret;\n}\n";

#[test]
#[ignore = "it is the child of the other tests"]
fn child() {
    let task = std::env::var(TASK).expect("it is started by a test");
    let done = match task.as_str() {
        "present" => {
            println!("> present {}", ffi::is_present());
            Ok(())
        }
        "raw_init" => {
            println!("> code {}", ffi::raw_init());
            Ok(())
        }
        "list" => list(),
        "work" => work(),
        other => panic!("no task is called {other}"),
    };
    if let Err(error) = done {
        println!("> error {error:?}");
    }
}

fn list() -> Result<(), DriverError> {
    println!("> version {}", ffi::version());
    result::init()?;
    let count = result::device::get_count()?;
    println!("> count {count}");
    for ordinal in 0..count {
        let device = result::device::get(ordinal)?;
        let uuid = result::device::get_uuid(device)?.bytes.map(|byte| format!("{byte:02x}"));
        println!("> {ordinal}.uuid {}", uuid.concat());
        println!("> {ordinal}.name {}", result::device::get_name(device)?);
        println!("> {ordinal}.bus {}", ffi::bus_id(device)?);
        println!("> {ordinal}.memory {}", ffi::total_mem(device)?);
        let sms = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        println!("> {ordinal}.sms {}", ffi::attribute(device, sms)?);
        let major = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
        println!("> {ordinal}.major {}", ffi::attribute(device, major)?);
    }
    Ok(())
}

fn work() -> Result<(), DriverError> {
    println!("> loadless {:?}", ffi::load(PTX).map(drop).map_err(|error| error.0));
    let context = CudaContext::new(0)?;
    println!("> name {}", context.name()?);
    let free = || result::mem_get_info().map(|(free, _)| free);
    let before = free()?;
    println!("> byte {}", ffi::through_memory(4 << 30, 7)?);
    println!("> leaked {}", before - free()?);
    let stream = context.default_stream();
    let kept = stream.alloc_zeros::<u32>(1 << 20)?;
    println!("> kept {}", before - free()?);
    println!("> read {:?}", stream.clone_dtoh(&kept)?.iter().max());
    println!("> too_much {:?}", ffi::through_memory(before + 1, 0).map_err(|error| error.0));

    println!("> no_ptx {:?}", ffi::load("not PTX").map(drop).map_err(|error| error.0));
    let module = ffi::load(PTX)?;
    println!("> no_kernel {:?}", ffi::function(module, "bur").map(drop).map_err(|error| error.0));
    let burn = ffi::function(module, "burn")?;
    let read = ffi::function(module, "read_stream")?;
    println!("> before {}", now_ns());
    ffi::launch(burn)?;
    ffi::launch(burn)?;
    ffi::launch(read)?;
    println!("> launched {}", now_ns());
    context.synchronize()?;
    println!("> synchronized {}", now_ns());
    Ok(())
}

/// `CLOCK_MONOTONIC`.
fn now_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
