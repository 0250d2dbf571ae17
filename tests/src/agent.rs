//! An `agent` that is started by hand.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Ended, Process, binary};

/// A running agent with a spool of its own.
#[derive(Debug)]
pub struct Agent {
    /// Its process.
    pub process: Process,
    folder: TempDir,
}

impl Agent {
    /// Starts an agent that joins `address`, a HOST:PORT, under `name`.
    #[must_use]
    #[track_caller]
    pub fn start(name: &str, address: impl ToString, options: &[&str]) -> Self {
        Self::start_with(name, address, options, &[])
    }

    /// The same with variables in its environment.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    #[track_caller]
    pub fn start_with(
        name: &str,
        address: impl ToString,
        options: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let folder = TempDir::new().unwrap_or_else(|e| panic!("no temporary folder: {e}"));
        let mut command = Command::new(binary("agent"));
        command.args(["--join", &address.to_string(), "--name", name, "--spool"]).arg(folder.path());
        command.args(options).envs(environment.iter().copied());
        Self { process: Process::start(command), folder }
    }

    /// `agent spool`, with this agent's spool.
    ///
    /// # Panics
    /// When it cannot be started or does not end.
    #[must_use]
    #[track_caller]
    pub fn spool(&self, arguments: &str) -> Ended {
        let mut command = Command::new(binary("agent"));
        command.arg("spool").args(arguments.split_whitespace()).arg("--spool").arg(self.folder());
        Process::start(command).wait()
    }

    /// Where its spool is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Tells it to end, and waits for that.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn stop(mut self) -> Ended {
        self.process.signal(Signal::TERM);
        self.process.wait()
    }
}
