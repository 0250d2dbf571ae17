//! The domain of Plimsoll: what every number means.
//!
//! This crate owns the schedule, its split over agents, the trace of a request, the format in which traces are
//! kept, and the definitions of every metric. It is pure: no network, no runtime, no database. It has two doors to
//! the operating system, each the one implementation of a trait that a simulation replaces: [`clock::SystemClock`]
//! and [`disk::OsDisk`].
//!
//! Names and formulas follow the specification in `docs/spec.md`; a term there is the same term here.
//!
//! It must never depend on another crate of this workspace. The layout check guards that.

pub mod calibration;
pub mod clock;
pub mod dialect;
pub mod disk;
pub mod fleet;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod ids;
pub mod knee;
pub mod lease;
pub mod metrics;
pub mod offset;
pub mod plan;
pub mod probe;
pub mod replicas;
pub mod schedule;
pub mod seed;
pub mod simulated;
pub mod slo;
pub mod split;
pub mod stats;
pub mod summary;
pub mod telemetry;
pub mod trace;
pub mod validity;
pub mod workload;
