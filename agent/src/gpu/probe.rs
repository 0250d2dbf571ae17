//! Asks CUDA in a child, and makes a state of whatever becomes of it.
//!
//! It owns the child `agent gpu-probe`: how it is started, with which part of an engine's environment, what it prints,
//! and what it means when it does not. It exists because the CUDA driver may panic, crash or hang, and because only
//! CUDA knows which GPUs an engine sees under `CUDA_VISIBLE_DEVICES`.
//!
//! It must never hand a child more of an environment than what decides which GPUs are seen: the rest may hold secrets.
//! Guarded by `tests/gpu/child.rs`.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use common::clock::Clock;
use common::ids::Nanos;
use common::telemetry::GpuInfo;
use serde::{Deserialize, Serialize};

use super::Gpus;

/// The command that the child is.
pub const PROBE: &str = "gpu-probe";

/// What CUDA shows a process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CudaView {
    /// The CUDA version of the driver: 13000 is 13.0.
    pub driver: Option<i32>,
    /// Its devices, in CUDA's order.
    pub devices: Vec<CudaDevice>,
    /// What a load came to, if one was asked for.
    pub burnt: Option<Burnt>,
}

/// One device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CudaDevice {
    /// CUDA's number for it, in this environment.
    pub ordinal: i32,
    /// `GPU-…`; of an instance (MIG) the instance's own.
    pub uuid: String,
    /// With a domain of eight digits.
    pub pci_bus_id: String,
    /// Its product name.
    pub name: String,
    /// Major and minor.
    pub compute_capability: Option<(i32, i32)>,
    /// Memory in all.
    pub memory_total_bytes: Option<u64>,
    /// Memory that is free; only where a load was asked for, because it takes a context to know.
    pub memory_free_bytes: Option<u64>,
    /// Multiprocessors.
    pub multiprocessors: Option<i32>,
}

/// Which load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Multiply-adds of 32-bit numbers.
    #[default]
    Compute,
    /// Reading memory.
    Read,
}

/// A load to put on a device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Burn {
    /// Which device, by CUDA's number.
    pub ordinal: i32,
    /// What it does.
    pub load: Load,
    /// For how long.
    pub length: Nanos,
    /// In bursts of this length; without it at one stretch.
    pub on: Option<Nanos>,
    /// Between two bursts.
    pub off: Nanos,
    /// Memory that is held meanwhile.
    pub hold_bytes: u64,
}

/// What a load came to.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Burnt {
    /// Kernels that were run.
    pub kernels: u64,
    /// Time in bursts.
    pub busy: Nanos,
    /// Operations, or bytes read, per second of bursts.
    pub per_second: f64,
    /// Begin and end of each burst, by the host's monotonic clock.
    pub bursts: Vec<(Nanos, Nanos)>,
}

/// What the child prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// `"1"`.
    pub schema_version: String,
    /// What CUDA shows; none with an error.
    pub view: Option<CudaView>,
    /// There is no driver.
    pub absent: bool,
    /// Why there is no view.
    pub error: Option<String>,
}

/// Why there is no view.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChildState {
    /// The child did not start.
    #[error("cannot start the program that asks CUDA: {0}")]
    NotStarted(String),
    /// There is no CUDA driver.
    #[error("{0}")]
    Absent(String),
    /// CUDA gave an error.
    #[error("{0}")]
    Failed(String),
    /// A signal ended the child.
    #[error("asking CUDA crashed the program that asked (signal {signal}): {said}")]
    Crashed {
        /// Which.
        signal: i32,
        /// The end of its standard error.
        said: String,
    },
    /// The child ended without an answer: a panic, for one.
    #[error("the program that asked CUDA gave up ({status}): {said}")]
    GaveUp {
        /// Its exit status.
        status: i32,
        /// The end of its standard error.
        said: String,
    },
    /// It took too long, and was ended.
    #[error("CUDA does not answer: ended after {seconds} s")]
    TimedOut {
        /// How long it was waited for.
        seconds: u64,
    },
}

/// How to start the child.
#[derive(Debug, Clone, PartialEq)]
pub struct Child {
    /// The agent's own program.
    pub program: PathBuf,
    /// What of an environment decides: see [`relevant`].
    pub environment: BTreeMap<String, String>,
    /// The load, if any.
    pub burn: Option<Burn>,
    /// The longest that is waited for an answer, beside the load's length.
    pub patience: Nanos,
}

/// Of an environment what decides which GPUs CUDA shows, and where its library is.
#[must_use]
pub fn relevant(environment: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let decides = |name: &str| {
        ["CUDA_", "NVIDIA_"].iter().any(|start| name.starts_with(start)) || name == "LD_LIBRARY_PATH"
    };
    environment.into_iter().filter(|(name, _)| decides(name)).collect()
}

/// The environment of a process; none when it cannot be read.
#[must_use]
pub fn environment_of(pid: u32) -> Option<BTreeMap<String, String>> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    Some(relevant(pairs.map(|(name, value)| (name.to_owned(), value.to_owned()))))
}

/// What CUDA shows a process of this host, by a child in its environment. Blocks.
///
/// # Errors
/// Why that is not known.
pub fn view_of(pid: u32, clock: &dyn Clock) -> Result<CudaView, ChildState> {
    let environment = environment_of(pid)
        .ok_or_else(|| ChildState::NotStarted(format!("the environment of process {pid} cannot be read")))?;
    run_child(&Child::new(environment)?, clock)
}

impl Child {
    /// This program, in an environment.
    ///
    /// # Errors
    /// When this program's file cannot be found.
    pub fn new(environment: BTreeMap<String, String>) -> Result<Self, ChildState> {
        let program = std::env::current_exe().map_err(|error| ChildState::NotStarted(error.to_string()))?;
        Ok(Self { program, environment, burn: None, patience: Nanos::from_secs(30) })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(PROBE).env_clear().envs(&self.environment);
        if let Some(burn) = self.burn {
            let mut option = |name: &str, value: String| {
                command.arg(name).arg(value);
            };
            option("--burn", burn.length.as_secs_f64().to_string());
            option("--device", burn.ordinal.to_string());
            option("--hold-bytes", burn.hold_bytes.to_string());
            let load = if burn.load == Load::Read { "read" } else { "compute" };
            option("--load", load.to_owned());
            if let Some(on) = burn.on {
                option("--on", on.as_secs_f64().to_string());
                option("--off", burn.off.as_secs_f64().to_string());
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Asks, and waits for the answer or for what became of it. Blocks: not for the load thread.
///
/// # Errors
/// Why there is no view.
pub fn run_child(child: &Child, clock: &dyn Clock) -> Result<CudaView, ChildState> {
    let started = child.command().spawn();
    let mut running =
        started.map_err(|error| ChildState::NotStarted(format!("{}: {error}", child.program.display())))?;
    let (out, err) = (running.stdout.take().map(collect), running.stderr.take().map(collect));
    let patience = child.patience + child.burn.map_or(Nanos::ZERO, |burn| burn.length);
    let until = clock.monotonic() + patience;
    let status = loop {
        match running.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if clock.monotonic() < until => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => {
                // It is ours and was not waited for, so the number is still its own. One that is stuck in the driver
                // does not end by that: it is left behind, and so are the threads that read it.
                let _ = running.kill();
                let gone_by = clock.monotonic() + AFTER_KILL;
                while !matches!(running.try_wait(), Ok(Some(_))) {
                    if clock.monotonic() >= gone_by {
                        return Err(ChildState::TimedOut { seconds: patience.0 / 1_000_000_000 });
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                break None;
            }
        }
    };
    let text = |stream: Option<std::thread::JoinHandle<String>>| {
        stream.and_then(|reader| reader.join().ok()).unwrap_or_default()
    };
    let (out, err) = (text(out), text(err));
    match status {
        Some(status) => judge(status, &out, &err),
        None => Err(ChildState::TimedOut { seconds: patience.0 / 1_000_000_000 }),
    }
}

/// How long a child that was killed is waited for.
const AFTER_KILL: Nanos = Nanos::from_secs(2);

/// The most of a child's output that is read.
const MOST_OUTPUT: u64 = 1 << 20;

fn collect(stream: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.take(MOST_OUTPUT).read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn judge(status: ExitStatus, out: &str, err: &str) -> Result<CudaView, ChildState> {
    let said = || {
        let lines: Vec<&str> = err.trim().lines().collect();
        lines[lines.len().saturating_sub(3)..].join("; ")
    };
    if let Some(signal) = status.signal() {
        return Err(ChildState::Crashed { signal, said: said() });
    }
    let answer: Option<Answer> = serde_json::from_str(out).ok();
    match answer {
        Some(Answer { view: Some(view), .. }) => Ok(view),
        Some(Answer { absent, error, .. }) => {
            let error = error.unwrap_or_else(|| "no reason was given".to_owned());
            Err(if absent { ChildState::Absent(error) } else { ChildState::Failed(error) })
        }
        None => Err(ChildState::GaveUp { status: status.code().unwrap_or(-1), said: said() }),
    }
}

/// The GPUs of an inventory that CUDA shows, by what tells them from all others.
#[must_use]
pub fn seen(view: &CudaView, inventory: &[GpuInfo]) -> Gpus {
    let mut gpus = Gpus::NONE;
    for (position, gpu) in (0u8..).zip(inventory) {
        // An instance has a UUID of its own, and its GPU's place.
        let same = |a: &str, b: &str| !a.is_empty() && a == b;
        let is =
            |device: &CudaDevice| same(&device.uuid, &gpu.uuid) || same(&device.pci_bus_id, &gpu.pci_bus_id);
        if view.devices.iter().any(is) {
            gpus.insert(position);
        }
    }
    gpus
}

/// A bus id as NVML writes it: CUDA's domains have four digits, NVML's eight.
#[must_use]
pub fn bus_id(text: &str) -> String {
    match text.trim().split_once(':') {
        Some((domain, rest)) => format!("{domain:0>8}:{rest}").to_ascii_uppercase(),
        None => text.trim().to_ascii_uppercase(),
    }
}

/// A UUID as NVML writes it.
#[must_use]
pub fn uuid(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_libraries_names_of_a_gpu_become_one() {
        assert_eq!(bus_id("0000:19:00.0"), "00000000:19:00.0");
        assert_eq!(bus_id("00000000:c3:00.0"), "00000000:C3:00.0");
        let bytes = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeffu128.to_be_bytes();
        assert_eq!(uuid(bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn a_child_gets_what_decides_and_no_secret() {
        let environment = [
            ("CUDA_VISIBLE_DEVICES", "1"),
            ("HF_TOKEN", "secret"),
            ("LD_LIBRARY_PATH", "/x"),
            ("PATH", "/bin"),
        ];
        let kept = relevant(environment.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"]);
    }

    #[test]
    fn an_instance_is_found_at_its_gpu_s_place() {
        let gpu = |uuid: &str, pci: &str| GpuInfo {
            uuid: uuid.into(),
            pci_bus_id: pci.into(),
            ..GpuInfo::default()
        };
        let device = |uuid: &str, pci: &str| CudaDevice {
            uuid: uuid.into(),
            pci_bus_id: pci.into(),
            ..CudaDevice::default()
        };
        let view = CudaView { devices: vec![device("instance", "00000000:1A:00.0")], ..CudaView::default() };
        let gpus = seen(&view, &[gpu("a", "00000000:19:00.0"), gpu("b", "00000000:1A:00.0")]);
        assert!(!gpus.has(0) && gpus.has(1));
    }
}
