//! The null engine as a process: started for some trials, asked to end, and what it says it did.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use common::plan::BaseUrl;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::null_engine::{Arrival, NULL_ENGINE};

/// The last of the cores that this process may use, where there are several: the engine's.
pub(super) fn engine_core() -> Option<u32> {
    let allowed = sched_getaffinity(None).ok()?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
    match cores.as_slice() {
        [] | [_] => None,
        [.., last] => u32::try_from(*last).ok(),
    }
}

/// A null engine. Killed when it is dropped without having been ended.
pub(super) struct NullEngine {
    process: Child,
    url: BaseUrl,
    arrivals: PathBuf,
}

impl NullEngine {
    /// Starts one; `folder` takes the file of what it did.
    pub(super) fn start(folder: &Path, core: Option<u32>, options: &[String]) -> anyhow::Result<Self> {
        let arrivals = folder.join("arrivals.jsonl");
        let mut command = Command::new(std::env::current_exe().context("cannot tell where this program is")?);
        command.arg(NULL_ENGINE).arg("--until-parent-exits").args(options);
        command.arg("--arrivals").arg(&arrivals);
        if let Some(core) = core {
            command.args(["--core", &core.to_string()]);
        }
        // Its errors are for whoever reads ours.
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().context("cannot start the null engine")?;
        let stdout = process.stdout.take().context("the null engine has no output")?;
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        let url = line.trim().strip_prefix("null engine on ").and_then(|url| url.parse().ok());
        match (read, url) {
            (Ok(_), Some(url)) => Ok(Self { process, url, arrivals }),
            (read, _) => {
                let _ = process.kill();
                let _ = process.wait();
                read.context("the null engine says nothing")?;
                bail!("the null engine does not listen; what it said is above");
            }
        }
    }

    pub(super) fn url(&self) -> &BaseUrl {
        &self.url
    }

    /// Ends it. Gives what it did, by request id.
    pub(super) fn end(mut self) -> anyhow::Result<HashMap<Box<str>, Arrival>> {
        kill_process(Pid::from_child(&self.process), Signal::TERM)?;
        let status = self.process.wait()?;
        if !status.success() {
            bail!("the null engine ended badly: {status}");
        }
        let file = std::fs::File::open(&self.arrivals).context("what the null engine did")?;
        let mut arrivals = HashMap::new();
        for line in BufReader::new(file).lines() {
            let arrival: Arrival = serde_json::from_str(&line?).context("what the null engine did")?;
            arrivals.insert(arrival.id.clone(), arrival);
        }
        Ok(arrivals)
    }
}

impl Drop for NullEngine {
    fn drop(&mut self) {
        // It may have been ended: both say so, and nothing more.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
