//! What agent and supervisor say to each other: JSON lines over the supervisor's standard input and output.
//!
//! The order goes over the pipe and not over the command line, because a command line is everybody's to read and an
//! order may hold keys. The same pipe is the leash: its end is the agent's end.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// To the supervisor, one a line: first an order, then any number of stops.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(super) enum Request {
    Start(Order),
    Stop { grace_ms: u64 },
}

/// What to start and how to end it.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) command: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) env_inherit: bool,
    pub(super) working_dir: Option<PathBuf>,
    pub(super) log: PathBuf,
    /// Put it into a control group of its own, where one can be made.
    pub(super) cgroup: bool,
    /// When the pipe ends, or the engine's first process does.
    pub(super) grace_ms: u64,
}

impl fmt::Debug for Order {
    // The environment and the command may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order").field("log", &self.log).finish_non_exhaustive()
    }
}

/// From the supervisor, one a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// The engine's first process runs.
    Started { pid: i32, cgroup: Option<PathBuf> },
    /// Nothing was started.
    Failed { step: Step, error: String, not_found: bool },
    /// The engine's first process ended; what it left behind is being ended.
    Exited { exit: Exit },
    /// SIGKILL was sent again and again, and these are still there.
    Lingering { pids: Vec<i32> },
    /// No process of the engine is left. The last event.
    Gone,
}

/// Where a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    Supervisor,
    Log,
    Program,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// Its supervisor was ended before it could tell.
    Unknown,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Status(status) => write!(f, "exit status {status}"),
            Self::Signal(number) => match signal_name(number) {
                Some(name) => write!(f, "signal {number} ({name})"),
                None => write!(f, "signal {number}"),
            },
            Self::Unknown => f.write_str("an unknown status: its supervisor was ended too"),
        }
    }
}

fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        // Nobody here sent it: mostly the kernel, out of memory.
        9 => "SIGKILL, as sent when memory runs out",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        _ => return None,
    })
}
