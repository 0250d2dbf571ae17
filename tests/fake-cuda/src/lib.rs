//! A scripted CUDA driver: devices that can be found and kernels that take time, without a GPU.
//!
//! `libfake_cuda.so` has the driver's C symbols that `cudarc` calls to find devices, load PTX, launch and wait. It is
//! there to test who asks the driver and what becomes of them: which devices `CUDA_VISIBLE_DEVICES` leaves, in which
//! order, what a code means, that a crash stays in the child that it happened in. It computes nothing: a kernel is a
//! time in which the GPU is busy, and device memory has one value.
//!
//! The Rust library has no CUDA: it finds and copies the shared one ([`library`]).
//!
//! | wanted | done |
//! | --- | --- |
//! | a process that finds it | name the folder of [`library::place`] in the process's `LD_LIBRARY_PATH` |
//! | a scenario | `FAKE_CUDA_SCENARIO`: a path, or the JSON (see `scenario`) |
//! | kernels that heat the fake NVML | `FAKE_NVML_BURN_FILE`, the same path for both |
//! | a symbol that is missing | name it to [`library::place`] |
//!
//! It must never be linked into what it tests. It does not know NVML's fake: they meet in the burn file.

#![deny(unsafe_code)]

mod code;
#[allow(unsafe_code, reason = "the CUDA driver is a C library: its symbols take pointers")]
mod ffi;
mod kernels;
pub mod library;
mod memory;
mod scenario;
mod state;
mod visible;
