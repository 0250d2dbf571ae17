//! The one state behind the C symbols: a scenario under way.
//!
//! Owns the scenario, its clock, how often each symbol was called, and who has NVML open. It exists apart from
//! `ffi` so that everything but pointers is ordinary safe code. [`World::enter`] is the door that each symbol goes
//! through; the lock must not be held while a call is slow or hangs, or one stuck function would stop them all.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::burn::Burns;
use crate::clock::{Clock, SECOND, nanos};
use crate::code::Code;
use crate::device::Device;
use crate::events::Sets;
use crate::gpm::Samples;
use crate::scenario::Scenario;

/// Where a scenario is found if none was loaded: a path, or the JSON itself.
const SCENARIO: &str = "FAKE_NVML_SCENARIO";
/// Where kernels of the fake CUDA write when they ran.
const BURN_FILE: &str = "FAKE_NVML_BURN_FILE";

static WORLD: Mutex<World> = Mutex::new(World::new());
/// A manual clock was moved, or what somebody waits for is gone.
static CHANGED: Condvar = Condvar::new();

/// The state.
pub(crate) struct World {
    running: Option<Running>,
    calls: BTreeMap<&'static str, u64>,
}

/// A scenario under way.
pub(crate) struct Running {
    pub(crate) scenario: Scenario,
    pub(crate) clock: Clock,
    pub(crate) burns: Burns,
    pub(crate) sets: Sets,
    pub(crate) samples: Samples,
    /// How many inits are without a shutdown.
    opened: u32,
    /// When the first of those was.
    opened_at: i64,
}

/// The lock on the state.
pub(crate) type Lock = MutexGuard<'static, World>;

/// Takes the lock. A panic elsewhere leaves nothing half done that matters here.
pub(crate) fn lock() -> Lock {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the lock away until something changes, but not for longer than `limit`.
pub(crate) fn wait(world: Lock, limit: Option<Duration>) -> Lock {
    match limit {
        Some(limit) => CHANGED.wait_timeout(world, limit).unwrap_or_else(PoisonError::into_inner).0,
        None => CHANGED.wait(world).unwrap_or_else(PoisonError::into_inner),
    }
}

/// Wakes whoever waits.
pub(crate) fn notify() {
    CHANGED.notify_all();
}

impl World {
    /// Nothing under way.
    pub(crate) const fn new() -> Self {
        Self { running: None, calls: BTreeMap::new() }
    }

    /// Starts a scenario from its beginning, in place of what was under way.
    pub(crate) fn load(&mut self, json: &str) -> Result<(), String> {
        let scenario = Scenario::parse(json)?;
        let clock = scenario.start_clock();
        let path = scenario.burn_file.clone().or_else(|| std::env::var_os(BURN_FILE).map(PathBuf::from));
        let uuids = scenario.gpus.iter().map(|gpu| gpu.uuid.clone());
        let burns = Burns::new(path, clock.t0(), uuids);
        self.running = Some(Running {
            scenario,
            clock,
            burns,
            sets: Sets::default(),
            samples: Samples::default(),
            opened: 0,
            opened_at: 0,
        });
        self.calls.clear();
        notify();
        Ok(())
    }

    /// Starts the scenario of the environment if nothing is under way.
    fn load_from_environment(&mut self) -> Result<(), String> {
        if self.running.is_some() {
            return Ok(());
        }
        let text = match std::env::var(SCENARIO) {
            Err(_) => "{}".into(),
            Ok(text) if text.trim_start().starts_with('{') => text,
            Ok(path) => std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?,
        };
        self.load(&text)
    }

    /// What is under way.
    pub(crate) fn running(&mut self) -> Option<&mut Running> {
        self.running.as_mut()
    }

    /// What is under way, of a world that was entered.
    pub(crate) fn open(&mut self) -> Result<&mut Running, Code> {
        self.running.as_mut().filter(|running| running.opened > 0).ok_or(Code::UNINITIALIZED)
    }

    /// How often a symbol was called since the scenario was loaded.
    pub(crate) fn calls(&self, name: &str) -> u64 {
        self.calls.get(name).copied().unwrap_or(0)
    }

    /// What every symbol does first: it is counted, takes the time that it takes, and may fail.
    pub(crate) fn enter(call: &'static str, gpu: Option<usize>) -> Result<Lock, Code> {
        let mut world = lock();
        *world.calls.entry(call).or_default() += 1;
        let running = world.open()?;
        let plan = running.scenario.plan(call, gpu, running.clock.now());
        world = pass(world, plan.delay, plan.hang_until);
        // It may have been shut down in between.
        let running = world.open()?;
        running.burns.refresh();
        if let Some(code) = plan.code { Err(code) } else { Ok(world) }
    }

    /// Opens NVML, for `call`.
    pub(crate) fn init(call: &'static str) -> Result<(), Code> {
        let mut world = lock();
        if let Err(error) = world.load_from_environment() {
            eprintln!("fake-nvml: the scenario is refused: {error}");
            return Err(Code::UNKNOWN);
        }
        *world.calls.entry(call).or_default() += 1;
        let running = world.running().ok_or(Code::UNKNOWN)?;
        let plan = running.scenario.plan(call, None, running.clock.now());
        world = pass(world, plan.delay, plan.hang_until);
        let running = world.running().ok_or(Code::UNKNOWN)?;
        if let Some(code) = running.scenario.init_error.or(plan.code) {
            return Err(code);
        }
        if running.opened == 0 {
            running.opened_at = running.clock.now();
        }
        running.opened += 1;
        Ok(())
    }

    /// Takes one init back. The scenario goes on.
    pub(crate) fn shutdown(call: &'static str) -> Result<(), Code> {
        let mut world = Self::enter(call, None)?;
        let running = world.open()?;
        running.opened -= 1;
        if running.opened == 0 {
            running.sets = Sets::default();
            running.samples = Samples::default();
            notify();
        }
        Ok(())
    }
}

impl Running {
    /// A GPU as it is now, unless it is lost.
    pub(crate) fn device(&self, index: usize) -> Result<Device<'_>, Code> {
        let gpu = self.scenario.gpus.get(index).ok_or(Code::INVALID_ARGUMENT)?;
        let now = self.clock.now();
        let is_lost = gpu.lost.iter().any(|lost| {
            let (from, to) = (nanos(lost.from_s), nanos(lost.to_s));
            let held_since_before = lost.needs_reinit && self.opened_at < to;
            now >= from && (now < to || held_since_before)
        });
        if is_lost { Err(Code::GPU_IS_LOST) } else { Ok(Device { gpu, index, now, running: self }) }
    }
}

/// Lets a call take its time, with the lock given away. A manual clock is moved by the delay; a hang waits until
/// somebody else has moved it far enough.
fn pass(mut world: Lock, delay: i64, hang_until: Option<i64>) -> Lock {
    if delay > 0 {
        let moved = world.running().is_some_and(|running| running.clock.advance(delay));
        if moved {
            notify();
        } else {
            drop(world);
            std::thread::sleep(duration(delay));
            world = lock();
        }
    }
    let Some(end) = hang_until else { return world };
    loop {
        let Some(clock) = world.running().map(|running| running.clock) else { return world };
        let left = end.saturating_sub(clock.now());
        if left <= 0 {
            return world;
        }
        // Waiting for ever in days at a time: an instant that far away is none.
        world = wait(world, (!clock.is_manual()).then(|| duration(left.min(86_400 * SECOND))));
    }
}

/// Nanoseconds as a duration.
pub(crate) fn duration(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}
