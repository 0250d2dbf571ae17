//! The fake driver as its clients see it: through `cudarc`, in a process that finds it by `LD_LIBRARY_PATH`.
//!
//! Each test starts a child of its own, as a client should: the driver may take the process with it.

mod client;
mod devices;
mod ffi;
mod harness;
mod kernels;
