//! The agent's end of a supervisor: starts it, hears it, and holds the pipe whose end is the engine's end.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use super::cgroup;
use super::protocol::{Event, Exit, Order, Request, Step};
use super::supervise::SUPERVISE;
use super::tree;

/// A start takes the time of two `exec`s; a host that swaps may need some of this.
const START: Duration = Duration::from_secs(30);
/// On top of the grace: SIGKILL works at once, but freeing a GPU's memory takes some seconds.
const AFTER_KILL: Duration = Duration::from_secs(30);

/// What is known of an engine's processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Status {
    pub(super) pid: Option<i32>,
    cgroup: Option<PathBuf>,
    failed: Option<NotStarted>,
    /// Its end was asked for, so that it is no news.
    stopping: bool,
    /// How the first process ended.
    pub(super) exit: Option<Exit>,
    /// It ended although nobody had asked.
    pub(super) died: bool,
    lingering: Vec<i32>,
    /// No process is left.
    pub(super) gone: bool,
}

/// Why there is no engine.
#[derive(Debug, Clone)]
pub(super) struct NotStarted {
    pub(super) step: Step,
    pub(super) error: String,
    pub(super) not_found: bool,
}

impl NotStarted {
    fn supervisor(error: impl ToString) -> Self {
        Self { step: Step::Supervisor, error: error.to_string(), not_found: false }
    }
}

/// An engine under a supervisor. Dropped, the engine is ended with the grace of its order.
pub(super) struct Supervised {
    leash: Option<ChildStdin>,
    status: Arc<watch::Sender<Status>>,
}

impl Supervised {
    /// Starts a supervisor, and by it the engine.
    pub(super) async fn start(supervisor: &Path, order: Order) -> Result<Self, NotStarted> {
        let mut command = Command::new(supervisor);
        // It must outlive this process, so it is not killed with the handle.
        command.arg0("plimsoll-supervisor").arg(SUPERVISE).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(NotStarted::supervisor)?;
        let (leash, output) = (child.stdin.take(), child.stdout.take());
        let (Some(mut leash), Some(output)) = (leash, output) else {
            return Err(NotStarted::supervisor("it has no pipes"));
        };
        let status = Arc::new(watch::Sender::new(Status::default()));
        tokio::spawn(listen(child, output, Arc::clone(&status)));
        let mut heard = status.subscribe();
        let started = async {
            send(&mut leash, &Request::Start(order)).await.map_err(NotStarted::supervisor)?;
            let heard = heard.wait_for(|s| s.pid.is_some() || s.failed.is_some() || s.gone).await;
            let status = heard.map_err(NotStarted::supervisor)?;
            match (&status.failed, status.pid) {
                (Some(failed), _) => Err(failed.clone()),
                (None, Some(_)) => Ok(()),
                (None, None) => Err(NotStarted::supervisor("it ended before it said anything")),
            }
        };
        match timeout(START, started).await {
            Ok(result) => result?,
            Err(_) => return Err(NotStarted::supervisor(format!("no word of it in {} s", START.as_secs()))),
        }
        Ok(Self { leash: Some(leash), status })
    }

    pub(super) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    pub(super) fn watch(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// SIGTERM, after `grace` SIGKILL, until no process is left.
    ///
    /// # Errors
    /// The processes that are still there long after SIGKILL, as far as they are known.
    pub(super) async fn stop(&mut self, grace: Duration) -> Result<(), Vec<i32>> {
        self.status.send_modify(|status| status.stopping = true);
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        if let Some(leash) = &mut self.leash {
            // A supervisor that does not read has ended, and so has the engine.
            let _ = send(leash, &Request::Stop { grace_ms }).await;
        }
        let mut heard = self.status.subscribe();
        let left = match timeout(grace + AFTER_KILL, heard.wait_for(|s| s.gone)).await {
            Ok(_) => return Ok(()),
            Err(_) => self.status.borrow().lingering.clone(),
        };
        Err(left)
    }
}

async fn send(leash: &mut ChildStdin, request: &Request) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    leash.write_all(&line).await?;
    leash.flush().await
}

/// Follows a supervisor to its end.
async fn listen(mut child: Child, output: ChildStdout, status: Arc<watch::Sender<Status>>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(event) = serde_json::from_str(&line) {
            status.send_modify(|status| on_event(status, event));
        }
    }
    let (gone, cgroup) = {
        let status = status.borrow();
        (status.gone || status.failed.is_some(), status.cgroup.clone())
    };
    if let (false, Some(supervisor)) = (gone, child.id()) {
        tracing::warn!("the engine's supervisor was ended; ending what it left behind");
        // Before the supervisor is reaped, so that its number is nobody else's.
        let swept = tokio::task::spawn_blocking(move || sweep(supervisor.cast_signed(), cgroup.as_deref()));
        let _ = swept.await;
        status.send_modify(|status| {
            on_exit(status, Exit::Unknown);
            status.gone = true;
        });
    }
    // Its status says no more than it has said itself.
    let _ = child.wait().await;
}

fn on_event(status: &mut Status, event: Event) {
    match event {
        Event::Started { pid, cgroup } => (status.pid, status.cgroup) = (Some(pid), cgroup),
        Event::Failed { step, error, not_found } => {
            status.failed = Some(NotStarted { step, error, not_found })
        }
        Event::Exited { exit } => on_exit(status, exit),
        Event::Lingering { pids } => status.lingering = pids,
        Event::Gone => {
            on_exit(status, Exit::Unknown);
            status.gone = true;
        }
    }
}

/// The first word counts.
fn on_exit(status: &mut Status, exit: Exit) {
    if status.exit.is_none() {
        status.exit = Some(exit);
        status.died = !status.stopping;
    }
}

/// Kills what a supervisor left that was itself killed. Its session is still known, and its control group if there was
/// one; without one, a process that left both session and parent is not found. Whoever starts next on its port is told.
fn sweep(supervisor: i32, cgroup: Option<&Path>) {
    for _round in 0..100 {
        if let Some(group) = cgroup {
            cgroup::kill(group);
        }
        let left = tree::members(supervisor);
        if left.is_empty() {
            break;
        }
        tree::kill(supervisor, &left);
        std::thread::sleep(Duration::from_millis(20));
    }
    if let Some(group) = cgroup {
        cgroup::remove(group);
    }
}
