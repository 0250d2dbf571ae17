//! Keeps the shared library in the process once it was loaded.
//!
//! A client that drops and reopens NVML unloads it in between. Without this, the scenario's clock would start
//! again and a GPU that was lost would be back for that reason alone.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
