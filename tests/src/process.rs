//! A child process: started, listened to, ended by its id on every path.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process};

use crate::wait::{PATIENCE, poll};

/// Variables that would change what is tested.
const NOT_INHERITED: &[&str] = &[
    "PLIMSOLL_TOKEN",
    "OPENAI_API_KEY",
    "PLIMSOLL_ALLOW_TARGET",
    "PLIMSOLL_CALIBRATION",
    "PLIMSOLL_ENGINE_CA",
    "PLIMSOLL_ENGINE_CERT",
    "PLIMSOLL_ENGINE_KEY",
    "RUST_LOG",
    "NO_COLOR",
    "RUST_BACKTRACE",
];

/// The program `name` from the target folder of this test.
///
/// # Panics
/// When it is not there.
#[must_use]
#[track_caller]
pub fn binary(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_else(|e| panic!("cannot tell where this test is: {e}"));
    // target/debug/deps/TEST → target/debug; a program for tests lies in target/debug itself.
    let mut folder = own.parent().unwrap_or(&own);
    if folder.ends_with("deps") {
        folder = folder.parent().unwrap_or(folder);
    }
    let path = folder.join(name);
    assert!(
        path.is_file(),
        "{} is missing: the end-to-end tests run the real programs; `make build` makes them",
        path.display()
    );
    path
}

/// What a stream has said so far.
#[derive(Debug, Clone, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    fn listen(mut stream: impl Read + Send + 'static) -> (Self, std::thread::JoinHandle<()>) {
        let heard = Self::default();
        let theirs = heard.clone();
        let listener = std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                theirs.bytes().extend_from_slice(&buffer[..read]);
            }
        });
        (heard, listener)
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

/// A process that has ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The command line.
    pub command: String,
    /// The exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
}

impl Ended {
    /// Everything, for a failure's message.
    #[must_use]
    pub fn story(&self) -> String {
        let code = self.code.map_or("a signal".into(), |code| code.to_string());
        format!(
            "$ {}\n--- exit: {code}\n--- stdout:\n{}\n--- stderr:\n{}",
            self.command, self.stdout, self.stderr
        )
    }
}

/// A running process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    command: String,
    child: Child,
    pid: Pid,
    stdout: Heard,
    stderr: Heard,
    listeners: Vec<std::thread::JoinHandle<()>>,
}

impl Process {
    /// Starts `program`, without input, and with nothing from this environment that would change it.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    #[track_caller]
    pub fn start(mut command: Command) -> Self {
        let shown = shown(&command);
        for name in NOT_INHERITED {
            if !command.get_envs().any(|(set, value)| set == *name && value.is_some()) {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {shown}: {e}"));
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else { panic!("{shown}: no pipes") };
        let (stdout, listener_out) = Heard::listen(stdout);
        let (stderr, listener_err) = Heard::listen(stderr);
        let pid = Pid::from_child(&child);
        Self { command: shown, child, pid, stdout, stderr, listeners: vec![listener_out, listener_err] }
    }

    /// Its id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Its standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it has ended.
    #[track_caller]
    pub fn signal(&mut self, signal: Signal) {
        assert!(self.is_running(), "cannot signal, it has ended: {}", self.story("ended"));
        kill_process(self.pid, signal).unwrap_or_else(|e| panic!("{}: {e}", self.command));
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.status().is_none()
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap_or_else(|e| panic!("{}: {e}", self.command))
    }

    /// Waits for a text on standard output or standard error.
    ///
    /// # Panics
    /// When it ends or time runs out without.
    #[track_caller]
    pub fn expect_said(&mut self, text: &str) {
        self.expect(text, |process| {
            (process.stdout().contains(text) || process.stderr().contains(text)).then_some(())
        });
    }

    /// Waits until `look` finds something while the process runs.
    ///
    /// # Panics
    /// When it ends or time runs out without.
    #[track_caller]
    pub fn expect<T>(&mut self, what: &str, look: impl FnMut(&Self) -> Option<T>) -> T {
        self.expect_within(PATIENCE, what, look)
    }

    /// Waits as long as `patience` until `look` finds something while the process runs.
    ///
    /// # Panics
    /// When it ends or time runs out without.
    #[track_caller]
    pub fn expect_within<T>(
        &mut self,
        patience: Duration,
        what: &str,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> T {
        let found = poll(patience, || {
            let ended = self.status().is_some();
            if ended {
                self.hear_out();
            }
            let found = look(self);
            (found.is_some() || ended).then_some(found)
        });
        match found {
            Some(Some(found)) => found,
            Some(None) => panic!("it ended without {what:?}: {}", self.story("ended")),
            None => panic!("waited {patience:?} for {what:?}: {}", self.story("still running")),
        }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it has not ended within `patience`.
    #[track_caller]
    pub fn wait_within(mut self, patience: Duration) -> Ended {
        let Some(status) = poll(patience, || self.status()) else {
            panic!("it did not end within {patience:?}: {}", self.story("still running"));
        };
        self.hear_out();
        Ended {
            command: self.command.clone(),
            code: status.code(),
            stdout: self.stdout(),
            stderr: self.stderr(),
        }
    }

    /// Waits for its end, as long as anything may take.
    ///
    /// # Panics
    /// When it has not ended.
    #[track_caller]
    pub fn wait(self) -> Ended {
        self.wait_within(PATIENCE)
    }

    /// Waits for the end of its output. A child of its own may hold the pipes open: then not for long.
    fn hear_out(&mut self) {
        let listeners = &self.listeners;
        let _ = poll(Duration::from_secs(2), || listeners.iter().all(|l| l.is_finished()).then_some(()));
    }

    fn story(&self, state: &str) -> String {
        format!(
            "$ {}\n--- {state}\n--- stdout:\n{}\n--- stderr:\n{}",
            self.command,
            self.stdout(),
            self.stderr()
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.kill().is_ok() {
            let _ = self.child.wait();
        }
    }
}

fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        let argument: OsString = argument.into();
        let _ = write!(text, " {}", argument.to_string_lossy());
    }
    text
}

/// Sends a signal to a process that is not a child of this one.
///
/// # Panics
/// When there is no such process.
#[track_caller]
pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap_or_else(|| panic!("no pid: {pid}"));
    kill_process(pid, signal).unwrap_or_else(|e| panic!("signal to {pid:?}: {e}"));
}

/// The ids of the processes that `parent` started and that run.
#[must_use]
pub fn descendants(parent: u32) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let child_of = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in brackets may hold anything; behind it stand the state and the parent.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let (state, parent) = (fields.next()?, fields.next()?.parse::<u32>().ok()?);
        (state != "Z").then_some(parent)
    };
    pids.filter(|pid| child_of(pid) == Some(parent)).collect()
}

/// Lets a process that runs open `more` files beyond those that it has open, and no others; its own wish does not
/// matter any more.
///
/// # Panics
/// When there is no such process.
#[track_caller]
pub fn limit_files(process: u32, more: u64) {
    let folder = format!("/proc/{process}/fd");
    let open = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{folder}: {e}")).flatten();
    // A coordinator reads its own program once, at its start, and closes it again.
    let program = std::fs::read_link(format!("/proc/{process}/exe")).ok();
    let open = open.filter(|entry| program.is_none() || std::fs::read_link(entry.path()).ok() != program);
    let open: BTreeSet<u64> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // The lowest free number is given out, and none from the limit on: some that it was born with may be high.
    let most = (0..).filter(|number| !open.contains(number)).nth(usize::try_from(more).unwrap_or(0));
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    rustix::process::prlimit(pid, Resource::Nofile, Rlimit { current: most, maximum: most })
        .unwrap_or_else(|e| panic!("the limit of files of {process}: {e}"));
}
