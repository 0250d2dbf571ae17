//! Pages in a real browser without a window, where one is there.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the program; `make test` sets it.
const VARIABLE: &str = "PLIMSOLL_CHROMIUM";

/// A browser.
#[derive(Debug)]
pub struct Browser {
    program: PathBuf,
}

/// A page as the browser left it.
#[derive(Debug)]
pub struct Opened {
    /// Its document after its scripts have run.
    pub dom: String,
    /// What its console said: messages, errors, what its policy refused.
    pub console: Vec<String>,
}

impl Browser {
    /// The browser. None when none is named, which is said.
    #[must_use]
    pub fn find() -> Option<Self> {
        let program = std::env::var_os(VARIABLE).filter(|p| !p.is_empty()).map(PathBuf::from);
        if program.is_none() {
            println!("skipped: {VARIABLE} is not set; `make test` installs Chromium and runs this test");
        }
        program.map(|program| Self { program })
    }

    /// Opens a file, with no network to be had.
    ///
    /// # Panics
    /// When the browser cannot be started, or fails.
    #[must_use]
    #[track_caller]
    pub fn open(&self, file: &Path) -> Opened {
        let said = self.run(&["--dump-dom"], file);
        let dom = String::from_utf8_lossy(&said.stdout).into_owned();
        let log = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.status.success() && dom.contains("<html"), "{:?}: {log}", self.program);
        let console = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
        Opened { dom, console }
    }

    fn run(&self, options: &[&str], file: &Path) -> std::process::Output {
        let profile = tempfile::tempdir().unwrap_or_else(|e| panic!("no temporary folder: {e}"));
        let mut command = Command::new(&self.program);
        // Without a sandbox of its own, for tests run as root in containers, too; time is virtual: scripts are waited for.
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
        ]);
        command.args([
            "--virtual-time-budget=10000",
            "--window-size=1280,1000",
            "--host-resolver-rules=MAP * ~NOTFOUND",
        ]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).args(options);
        command.arg(format!("file://{}", file.display()));
        command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
    }
}
