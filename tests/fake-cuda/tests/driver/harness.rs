//! A child that finds the fake driver, and what it said.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use fake_cuda::library;
use tempfile::TempDir;

/// The test that is the child, and the variable that says what it should do.
const CHILD: &str = "client::child";
pub(crate) const TASK: &str = "FAKE_CUDA_TEST_TASK";

/// What the child answered: `key value` lines.
pub(crate) struct Answer {
    pub(crate) lines: BTreeMap<String, String>,
    pub(crate) status: ExitStatus,
    pub(crate) stderr: String,
}

impl Answer {
    /// A value that must be there.
    pub(crate) fn get(&self, key: &str) -> &str {
        let value = self.lines.get(key).map(String::as_str);
        value.unwrap_or_else(|| panic!("no {key} in {:?}\n{}", self.lines, self.stderr))
    }

    /// A number that must be there.
    pub(crate) fn number(&self, key: &str) -> i64 {
        self.get(key).parse().unwrap_or_else(|_| panic!("{key} is {}", self.get(key)))
    }
}

/// A folder with the driver in it.
pub(crate) struct Fake {
    folder: TempDir,
}

impl Fake {
    /// Without some symbols.
    pub(crate) fn without(symbols: &[&str]) -> Self {
        let folder = TempDir::new().expect("a folder");
        library::place(folder.path(), symbols).expect("a copy of the library");
        Self { folder }
    }

    /// A file beside the driver.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a child that does a task, with a scenario and more of the environment.
    pub(crate) fn run(&self, task: &str, scenario: &str, environment: &[(&str, &str)]) -> Answer {
        run(self.folder.path(), task, scenario, environment)
    }
}

/// Runs a child that looks for the driver in a folder.
pub(crate) fn run(folder: &Path, task: &str, scenario: &str, environment: &[(&str, &str)]) -> Answer {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", CHILD, "--ignored", "--nocapture"])
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env_remove("CUDA_DEVICE_ORDER")
        .env_remove("FAKE_NVML_BURN_FILE")
        .env("LD_LIBRARY_PATH", folder)
        .env("FAKE_CUDA_SCENARIO", scenario)
        .env(TASK, task)
        .envs(environment.iter().copied())
        .output()
        .expect("it runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let lines = stdout.lines().filter_map(|line| line.strip_prefix("> ")?.split_once(' '));
    Answer {
        lines: lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        status: output.status,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
