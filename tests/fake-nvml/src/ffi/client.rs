//! The other side of `script`: a test's safe handle on a library that it loads.
//!
//! It is here because it calls foreign functions. It must reach the state through the loaded library only: the Rust
//! library that a test links has a state of its own that no client of NVML sees.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::path::Path;

use libloading::Library;

/// A loaded `libfake_nvml.so`, to be scripted.
///
/// Open it with the path that the client under test opens, and load a scenario before the client inits.
#[derive(Debug)]
pub struct Control(Library);

impl Control {
    /// Loads the library, or takes the one that is loaded from that path already.
    ///
    /// # Errors
    ///
    /// What the loader says.
    pub fn open(path: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: nothing runs when this library is loaded.
        unsafe { Library::new(path) }.map(Self)
    }

    /// Starts a scenario, and says whether it was accepted; the reason is on standard error if not.
    #[must_use]
    pub fn load(&self, json: &str) -> bool {
        let Ok(json) = CString::new(json) else { return false };
        // SAFETY: that is its type.
        let call = unsafe { self.0.get::<unsafe extern "C" fn(*const c_char) -> c_int>(b"fake_nvml_load\0") };
        // SAFETY: the text ends and outlives the call.
        call.is_ok_and(|call| unsafe { call(json.as_ptr()) } == 0)
    }

    /// Moves a manual clock, and says whether it is one.
    pub fn advance_us(&self, us: u64) -> bool {
        // SAFETY: that is its type.
        let call = unsafe { self.0.get::<extern "C" fn(u64) -> c_int>(b"fake_nvml_advance_us\0") };
        call.is_ok_and(|call| call(us) == 0)
    }

    /// What a GPU used between two instants of the scenario, exactly; not a number where there is no such GPU.
    #[must_use]
    pub fn true_joules(&self, gpu: u32, from_us: i64, to_us: i64) -> f64 {
        // SAFETY: that is its type.
        let call =
            unsafe { self.0.get::<extern "C" fn(c_uint, i64, i64) -> f64>(b"fake_nvml_true_joules\0") };
        call.map_or(f64::NAN, |call| call(gpu, from_us, to_us))
    }

    /// How often a symbol was called since the scenario was loaded.
    #[must_use]
    pub fn calls(&self, name: &str) -> u64 {
        let Ok(name) = CString::new(name) else { return 0 };
        // SAFETY: that is its type.
        let call = unsafe { self.0.get::<unsafe extern "C" fn(*const c_char) -> u64>(b"fake_nvml_calls\0") };
        // SAFETY: the text ends and outlives the call.
        call.map_or(0, |call| unsafe { call(name.as_ptr()) })
    }

    /// The scenario's zero on `CLOCK_MONOTONIC`; `None` where none is under way.
    #[must_use]
    pub fn t0_ns(&self) -> Option<i64> {
        // SAFETY: that is its type.
        let call = unsafe { self.0.get::<extern "C" fn() -> i64>(b"fake_nvml_t0_ns\0") };
        call.ok().map(|call| call()).filter(|&t0| t0 >= 0)
    }
}
