//! What the GPUs of this host draw, hold and do, while an engine on it is measured.
//!
//! It owns the reading of GPUs: [`GpuSource`] is what a vendor's library is to the rest of the program, [`nvml`] is
//! NVIDIA's, and [`Sampler`] reads a source on threads of its own and hands on `common::telemetry::Record`s. It exists
//! because joules per token need readings that were taken while the load ran, on this host's clock, by somebody who
//! knows when a counter moved, jumped or went away.
//!
//! - [`nvml`] reads NVIDIA's GPUs; [`bounds`] says which of its numbers cannot be true.
//! - [`sampler`] is the threads; [`queue`], [`pace`], [`fleet`] and [`engine`] are what it decides with, without threads.
//! - [`cuda`] is CUDA's view of the same GPUs; it is asked in a short-lived child only, which [`probe`] starts.
//! - [`check`] is `agent gpu-check`: what must be known of a kind of GPU before its numbers are trusted.
//!
//! What it must never do: hold a CUDA context in the agent itself (it would be memory on the engine's GPU), change a
//! clock, a limit or a mode of a GPU, report 0 for what is not known, or end the agent, whatever the library does. A
//! run without telemetry is a run; that it has none, and why, is an event.
//!
//! Guarded by `tests/gpu/`, against scripted libraries: `inventory`, `samples`, `states`, `lost`, `foreign`, `child`,
//! `checks`.

pub mod bounds;
pub mod check;
pub mod command;
pub mod cuda;
pub mod engine;
pub mod fleet;
pub mod nvml;
pub mod pace;
pub mod probe;
pub mod queue;
pub mod sampler;
pub mod signal;

use common::ids::Nanos;
use common::telemetry::{EventKind, GpuInfo, GpuProcesses, GpuSample, PowerSample};

pub use queue::Records;
pub use sampler::{Config, Sampler};
pub use signal::{Gpus, Signal, Signals};

/// Where readings come from: the GPUs of this host, as one vendor's library shows them.
///
/// GPUs are named by their position in the inventory, which stays a GPU's own for as long as the source lives, also when
/// it was lost and came back. Every call may take milliseconds, or hang: a source is used by one thread, and other
/// threads have [`GpuSource::another`].
pub trait GpuSource: Send {
    /// The GPUs, and what can be read of each. Opens the library if it is not open.
    ///
    /// # Errors
    /// When there is nothing that could be read: no library, no driver, no permission, no GPU.
    fn inventory(&mut self) -> Result<Found, SourceError>;

    /// Energy and power of every GPU outside `skip`. Epochs are the caller's.
    ///
    /// # Errors
    /// When no GPU could be asked: the library is being opened again. What one GPU does not answer is in `out`.
    fn power(&mut self, skip: Gpus, out: &mut Batch<PowerSample>) -> Result<(), SourceError>;

    /// The signals `wanted` of every GPU outside `skip`.
    ///
    /// # Errors
    /// As [`GpuSource::power`].
    fn slow(&mut self, skip: Gpus, wanted: Signals, out: &mut Batch<GpuSample>) -> Result<(), SourceError>;

    /// Who has memory on every GPU outside `skip`.
    ///
    /// # Errors
    /// As [`GpuSource::power`].
    fn processes(&mut self, skip: Gpus, out: &mut Batch<GpuProcesses>) -> Result<(), SourceError>;

    /// Waits for the next error that the driver reports of a GPU; none when `wait` passed without one.
    ///
    /// # Errors
    /// When this source cannot tell of them.
    fn fault(&mut self, wait: Nanos) -> Result<Option<Fault>, SourceError>;

    /// Closes the library and opens it again, because handles of a GPU that was lost stay dead. Positions stay.
    ///
    /// # Errors
    /// As [`GpuSource::inventory`].
    fn reopen(&mut self) -> Result<(), SourceError>;

    /// The same GPUs at the same positions, for another thread.
    fn another(&self) -> Box<dyn GpuSource>;
}

/// What an inventory found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// The GPUs.
    pub gpus: Vec<GpuInfo>,
    /// GPUs of which nothing can be read, by position, and why.
    pub trouble: Vec<(u8, SourceError)>,
}

/// One pass over the GPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch<T> {
    /// What was read.
    pub samples: Vec<T>,
    /// What was asked of GPUs that have it.
    pub asked: Signals,
    /// What was asked and not answered, though the GPU has it.
    pub failures: Vec<Failure>,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { samples: Vec::new(), asked: Signals::NONE, failures: Vec::new() }
    }
}

impl<T> Batch<T> {
    /// Empties it for the next pass.
    pub fn clear(&mut self) {
        self.samples.clear();
        self.failures.clear();
        self.asked = Signals::NONE;
    }
}

/// A signal that was not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Position in the inventory.
    pub gpu: u8,
    /// Which.
    pub signal: Signal,
    /// Why.
    pub error: SourceError,
}

/// An error that the driver reports of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Position in the inventory; none when the driver does not say which.
    pub gpu: Option<u8>,
    /// The vendor's number.
    pub code: u64,
    /// For a person.
    pub message: String,
}

/// Why something cannot be read, in the words that a person gets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// There is no library.
    #[error("{0}")]
    Absent(String),
    /// There is no driver, or not the library's.
    #[error("{0}")]
    DriverUnusable(String),
    /// It may not be asked.
    #[error("{0}")]
    Denied(String),
    /// The driver has no GPU.
    #[error("the driver knows of no GPU here; in a container, let it see them (NVIDIA_VISIBLE_DEVICES)")]
    NoDevices,
    /// There are GPUs and nothing can be read of them.
    #[error("{0}")]
    NoTelemetry(String),
    /// This GPU, or this driver, does not have it.
    #[error("{0}")]
    Unsupported(String),
    /// The GPU is gone.
    #[error("{0}")]
    Lost(String),
    /// Not now.
    #[error("{0}")]
    Transient(String),
    /// The library does not say why: a few times it means nothing, for longer the GPU is gone.
    #[error("{0}")]
    Unknown(String),
}

impl SourceError {
    /// As what kind of event it is reported.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Absent(_) => EventKind::SourceAbsent,
            Self::DriverUnusable(_) => EventKind::DriverUnusable,
            Self::Denied(_) => EventKind::Denied,
            Self::NoDevices => EventKind::NoDevices,
            Self::NoTelemetry(_) => EventKind::NoTelemetry,
            Self::Lost(_) => EventKind::Lost,
            Self::Unsupported(_) | Self::Transient(_) | Self::Unknown(_) => EventKind::Degraded,
        }
    }
}
