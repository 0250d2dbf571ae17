//! What a GPU is, what can be read of it, and which of several calls reads it.
//!
//! Every signal is tried once, with the very code that reads it later; its reason, where it fails, is the inventory's.
//! So nothing is claimed that was not seen to work, and nothing is asked twenty times a second that never will.

use common::clock::Clock;
use common::telemetry::GpuInfo;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};

use super::super::{Batch, Failure, Gpus, Signal, Signals, SourceError, bounds};
use super::raw::{self, Field};
use super::{Gpu, error, read};

/// Total energy, millijoules since the driver's start.
pub(super) const ENERGY: Field = Field { id: 83, scope: 0 };
/// Power over the sensor's shortest window, milliwatts.
pub(super) const INSTANT: Field = Field { id: 186, scope: 0 };
/// Power over about a second, milliwatts.
pub(super) const AVERAGE: Field = Field { id: 185, scope: 0 };
/// The same of a module: a GPU and a CPU that share a board.
const MODULE: Field = Field { id: 185, scope: 1 };

/// Tries of a power signal that fails: drivers deny one now and then that they have.
const TRIES: usize = 3;

/// How one GPU is read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Plan {
    /// What it has.
    pub(super) has: Signals,
    /// Those that are read by number, in one call.
    pub(super) fields: Signals,
    /// What `nvmlDeviceGetPowerUsage` means on it.
    pub(super) usage: Option<Signal>,
    /// Memory is told in the first form, with what the driver reserves.
    pub(super) memory_v1: bool,
    /// The highest power limit that could be set.
    pub(super) limit_mw: Option<u32>,
    /// Memory in all.
    pub(super) total: Option<u64>,
}

/// What was found of a GPU.
pub(super) struct Looked {
    pub(super) info: GpuInfo,
    pub(super) plan: Plan,
    /// Why nothing can be read of it.
    pub(super) trouble: Option<SourceError>,
}

/// Brings the table up to date with the driver's list. A GPU that was known keeps its place.
pub(super) fn list(nvml: &'static Nvml, table: &mut Vec<Gpu>) -> Result<(), SourceError> {
    let count = nvml.device_count().map_err(|e| error::of_opening(&e, "nvmlDeviceGetCount"))?;
    let first_time = table.is_empty();
    let lost =
        |trouble| Gpu { uuid: String::new(), device: None, plan: Plan::default(), trouble: Some(trouble) };
    let mut denied = None;
    let mut unread = Vec::new();
    let mut seen = Gpus::NONE;
    for index in 0..count.min(Gpus::MOST as u32) {
        let device = nvml.device_by_index(index).and_then(|device| Ok((device.uuid()?, device)));
        match device {
            Ok((uuid, device)) => {
                // One that could not be asked before has no name yet: the first such place is its.
                let place = table.iter().position(|gpu| gpu.uuid == uuid);
                let nameless = || table.iter().position(|gpu| gpu.uuid.is_empty() && !first_time);
                let place = place.or_else(nameless);
                let gpu = Gpu { uuid, device: Some(device), plan: Plan::default(), trouble: None };
                let place = match place {
                    Some(place) => {
                        let plan = table[place].plan;
                        table[place] = Gpu { plan, ..gpu };
                        place
                    }
                    None => {
                        table.push(gpu);
                        table.len() - 1
                    }
                };
                seen.insert(u8::try_from(place).unwrap_or(u8::MAX));
            }
            // In a container the driver may list GPUs of others.
            Err(e @ NvmlError::NoPermission) => denied = Some(error::of_gpu(&e, "every GPU")),
            Err(e) => {
                let trouble = error::of_gpu(&e, &format!("GPU {index}"));
                if first_time {
                    seen.insert(u8::try_from(table.len()).unwrap_or(u8::MAX));
                    table.push(lost(trouble));
                } else {
                    unread.push(trouble);
                }
            }
        }
    }
    // What cannot be asked is most likely a known GPU that is not there; else it is one that has been lost all along.
    let mut unread = unread.into_iter();
    for (place, gpu) in table.iter_mut().enumerate() {
        if !seen.has(u8::try_from(place).unwrap_or(u8::MAX)) {
            let gone = || SourceError::Lost("the driver does not list it any more".to_owned());
            gpu.trouble = Some(unread.next().unwrap_or_else(gone));
            gpu.device = None;
        }
    }
    table.extend(unread.map(lost));
    if table.is_empty() { Err(denied.unwrap_or(SourceError::NoDevices)) } else { Ok(()) }
}

/// Asks one GPU everything.
pub(super) fn look(nvml: &Nvml, device: &Device<'static>, clock: &dyn Clock) -> Looked {
    let mut info = identity(nvml, device);
    let mut plan = Plan {
        has: Signals::of(&Signal::ALL),
        limit_mw: info.limit_range_mw.map(|(_, most)| most).or(info.limit_default_mw),
        total: info.memory_total_bytes,
        memory_v1: matches!(device.memory_info(), Err(ref e) if !is_gone(e))
            && raw::memory_v1(device).is_ok(),
        ..Plan::default()
    };
    let mut failures = power_plan(device, &mut plan, info.compute_capability, clock);
    let mut slow = Batch::default();
    read::slow(0, device, &plan, Signals::of(&Signal::ALL), clock, &mut slow);
    failures.extend(slow.failures);
    let mut processes = Batch::default();
    read::processes(0, device, clock, &mut processes);
    failures.extend(processes.failures);
    failures.extend(faults(device).err().map(|error| Failure { gpu: 0, signal: Signal::Faults, error }));

    let mut has = Signals::NONE;
    for signal in Signal::ALL {
        let failure = failures.iter().find(|failure| failure.signal == signal);
        // What fails for now is asked again.
        if failure.is_none_or(|f| matches!(f.error, SourceError::Transient(_) | SourceError::Unknown(_))) {
            has.insert(signal);
        }
        let reason = failure.map_or_else(|| "ok".to_owned(), |failure| failure.error.to_string());
        info.signals.insert(signal.name().to_owned(), reason);
    }
    plan.has = has;
    Looked { info, plan, trouble: trouble(&failures) }
}

/// Which calls read power and energy on this GPU, and what of it fails.
fn power_plan(
    device: &Device<'static>,
    plan: &mut Plan,
    capability: Option<(i32, i32)>,
    clock: &dyn Clock,
) -> Vec<Failure> {
    let mut out = Batch::default();
    for attempt in 0..TRIES {
        if attempt > 0 {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        plan.fields = Signals::POWER;
        if let Ok(fields) = raw::fields(device, [ENERGY, INSTANT, AVERAGE]) {
            let signals = [Signal::Energy, Signal::Instant, Signal::Average];
            let answered = fields.iter().zip(signals).filter(|(field, _)| field.is_ok());
            plan.fields = Signals::of(&answered.map(|(_, signal)| signal).collect::<Vec<_>>());
        } else {
            plan.fields = Signals::NONE;
        }
        // The call without a number means another thing from generation to generation; where the number answers it
        // is not needed.
        let meaning = match capability {
            Some(capability) if capability <= (8, 0) => Signal::Instant,
            _ => Signal::Average,
        };
        plan.usage = (!plan.fields.has(meaning)).then_some(meaning);
        out.clear();
        read::power(0, device, plan, clock, &mut out);
        if out.failures.is_empty() {
            return Vec::new();
        }
    }
    for failure in &mut out.failures {
        let module = failure.signal != Signal::Energy
            && matches!(failure.error, SourceError::Unsupported(_))
            && matches!(raw::fields(device, [MODULE]), Ok([Ok(_)]));
        if module {
            failure.error = SourceError::Unsupported(format!(
                "{}: only the power of the whole module is told, with its CPU",
                failure.signal
            ));
        }
    }
    out.failures
}

fn is_gone(error: &NvmlError) -> bool {
    matches!(error::of_gpu(error, ""), SourceError::Lost(_) | SourceError::Unknown(_))
}

/// Why nothing at all can be read, when that is so.
fn trouble(failures: &[Failure]) -> Option<SourceError> {
    if let Some(lost) = failures.iter().find(|failure| matches!(failure.error, SourceError::Lost(_))) {
        return Some(lost.error.clone());
    }
    let readable = |signal: Signal| !failures.iter().any(|failure| failure.signal == signal);
    // That there is no process, and that errors would be told, is no reading.
    if Signals::POWER.and(Signals::MOVING).iter().any(readable) {
        return None;
    }
    let denied = failures.iter().find(|failure| matches!(failure.error, SourceError::Denied(_)));
    Some(denied.map_or_else(
        || {
            let why = failures.first().map(|f| f.error.to_string()).unwrap_or_default();
            SourceError::NoTelemetry(format!("there is a GPU, and nothing can be read of it ({why})"))
        },
        |denied| denied.error.clone(),
    ))
}

fn faults(device: &Device<'static>) -> Result<(), SourceError> {
    let types =
        device.supported_event_types().map_err(|error| error::of_gpu(&error, Signal::Faults.name()))?;
    if types.contains(EventTypes::CRITICAL_XID_ERROR) {
        Ok(())
    } else {
        Err(SourceError::Unsupported(format!("{}: this GPU does not tell of its errors", Signal::Faults)))
    }
}

fn identity(nvml: &Nvml, device: &Device<'static>) -> GpuInfo {
    let limit = |mw: Result<u32, NvmlError>| mw.ok().and_then(|mw| bounds::limit(mw.into()));
    let total = device.memory_info().map(|memory| memory.total).ok();
    GpuInfo {
        uuid: device.uuid().unwrap_or_default(),
        pci_bus_id: device.pci_info().map(|pci| super::super::probe::bus_id(&pci.bus_id)).unwrap_or_default(),
        index: device.index().unwrap_or_default(),
        name: device.name().unwrap_or_default(),
        compute_capability: device.cuda_compute_capability().ok().map(|c| (c.major, c.minor)),
        driver: nvml.sys_driver_version().ok(),
        library: nvml.sys_nvml_version().ok(),
        cuda: nvml.sys_cuda_driver_version().ok().map(|version| {
            format!("{}.{}", cuda_driver_version_major(version), cuda_driver_version_minor(version))
        }),
        vbios: device.vbios_version().ok(),
        memory_total_bytes: total.or_else(|| Some(raw::memory_v1(device).ok()?.0)).filter(|&bytes| bytes > 0),
        limit_enforced_mw: limit(device.enforced_power_limit()),
        limit_default_mw: limit(device.power_management_limit_default()),
        limit_range_mw: device.power_management_limit_constraints().ok().and_then(|range| {
            Some((bounds::limit(range.min_limit.into())?, bounds::limit(range.max_limit.into())?))
        }),
        persistence: device.is_in_persistent_mode().ok(),
        mig: device.mig_mode().ok().map(|mode| mode.current == 1),
        ecc: device.is_ecc_enabled().ok().map(|ecc| ecc.currently_enabled),
        pcie_generation: device.current_pcie_link_gen().ok(),
        pcie_width: device.current_pcie_link_width().ok(),
        ..GpuInfo::default()
    }
}

/// A GPU that the driver counts and does not let be asked.
pub(super) fn unreadable(uuid: &str, index: u8, error: &SourceError) -> GpuInfo {
    let signals = Signal::ALL.iter().map(|signal| (signal.name().to_owned(), error.to_string()));
    GpuInfo { uuid: uuid.to_owned(), index: index.into(), signals: signals.collect(), ..GpuInfo::default() }
}

/// What an Xid means, of those that an operator meets.
pub(super) fn xid(number: u64) -> String {
    let meaning = match number {
        13 | 31 | 43 | 45 => "a program's error, seldom the GPU's",
        48 | 94 | 95 => "uncorrected memory error",
        63 | 64 => "a row or page of memory was retired",
        62 | 109 | 119 | 120 => "the GPU's own processors do not answer",
        74 => "NVLink error",
        79 => "the GPU has fallen off the bus",
        92 => "many corrected memory errors",
        _ => "see the kernel's log and NVIDIA's list of Xid errors",
    };
    format!("Xid {number}: {meaning}")
}
