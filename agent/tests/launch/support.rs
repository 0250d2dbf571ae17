//! What the tests share: a folder with a stub engine and a recipe for it, and how to look at what became of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use agent::launch::{Engine, LaunchError, Launcher, Recipe};
use common::clock::{Clock, SystemClock};
use common::ids::Nanos;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest that a condition is waited for: its error says what was missing.
const PATIENCE: Nanos = Nanos::from_secs(60);

pub(crate) const READY: &str = "/ready-stub";

/// A folder with a stub engine called `toy`, a recipe for it and a port that is free.
pub(crate) struct Stub {
    folder: tempfile::TempDir,
    pub(crate) port: u16,
    /// Whether its engines may have control groups.
    pub(crate) cgroup: bool,
}

impl Stub {
    /// A stub that is told `env` besides its folder and its ready path.
    pub(crate) fn new(env: &[(&str, &str)]) -> Self {
        Self::with_fields(env, "")
    }

    /// As [`Stub::new`], with more top-level fields in the recipe.
    pub(crate) fn with_fields(env: &[(&str, &str)], fields: &str) -> Self {
        let stub = Self { folder: tempfile::tempdir().unwrap(), port: free_port(), cgroup: true };
        let program = stub.install("toy");
        let recipe = format!(
            "name = \"toy\"\ndialect = \"openai\"\ncommand = [{program:?}, \"--port\", \"${{port}}\"]\n\
             base_url = \"http://127.0.0.1:${{port}}\"\n{fields}\n[stop]\ngrace_seconds = 30\n\
             [vars]\nport = {}\n[env]\n{}",
            stub.port,
            stub.env(READY, env),
        );
        fs::write(stub.path("toy.toml"), recipe).unwrap();
        stub
    }

    /// Puts the stub under a program's name into the folder.
    pub(crate) fn install(&self, name: &str) -> PathBuf {
        let program = self.path(name);
        // The interpreter's own path: with its name, a stub that is called `python3` would call itself.
        let text = format!("#!{} -IS\n{}", python(), include_str!("engine.py"));
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    /// Lines of an `[env]` table.
    pub(crate) fn env(&self, ready: &str, more: &[(&str, &str)]) -> String {
        let folder = self.folder.path().to_str().unwrap();
        let own = [("STUB_DIR", folder), ("STUB_READY", ready)];
        own.iter().chain(more).map(|(name, value)| format!("{name} = {value:?}\n")).collect()
    }

    /// Changes the recipe.
    pub(crate) fn edit(&self, from: &str, to: &str) {
        let recipe = fs::read_to_string(self.path("toy.toml")).unwrap();
        assert!(recipe.contains(from), "{from:?} is not in:\n{recipe}");
        fs::write(self.path("toy.toml"), recipe.replace(from, to)).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn recipe(&self) -> Recipe {
        Recipe::load(&self.path("toy.toml"), None, &[]).unwrap()
    }

    pub(crate) async fn start(&self) -> Result<Engine, LaunchError> {
        Engine::start(Arc::new(self.recipe()), self.launcher()).await
    }

    pub(crate) fn launcher(&self) -> Launcher {
        let mut launcher = Launcher::new(self.path("logs"), Arc::new(SystemClock));
        // This is not the agent.
        launcher.supervisor = env!("CARGO_BIN_EXE_agent").into();
        launcher.cgroup = self.cgroup;
        launcher
    }

    /// Started, and ready.
    pub(crate) async fn ready(&self) -> Engine {
        let mut engine = self.start().await.unwrap();
        self.wait_ready(&mut engine, READY).await.unwrap();
        engine
    }

    pub(crate) async fn wait_ready(&self, engine: &mut Engine, path: &str) -> Result<Nanos, LaunchError> {
        engine.wait_ready(path, || get(self.port, path), |_| {}).await
    }

    /// What the stub was started with, one value for each start.
    pub(crate) fn starts(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("argv.json")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The paths that it was asked for.
    pub(crate) fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("asked")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The numbers of its processes by their names; empty until `names` are all there.
    pub(crate) fn pids(&self) -> Vec<(String, i32)> {
        let text = fs::read_to_string(self.path("pids")).unwrap_or_default();
        let pair = |line: &str| {
            let (name, pid) = line.split_once(' ')?;
            Some((name.to_owned(), pid.parse().ok()?))
        };
        text.lines().filter_map(pair).collect()
    }

    /// Every process that was started with this folder in its environment.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let folder = self.folder.path().to_str().unwrap().as_bytes();
        let own = |pid: &i32| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.windows(folder.len()).any(|window| window == folder) && runs(*pid)
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(own).collect()
    }

    /// Waits until processes of these names have said their numbers.
    pub(crate) fn expect_pids(&self, names: &[&str]) -> Vec<(String, i32)> {
        expect(&format!("processes {names:?}"), || {
            let pids = self.pids();
            names.iter().all(|name| pids.iter().any(|(n, _)| n == name)).then_some(pids)
        })
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        // Whatever a failing test has left: what has this test's folder in its environment is this test's.
        while self.processes().into_iter().map(kill).count() > 0 {}
    }
}

fn python() -> String {
    let asked =
        std::process::Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    String::from_utf8(asked.expect("python3 runs the stub engine").stdout).unwrap().trim().to_owned()
}

/// A port that nobody has, below those that the kernel gives away by itself: a recipe names its port before the
/// engine is there to ask for one.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % 997) as u16 * 11;
    loop {
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Status of one GET.
pub(crate) async fn get(port: u16, path: &str) -> Result<u16, String> {
    let asking = async {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).await?;
        socket.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = asking.await.map_err(|e| e.to_string())?;
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(|| "no answer".to_owned())
}

/// Whether a process runs: one that has ended and was not waited for does not.
pub(crate) fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

pub(crate) fn kill(pid: i32) {
    signal(pid, rustix::process::Signal::KILL);
}

pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}

/// The number of the process that started `pid`.
pub(crate) fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Waits for a condition.
#[track_caller]
pub(crate) fn expect<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = SystemClock.monotonic() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(SystemClock.monotonic() < end, "missing after {} s: {what}", PATIENCE.0 / 1_000_000_000);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until none of these processes runs.
#[track_caller]
pub(crate) fn expect_gone(pids: &[(String, i32)]) {
    assert!(!pids.is_empty());
    expect(&format!("the end of {pids:?}"), || pids.iter().all(|&(_, pid)| !runs(pid)).then_some(()));
}

/// The recipes' folder.
pub(crate) fn engines() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/engines").canonicalize().unwrap()
}
