//! A scripted NVML: GPUs whose true energy is known, seen through sensors as bad as real ones.
//!
//! `libfake_nvml.so` has NVML's C symbols, so that what measures GPUs is tested through the library that it uses in
//! earnest, on machines without one. A scenario (JSON, see `scenario`) says what the GPUs do and what goes wrong; the
//! truth that it implies can be asked for and compared with what was measured.
//!
//! The Rust library has no NVML: it finds and copies the shared one ([`library`]) and scripts a loaded copy
//! ([`Control`]).
//!
//! | wanted | done |
//! | --- | --- |
//! | point a client at it | load [`library::place`]'s path, or name its folder in `LD_LIBRARY_PATH` |
//! | a scenario for another process | `FAKE_NVML_SCENARIO`: a path, or the JSON |
//! | a scenario for this process | [`Control::load`] before the client inits |
//! | time without sleeping | `"clock": "manual"` and [`Control::advance_us`] |
//! | several processes on one time line | `t0_ns`: the scenario's zero on `CLOCK_MONOTONIC` |
//! | a symbol that answers that it is missing | a rule with the code `FUNCTION_NOT_FOUND` |
//! | a symbol that is missing | name it to [`library::place`] |
//!
//! It must never be linked into what it tests, and it must not be kinder than NVML: where the real one fails a call,
//! so does this.

#![deny(unsafe_code)]

mod burn;
mod clock;
mod code;
mod device;
mod events;
#[allow(unsafe_code, reason = "NVML is a C library: its symbols take pointers")]
mod ffi;
mod fields;
mod gpm;
pub mod library;
mod scenario;
mod sensor;
mod signal;
mod world;

pub use ffi::Control;
