//! NVIDIA's GPUs, through NVML.
//!
//! It owns the library: where it is looked for, that it is opened once and never unloaded, and the table of GPUs that
//! the threads of a sampler share. A pass over the GPUs reads the table; opening again takes it alone, and waits no
//! longer than 2 s for that, because a call that hangs may hold it for ever. Nobody waits for a pass: while the
//! library is opened again the others get an error and carry on.
//!
//! What it must never do: drop the library (its `Drop` panics where a symbol is missing, and handles would dangle),
//! identify a GPU by its index, or call anything that changes a GPU.
//!
//! `identity` finds out what a GPU is and has, `read` reads it, `error` says what a failure means, `raw` is the calls
//! that the safe wrapper lacks. Guarded by `tests/gpu/` against a scripted NVML.

mod error;
mod identity;
mod raw;
mod read;

use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use common::clock::Clock;
use common::ids::Nanos;
use common::telemetry::{GpuProcesses, GpuSample, PowerSample};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::{Batch, Failure, Fault, Found, GpuSource, Gpus, Signal, Signals, SourceError};
use identity::Plan;

/// Names the library where no option does.
pub const LIBRARY_VARIABLE: &str = "PLIMSOLL_NVML";

/// Where it is looked for: where the loader looks, then where containers and WSL have it.
const USUAL: [&str; 3] =
    ["libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"];

/// How long the others' passes are waited for before the library is opened again.
const PATIENCE: Nanos = Nanos::from_secs(2);

/// Between two tries at that.
const LOOK: Nanos = Nanos::from_millis(1);

/// NVML as a source of readings.
pub struct NvmlSource {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    /// The one to open; without it the usual places.
    library: Option<OsString>,
    /// Opened once and leaked: see the module's documentation.
    nvml: OnceLock<&'static Nvml>,
    table: RwLock<Vec<Gpu>>,
    /// Somebody wants the table alone: who waits with it lets it go.
    wanted: AtomicBool,
    /// Only with the table held: it must be gone before the library is closed.
    events: Mutex<Option<raw::Events>>,
}

/// One GPU, at its position for good.
#[derive(Debug)]
struct Gpu {
    /// Empty when it could not be asked since the agent's start.
    uuid: String,
    /// None while it is lost.
    device: Option<Device<'static>>,
    /// How it is read.
    plan: Plan,
    /// Why there is no device.
    trouble: Option<SourceError>,
}

impl NvmlSource {
    /// A source that opens `library`, or where it is none the library that the environment names, or the usual one. It
    /// is not opened yet.
    #[must_use]
    pub fn new(library: Option<&OsStr>, clock: Arc<dyn Clock>) -> Self {
        let library = library.map(OsStr::to_owned).or_else(|| std::env::var_os(LIBRARY_VARIABLE));
        Self {
            shared: Arc::new(Shared {
                clock,
                library: library.filter(|path| !path.is_empty()),
                nvml: OnceLock::new(),
                table: RwLock::new(Vec::new()),
                wanted: AtomicBool::new(false),
                events: Mutex::new(None),
            }),
        }
    }

    /// Asks each GPU outside `skip` that has any of `wanted`, or says why it cannot.
    fn each<T>(
        &self,
        skip: Gpus,
        wanted: Signals,
        out: &mut Batch<T>,
        mut ask: impl FnMut(u8, &Device<'static>, &Plan, &mut Batch<T>),
    ) -> Result<(), SourceError> {
        let table = self.shared.read()?;
        for (position, gpu) in (0u8..).zip(table.iter()).filter(|(position, _)| !skip.has(*position)) {
            match &gpu.device {
                Some(device) if gpu.plan.has.any(wanted) => ask(position, device, &gpu.plan, out),
                Some(_) => {}
                None => {
                    let gone = || SourceError::Lost("the driver does not list it".to_owned());
                    let error = gpu.trouble.clone().unwrap_or_else(gone);
                    let signal = wanted.iter().next().unwrap_or(Signal::Energy);
                    out.failures.push(Failure { gpu: position, signal, error });
                }
            }
        }
        Ok(())
    }
}

impl GpuSource for NvmlSource {
    fn inventory(&mut self) -> Result<Found, SourceError> {
        let nvml = self.shared.open()?;
        identity::list(nvml, &mut *self.shared.alone()?)?;
        // Asking what a GPU has takes long; the others go on meanwhile.
        let mut looked = Vec::new();
        for gpu in self.shared.read()?.iter() {
            looked.push(gpu.device.as_ref().map(|device| identity::look(nvml, device, &*self.shared.clock)));
        }
        let mut found = Found::default();
        let mut table = self.shared.alone()?;
        for ((position, gpu), looked) in (0u8..).zip(table.iter_mut()).zip(looked) {
            if let Some(looked) = looked {
                gpu.plan = looked.plan;
                found.trouble.extend(looked.trouble.map(|error| (position, error)));
                found.gpus.push(looked.info);
            } else {
                let error = gpu.trouble.clone().unwrap_or(SourceError::NoDevices);
                found.gpus.push(identity::unreadable(&gpu.uuid, position, &error));
                found.trouble.push((position, error));
            }
        }
        Ok(found)
    }

    fn power(&mut self, skip: Gpus, out: &mut Batch<PowerSample>) -> Result<(), SourceError> {
        let clock = &*self.shared.clock;
        self.each(skip, Signals::POWER, out, |position, device, plan, out| {
            read::power(position, device, plan, clock, out);
        })
    }

    fn slow(&mut self, skip: Gpus, wanted: Signals, out: &mut Batch<GpuSample>) -> Result<(), SourceError> {
        let clock = &*self.shared.clock;
        self.each(skip, wanted, out, |position, device, plan, out| {
            read::slow(position, device, plan, wanted, clock, out);
        })
    }

    fn processes(&mut self, skip: Gpus, out: &mut Batch<GpuProcesses>) -> Result<(), SourceError> {
        let clock = &*self.shared.clock;
        self.each(skip, Signals::of(&[Signal::Processes]), out, |position, device, _, out| {
            read::processes(position, device, clock, out);
        })
    }

    fn fault(&mut self, wait: Nanos) -> Result<Option<Fault>, SourceError> {
        if self.shared.wanted.load(Ordering::Relaxed) {
            return Err(SourceError::Transient("NVML is to be opened again".to_owned()));
        }
        let table = self.shared.read()?;
        let mut events = self.shared.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.is_none() {
            *events = Some(self.shared.listen(&table)?);
        }
        let Some(set) = events.as_mut() else { return Ok(None) };
        match set.wait(u32::try_from(wait.0 / 1_000_000).unwrap_or(u32::MAX)) {
            Ok((handle, number)) => {
                let is = |gpu: &Gpu| gpu.device.as_ref().is_some_and(|d| raw::handle(d) == handle);
                let gpu = table.iter().position(is).and_then(|position| u8::try_from(position).ok());
                Ok(Some(Fault { gpu, code: number, message: identity::xid(number) }))
            }
            Err(NvmlError::Timeout) => Ok(None),
            Err(error) => Err(error::of_gpu(&error, Signal::Faults.name())),
        }
    }

    fn reopen(&mut self) -> Result<(), SourceError> {
        let mut table = self.shared.alone()?;
        // A set of events belongs to the library as it was opened.
        drop(self.shared.events.lock().unwrap_or_else(PoisonError::into_inner).take());
        let Some(&nvml) = self.shared.nvml.get() else { return self.shared.open().map(|_| ()) };
        let opened = raw::reopen(nvml).map_err(|error| error::of_opening(&error, "libnvidia-ml"));
        for gpu in table.iter_mut() {
            gpu.device = None;
            gpu.trouble = opened.clone().err().map(|error| SourceError::Lost(error.to_string()));
        }
        opened?;
        identity::list(nvml, &mut table)
    }

    fn another(&self) -> Box<dyn GpuSource> {
        Box::new(Self { shared: Arc::clone(&self.shared) })
    }
}

impl Shared {
    fn read(&self) -> Result<RwLockReadGuard<'_, Vec<Gpu>>, SourceError> {
        match self.table.try_read() {
            Ok(table) => Ok(table),
            Err(TryLockError::Poisoned(table)) => Ok(table.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(SourceError::Transient("NVML is being opened again".to_owned()))
            }
        }
    }

    /// The table, when nobody is in a call.
    fn alone(&self) -> Result<RwLockWriteGuard<'_, Vec<Gpu>>, SourceError> {
        self.wanted.store(true, Ordering::Relaxed);
        let mut tries = PATIENCE.0 / LOOK.0;
        let alone = loop {
            match self.table.try_write() {
                Ok(table) => break Ok(table),
                Err(TryLockError::Poisoned(table)) => break Ok(table.into_inner()),
                // The clock may be a test's; the tries end in any case.
                Err(TryLockError::WouldBlock) if tries > 0 => {
                    tries -= 1;
                    std::thread::sleep(LOOK.to_duration());
                }
                Err(TryLockError::WouldBlock) => {
                    let busy = "NVML cannot be opened again: a call into it does not return";
                    break Err(SourceError::Transient(busy.to_owned()));
                }
            }
        };
        self.wanted.store(false, Ordering::Relaxed);
        alone
    }

    fn open(&self) -> Result<&'static Nvml, SourceError> {
        if let Some(nvml) = self.nvml.get() {
            return Ok(nvml);
        }
        let nvml = match &self.library {
            Some(path) => open(path)?,
            None => {
                let mut result = open(OsStr::new(USUAL[0]));
                for path in &USUAL[1..] {
                    if matches!(result, Err(SourceError::Absent(_))) && std::path::Path::new(path).exists() {
                        result = open(OsStr::new(path));
                    }
                }
                result?
            }
        };
        Ok(self.nvml.get_or_init(|| Box::leak(Box::new(nvml))))
    }

    /// Listens for the errors of every GPU that tells of them.
    fn listen(&self, table: &[Gpu]) -> Result<raw::Events, SourceError> {
        let Some(&nvml) = self.nvml.get() else {
            return Err(SourceError::Transient("NVML is not open".to_owned()));
        };
        let what = Signal::Faults.name();
        let mut events = raw::Events::new(nvml).map_err(|error| error::of_gpu(&error, what))?;
        let mut result = Err(SourceError::Unsupported(format!("{what}: no GPU here tells of its errors")));
        let telling = table.iter().filter(|gpu| gpu.plan.has.has(Signal::Faults));
        for device in telling.filter_map(|gpu| gpu.device.as_ref()) {
            match events.register(device) {
                Ok(()) => result = Ok(()),
                Err(error) if result.is_err() => result = Err(error::of_gpu(&error, what)),
                Err(_) => {}
            }
        }
        result.map(|()| events)
    }
}

fn open(path: &OsStr) -> Result<Nvml, SourceError> {
    Nvml::builder().lib_path(path).init().map_err(|e| error::of_opening(&e, &path.to_string_lossy()))
}
