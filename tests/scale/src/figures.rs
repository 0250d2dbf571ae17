//! What the system says of a process: processor time and memory.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Ticks of a second, in which the system counts processor time for others. Linux shows no other to programs.
const TICKS: f64 = 100.0;

/// A process.
#[derive(Debug, Clone)]
pub struct Process(PathBuf);

impl Process {
    /// The one with this id.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self(Path::new("/proc").join(pid.to_string()))
    }

    /// Processor seconds used so far, in steps of 10 ms: those of its own threads, user and system.
    ///
    /// # Errors
    /// When it is gone.
    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let text = std::fs::read_to_string(self.0.join("stat"))?;
        // After the name, which may hold anything.
        let fields: Vec<&str> = text.rsplit_once(')').context("no name")?.1.split_whitespace().collect();
        let ticks = |n: usize| fields.get(n).and_then(|f| f.parse::<f64>().ok());
        Ok((ticks(11).context("no user time")? + ticks(12).context("no system time")?) / TICKS)
    }

    /// Resident MiB now, and the most so far.
    ///
    /// # Errors
    /// When it is gone.
    pub fn memory_mib(&self) -> anyhow::Result<(f64, f64)> {
        let text = std::fs::read_to_string(self.0.join("status"))?;
        let field = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name)).context(name.to_owned())?;
            let kib: f64 = line.trim_end_matches("kB").trim().parse()?;
            anyhow::Ok(kib / 1024.0)
        };
        Ok((field("VmRSS:")?, field("VmHWM:")?))
    }

    /// From now on the most so far is what is resident now.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub fn forget_peak(&self) -> anyhow::Result<()> {
        Ok(std::fs::write(self.0.join("clear_refs"), "5")?)
    }
}

/// This process.
#[must_use]
pub fn this_process() -> Process {
    Process::of(std::process::id())
}

/// The machine's load over the last minute, as it says.
#[must_use]
pub fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}
