//! The coordinator's process, as the bench sees it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::mpsc;

use crate::coordinator::{Job, carry_out, wanted};
use crate::figures::Process;

/// The variable that tells the process its job.
pub(crate) const JOB: &str = "PLIMSOLL_SCALE_JOB";

/// Lines that wait for the bench. There are a dozen.
const LINES: usize = 256;

/// For any line of the coordinator's to come.
const PATIENCE: Duration = Duration::from_secs(300);

/// Where this process is a coordinator's, it is that until its end. To be called before anything else.
///
/// # Errors
/// Why the coordinator's run ended early.
pub fn be_coordinator_if_wanted() -> anyhow::Result<bool> {
    let _ = common::disk::raise_open_files();
    let Some(job) = wanted()? else { return Ok(false) };
    carry_out(&job)?;
    Ok(true)
}

/// A folder on a disk for a coordinator's data: beside the bench's program, where builds are.
///
/// # Errors
/// When it cannot be made.
pub fn folder() -> anyhow::Result<tempfile::TempDir> {
    let program = std::env::current_exe()?;
    Ok(tempfile::tempdir_in(program.parent().context("the program has no folder")?)?)
}

/// A coordinator that runs. It ends with this value.
pub struct Coordinator {
    child: Child,
    lines: mpsc::Receiver<String>,
    /// Its figures.
    pub process: Process,
}

impl Coordinator {
    /// Starts one.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(job: &Job) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(JOB, serde_json::to_string(job)?).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let out = child.stdout.take().context("no output")?;
        let (sender, lines) = mpsc::channel(LINES);
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        let process = Process::of(child.id());
        Ok(Self { child, lines, process })
    }

    /// Waits for a line that begins with this word, and gives the rest of it. What it notes meanwhile is shown.
    ///
    /// # Errors
    /// When it ends before.
    pub async fn says(&mut self, word: &str) -> anyhow::Result<String> {
        let mut noted = Vec::new();
        loop {
            let line = tokio::time::timeout(PATIENCE, self.lines.recv()).await;
            let Ok(Some(line)) = line else { bail!("the coordinator did not say {word:?}: {noted:?}") };
            if let Some(rest) = line.strip_prefix(word) {
                return Ok(rest.trim().to_owned());
            }
            noted.push(line);
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it failed.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { bail!("the coordinator failed: {status}") }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
