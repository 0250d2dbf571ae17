//! [`Engine`]: the agent's handle of an engine that it has started.
//!
//! For the control runtime, never for a thread that sends load. Dropped, it ends the engine too, without waiting;
//! [`Engine::stop`] waits and says whether all is as it was before.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use common::clock::Clock;
use common::ids::Nanos;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::error::LaunchError;
use super::log::{self, LogEnd, LogFacts};
use super::port::{self, Owner, Port};
use super::protocol::{Exit, Order, Step};
use super::recipe::Recipe;
use super::record;
use super::scrub::Scrub;
use super::supervised::{NotStarted, Supervised};
use crate::engine::Secret;

/// Between two questions whether it is ready: often at first, for engines that load in an instant.
const ASK_FIRST: Duration = Duration::from_millis(250);
const ASK_LAST: Duration = Duration::from_secs(1);
/// A port is free as soon as the last process is gone, but for what the kernel still has to do.
const PORT_FREE: Duration = Duration::from_secs(5);
/// What an agent needs to start engines.
#[derive(Clone)]
pub struct Launcher {
    /// Folder for logs of recipes that name none. Made when needed.
    pub log_dir: PathBuf,
    /// The program that supervises: the agent itself.
    pub supervisor: PathBuf,
    /// Put engines into control groups of their own where that can be done. Without one they are ended all the same;
    /// only what was left by a supervisor that was itself killed may escape.
    pub cgroup: bool,
    /// For times.
    pub clock: Arc<dyn Clock>,
    /// What must not be shown, beside what the recipe holds: the agent's key for the engine.
    pub secrets: Vec<Secret>,
}

impl Launcher {
    /// With this very program as the supervisor, also when its file has been replaced meanwhile.
    #[must_use]
    pub fn new(log_dir: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self {
            log_dir,
            supervisor: PathBuf::from("/proc/self/exe"),
            cgroup: true,
            clock,
            secrets: Vec::new(),
        }
    }
}

/// How it stands while an engine is waited for.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// Since its start.
    pub waited: Nanos,
    /// The last answer, such as `HTTP 503` or why there was none.
    pub answer: String,
    /// The last line of its log, without secrets.
    pub log_line: Option<String>,
}

/// An engine ended by itself.
#[derive(Debug, Clone)]
pub struct Died {
    /// How.
    pub exit: Exit,
    /// The end of its log.
    pub log: LogEnd,
}

/// An engine that was started from a recipe. There is at most one process tree of it at a time.
pub struct Engine {
    recipe: Arc<Recipe>,
    launcher: Launcher,
    scrub: Arc<Scrub>,
    running: Supervised,
    log: PathBuf,
    /// How often it was started.
    starts: u32,
    started: Nanos,
    ready_after: Option<Nanos>,
}

impl Engine {
    /// Starts an engine. It is not ready yet: see [`Engine::wait_ready`].
    ///
    /// # Errors
    /// When its port is held, or the program cannot be started. Nothing runs then.
    pub async fn start(recipe: Arc<Recipe>, launcher: Launcher) -> Result<Self, LaunchError> {
        let mut scrub = recipe.scrub();
        launcher.secrets.iter().for_each(|secret| scrub.hide(secret.expose()));
        let scrub = Arc::new(scrub);
        let started = launcher.clock.monotonic();
        let (running, log) = launch(&recipe, &launcher, 1).await?;
        Ok(Self { recipe, launcher, scrub, running, log, starts: 1, started, ready_after: None })
    }

    /// What it was started from.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Number of its first process.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.running.status().pid
    }

    /// From its start until it was ready; none while it is not.
    #[must_use]
    pub fn ready_after(&self) -> Option<Nanos> {
        self.ready_after
    }

    /// Waits until `ask` gives 200, and says how long it took since the start. `ask` is a GET of the recipe's
    /// `ready_path` or, without one, of the dialect's; it must not make the engine generate. `progress` is told of
    /// every other answer.
    ///
    /// # Errors
    /// At once when the engine ends, with the end of its log; and when it takes longer than the recipe allows.
    pub async fn wait_ready<F>(
        &mut self,
        path: &str,
        mut ask: impl FnMut() -> F,
        mut progress: impl FnMut(&Waiting),
    ) -> Result<Nanos, LaunchError>
    where
        F: Future<Output = Result<u16, String>>,
    {
        let (started, clock) = (self.started, Arc::clone(&self.launcher.clock));
        let waited = || Nanos(clock.monotonic().0.saturating_sub(started.0));
        let mut last = String::from("no answer");
        let asking = async {
            let mut pause = ASK_FIRST;
            loop {
                last = match ask().await {
                    Ok(200) => return,
                    Ok(status) => format!("HTTP {status}"),
                    Err(why) => self.scrub.text(&why),
                };
                let log_line = log::tail(&self.log, &self.scrub).pop();
                progress(&Waiting { waited: waited(), answer: last.clone(), log_line });
                sleep(pause).await;
                pause = (pause * 3 / 2).min(ASK_LAST);
            }
        };
        let mut died = pin!(self.exited());
        let ready = tokio::select! {
            biased;
            died = &mut died => Err(Some(died)),
            in_time = timeout(self.recipe.ready_timeout.to_duration(), asking) => in_time.map_err(|_| None),
        };
        let engine = self.recipe.name.clone();
        match ready {
            Ok(()) => {
                let after = waited();
                self.ready_after = Some(after);
                Ok(after)
            }
            Err(Some(Died { exit, log })) => Err(LaunchError::Exited { engine, exit, log: Box::new(log) }),
            Err(None) => Err(LaunchError::NotReady {
                engine,
                waited: waited(),
                path: path.to_owned(),
                answer: last,
                log: Box::new(log_end(&self.log, &self.scrub)),
            }),
        }
    }

    /// Resolves when this start of the engine ends by itself; never when it is stopped.
    pub fn exited(&self) -> impl Future<Output = Died> + Send + use<> {
        let mut heard = self.running.watch();
        let (log, scrub) = (self.log.clone(), Arc::clone(&self.scrub));
        async move {
            let exit = heard.wait_for(|status| status.died).await.map(|status| status.exit);
            let Ok(exit) = exit else {
                // The handle is gone: the engine is being ended, which is not by itself.
                return std::future::pending().await;
            };
            let exit = exit.unwrap_or(Exit::Unknown);
            Died { exit, log: log_end(&log, &scrub) }
        }
    }

    /// SIGTERM, after the recipe's grace SIGKILL, and waits until no process is left and the port is free.
    ///
    /// # Errors
    /// When a process does not end, or somebody still has the port.
    pub async fn stop(&mut self) -> Result<(), LaunchError> {
        self.end(self.recipe.grace.to_duration()).await
    }

    /// As [`Engine::stop`], without grace.
    ///
    /// # Errors
    /// As [`Engine::stop`].
    pub async fn kill(&mut self) -> Result<(), LaunchError> {
        self.end(Duration::ZERO).await
    }

    async fn end(&mut self, grace: Duration) -> Result<(), LaunchError> {
        let engine = || self.recipe.name.clone();
        self.running.stop(grace).await.map_err(|pids| LaunchError::WillNotEnd { engine: engine(), pids })?;
        let addresses = addresses(&self.recipe).await?;
        let mut owner = Owner::Unknown;
        let freed = async {
            while let Port::Taken(by) = look(&self.recipe, &addresses)? {
                owner = by;
                sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        };
        let freed = timeout(PORT_FREE, freed).await;
        let port = self.recipe.base_url.port();
        freed.unwrap_or_else(|_| Err(LaunchError::PortHeld { engine: engine(), port, owner }))
    }

    /// Stops it and starts it again from the same recipe, with a new log. It is not ready afterwards.
    ///
    /// # Errors
    /// As [`Engine::stop`] and [`Engine::start`]. Whatever goes wrong, the old one has been told to end.
    pub async fn restart(&mut self) -> Result<(), LaunchError> {
        self.stop().await?;
        self.started = self.launcher.clock.monotonic();
        self.ready_after = None;
        (self.running, self.log) = launch(&self.recipe, &self.launcher, self.starts + 1).await?;
        self.starts += 1;
        Ok(())
    }

    /// Size, digest and end of this start's log, as it is now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn log_facts(&self) -> Result<LogFacts, LaunchError> {
        let (path, scrub) = (self.log.clone(), Arc::clone(&self.scrub));
        // A log may be large, and hashing it must not hold up a heartbeat.
        let read = tokio::task::spawn_blocking(move || log::facts(&path, &scrub)).await;
        let problem = match read {
            Ok(Ok(facts)) => return Ok(facts),
            Ok(Err(e)) => e.to_string(),
            Err(e) => e.to_string(),
        };
        Err(LaunchError::Log { path: self.log.clone(), problem })
    }

    /// What goes into the experiment's record. Secrets are replaced; a log that cannot be read is null.
    pub async fn record(&self) -> Value {
        let log = self.log_facts().await.ok();
        record::record(&self.recipe, &self.scrub, self.starts, self.ready_after, log.as_ref())
    }
}

fn log_end(path: &Path, scrub: &Scrub) -> LogEnd {
    LogEnd { path: path.to_owned(), tail: log::tail(path, scrub) }
}

async fn launch(
    recipe: &Recipe,
    launcher: &Launcher,
    number: u32,
) -> Result<(Supervised, PathBuf), LaunchError> {
    let addresses = addresses(recipe).await?;
    if let Port::Taken(owner) = look(recipe, &addresses)? {
        let port = recipe.base_url.port();
        return Err(LaunchError::PortTaken { engine: recipe.name.clone(), port, owner });
    }
    if let Some(path) = recipe.working_dir.clone().filter(|path| !path.is_dir()) {
        return Err(LaunchError::WorkingDir { recipe: recipe.source.path.clone(), path });
    }
    let log_dir = recipe.log_dir.as_ref().unwrap_or(&launcher.log_dir);
    std::fs::create_dir_all(log_dir)
        .map_err(|e| LaunchError::Log { path: log_dir.clone(), problem: e.to_string() })?;
    // For the order in which a folder is listed; what tells two starts apart is that a file is made only once.
    let now = launcher.clock.wall().0 / 1_000_000;
    let log = std::path::absolute(log_dir.join(format!("{}-{now}-{number}.log", recipe.name)))
        .map_err(|e| LaunchError::Log { path: log_dir.clone(), problem: e.to_string() })?;
    let order = Order {
        command: recipe.command.clone(),
        env: recipe.env.clone(),
        env_inherit: recipe.env_inherit,
        working_dir: recipe.working_dir.clone(),
        log: log.clone(),
        cgroup: launcher.cgroup,
        grace_ms: recipe.grace.0 / 1_000_000,
    };
    let running = Supervised::start(&launcher.supervisor, order).await;
    Ok((running.map_err(|failed| not_started(recipe, &log, failed))?, log))
}

fn not_started(recipe: &Recipe, log: &Path, failed: NotStarted) -> LaunchError {
    let NotStarted { step, error: problem, not_found } = failed;
    let file = recipe.source.path.clone();
    let program = recipe.command.first().cloned().unwrap_or_default();
    match step {
        Step::Supervisor => LaunchError::Supervisor(problem),
        Step::Log => LaunchError::Log { path: log.to_owned(), problem },
        Step::Program if not_found => LaunchError::NoProgram { recipe: file, program },
        Step::Program => LaunchError::Program { recipe: file, program, problem },
    }
}

async fn addresses(recipe: &Recipe) -> Result<Vec<SocketAddr>, LaunchError> {
    let host = recipe.base_url.host();
    let found = tokio::net::lookup_host((host, recipe.base_url.port())).await;
    found.map(Iterator::collect).map_err(|source| host_error(recipe, source))
}

fn look(recipe: &Recipe, addresses: &[SocketAddr]) -> Result<Port, LaunchError> {
    port::look(addresses).map_err(|source| host_error(recipe, source))
}

fn host_error(recipe: &Recipe, source: std::io::Error) -> LaunchError {
    let host = recipe.base_url.authority();
    LaunchError::Host { recipe: recipe.source.path.clone(), host, source }
}
