//! The supervisor: a small process between agent and engine, whose one duty is that no process of the engine outlives
//! the agent's wish.
//!
//! It is a process of its own because the agent cannot do this duty once it was killed, and engines are trees: vLLM's
//! workers, for one, live on when its server is killed. It adopts orphans (a "child subreaper"), so that whatever a
//! process of the engine does, a new session or a double fork, it stays a descendant; and `wait` says there are no
//! children only when the last descendant is gone.
//!
//! - It starts one engine, once, with its output in a log file, in a session that no terminal's ctrl-c reaches.
//! - The engine is stopped when a stop is asked for, when standard input ends (the agent is gone), on SIGTERM, and
//!   when the engine's first process ends by itself: what is left of it is of no use and holds memory.
//! - Stopping: SIGTERM to the first process, which knows how to end the others; when it is gone, SIGTERM to those it
//!   left; when the grace is over, SIGKILL to all, again and again until none is left.
//!
//! What it must never do: end before the engine's last process, stop to read its input or wait for its output's reader
//! while it has something to end, or do anything that the agent could do as well.
//!
//! Plain threads: one for the input, one for signals, one that waits for children; each sends to the main thread.
//! Guarded by `tests/launch/tree`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;

use common::clock::{Clock, SystemClock};
use common::ids::Nanos;
use rustix::process::{Signal, WaitOptions, WaitStatus, wait};
use tokio::signal::unix::{SignalKind, signal};

use super::cgroup::{self, Cgroup};
use super::protocol::{Event, Exit, Order, Request, Step};
use super::tree;

/// The agent's first argument that makes it a supervisor.
pub const SUPERVISE: &str = "supervise";

/// The name under which it is listed, so that killing every `agent` of a host does not take it along.
const NAME: &std::ffi::CStr = c"plimsoll-superv";
/// Between two rounds of SIGKILL.
const KILL_AGAIN: Nanos = Nanos::from_millis(20);
/// After so long it is worth a word that something does not die: mostly a driver that holds it.
const LINGERS: Nanos = Nanos::from_secs(5);

/// What reaches the main thread.
enum News {
    Request(Request),
    /// The agent is gone.
    Unleashed,
    Terminated,
    Child(i32, WaitStatus),
    NoChildren,
}

/// Runs the supervisor until the engine is gone. Its input and output are the agent's.
#[must_use]
pub fn supervise() -> ExitCode {
    // Fails only for the leader of a group, whom no terminal's ctrl-c reaches by accident either.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(NAME);
    // A few of each kind: senders may wait, and nothing here waits for a sender.
    let (news, inbox) = sync_channel(16);
    let adopted = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let ready = adopted.map_err(io::Error::from).and_then(|()| hear_signals(news.clone()));
    if let Err(e) = ready {
        report(&Event::Failed { step: Step::Supervisor, error: e.to_string(), not_found: false });
        return ExitCode::FAILURE;
    }
    let requests = news.clone();
    thread::spawn(move || read_requests(&requests));
    // Until there is an engine there is nothing to end: anything but an order ends this.
    let Ok(News::Request(Request::Start(order))) = inbox.recv() else { return ExitCode::FAILURE };
    match start(&order) {
        Ok((first, cgroup)) => {
            report(&Event::Started { pid: first.pid, cgroup: cgroup.clone() });
            thread::spawn(move || wait_for_children(&news));
            Watch {
                first,
                first_is_gone: false,
                grace: Nanos::from_millis(order.grace_ms),
                cgroup,
                kill: None,
            }
            .run(&inbox);
            ExitCode::SUCCESS
        }
        Err(failed) => {
            report(&failed);
            ExitCode::FAILURE
        }
    }
}

/// Whoever reads may be gone; the engine must be ended all the same.
fn report(event: &Event) {
    if let Ok(line) = serde_json::to_string(event) {
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

fn read_requests(news: &SyncSender<News>) {
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(request) = serde_json::from_str(&line) else { break };
        if news.send(News::Request(request)).is_err() {
            return;
        }
    }
    let _ = news.send(News::Unleashed);
}

/// SIGTERM is a stop; SIGINT and SIGHUP are a terminal's, which is the agent's business.
fn hear_signals(news: SyncSender<News>) -> io::Result<()> {
    // Handling a signal without a runtime would take `unsafe`.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut terminate, ignored) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, [signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?])
    };
    thread::spawn(move || {
        let _ignored = ignored;
        runtime.block_on(async {
            while terminate.recv().await.is_some() && news.send(News::Terminated).is_ok() {}
        });
    });
    Ok(())
}

/// Reaps every child, the adopted ones too. Started after the engine's first process: the start itself waits for a
/// child that could not become the program.
fn wait_for_children(news: &SyncSender<News>) {
    loop {
        let sent = match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => news.send(News::Child(pid.as_raw_pid(), status)),
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(_) => {
                let _ = news.send(News::NoChildren);
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

fn start(order: &Order) -> Result<(tree::Process, Option<PathBuf>), Event> {
    let failed = |step, e: io::Error| {
        let not_found = e.kind() == io::ErrorKind::NotFound;
        Event::Failed { step, error: e.to_string(), not_found }
    };
    let (out, err) = open_log(&order.log).map_err(|e| failed(Step::Log, e))?;
    let Some((program, arguments)) = order.command.split_first() else {
        return Err(failed(Step::Program, io::ErrorKind::InvalidInput.into()));
    };
    let mut command = Command::new(program);
    if !order.env_inherit {
        command.env_clear();
    }
    // The fleet's password is no business of an engine's.
    for ours in ["PLIMSOLL_TOKEN", "PLIMSOLL_ENGINE_VARS"] {
        command.env_remove(ours);
    }
    command.args(arguments).envs(&order.env).stdin(Stdio::null()).stdout(out).stderr(err);
    // A group of its own: engines that signal "everybody in my group" would mean this process too.
    command.process_group(0);
    if let Some(folder) = &order.working_dir {
        command.current_dir(folder);
    }
    let group = order.cgroup.then(Cgroup::enter).flatten();
    let started = command.spawn();
    let group = group.and_then(Cgroup::leave);
    // Nobody has waited for it yet: even if it has ended, it is there to be read.
    let first = started.and_then(|mut child| match tree::read(child.id().cast_signed()) {
        Some(first) => Ok(first),
        None => {
            let _ = child.kill();
            Err(io::Error::other("/proc does not show it, so it could not be ended"))
        }
    });
    match first {
        Ok(first) => Ok((first, group)),
        Err(e) => {
            group.iter().for_each(|group| cgroup::remove(group));
            Err(failed(Step::Program, e))
        }
    }
}

/// For its owner only: an engine may log its keys.
fn open_log(path: &Path) -> io::Result<(File, File)> {
    let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
    Ok((file.try_clone()?, file))
}

/// An engine that runs.
struct Watch {
    first: tree::Process,
    first_is_gone: bool,
    /// Given where nobody says how much.
    grace: Nanos,
    cgroup: Option<PathBuf>,
    /// It is being stopped, and this is when SIGKILL is due, for the first time or again.
    kill: Option<Nanos>,
}

impl Watch {
    fn run(mut self, inbox: &Receiver<News>) {
        let mut word = Nanos::MAX;
        loop {
            match self.next(inbox) {
                Ok(News::Request(Request::Stop { grace_ms })) => self.stop(Nanos::from_millis(grace_ms)),
                // A second order is a mistake of the agent's, and it has one engine too many.
                Ok(News::Request(Request::Start(_)) | News::Unleashed | News::Terminated) => {
                    self.stop(self.grace)
                }
                Ok(News::Child(pid, status)) => self.on_ended(pid, status),
                Ok(News::NoChildren) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.kill_all();
                    let now = SystemClock.monotonic();
                    word = word.min(now + LINGERS);
                    if now >= word {
                        self.report_lingering();
                        word = now + LINGERS;
                    }
                }
                // The threads that send live as long as this one.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some(group) = &self.cgroup {
            cgroup::remove(group);
        }
        report(&Event::Gone);
    }

    /// The next news; a timeout is the time to kill. News must not put that off: an engine whose processes end and fork
    /// without pause makes news without pause.
    fn next(&self, inbox: &Receiver<News>) -> Result<News, RecvTimeoutError> {
        let Some(kill) = self.kill else { return inbox.recv().map_err(|_| RecvTimeoutError::Disconnected) };
        match Nanos(kill.0.saturating_sub(SystemClock.monotonic().0)) {
            Nanos::ZERO => Err(RecvTimeoutError::Timeout),
            left => inbox.recv_timeout(left.to_duration()),
        }
    }

    /// Asked twice, the earlier end counts.
    fn stop(&mut self, grace: Nanos) {
        let kill = SystemClock.monotonic() + grace;
        if self.kill.is_none() {
            tree::signal(&self.first, Signal::TERM);
        }
        self.kill = Some(self.kill.map_or(kill, |before| before.min(kill)));
    }

    fn on_ended(&mut self, pid: i32, status: WaitStatus) {
        if pid != self.first.pid || self.first_is_gone {
            return;
        }
        self.first_is_gone = true;
        let exit = match (status.exit_status(), status.terminating_signal()) {
            (Some(status), _) => Exit::Status(status),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Unknown,
        };
        report(&Event::Exited { exit });
        self.stop(self.grace);
        for process in self.members() {
            tree::signal(&process, Signal::TERM);
        }
    }

    fn members(&self) -> Vec<tree::Process> {
        tree::members(rustix::process::getpid().as_raw_pid())
    }

    fn kill_all(&mut self) {
        self.kill = Some(SystemClock.monotonic() + KILL_AGAIN);
        if let Some(group) = &self.cgroup {
            cgroup::kill(group);
        }
        tree::kill(rustix::process::getpid().as_raw_pid(), &self.members());
    }

    fn report_lingering(&self) {
        let pids = self.members().iter().map(|process| process.pid).collect();
        report(&Event::Lingering { pids });
    }
}
