//! Keeps one engine for as long as the agent lives: starts it, watches it, carries out orders, says where it stands.
//!
//! One task owns the [`Engine`]; everybody else has a [`Kept`]. Where it stands is a value that the newest session may
//! look at whenever it joins; answers to orders go to whoever listens. It must never leave an engine behind when it is
//! asked to end, however busy it is, and never call an engine dead that lives.
//!
//! Guarded by `tests/tests/launched.rs` and `tests/tests/launched_sim.rs`, with real programs.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::clock::Clock;
use common::dialect::Dialect;
use common::fleet::{EngineCard, EngineOrder, EngineStage, EngineState};
use common::ids::AgentName;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Died, Engine, LaunchError, Launcher, Recipe};
use crate::engine::Access;
use crate::probe;

/// Orders that wait: a coordinator gives one at a time.
const ORDERS: usize = 8;
/// Within this an end of the engine is noticed: its sockets close a moment before its parent hears of it.
const NOTICED: Duration = Duration::from_millis(50);
/// How long an engine that answers no more may take to end.
const DYING: Duration = Duration::from_secs(15);
/// Lines of the engine's log in a message; the rest is in the log.
const LINES: usize = 6;

/// What an engine is kept with.
pub struct Keeping {
    /// How it is started.
    pub recipe: Recipe,
    /// What it is.
    pub dialect: Dialect,
    /// With what.
    pub launcher: Launcher,
    /// Of this agent.
    pub agent: AgentName,
    /// What this agent brings to the engine.
    pub access: Access,
}

/// An engine that is kept. Dropped, it is stopped with its grace by nobody who waits.
pub struct Kept {
    card: EngineCard,
    stage: watch::Receiver<EngineState>,
    pid: watch::Receiver<Option<i32>>,
    orders: mpsc::Sender<(u64, EngineOrder)>,
    answers: mpsc::Receiver<EngineState>,
    ending: watch::Sender<Ending>,
    task: Option<JoinHandle<()>>,
}

/// How urgently the engine is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    /// Not at all.
    Not,
    /// With its grace.
    Gracefully,
    /// Without.
    AtOnce,
}

impl Kept {
    /// Starts it.
    #[must_use]
    pub fn start(keeping: Keeping) -> Self {
        let Keeping { recipe, dialect, .. } = &keeping;
        let card =
            EngineCard { name: recipe.name.clone(), dialect: *dialect, base_url: recipe.base_url.clone() };
        let (stage_of, stage) = watch::channel(state(EngineStage::Starting, "it is being started"));
        let (orders, inbox) = mpsc::channel(ORDERS);
        let (answer, answers) = mpsc::channel(ORDERS);
        let (ending, ends) = watch::channel(Ending::Not);
        let (pid_of, pid) = watch::channel(None);
        let keeper =
            Keeper { keeping, stage: stage_of, pid: pid_of, answer, ends, lame: AtomicBool::new(false) };
        let task = tokio::spawn(keeper.keep(inbox));
        Self { card, stage, pid, orders, answers, ending, task: Some(task) }
    }

    /// What it is.
    #[must_use]
    pub fn card(&self) -> &EngineCard {
        &self.card
    }

    /// Where it stands, now and whenever that changes.
    #[must_use]
    pub fn stage(&self) -> watch::Receiver<EngineState> {
        self.stage.clone()
    }

    /// Its first process, while there is one.
    #[must_use]
    pub fn pid(&self) -> watch::Receiver<Option<i32>> {
        self.pid.clone()
    }

    /// Has an order carried out.
    ///
    /// # Errors
    /// When it cannot be taken.
    pub fn order(&self, id: u64, order: EngineOrder) -> Result<(), &'static str> {
        let sent = self.orders.try_send((id, order));
        sent.map_err(
            |_| "the engine's keeper is busy with earlier orders, or has given up; see the agent's log",
        )
    }

    /// The next answer to an order. Nothing is lost when it is dropped while waiting.
    pub async fn answer(&mut self) -> EngineState {
        match self.answers.recv().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }

    /// Stops the engine, with its grace or at once, and waits until nothing of it is left. Dropped while it waits, it
    /// can be called again.
    pub async fn end(&mut self, at_once: bool) {
        let urgency = if at_once { Ending::AtOnce } else { Ending::Gracefully };
        self.ending.send_if_modified(|ending| {
            let more = *ending < urgency;
            *ending = urgency.max(*ending);
            more
        });
        if let Some(task) = &mut self.task {
            let _ = task.await;
            self.task = None;
        }
    }
}

fn state(stage: EngineStage, message: impl Into<String>) -> EngineState {
    EngineState { order: 0, stage, message: message.into(), record: None }
}

struct Keeper {
    keeping: Keeping,
    stage: watch::Sender<EngineState>,
    pid: watch::Sender<Option<i32>>,
    answer: mpsc::Sender<EngineState>,
    ends: watch::Receiver<Ending>,
    /// It runs and did not say that it is ready when it was last looked at: that is waited for once.
    lame: AtomicBool,
}

impl Keeper {
    /// Until the end is asked for: then the engine is stopped.
    async fn keep(self, mut orders: mpsc::Receiver<(u64, EngineOrder)>) {
        let recipe = Arc::new(self.keeping.recipe.clone());
        let mut engine = match Engine::start(recipe, self.keeping.launcher.clone()).await {
            Ok(engine) => engine,
            Err(e) => return self.without_engine(e.to_string(), orders).await,
        };
        // An agent that is asked to end does not wait until an engine has loaded.
        tokio::select! {
            _ = self.bring_up(&mut engine) => {}
            () = self.asked(Ending::Gracefully) => {}
        }
        while *self.ends.borrow() == Ending::Not {
            let died = self.is_up().then(|| engine.exited());
            tokio::select! {
                () = self.asked(Ending::Gracefully) => {}
                order = orders.recv() => {
                    let Some((id, order)) = order else { break };
                    tokio::select! {
                        () = self.carry_out(&mut engine, id, order) => {}
                        () = self.asked(Ending::Gracefully) => {}
                    }
                }
                died = when(died) => {
                    let message = told(&died);
                    tracing::error!("the engine died: {message}");
                    self.say(EngineStage::Died, message, None);
                }
            }
        }
        let stopped = tokio::select! {
            stopped = engine.stop() => Some(stopped),
            () = self.asked(Ending::AtOnce) => None,
        };
        let stopped = match stopped {
            Some(stopped) => stopped,
            None => engine.kill().await,
        };
        if let Err(e) = stopped {
            tracing::error!("{e}");
        }
    }

    /// There is nothing to keep; who asks is told why.
    async fn without_engine(&self, why: String, mut orders: mpsc::Receiver<(u64, EngineOrder)>) {
        tracing::error!("{why}");
        self.say(EngineStage::Failed, why.clone(), None);
        loop {
            tokio::select! {
                () = self.asked(Ending::Gracefully) => return,
                order = orders.recv() => match order {
                    Some((id, _)) => self.reply(id, Err(why.clone())),
                    None => return,
                },
            }
        }
    }

    /// Completes when an end is asked for, at least so urgently, or when nobody can ask any more.
    async fn asked(&self, urgency: Ending) {
        let _ = self.ends.clone().wait_for(|ending| *ending >= urgency).await;
    }

    fn is_up(&self) -> bool {
        self.stage.borrow().stage == EngineStage::Ready
    }

    async fn carry_out(&self, engine: &mut Engine, id: u64, order: EngineOrder) {
        let done = match order {
            EngineOrder::Restart => {
                self.say(EngineStage::Starting, "it is being restarted".into(), None);
                match engine.restart().await {
                    Ok(()) => self.bring_up(engine).await,
                    Err(e) => {
                        self.say(EngineStage::Failed, e.to_string(), None);
                        Err(e.to_string())
                    }
                }
            }
            EngineOrder::Describe => {
                self.look(engine).await;
                Ok(())
            }
            EngineOrder::EmptyCache(_) => Err("this is an order for whoever reaches the engine".into()),
        };
        let record = engine.record().await;
        self.reply(id, done.map(|()| record));
    }

    /// Who has it described wants to know whether it lives, too, and is told of its death before the answer. An engine
    /// whose workers have died may live on for a moment, and does not say that it is ready then: that moment is waited
    /// for. One that goes on living is not dead, whatever it answers: what it does to requests, they tell.
    async fn look(&self, engine: &mut Engine) {
        if !self.is_up() {
            return;
        }
        let mut gone = pin!(engine.exited());
        if let Ok(died) = timeout(NOTICED, &mut gone).await {
            return self.say(EngineStage::Died, told(&died), None);
        }
        let ready = self.ask().await == Ok(200);
        if ready || self.lame.load(Ordering::Relaxed) {
            self.lame.store(!ready, Ordering::Relaxed);
            return;
        }
        match timeout(DYING, gone).await {
            Ok(died) => self.say(EngineStage::Died, told(&died), None),
            Err(_) => {
                self.lame.store(true, Ordering::Relaxed);
                tracing::warn!("the engine runs, and does not say that it is ready any more");
            }
        }
    }

    fn ready_path(&self) -> String {
        let Keeping { recipe, dialect, .. } = &self.keeping;
        recipe.ready_path.clone().unwrap_or_else(|| dialect.traits().ready.to_owned())
    }

    /// Whether it is ready: a status, or why there is none.
    fn ask(&self) -> impl Future<Output = Result<u16, String>> + use<> {
        let Keeping { recipe, agent, access, launcher, .. } = &self.keeping;
        let (url, path, agent, access) =
            (recipe.base_url.clone(), self.ready_path(), agent.clone(), access.clone());
        let clock: Arc<dyn Clock> = Arc::clone(&launcher.clock);
        async move { probe::status(&url, &path, agent, access, clock).await }
    }

    /// Waits until it is ready, and says how that goes.
    async fn bring_up(&self, engine: &mut Engine) -> Result<(), String> {
        let recipe = &self.keeping.recipe;
        let path = self.ready_path();
        self.pid.send_replace(engine.pid());
        let ready = engine.wait_ready(
            &path,
            || self.ask(),
            |waiting| {
                let log = waiting.log_line.as_deref().unwrap_or("nothing yet");
                let seconds = waiting.waited.as_secs_f64();
                let message = format!("starting for {seconds:.0} s: {}; its log: {log}", waiting.answer);
                self.say(EngineStage::Starting, message, None);
            },
        );
        match ready.await {
            Ok(took) => {
                self.lame.store(false, Ordering::Relaxed);
                let message = format!("{} is ready {:.1} s after its start", recipe.name, took.as_secs_f64());
                tracing::info!("{message}");
                let record = engine.record().await;
                self.say(EngineStage::Ready, message, Some(record));
                Ok(())
            }
            Err(e) => {
                tracing::error!("{e}");
                // What did not get ready is not left behind, and what is wrong with that is said beside the reason.
                let stopped: Result<(), LaunchError> = engine.stop().await;
                let message =
                    stopped.err().map_or_else(|| e.to_string(), |stop| format!("{e}; then: {stop}"));
                self.say(EngineStage::Failed, message.clone(), None);
                Err(message)
            }
        }
    }

    fn say(&self, stage: EngineStage, message: String, record: Option<serde_json::Value>) {
        self.stage.send_replace(EngineState { order: 0, stage, message, record });
    }

    fn reply(&self, id: u64, done: Result<serde_json::Value, String>) {
        let answer = match done {
            Ok(record) => EngineState {
                order: id,
                stage: EngineStage::Done,
                message: String::new(),
                record: Some(record),
            },
            Err(message) => EngineState { order: id, stage: EngineStage::Failed, message, record: None },
        };
        // Full: nobody has listened for a long time, and nobody waits for this one.
        let _ = self.answer.try_send(answer);
    }
}

async fn when(died: Option<impl Future<Output = Died>>) -> Died {
    match died {
        Some(died) => died.await,
        None => std::future::pending().await,
    }
}

/// How it ended, with its last words.
fn told(died: &Died) -> String {
    let from = died.log.tail.len().saturating_sub(LINES);
    let lines = died.log.tail[from..].join("\n");
    format!("{}; its log, {}, ends with:\n{lines}", died.exit, died.log.path.display())
}
