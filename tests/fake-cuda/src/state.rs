//! The one state behind the C symbols.
//!
//! Owns the scenario, the devices that this process sees, and what it has made on them. It exists apart from `ffi` so
//! that everything but pointers is ordinary safe code. The lock must not be held while a call is slow or waits for a
//! kernel.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::code::Code;
use crate::kernels::{Kernels, now};
use crate::memory::Memory;
use crate::scenario::{Device, Scenario};
use crate::visible::visible;

/// Where the scenario is: a path, or the JSON itself.
const SCENARIO: &str = "FAKE_CUDA_SCENARIO";
/// Where kernels are written down.
const BURN_FILE: &str = "FAKE_NVML_BURN_FILE";

static STATE: Mutex<Option<State>> = Mutex::new(None);

thread_local! {
    /// The device whose context is this thread's.
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The state.
pub(crate) struct State {
    pub(crate) scenario: Scenario,
    /// What is visible, by ordinal.
    devices: Vec<Device>,
    is_initialised: bool,
    pub(crate) kernels: Kernels,
    pub(crate) memory: Memory,
    /// How often each device's context was retained.
    contexts: BTreeMap<usize, u32>,
    /// The names of the kernels of each module.
    modules: BTreeMap<usize, Vec<String>>,
    /// The module and the kernel of each function.
    functions: Vec<(usize, String)>,
    last_module: usize,
}

/// The lock on a state that was started.
pub(crate) struct Lock(MutexGuard<'static, Option<State>>);

impl Lock {
    fn take() -> Result<Self, Code> {
        let mut guard = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.is_none() {
            let state = State::from_environment().map_err(|error| {
                eprintln!("fake-cuda: the scenario is refused: {error}");
                Code::UNKNOWN
            })?;
            *guard = Some(state);
        }
        Ok(Self(guard))
    }

    /// The state.
    pub(crate) fn state(&mut self) -> Result<&mut State, Code> {
        self.0.as_mut().ok_or(Code::DEINITIALIZED)
    }
}

impl State {
    fn from_environment() -> Result<Self, String> {
        let text = match std::env::var(SCENARIO) {
            Err(_) => "{}".into(),
            Ok(text) if text.trim_start().starts_with('{') => text,
            Ok(path) => std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?,
        };
        let scenario = Scenario::parse(&text)?;
        let list = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let order = std::env::var("CUDA_DEVICE_ORDER").ok();
        let devices = visible(&scenario.devices, list.as_deref(), order.as_deref());
        Ok(Self {
            scenario,
            devices,
            is_initialised: false,
            kernels: Kernels::new(std::env::var_os(BURN_FILE).map(PathBuf::from)),
            memory: Memory::default(),
            contexts: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: Vec::new(),
            last_module: 0,
        })
    }

    /// What every symbol does first: it takes the time that it takes, may end the process, and may fail.
    pub(crate) fn enter(call: &str) -> Result<Lock, Code> {
        let mut lock = Lock::take()?;
        let rules = &lock.state()?.scenario.calls;
        let rules: Vec<_> = rules.iter().filter(|rule| rule.is_about(call)).cloned().collect();
        if rules.iter().any(|rule| rule.crash) {
            eprintln!("fake-cuda: {call} crashes, as the scenario says");
            std::process::abort();
        }
        let delay_ms: f64 = rules.iter().map(|rule| rule.delay_ms).sum();
        if delay_ms > 0.0 {
            drop(lock);
            std::thread::sleep(Duration::from_secs_f64(delay_ms / 1000.0));
            lock = Lock::take()?;
        }
        match rules.iter().find_map(|rule| rule.code) {
            Some(code) => Err(code),
            None => Ok(lock),
        }
    }

    /// The same for what needs `cuInit` before it.
    pub(crate) fn enter_initialised(call: &str) -> Result<Lock, Code> {
        let mut lock = Self::enter(call)?;
        if lock.state()?.is_initialised { Ok(lock) } else { Err(Code::NOT_INITIALIZED) }
    }

    /// The same for what needs a context: with the device that it is of.
    pub(crate) fn enter_context(call: &str) -> Result<(Lock, usize), Code> {
        let lock = Self::enter_initialised(call)?;
        Ok((lock, CURRENT.get().ok_or(Code::INVALID_CONTEXT)?))
    }

    /// `cuInit`.
    pub(crate) fn init() -> Result<(), Code> {
        let mut lock = Self::enter("cuInit")?;
        let state = lock.state()?;
        if state.devices.is_empty() {
            return Err(Code::NO_DEVICE);
        }
        state.is_initialised = true;
        Ok(())
    }

    /// How many devices there are.
    pub(crate) fn count(&self) -> usize {
        self.devices.len()
    }

    /// A device by its ordinal.
    pub(crate) fn device(&self, ordinal: i32) -> Result<(usize, &Device), Code> {
        let ordinal = usize::try_from(ordinal).map_err(|_| Code::INVALID_DEVICE)?;
        self.devices.get(ordinal).map(|device| (ordinal, device)).ok_or(Code::INVALID_DEVICE)
    }

    /// The ordinal of the device with a bus id.
    pub(crate) fn ordinal_of(&self, bus_id: &str) -> Result<usize, Code> {
        let found = self.devices.iter().position(|device| device.bus_id().eq_ignore_ascii_case(bus_id));
        found.ok_or(Code::INVALID_DEVICE)
    }

    /// Free and total bytes of a device.
    pub(crate) fn memory_info(&self, device: usize) -> Result<[usize; 2], Code> {
        let of = self.devices.get(device).ok_or(Code::INVALID_DEVICE)?;
        let total = of.memory_mib << 20;
        Ok([total.saturating_sub((of.used_mib << 20) + self.memory.used(device)), total])
    }

    /// Retains a device's context.
    pub(crate) fn retain(&mut self, device: usize) {
        *self.contexts.entry(device).or_default() += 1;
    }

    /// Gives it back.
    pub(crate) fn release(&mut self, device: usize) -> Result<(), Code> {
        match self.contexts.get_mut(&device).filter(|count| **count > 0) {
            Some(count) => {
                *count -= 1;
                Ok(())
            }
            None => Err(Code::INVALID_CONTEXT),
        }
    }

    /// Makes a device's context this thread's, or none.
    pub(crate) fn set_current(&self, device: Option<usize>) -> Result<(), Code> {
        let is_retained = |device| self.contexts.get(device).is_some_and(|&count| count > 0);
        if !device.iter().all(is_retained) {
            return Err(Code::INVALID_CONTEXT);
        }
        CURRENT.set(device);
        Ok(())
    }

    /// Loads PTX: the names of its kernels.
    pub(crate) fn load(&mut self, ptx: &str) -> Result<usize, Code> {
        if !ptx.contains(".version") || !ptx.contains(".target") {
            return Err(Code::INVALID_PTX);
        }
        let named = |rest: &str| {
            rest.trim_start()
                .split(|c: char| !(c.is_alphanumeric() || "_$".contains(c)))
                .next()
                .map(str::to_owned)
        };
        let kernels = ptx.split(".entry").skip(1).filter_map(named).collect();
        self.last_module += 1;
        self.modules.insert(self.last_module, kernels);
        Ok(self.last_module)
    }

    /// Takes a module away.
    pub(crate) fn unload(&mut self, module: usize) -> Result<(), Code> {
        self.modules.remove(&module).map(|_| ()).ok_or(Code::INVALID_HANDLE)
    }

    /// A kernel of a module.
    pub(crate) fn function(&mut self, module: usize, name: &str) -> Result<usize, Code> {
        let kernels = self.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        if !kernels.iter().any(|kernel| kernel == name) {
            return Err(Code::NOT_FOUND);
        }
        self.functions.push((module, name.to_owned()));
        Ok(self.functions.len() - 1)
    }

    /// Starts a kernel.
    pub(crate) fn launch(&mut self, function: usize, device: usize, stream: usize) -> Result<(), Code> {
        let (module, name) = self.functions.get(function).ok_or(Code::INVALID_HANDLE)?;
        if !self.modules.contains_key(module) {
            return Err(Code::INVALID_HANDLE);
        }
        let run_ms = self.scenario.run_ms(name);
        let uuid = &self.devices.get(device).ok_or(Code::INVALID_DEVICE)?.uuid;
        self.kernels.launch(device, stream, uuid, run_ms)
    }
}

/// The device whose context is this thread's.
pub(crate) fn current() -> Option<usize> {
    CURRENT.get()
}

/// Waits until an instant, without the lock.
pub(crate) fn sleep_until(instant: i64) {
    let left = instant.saturating_sub(now());
    std::thread::sleep(Duration::from_nanos(u64::try_from(left).unwrap_or(0)));
}
