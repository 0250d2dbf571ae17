//! The agent's two commands about GPUs. They are not options of the agent that serves a coordinator: `gpu-probe` must
//! not share a process with it, and `gpu-check` is run by a person, before.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use common::clock::{Clock, SystemClock};
use common::ids::Nanos;

use super::check;
use super::cuda::{self, CudaError};
use super::probe::{Answer, Burn, Load, PROBE};

/// The command that checks what telemetry of a GPU is worth.
pub const CHECK: &str = "gpu-check";

/// Says what CUDA shows this process, as JSON on standard output, and puts a known load on a GPU if told to.
///
/// The agent starts this itself, with the engine's environment; what it prints is described in docs/gpu.md.
#[derive(Debug, Parser)]
#[command(name = "agent gpu-probe", bin_name = "agent gpu-probe", version, about, long_about)]
struct ProbeOptions {
    /// Put a load on the device for so long
    #[arg(long, value_name = "SECONDS")]
    burn: Option<f64>,

    /// On which device, by CUDA's number in this environment
    #[arg(long, value_name = "ORDINAL", default_value_t = 0)]
    device: i32,

    /// Which load
    #[arg(long, default_value = "compute")]
    load: Load,

    /// In bursts of this length
    #[arg(long, value_name = "SECONDS", requires = "burn")]
    on: Option<f64>,

    /// Between two bursts
    #[arg(long, value_name = "SECONDS", requires = "on", default_value_t = 0.0)]
    off: f64,

    /// Hold so much of its memory meanwhile
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    hold_bytes: u64,
}

/// Finds out what telemetry of this host's GPUs is worth, in a few minutes, and prints it as JSON (see docs/gpu.md).
///
/// It loads one GPU for most of the time, so nothing else should use it. It changes no clock, limit or mode. It fails
/// when signals that there should be are not there or do not move under load; the rest are records. On a host without a
/// GPU it says so and does not fail.
#[derive(Debug, Parser)]
#[command(name = "agent gpu-check", bin_name = "agent gpu-check", version, about, long_about)]
pub struct CheckOptions {
    /// About how long it takes in all, 300 at most; short ones say less
    #[arg(long, value_name = "SECONDS", default_value_t = 240.0)]
    pub seconds: f64,

    /// NVML's library [default: the environment's PLIMSOLL_NVML, or where the driver puts it]
    #[arg(long, value_name = "FILE")]
    pub nvml_lib: Option<PathBuf>,

    /// Which GPU, by its position in the driver's list
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    pub gpu: u8,
}

/// Runs one of the two commands, when the command line is one of theirs.
#[must_use]
pub fn run(arguments: &[OsString]) -> Option<ExitCode> {
    let name = arguments.get(1)?;
    // What follows is parsed as a program of its own, whose name the first argument stands for.
    let rest = &arguments[1..];
    if name == PROBE {
        Some(probe(&ProbeOptions::parse_from(rest)))
    } else if name == CHECK {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let report = check::run(&CheckOptions::parse_from(rest), &clock);
        print(&report);
        Some(if report.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    } else {
        None
    }
}

fn probe(options: &ProbeOptions) -> ExitCode {
    let seconds = Nanos::from_secs_f64;
    let view = match options.burn {
        None => cuda::view(),
        Some(length) => {
            let burn = Burn {
                ordinal: options.device,
                load: options.load,
                length: seconds(length),
                on: options.on.map(seconds).filter(|on| *on > Nanos::ZERO),
                off: seconds(options.off),
                hold_bytes: options.hold_bytes,
            };
            cuda::burn(&burn, &SystemClock)
        }
    };
    let failed = view.is_err();
    let answer = Answer {
        schema_version: "1".to_owned(),
        absent: view == Err(CudaError::Absent),
        error: view.as_ref().err().map(CudaError::to_string),
        view: view.ok(),
    };
    print(&answer);
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn print(value: &impl serde::Serialize) {
    use std::io::Write;
    let text =
        serde_json::to_string_pretty(value).unwrap_or_else(|error| format!("{{\"error\": {error:?}}}"));
    // Whoever closed the pipe does not want it.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// The library that an option names.
impl CheckOptions {
    pub(super) fn library(&self) -> Option<&OsStr> {
        self.nvml_lib.as_deref().map(std::path::Path::as_os_str)
    }
}
