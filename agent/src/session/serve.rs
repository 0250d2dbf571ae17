//! The loop of a joined session.

mod beside;
mod left;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::clock::Clock;
use common::fleet::{DrainReport, EngineState, ReadyReport, TargetCheck, TrialOrder, Upload};
use common::ids::{Epoch, Incarnation, Nanos};
use common::lease::Holder;
use common::plan::BaseUrl;
use common::simulated::{Sabotage, is_sabotaged};
use proto::convert;
use proto::v1::{
    AgentMessage, Armed, CoordinatorMessage, Heartbeat, TrialFailed, agent_message::Kind as Say,
    coordinator_message::Kind as Hear,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::collect::Collection;
use super::fetch::{Fetched, fetch};
use super::join::Link;
use super::trial::{Phase, Surroundings, Trial};
use super::{Agent, SessionEnd, Shutdown, asked_to_end};
use crate::host::Limits;
use crate::launch::Kept;
use crate::load::run::Stop;
use crate::load::trial::Report;
use crate::outside::Outside;

/// What tasks of this session have found out. A few at a time: one fetch, one check.
enum Found {
    Fetched(Epoch, Result<Fetched, String>),
    Target(proto::v1::TargetReport),
    Engine(EngineState),
    Held(Box<Collection>),
}

struct Session<'a> {
    agent: &'a mut Agent,
    link: Link,
    found: mpsc::Sender<Found>,
    /// By boot time.
    lease: Holder,
    probes: JoinHandle<()>,
}

/// Serves one coordinator until the session ends.
pub(super) async fn serve(agent: &mut Agent, link: Link, shutdown: &mut Shutdown) -> SessionEnd {
    let (found, mut inbox) = mpsc::channel(8);
    let welcome = link.welcome.clone();
    let coordinator = welcome.coordinator_incarnation;
    let delivers = agent.delivery.as_ref().is_some_and(|d| d.coordinator == coordinator);
    let same = agent.trial.as_ref().map_or(delivers, |t| t.coordinator == coordinator);
    if !same {
        // Another coordinator: its clock is another, and the old trial is nobody's.
        if let Some(trial) = agent.trial.take() {
            trial.end().await;
        }
        agent.delivery = None;
        agent.clock_model.forget();
    }
    let lease = Holder::new(Nanos(welcome.lease_ns), link.hello_sent);
    agent.lease_until.store(lease.until().0, Ordering::Release);
    tracing::info!("joined {} (version {})", agent.config.dial.join, welcome.coordinator_version);
    let probes = tokio::spawn(agent.clock_model.clone().keep(link.clock.clone()));
    let mut session = Session { agent, link, found, lease, probes };
    if let Err(reason) = session.resume().await {
        return SessionEnd::Lost(reason);
    }
    let mut pulse = tokio::time::interval(Duration::from_nanos(welcome.heartbeat_interval_ns.max(1_000_000)));
    // After a stall one heartbeat is enough.
    pulse.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut leaving = 0;
    let mut stage = session.agent.engine.as_ref().map(Kept::stage);
    if let Some(stage) = &mut stage {
        // Where it stands now is news to this coordinator.
        stage.mark_changed();
    }
    loop {
        if leaving > 0 && !session.is_sending() {
            return SessionEnd::Shutdown;
        }
        let step = tokio::select! {
            // What the coordinator says comes first: a goodbye must not be missed because something else was to be
            // said over a session that it has closed.
            biased;
            message = session.link.inbound.message() => match message {
                Ok(Some(CoordinatorMessage { kind: Some(Hear::Goodbye(g)) })) => return SessionEnd::Goodbye(words(&g.reason)),
                Ok(Some(CoordinatorMessage { kind: Some(kind) })) => session.hear(kind).await,
                Ok(Some(_)) => Ok(()),
                Ok(None) => return SessionEnd::Lost("it ended the session".into()),
                Err(status) => return SessionEnd::Lost(status.message().to_owned()),
            },
            Some(found) = inbox.recv() => session.found(found).await,
            state = next_stage(&mut stage) => session.say(Say::EngineState((&state).into())).await,
            (report, answer) = next_of(&mut session.agent.trial, &mut session.agent.engine) => match (report, answer) {
                (Some(report), _) => session.report(report).await,
                (_, Some(state)) => session.answer(state).await,
                (None, None) => Ok(()),
            },
            _ = pulse.tick() => session.beat().await,
            level = asked_to_end(shutdown, leaving) => {
                leaving = level;
                if level > 1 { return SessionEnd::Shutdown }
                session.leave();
                Ok(())
            }
        };
        if let Err(reason) = step {
            return SessionEnd::Lost(reason);
        }
    }
}

/// An incarnation that no process has: one of 2^64. Without randomness from the system, the time does.
fn draw_incarnation(outside: &dyn Outside, clock: &dyn Clock) -> Incarnation {
    Incarnation(outside.random().unwrap_or_else(|| clock.wall().0))
}

/// Where the engine stands, whenever that changes.
async fn next_stage(stage: &mut Option<watch::Receiver<EngineState>>) -> EngineState {
    if let Some(stage) = stage
        && stage.changed().await.is_ok()
    {
        return stage.borrow_and_update().clone();
    }
    std::future::pending().await
}

/// What the trial reports or the engine's keeper answers, whichever comes first.
async fn next_of(
    trial: &mut Option<Trial>,
    engine: &mut Option<Kept>,
) -> (Option<Report>, Option<EngineState>) {
    let answer = async {
        match engine {
            Some(engine) => engine.answer().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        report = next_report(trial) => (Some(report), None),
        state = answer => (None, Some(state)),
    }
}

async fn next_report(trial: &mut Option<Trial>) -> Report {
    match trial {
        Some(trial) => trial.report().await,
        None => std::future::pending().await,
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.probes.abort();
    }
}

/// A reason as it may be shown, and kept with every arrival that is not sent for it.
fn words(reason: &str) -> String {
    convert::shown(reason, convert::MAX_CARD_TEXT)
}

type Step = Result<(), String>;

impl Session<'_> {
    /// A trial has begun and its traces are not all with the coordinator yet.
    fn is_sending(&self) -> bool {
        let phase = self.agent.trial.as_ref().map(|t| t.phase);
        matches!(phase, Some(Phase::Running | Phase::Drained { .. }))
    }

    /// Sends nothing more; what is in flight finishes and is delivered.
    fn leave(&mut self) {
        if let Some(trial) = self.agent.trial.as_mut().filter(|t| t.phase == Phase::Running) {
            tracing::warn!("asked to end: the rest of the trial is not sent (again: end at once)");
            trial.stop(Stop { reason: "the agent was asked to end".into(), cancel: false });
        }
    }

    async fn say(&self, kind: Say) -> Step {
        let sent = self.link.outbox.send(AgentMessage { kind: Some(kind) }).await;
        sent.map_err(|_| "the session is closed".to_owned())
    }

    /// After a reconnection in the middle of a trial: deliver over the new connection, say again what is known.
    async fn resume(&mut self) -> Step {
        if let Some(delivery) = &mut self.agent.delivery {
            delivery.over(self.link.bulk.clone());
        }
        let Some(trial) = &mut self.agent.trial else { return Ok(()) };
        trial.deliver(self.link.bulk.clone());
        let epoch = trial.epoch().0;
        match trial.phase {
            Phase::Ready => self.say_ready().await,
            Phase::Armed(_) => self.say(Say::Armed(Armed { epoch })).await,
            Phase::Drained { .. } => self.say_drained().await,
            Phase::Fetching | Phase::Preparing | Phase::Running | Phase::Over => Ok(()),
        }
    }

    async fn beat(&mut self) -> Step {
        let number = self.lease.beat(self.agent.config.clock.boottime());
        let progress = self.agent.trial.as_ref().map(|t| (&t.counters.progress()).into());
        self.say(Say::Heartbeat(Heartbeat { number, progress })).await
    }

    async fn hear(&mut self, kind: Hear) -> Step {
        match kind {
            Hear::Lease(lease) => {
                self.lease.answered(lease.number);
                let mut until = self.lease.until();
                if is_sabotaged(Sabotage::LeaseFromReceipt) {
                    until = self.agent.config.clock.boottime() + Nanos(self.link.welcome.lease_ns);
                }
                self.agent.lease_until.store(until.0, Ordering::Release);
            }
            Hear::CheckTarget(request) => self.check_target(request).await?,
            Hear::EngineOrder(order) => self.engine_order(order)?,
            Hear::Observe(what) => {
                self.tidy(&what);
                if self.agent.config.outside.is_recorded() {
                    self.observe(what).await?;
                }
            }
            Hear::Prepare(order) => match TrialOrder::try_from(order) {
                Ok(order) => self.prepare(order),
                Err(e) => return Err(format!("an order that makes no sense: {e}")),
            },
            Hear::Arm(arm) => self.arm(Epoch(arm.epoch), Nanos(arm.start_ns)).await?,
            Hear::Start(start) => self.start(Epoch(start.epoch)).await?,
            Hear::Stop(stop) => {
                if let Some(trial) = self.current(Epoch(stop.epoch)) {
                    trial.stop(Stop { reason: words(&stop.reason), cancel: stop.cancel });
                }
            }
            Hear::Abort(abort) => {
                if let Some(trial) = self.current(Epoch(abort.epoch))
                    && !matches!(trial.phase, Phase::Running | Phase::Drained { .. })
                {
                    tracing::info!("the trial was called off: {}", words(&abort.reason));
                    trial.abandon();
                }
            }
            Hear::Sealed(sealed) => self.sealed(Epoch(sealed.epoch)),
            Hear::Collect(wanted) => self.collect(wanted)?,
            Hear::Welcome(_) | Hear::Refused(_) | Hear::Goodbye(_) => {}
        }
        Ok(())
    }

    /// The trial of this epoch. A message of another epoch is late and means nothing any more.
    fn current(&mut self, epoch: Epoch) -> Option<&mut Trial> {
        self.agent.trial.as_mut().filter(|t| t.epoch() == epoch)
    }

    async fn check_target(&mut self, request: proto::v1::CheckTarget) -> Step {
        let request = TargetCheck::try_from(request).map_err(|e| e.to_string())?;
        let id = request.id;
        let config = &self.agent.config;
        let (agent, access) = (config.introduction.name.clone(), config.access.clone());
        let found = self.found.clone();
        let checked = config.outside.check(request, agent, access, Arc::clone(&config.clock));
        tokio::spawn(async move {
            let report = checked.await;
            // The session is gone: nobody wants to know.
            let _ = found.send(Found::Target(proto::v1::TargetReport::answer(id, &report))).await;
        });
        Ok(())
    }

    fn prepare(&mut self, order: TrialOrder) {
        if let Some(old) = self.agent.trial.take().filter(|old| old.order.run == order.run) {
            // The same run goes on, so the last trial is sealed, though that was not heard.
            self.go_on_after(old);
        }
        let config = &self.agent.config;
        let numbers =
            self.agent.numbers.take(&order.run, || draw_incarnation(&*config.outside, &*config.clock));
        let coordinator = self.link.welcome.coordinator_incarnation;
        self.agent.trial = Some(Trial::new(order.clone(), coordinator, numbers, Arc::clone(&config.disk)));
        let epoch = order.epoch;
        let (wire, found) = (self.link.control.clone(), self.found.clone());
        let work = fetch(
            order,
            config.introduction.name.clone(),
            wire,
            Arc::clone(&config.disk),
            config.spool.clone(),
        );
        let clock = (self.agent.clock_model.clone(), self.link.clock.clone());
        tokio::spawn(async move {
            let mut result = work.await;
            if result.is_ok()
                && let Err(e) = clock.0.burst(clock.1).await
            {
                result = Err(format!("clock probes: {e}"));
            }
            let _ = found.send(Found::Fetched(epoch, result)).await;
        });
    }

    async fn found(&mut self, found: Found) -> Step {
        match found {
            Found::Target(report) => self.say(Say::TargetReport(report)).await,
            Found::Engine(state) => self.answer(state).await,
            Found::Held(held) => self.held(*held).await,
            Found::Fetched(epoch, result) => {
                let config = &self.agent.config;
                let surroundings = Surroundings {
                    agent: config.introduction.name.clone(),
                    access: config.access.clone(),
                    clock: Arc::clone(&config.clock),
                    spool_dir: config.spool.clone(),
                    lease_until: Arc::clone(&self.agent.lease_until),
                    outside: Arc::clone(&config.outside),
                };
                let bulk = self.link.bulk.clone();
                let Some(trial) = self.current(epoch).filter(|t| t.phase == Phase::Fetching) else {
                    return Ok(());
                };
                let prepared = result.and_then(|fetched| trial.prepare(fetched, surroundings));
                match prepared {
                    Ok(()) => trial.deliver(bulk),
                    Err(message) => return self.fail(epoch, "prepare", message).await,
                }
                Ok(())
            }
        }
    }

    async fn report(&mut self, report: Report) -> Step {
        let Some(trial) = &mut self.agent.trial else { return Ok(()) };
        let epoch = trial.epoch();
        match (report, trial.phase) {
            (Report::Prepared(Ok(())), Phase::Preparing) => {
                trial.phase = Phase::Ready;
                self.say_ready().await
            }
            (Report::Prepared(Err(e)), _) => self.fail(epoch, e.stage, e.message).await,
            (Report::Drained { spool, start_skew, health }, Phase::Running) => {
                trial.phase = Phase::Drained { spool, start_skew, health: *health };
                if trial.order.upload == Upload::After {
                    trial.deliver(self.link.bulk.clone());
                }
                self.say_drained().await
            }
            (Report::Drained { .. } | Report::Abandoned | Report::Prepared(Ok(())), _) => Ok(()),
        }
    }

    async fn say_ready(&mut self) -> Step {
        let Some(trial) = &self.agent.trial else { return Ok(()) };
        let epoch = trial.epoch();
        let Some(clock) = self.agent.clock_model.estimate() else {
            return self.fail(epoch, "clock", "no clock probe was answered".into()).await;
        };
        let at_once = trial.order.permits.map_or(trial.order.slice_count, u64::from);
        let open_files = self.agent.config.introduction.host.open_files_limit;
        let engine_is_here = trial.order.target.engines().any(BaseUrl::is_here);
        let ready = ReadyReport {
            epoch,
            slice: trial.order.slice,
            slice_count: trial.order.slice_count,
            clock,
            warnings: Limits::here(open_files, engine_is_here).warnings(at_once),
        };
        self.say(Say::Ready((&ready).into())).await
    }

    async fn say_drained(&self) -> Step {
        let Some(trial) = &self.agent.trial else { return Ok(()) };
        let Phase::Drained { spool, start_skew, health } = trial.phase else { return Ok(()) };
        let clock = self.agent.clock_model.estimate().ok_or("no clock probe was answered")?;
        let report = DrainReport {
            epoch: trial.epoch(),
            incarnation: trial.incarnation(),
            traces: spool.traces,
            next_seq: spool.next_seq,
            traces_lost: spool.lost,
            clock,
            start_skew,
            health,
        };
        // One last heartbeat with the final counters, for whoever watches.
        let progress = Some((&trial.counters.progress()).into());
        self.say(Say::Heartbeat(Heartbeat { number: 0, progress })).await?;
        self.say(Say::Drained((&report).into())).await
    }

    async fn fail(&mut self, epoch: Epoch, stage: &str, message: String) -> Step {
        tracing::error!("the trial cannot go on here ({stage}): {message}");
        if let Some(trial) = self.current(epoch) {
            trial.abandon();
        }
        self.say(Say::TrialFailed(TrialFailed { epoch: epoch.0, stage: stage.into(), message })).await
    }

    async fn arm(&mut self, epoch: Epoch, start: Nanos) -> Step {
        let Some(estimate) = self.agent.clock_model.estimate() else { return Ok(()) };
        let Some(trial) = self.current(epoch).filter(|t| t.phase == Phase::Ready) else { return Ok(()) };
        trial.phase = Phase::Armed(estimate.to_mine(start));
        self.say(Say::Armed(Armed { epoch: epoch.0 })).await
    }

    async fn start(&mut self, epoch: Epoch) -> Step {
        let now = self.agent.config.clock.monotonic();
        let Some(trial) = self.current(epoch) else { return Ok(()) };
        let Phase::Armed(at) = trial.phase else { return Ok(()) };
        if trial.start(at, now) {
            return Ok(());
        }
        let late = now - at;
        let message =
            format!("the word to start came {:.3} s after the start; nothing was sent", late.as_secs_f64());
        self.fail(epoch, "start", message).await
    }

    /// A trial is over.
    fn go_on_after(&mut self, trial: Trial) {
        if let Some(next) = trial.sealed() {
            self.agent.numbers.go_on(next);
        }
    }
}
