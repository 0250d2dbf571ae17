//! The simulated engine as a process.

use std::process::Command;

use serde_json::Value;

use crate::http;
use crate::process::{Process, binary};
use crate::values::{count, text};

/// A running `sim-engine` on a port of its own.
#[derive(Debug)]
pub struct Engine {
    process: Process,
    url: String,
}

impl Engine {
    /// Starts it with these options.
    ///
    /// # Panics
    /// When it does not say where it listens.
    #[must_use]
    #[track_caller]
    pub fn start(options: &[&str]) -> Self {
        let mut command = Command::new(binary("sim-engine"));
        command.args(["--listen", "127.0.0.1:0"]).args(options);
        let mut process = Process::start(command);
        let url = process.expect("sim-engine listening on", |process| {
            let out = process.stdout();
            let (line, _) = out.split_once('\n')?;
            line.strip_prefix("sim-engine listening on ").map(str::to_owned)
        });
        Self { process, url }
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its base URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// One entry for each generation request that it has received.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    #[track_caller]
    pub fn log(&self) -> Vec<Value> {
        let body = http::get(&format!("{}/log", self.url));
        serde_json::from_str(&body).unwrap_or_else(|e| panic!("the engine's log: {e}\n{body}"))
    }

    /// The entries of one trial, in the order of their arrival.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    #[track_caller]
    pub fn log_of(&self, run: &str, trial: u64) -> Vec<Value> {
        let prefix = format!("{run}/{trial}/");
        let mut log = self.log();
        log.retain(|entry| entry["request_id"].as_str().is_some_and(|id| id.starts_with(&prefix)));
        log.sort_by_key(|entry| count(entry, "/arrival_ns"));
        log
    }

    /// The value of a counter of its `/metrics`.
    ///
    /// # Panics
    /// When it does not answer, or has none of this name.
    #[must_use]
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        http::counter(&http::get(&format!("{}/metrics", self.url)), name)
    }

    /// Status and body of its answer to a completions request.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    #[track_caller]
    pub fn ask(&self, body: &Value) -> (u16, String) {
        http::post(&format!("{}/v1/completions", self.url), body)
    }

    /// Kills it in the middle of whatever it does.
    #[track_caller]
    pub fn kill(mut self) {
        self.process.signal(rustix::process::Signal::KILL);
        let _ = self.process.wait();
    }
}

/// The arrival index at the end of a log entry's request id.
///
/// # Panics
/// When there is none.
#[must_use]
#[track_caller]
pub fn arrival_order(log: &[Value]) -> Vec<u64> {
    let index = |entry: &Value| {
        let id = text(entry, "/request_id");
        id.rsplit('/')
            .next()
            .and_then(|index| index.parse().ok())
            .unwrap_or_else(|| panic!("no index in {id}"))
    };
    log.iter().map(index).collect()
}
