//! A copy of the library for a test, and waiting for conditions.

use std::fmt::Debug;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use fake_nvml::{Control, library};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

/// The fields of energy, average and instant power.
pub(crate) const ENERGY: u32 = 83;
pub(crate) const AVERAGE: u32 = 185;
pub(crate) const INSTANT: u32 = 186;

/// A copy of the library with a scenario under way.
pub(crate) struct Fake {
    _folder: TempDir,
    path: PathBuf,
    pub(crate) control: Control,
}

impl Fake {
    /// With all symbols.
    pub(crate) fn new(scenario: &str) -> Self {
        Self::without(scenario, &[])
    }

    /// Without some symbols.
    pub(crate) fn without(scenario: &str, symbols: &[&str]) -> Self {
        let folder = TempDir::new().expect("a folder");
        let path = library::place(folder.path(), symbols).expect("a copy of the library");
        let control = Control::open(&path).expect("the copy loads");
        assert!(control.load(scenario), "the scenario is refused: {scenario}");
        Self { _folder: folder, path, control }
    }

    /// Opens NVML.
    pub(crate) fn try_open(&self) -> Result<Nvml, NvmlError> {
        Nvml::builder().lib_path(self.path.as_os_str()).init()
    }

    /// Opens NVML, which must succeed.
    pub(crate) fn open(&self) -> Nvml {
        self.try_open().expect("NVML opens")
    }

    /// Moves the clock.
    pub(crate) fn advance_ms(&self, ms: u64) {
        assert!(self.control.advance_us(ms * 1000), "the clock is not manual");
    }

    /// What GPU 0 used from the scenario's zero until a time, in joules.
    pub(crate) fn joules_until_ms(&self, ms: i64) -> f64 {
        self.control.true_joules(0, 0, ms * 1000)
    }
}

/// Fields of a GPU, each with its own result.
pub(crate) fn fields(device: &Device<'_>, ids: &[u32]) -> Vec<Result<SampleValue, NvmlError>> {
    let ids: Vec<FieldId> = ids.iter().copied().map(FieldId).collect();
    let values = device.field_values_for(&ids).expect("the call succeeds");
    values.into_iter().map(|value| value.and_then(|sample| sample.value)).collect()
}

/// A field that is a number of 32 bits.
pub(crate) fn field_u32(device: &Device<'_>, id: u32) -> u32 {
    match fields(device, &[id]).pop() {
        Some(Ok(SampleValue::U32(value))) => value,
        other => panic!("field {id} is {other:?}"),
    }
}

/// `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Waits until something is so; a busy machine gets a minute.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(1));
    }
    panic!("after a minute there is still no {what}");
}

/// Checks an error by its name, as most have no equality.
pub(crate) fn assert_error<T: Debug>(result: Result<T, NvmlError>, name: &str) {
    match result {
        Ok(value) => panic!("{value:?} in place of {name}"),
        Err(error) => {
            let got = format!("{error:?}");
            assert!(got.starts_with(name), "{got} in place of {name}");
        }
    }
}

/// Checks that two numbers differ by no more than a bound.
pub(crate) fn assert_close(got: f64, want: f64, bound: f64) {
    assert!((got - want).abs() <= bound, "{got} is not within {bound} of {want}");
}
