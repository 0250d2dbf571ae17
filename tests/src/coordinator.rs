//! The `coordinator` as a process, with a folder of its own.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Ended, Process, binary};
use crate::results::Results;
use crate::wait::PATIENCE;

/// A coordinator's command line. Its folder, with the data directory in it, goes with the last value that knows it.
#[derive(Debug)]
pub struct Coordinator {
    command: Command,
    folder: Arc<TempDir>,
    data: PathBuf,
    secrets: Option<TempDir>,
}

impl Coordinator {
    /// `coordinator sweep` with a data directory of its own.
    #[must_use]
    pub fn sweep() -> Self {
        Self::new("sweep", None)
    }

    /// `coordinator run` with a data directory of its own.
    #[must_use]
    pub fn run_one() -> Self {
        Self::new("run", None)
    }

    /// `coordinator probe` with a data directory of its own.
    #[must_use]
    pub fn probe() -> Self {
        Self::new("probe", None)
    }

    /// `coordinator capture` with a data directory of its own.
    #[must_use]
    pub fn capture() -> Self {
        Self::new("capture", None)
    }

    /// `coordinator sweep` with the data directory of another.
    #[must_use]
    pub fn sweep_beside(other: &Running) -> Self {
        Self::new("sweep", Some((Arc::clone(&other.folder), other.data.clone())))
    }

    /// `coordinator resume` of the latest run of another that has ended.
    #[must_use]
    pub fn resume(other: &Finished) -> Self {
        Self::new("resume", Some((Arc::clone(&other.folder), other.data.clone()))).args(["latest"])
    }

    fn new(subcommand: &str, place: Option<(Arc<TempDir>, PathBuf)>) -> Self {
        let (folder, data) = place.unwrap_or_else(|| {
            let folder = TempDir::new().unwrap_or_else(|e| panic!("no temporary folder: {e}"));
            let data = folder.path().join("data");
            (Arc::new(folder), data)
        });
        let mut command = Command::new(binary("coordinator"));
        command.arg(subcommand).arg("--data").arg(&data).current_dir(folder.path());
        Self { command, folder, data, secrets: None }
    }

    /// For tests whose subject is not how late a busy machine sends, nor what a warm-up does, nor what the engine can
    /// do: each agent sends one request before the first trial.
    #[must_use]
    pub fn relaxed(self) -> Self {
        self.args(["--late-budget", "1s", "--warmup", "0", "--brief-probe"])
    }

    /// The engine.
    #[must_use]
    pub fn engine(self, url: &str) -> Self {
        self.args(["--base-url", url])
    }

    /// More options.
    #[must_use]
    pub fn args(mut self, options: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(options);
        self
    }

    /// More options, in one line.
    #[must_use]
    pub fn line(self, options: &str) -> Self {
        self.args(options.split_whitespace())
    }

    /// A variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Writes a file into its folder, and gives an option that file.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    #[track_caller]
    pub fn file(mut self, option: &str, name: &str, content: &str) -> Self {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.command.arg(option).arg(path);
        self
    }

    /// Writes a secret into a file outside its folder, and gives an option that file.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    #[track_caller]
    pub fn secret(mut self, option: &str, content: &str) -> Self {
        let folder = TempDir::new().unwrap_or_else(|e| panic!("no temporary folder: {e}"));
        let path = folder.path().join("secret");
        std::fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.command.arg(option).arg(path);
        self.secrets = Some(folder);
        self
    }

    /// Writes a workload of these rows.
    #[must_use]
    #[track_caller]
    pub fn workload(self, rows: &[serde_json::Value]) -> Self {
        let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
        self.file("--workload", "workload.jsonl", &lines)
    }

    /// Starts it.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> Running {
        let process = Process::start(self.command);
        Running { process, folder: self.folder, data: self.data, _secrets: self.secrets }
    }

    /// Starts it and waits for its end.
    #[must_use]
    #[track_caller]
    pub fn finish(self) -> Finished {
        self.start().finish()
    }
}

/// A running coordinator.
#[derive(Debug)]
pub struct Running {
    /// Its process.
    pub process: Process,
    folder: Arc<TempDir>,
    data: PathBuf,
    _secrets: Option<TempDir>,
}

impl Running {
    /// Its data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Where it waits for agents: from the line that says what to type on other hosts.
    ///
    /// # Panics
    /// When it says no such thing.
    #[must_use]
    #[track_caller]
    pub fn join_address(&mut self) -> SocketAddr {
        self.process.expect("agent --join HOST:PORT", |process| {
            let said = process.stderr();
            let (line, _) = said.split_once("agent --join ")?.1.split_once('\n')?;
            line.split_whitespace().next()?.trim_start_matches("https://").parse().ok()
        })
    }

    /// Sends it a signal.
    #[track_caller]
    pub fn signal(&mut self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits for its end.
    #[must_use]
    #[track_caller]
    pub fn finish(self) -> Finished {
        self.finish_within(PATIENCE)
    }

    /// Waits for its end.
    #[must_use]
    #[track_caller]
    pub fn finish_within(self, patience: Duration) -> Finished {
        Finished { ended: self.process.wait_within(patience), folder: self.folder, data: self.data }
    }
}

/// A coordinator that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Its code and what it said.
    pub ended: Ended,
    folder: Arc<TempDir>,
    data: PathBuf,
}

impl Finished {
    /// Its data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Its folder, in which the data directory is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Everything that was said, by it and by the agents that it started.
    #[must_use]
    pub fn story(&self) -> String {
        let mut story = self.ended.story();
        let logs = std::fs::read_dir(self.data.join("agents")).into_iter().flatten().flatten();
        for path in logs.map(|entry| entry.path()).filter(|p| p.extension().is_some_and(|e| e == "log")) {
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            story.push_str(&format!("\n--- {}:\n{log}", path.display()));
        }
        story
    }

    /// Says that it must have ended so.
    ///
    /// # Panics
    /// When it did not.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.ended.code, Some(code), "its exit code is not {code}: {}", self.story());
        self
    }

    /// Says that standard error must hold each of `texts`.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn expect_said(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.ended.stderr.contains(text), "it did not say {text:?}: {}", self.story());
        }
        self
    }

    /// Names of its runs, oldest first.
    #[must_use]
    pub fn runs(&self) -> Vec<PathBuf> {
        let runs = std::fs::read_dir(self.data.join("runs")).into_iter().flatten().flatten();
        let mut runs: Vec<PathBuf> = runs.map(|entry| entry.path()).collect();
        runs.sort();
        runs
    }

    /// What `coordinator report latest` says of its last run.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn report_again(&self, options: &[&str]) -> Output {
        let mut command = Command::new(binary("coordinator"));
        command.args(["report", "latest", "--data"]).arg(&self.data).args(options);
        command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
    }

    /// The same, which must have worked: what it printed.
    ///
    /// # Panics
    /// When it did not.
    #[must_use]
    #[track_caller]
    pub fn reported_again(&self, options: &str) -> String {
        let said = self.report_again(&options.split_whitespace().collect::<Vec<_>>());
        assert!(said.status.success(), "{options}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).expect("it prints UTF-8")
    }

    /// The lines of its last run's `telemetry.jsonl`; none when there is none.
    ///
    /// # Panics
    /// When a line is no JSON.
    #[must_use]
    pub fn telemetry(&self) -> Vec<serde_json::Value> {
        let path = self.runs().pop().map(|run| run.join("telemetry.jsonl"));
        let text = path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Says that it must have left nothing that looks like a result.
    ///
    /// # Panics
    /// When there is a run, a report or a file of traces.
    #[track_caller]
    pub fn expect_no_results(&self) {
        let found = crate::search::files(self.folder.path());
        let result = |path: &&PathBuf| {
            path.ends_with("report.json")
                || path.ends_with("traces.jsonl")
                || path.extension().is_some_and(|e| e == "seg")
        };
        let results: Vec<_> = found.iter().filter(result).collect();
        assert!(results.is_empty() && self.runs().is_empty(), "it left {results:?}: {}", self.story());
        assert_eq!(self.ended.stdout, "", "it printed a report: {}", self.story());
    }

    /// Reads what its only run left, and checks the books.
    ///
    /// # Panics
    /// When there is not one run with a report and traces, or its books do not balance.
    #[must_use]
    #[track_caller]
    pub fn results(&self) -> Results {
        let runs = self.runs();
        let [run] = runs.as_slice() else { panic!("not one run but {runs:?}: {}", self.story()) };
        Results::read(run).unwrap_or_else(|e| panic!("{e}: {}", self.story()))
    }
}
