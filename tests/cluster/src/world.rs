//! A fleet on its hosts: one engine, one coordinator at a time, four agents, and what they keep.
//!
//! It knows the program only as its users do: command lines, exit codes, what is said, files. What it started ends
//! with it, by process id.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use plimsoll_tests::{Ended, PATIENCE, Process, Results, Signal, binary, eventually, get};
use serde_json::Value;

use crate::link::Link;
use crate::net::{AGENTS, Host, MANY_PORTS};
use crate::stage;

const COORDINATOR_PORT: u16 = 7000;
const ENGINE_PORT: u16 = 8000;
const TOKEN: (&str, &str) = ("PLIMSOLL_TOKEN", "tok-of-the-stage");

/// For a run to end, faults included: leases, timeouts and graces of the program add up.
pub const RUN_PATIENCE: Duration = Duration::from_secs(240);

/// The sweep that everything is compared with.
pub const SWEEP: &str = "--rates 20,40,80 --requests 80 --repeats 1";

/// What is not the subject here, and limits that keep a hang short.
const RELAXED: &str =
    "--late-budget 1s --warmup 0 --brief-probe --connect-timeout 5s --timeout 30s --join-timeout 60s";

/// An agent's host.
#[derive(Debug)]
pub struct Member {
    /// Which.
    pub host: Host,
    /// Its way to the coordinator.
    pub link: Link,
    /// Where it keeps what is not sealed.
    pub spool: PathBuf,
    /// How much its host's clock is ahead, in seconds.
    pub ahead: i64,
    /// The agent.
    pub process: Option<Process>,
}

/// The fleet.
#[derive(Debug)]
pub struct World {
    folder: PathBuf,
    engine: Option<Process>,
    /// Hosts of agents, by their number from 1 on, less one.
    pub members: Vec<Member>,
    mounts: Vec<PathBuf>,
}

impl World {
    /// A fleet whose engine has these options. No agent is started yet.
    #[must_use]
    #[track_caller]
    pub fn new(engine: &str) -> Self {
        let folder = Path::new(stage::ROOT).join("world");
        stage::folder(&folder);
        let members = (1..=AGENTS).map(Host::Agent).map(|host| Member {
            host,
            link: Link::to(Host::Coordinator.at(COORDINATOR_PORT)),
            spool: folder.join(format!("spool-{}", host.name())),
            ahead: 0,
            process: None,
        });
        let members = members.collect();
        let mut world = Self { folder, engine: None, members, mounts: Vec::new() };
        world.start_engine(engine);
        world
    }

    /// Starts the engine, once more where it was killed: it has forgotten what it saw.
    #[track_caller]
    pub fn start_engine(&mut self, options: &str) {
        let mut command = Host::Engine.command(binary("sim-engine"));
        command
            .args(["--listen", &Host::Engine.at(ENGINE_PORT).to_string()])
            .args(options.split_whitespace());
        let mut process = Process::start(command);
        process.expect_said("sim-engine listening on");
        self.engine = Some(process);
    }

    /// The same, and all of its agents.
    #[must_use]
    #[track_caller]
    pub fn with_agents(engine: &str) -> Self {
        let mut world = Self::new(engine);
        world.start_agents();
        world
    }

    /// Starts every agent.
    #[track_caller]
    pub fn start_agents(&mut self) {
        (1..=AGENTS).for_each(|n| self.start_agent(n));
    }

    /// Starts an agent, once more where it was started before.
    #[track_caller]
    pub fn start_agent(&mut self, number: usize) {
        let member = self.member(number);
        let mut command = match member.ahead {
            0 => member.host.command(binary("agent")),
            ahead => {
                let mut command = member.host.command("unshare");
                let ahead = ahead.to_string();
                command.args(["--time", "--monotonic", &ahead, "--boottime", &ahead]).arg(binary("agent"));
                command
            }
        };
        command.args(["--join", &member.link.address.to_string(), "--name", &member.host.name(), "--spool"]);
        command.arg(&member.spool).env(TOKEN.0, TOKEN.1);
        member.process = Some(Process::start(command));
    }

    /// An agent's host, by its number from 1 on.
    pub fn member(&mut self, number: usize) -> &mut Member {
        &mut self.members[number - 1]
    }

    /// Sends a signal to an agent.
    #[track_caller]
    pub fn signal_agent(&mut self, number: usize, signal: Signal) {
        self.agent(number).signal(signal);
    }

    /// An agent's process.
    ///
    /// # Panics
    /// When it was not started.
    #[track_caller]
    pub fn agent(&mut self, number: usize) -> &mut Process {
        self.member(number).process.as_mut().unwrap_or_else(|| panic!("agent {number} was not started"))
    }

    /// Puts a small disk of its own there, before anything is written.
    #[track_caller]
    pub fn small_disk(&mut self, path: &Path, size: &str) {
        stage::mount(path, size);
        self.mounts.push(path.to_owned());
    }

    /// The coordinator's data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// `coordinator sweep` of [`SWEEP`].
    #[must_use]
    #[track_caller]
    pub fn sweep(&self) -> Process {
        self.sweep_of(SWEEP)
    }

    /// `coordinator sweep`.
    ///
    /// # Panics
    /// When the workload cannot be written.
    #[must_use]
    #[track_caller]
    pub fn sweep_of(&self, what: &str) -> Process {
        let workload = self.folder.join("workload.jsonl");
        let row = "{\"prompt\": \"hold fast\", \"max_tokens\": 4}\n";
        std::fs::write(&workload, row).unwrap_or_else(|e| panic!("{}: {e}", workload.display()));
        let mut command = Host::Coordinator.command(binary("coordinator"));
        command.arg("sweep").arg("--data").arg(self.data()).arg("--workload").arg(&workload);
        command.args(["--base-url", &self.engine_url(), "--agents", &AGENTS.to_string()]);
        command.args(["--listen", &Host::Coordinator.at(COORDINATOR_PORT).to_string()]);
        command.args(RELAXED.split_whitespace()).args(what.split_whitespace());
        self.start(command)
    }

    /// `coordinator resume latest`.
    #[must_use]
    #[track_caller]
    pub fn resume(&self) -> Process {
        self.resume_with("")
    }

    /// The same with options of the run that are others now.
    #[must_use]
    #[track_caller]
    pub fn resume_with(&self, options: &str) -> Process {
        let mut command = Host::Coordinator.command(binary("coordinator"));
        command.arg("resume").arg("--data").arg(self.data()).arg("latest").args(options.split_whitespace());
        self.start(command)
    }

    fn start(&self, mut command: Command) -> Process {
        command.env(TOKEN.0, TOKEN.1).current_dir(&self.folder);
        Process::start(command)
    }

    fn engine_url(&self) -> String {
        format!("http://{}", Host::Engine.at(ENGINE_PORT))
    }

    /// What the engine has seen of runs, in the order of arrival. Probes are left out.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    #[track_caller]
    pub fn log(&self) -> Vec<Value> {
        let mut log: Vec<Value> = serde_json::from_str(&get(&format!("{}/log", self.engine_url())))
            .unwrap_or_else(|e| panic!("the engine's log: {e}"));
        log.retain(|entry| entry["request_id"].as_str().is_some_and(|id| !id.starts_with("check/")));
        log
    }

    /// Waits until the engine has seen so many requests.
    #[track_caller]
    pub fn under_way(&self, requests: usize) {
        eventually("requests at the engine", || (self.log().len() >= requests).then_some(()));
    }

    /// Kills the engine in the middle of whatever it does.
    #[track_caller]
    pub fn kill_engine(&mut self) {
        if let Some(mut engine) = self.engine.take() {
            engine.signal(Signal::KILL);
            let _ = engine.wait();
        }
    }

    /// The folder of the only run; none when there is none.
    ///
    /// # Panics
    /// When there are several.
    #[must_use]
    #[track_caller]
    pub fn run(&self) -> Option<PathBuf> {
        let runs = std::fs::read_dir(self.data().join("runs")).into_iter().flatten().flatten();
        let runs: Vec<PathBuf> = runs.map(|entry| entry.path()).collect();
        assert!(runs.len() <= 1, "more than one run: {runs:?}");
        runs.into_iter().next()
    }

    /// What the only run left.
    ///
    /// # Panics
    /// When there is none, or its books do not balance.
    #[must_use]
    #[track_caller]
    pub fn results(&self, ended: &Ended) -> Results {
        let run = self.run().unwrap_or_else(|| panic!("there is no run: {}", ended.story()));
        Results::read(&run).unwrap_or_else(|e| panic!("{e}: {}", ended.story()))
    }

    /// What the agents said, for a failure's message.
    #[must_use]
    pub fn said(&self) -> String {
        let said = self.members.iter().filter_map(|m| {
            let text = m.process.as_ref()?.stderr();
            Some(format!("--- {}:\n{text}", m.host.name()))
        });
        said.collect::<Vec<_>>().join("\n")
    }

    /// Ends all of it as an operator would; nothing may be left.
    ///
    /// # Panics
    /// When something does not end, or ends otherwise than it should.
    #[track_caller]
    pub fn close(mut self) {
        let agents: Vec<Process> = self.members.iter_mut().filter_map(|m| m.process.take()).collect();
        for mut agent in agents {
            if agent.is_running() {
                agent.signal(Signal::TERM);
                let ended = agent.wait();
                assert_eq!(ended.code, Some(0), "an agent does not end well: {}", ended.story());
            }
        }
        if let Some(mut engine) = self.engine.take() {
            engine.signal(Signal::TERM);
            let _ = engine.wait();
        }
        // Of the coordinator nothing may be left that nobody ended.
        let left = stage::processes();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Processes are killed by their own values; a disk that is still in use goes when its last user has.
        self.members.iter_mut().for_each(|m| drop(m.process.take()));
        self.engine = None;
        for mount in self.mounts.drain(..) {
            stage::unmount(&mount);
        }
        for host in crate::net::hosts() {
            host.mend();
            host.ports(MANY_PORTS);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Waits for a coordinator's end.
#[must_use]
#[track_caller]
pub fn ended(process: Process) -> Ended {
    process.wait_within(RUN_PATIENCE.max(PATIENCE))
}

/// Kills a coordinator, and gives what it said.
#[must_use]
#[track_caller]
pub fn killed(mut process: Process) -> Ended {
    process.signal(Signal::KILL);
    let ended = process.wait();
    assert_eq!(ended.code, None, "{}", ended.story());
    ended
}

/// Says that it must have ended so.
#[track_caller]
pub fn expect_code(ended: Ended, code: i32) -> Ended {
    assert_eq!(ended.code, Some(code), "its exit code is not {code}: {}", ended.story());
    ended
}

/// Says that standard error must hold each of `texts`.
#[track_caller]
pub fn expect_said(ended: &Ended, texts: &[&str]) {
    for text in texts {
        assert!(ended.stderr.contains(text), "it did not say {text:?}: {}", ended.story());
    }
}
