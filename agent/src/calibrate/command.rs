//! The command line of `agent calibrate`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use common::calibration::{Calibration, SCHEMA_VERSION};
use common::clock::{Clock, SystemClock};
use common::disk::{Disk, FolderLock, OsDisk, raise_open_files};

use super::measure::{FULL, Measured, Measurement, QUICK};
use super::target::engine_core;
use super::{kept, table};
use crate::host;

/// The name of the command.
pub const CALIBRATE: &str = "calibrate";

/// Its folder below the spool. No agent has a name with a dot at its beginning.
const FOLDER: &str = ".calibrate";

/// Measures what this host can carry as a load generator, against an engine without a model on this host.
///
/// It takes a little under a minute, during which nothing else should run here. What it finds is kept as
/// calibration.json in the spool's folder: agents with that spool tell it to the coordinators that they join, and a sweep
/// refuses a load that this host cannot carry with an honest clock. See docs/calibration.md.
#[derive(Debug, Parser)]
#[command(name = "agent calibrate", bin_name = "agent calibrate", version, about, long_about)]
struct Options {
    /// The spool, as given to the agent
    #[arg(long, value_name = "DIR", default_value = "plimsoll-spool")]
    spool: PathBuf,

    /// In about ten seconds, with fewer samples
    #[arg(long)]
    quick: bool,

    /// Print the document (docs/schemas/calibration.schema.json) and no table
    #[arg(long)]
    json: bool,
}

/// A load average above which others disturb what is measured.
const BUSY: f64 = 0.5;

/// Runs the command, when the command line is its.
#[must_use]
pub fn run(arguments: &[OsString]) -> Option<ExitCode> {
    if arguments.get(1)? != CALIBRATE {
        return None;
    }
    // What follows is parsed as a program of its own, whose name the first argument stands for.
    let options = Options::parse_from(&arguments[1..]);
    Some(match calibrate(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("agent calibrate: {e:#}");
            ExitCode::FAILURE
        }
    })
}

/// Of the last minute.
fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

fn calibrate(options: &Options) -> anyhow::Result<()> {
    let clock = SystemClock;
    let begin = clock.monotonic();
    let open_files = raise_open_files();
    let folder = options.spool.join(FOLDER);
    let lock = FolderLock::take(&folder).context("only one calibration at a time says something")?;
    // Of a calibration that was killed.
    let left = folder.join("runs");
    OsDisk.remove_dir_all(&left).with_context(|| left.display().to_string())?;
    let core = engine_core();
    let load_before = load_average();
    let say = |line: &str| eprintln!("[{:>3.0} s] {line}", (clock.monotonic() - begin).as_secs_f64());
    if let Some(load) = load_before.filter(|load| *load > BUSY) {
        say(&format!(
            "this host is busy (load average {load}): what is late here is so because of others, too"
        ));
    }
    let effort = if options.quick { QUICK } else { FULL };
    let measured = Measurement { folder: &folder, core, effort, open_files, say: &say }.run();
    // With or without a result: what is left there is of no use to anybody.
    let cleared = OsDisk.remove_dir_all(&folder).with_context(|| folder.display().to_string());
    drop(lock);
    let Measured { costs, ceilings, reference, levels, error } = measured?;
    cleared?;
    let calibration = Calibration {
        schema_version: SCHEMA_VERSION.to_owned(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: (&host::facts()).into(),
        taken_unix_seconds: clock.wall().0 / 1_000_000_000,
        seconds: (clock.monotonic() - begin).as_secs_f64(),
        quick: options.quick,
        load_before,
        engine_core: core,
        costs,
        ceilings,
        reference,
        levels,
        error,
    };
    let file = kept::keep(&options.spool, &calibration)?;
    let mut out = std::io::stdout().lock();
    let text = if options.json {
        serde_json::to_string_pretty(&calibration)? + "\n"
    } else {
        table::table(&calibration)
    };
    // Whoever closed the pipe does not want it; the file is kept.
    let _ = out.write_all(text.as_bytes());
    eprintln!("kept in {}", file.display());
    Ok(())
}
