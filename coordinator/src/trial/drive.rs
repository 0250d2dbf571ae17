//! The shell around a trial's machine: moves messages between the fleet and the machine, and waits.

use std::collections::BTreeMap;

use common::clock::Clock;
use common::fleet::{EngineStage, Progress, TrialOrder, Upload, WARMUP_AT_ONCE};
use common::ids::{AgentName, Digest, Epoch, Nanos, RunId, TrialId};
use common::plan::Target;
use common::trace::headed;
use tokio::sync::watch;

use super::assignment::{Assigned, Assignment};
use super::machine::{Effect, Ending, Event, LEAD_LOCAL, LEAD_REMOTE, Machine, Patience};
use crate::fleet::{Change, Fleet, FromAgent, ToAgent};

/// Grace on top of what a trial must take, for hosts that are busy.
const GRACE: Nanos = Nanos(30_000_000_000);

/// Between two times that the fleet's counters are shown: they are summed each time, over as many agents as there are, and
/// each of those says something every second.
const SHOW_EVERY: Nanos = Nanos(100_000_000);

/// What a trial is made of, besides its assignment.
#[derive(Debug, Clone)]
pub struct TrialCase {
    /// The run.
    pub run: RunId,
    /// The trial.
    pub trial: TrialId,
    /// Its epoch.
    pub epoch: Epoch,
    /// The engine.
    pub target: Target,
    /// The workload's content hash.
    pub workload: Digest,
    /// The workload's size.
    pub workload_bytes: u64,
    /// Connections that each agent opens before the start.
    pub warm_connections: u32,
    /// When the agents deliver their traces.
    pub upload: Upload,
    /// All agents are on this host.
    pub local: bool,
    /// A closed loop.
    pub closed: bool,
    /// The agent that launches the engine.
    pub launcher: Option<AgentName>,
}

/// Where an agent stands in a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has its order.
    Preparing,
    /// It is prepared; half the width of the interval that surely holds its clock's offset, nanoseconds.
    Ready {
        /// See above.
        clock_bound: Nanos,
    },
    /// Every arrival of its slice has its trace.
    Drained {
        /// As in `Ready`.
        clock_bound: Nanos,
    },
}

/// What somebody who watches a trial is told. Nothing that is told has a default: who passes it on passes on all of it.
pub trait Watch {
    /// All agents are ready, with these warnings of theirs.
    fn ready(&mut self, warnings: &[String]);
    /// It will start this long from now.
    fn starting(&mut self, lead: Nanos);
    /// Where an agent stands.
    fn stands(&mut self, agent: &AgentName, standing: &Standing);
    /// An agent is taken for lost now.
    fn lost(&mut self, agent: &AgentName, reason: &str);
    /// Whether what is still to be sent is of no use, this long after the start, and why.
    fn hopeless(&mut self, since_start: Nanos) -> Option<String> {
        let _ = since_start;
        None
    }
    /// Counters of the fleet, this long after the start.
    fn progress(&mut self, since_start: Nanos, fleet: &BTreeMap<AgentName, Progress>);
}

/// How often the operator has asked for an end: 0, 1 (drain) or 2 (cut).
pub type StopLevel = watch::Receiver<u8>;

/// Leads the fleet through a trial. `commit` is called before the first request may be sent.
///
/// # Errors
/// When `commit` fails: then nothing is sent.
pub async fn drive<E>(
    case: &TrialCase,
    assigned: &Assigned,
    fleet: &mut Fleet,
    clock: &dyn Clock,
    stop: &mut StopLevel,
    mut commit: impl FnMut() -> Result<(), E>,
    watch: &mut dyn Watch,
) -> Result<Ending, E> {
    let digests = assigned.agents.iter().map(|(agent, a)| (agent.clone(), a.digest)).collect();
    let mut machine = Machine::new(case.epoch, digests, patience(case, assigned), clock.monotonic());
    tell_to_prepare(case, assigned, fleet);
    assigned.agents.keys().for_each(|agent| watch.stands(agent, &Standing::Preparing));
    let mut progress: BTreeMap<AgentName, Progress> = BTreeMap::new();
    // When it was last shown, and whether there is news since.
    let (mut shown, mut news) = (Nanos::ZERO, false);
    let mut stop_seen = 0;
    let mut told: Option<ToAgent> = None;
    loop {
        let event = tokio::select! {
            change = fleet.next() => match change {
                Change::Said(agent, FromAgent::Heartbeat(Some(p))) if p.epoch == case.epoch => {
                    progress.insert(agent, p);
                    news = true;
                    Event::Tick
                }
                Change::Said(agent, said) => {
                    standing(&said, case.epoch).iter().for_each(|s| watch.stands(&agent, s));
                    translate(agent, said, case.epoch)
                }
                // One that sends load, too, is missed for that.
                Change::Lost(agent, reason) if case.launcher.as_ref() == Some(&agent)
                    && !assigned.agents.contains_key(&agent) =>
                {
                    Event::EngineDied(format!("agent {agent}, which launched it, is lost: {reason}"))
                }
                Change::Lost(agent, reason) => {
                    watch.lost(&agent, &reason);
                    Event::Lost(agent, reason)
                }
                Change::Joined(agent) => {
                    // Back over a new connection: what it was told last may have been lost with the old one.
                    if let Some(order) = &told {
                        fleet.tell(&agent, order.clone());
                    }
                    Event::Tick
                }
                Change::Tick => Event::Tick,
            },
            level = next_level(stop, stop_seen) => {
                stop_seen = level;
                Event::Stop(level > 1)
            }
        };
        let now = clock.monotonic();
        if let Some(start) = machine.start().filter(|_| news && now - shown >= SHOW_EVERY) {
            (shown, news) = (now, false);
            watch.progress(now - start, &progress);
        }
        let before = machine.start().is_some();
        let started = machine.start().filter(|start| *start <= now);
        let cut = started.and_then(|start| watch.hopeless(now - start)).map(Event::Cut);
        let mut effects = machine.on(event, clock.monotonic());
        effects.extend(cut.into_iter().flat_map(|cut| machine.on(cut, clock.monotonic())));
        for effect in effects {
            match effect {
                Effect::TellAll(order) => {
                    told = Some(order.clone());
                    assigned.agents.keys().for_each(|agent| fleet.tell(agent, order.clone()))
                }
                Effect::Commit => commit()?,
                Effect::End(ending) => return Ok(ending),
            }
        }
        if let (false, Some(start)) = (before, machine.start()) {
            watch.ready(&warnings(&machine));
            watch.starting(start - clock.monotonic());
        }
    }
}

/// What the agents want a person to know about their hosts.
fn warnings(machine: &Machine) -> Vec<String> {
    let said = machine.ready().iter();
    said.flat_map(|(agent, r)| r.warnings.iter().map(move |w| format!("agent {agent}: {w}"))).collect()
}

/// Gives each agent its order.
fn tell_to_prepare(case: &TrialCase, assigned: &Assigned, fleet: &Fleet) {
    for (agent, part) in &assigned.agents {
        let order = TrialOrder {
            run: case.run.clone(),
            trial: case.trial,
            epoch: case.epoch,
            target: case.target.clone(),
            workload: case.workload,
            workload_bytes: case.workload_bytes,
            schedule: assigned.digest,
            slice: part.digest,
            slice_count: part.slice.len() as u64,
            permits: part.permits,
            closed: case.closed,
            upload: case.upload,
            warmup: part.warmup.clone(),
            warm_connections: case.warm_connections.min(part.slice.len() as u32),
        };
        fleet.tell(agent, ToAgent::Prepare(Box::new(order)));
    }
}

/// Waits until the operator asks for more of an end than before.
async fn next_level(stop: &mut StopLevel, seen: u8) -> u8 {
    match stop.wait_for(|level| *level > seen).await {
        Ok(level) => *level,
        // Nobody can ask any more.
        Err(_) => std::future::pending().await,
    }
}

fn patience(case: &TrialCase, assigned: &Assigned) -> Patience {
    let request = case.target.connect_timeout + case.target.total_timeout;
    let times = |n: usize| Nanos(request.0.saturating_mul(n as u64));
    // Warm-up requests run some at a time; one more for the connections.
    let at_once =
        |a: &Assignment| a.permits.map_or(WARMUP_AT_ONCE, |p| WARMUP_AT_ONCE.min(p)).max(1) as usize;
    let rounds = |a: &Assignment| a.warmup.len().div_ceil(at_once(a)) + 1;
    // One engine is warmed up after the other.
    let warmup = assigned.agents.values().map(rounds).max().unwrap_or(1) * case.target.engines().count();
    // A closed loop has no schedule: its workers take turns, each turn as long as a request may take.
    let turns = |a: &Assignment| a.slice.len().div_ceil(a.permits.unwrap_or(1).max(1) as usize);
    let closed = assigned.agents.values().map(turns).max().filter(|_| case.closed).unwrap_or(0);
    Patience {
        prepare: times(warmup) + GRACE,
        // The last arrival may wait for a permit as long as a request may take.
        run: assigned.last + case.target.total_timeout + request + times(closed) + GRACE,
        drain: request + GRACE,
        lead: if case.local { LEAD_LOCAL } else { LEAD_REMOTE },
    }
}

/// Where an agent stands that says this.
fn standing(said: &FromAgent, epoch: Epoch) -> Option<Standing> {
    match said {
        FromAgent::Ready(r) if r.epoch == epoch => {
            Some(Standing::Ready { clock_bound: Nanos(r.clock.bound_ns) })
        }
        FromAgent::Drained(d) if d.epoch == epoch => {
            Some(Standing::Drained { clock_bound: Nanos(d.clock.bound_ns) })
        }
        _ => None,
    }
}

fn translate(agent: AgentName, said: FromAgent, epoch: Epoch) -> Event {
    match said {
        FromAgent::Ready(r) if r.epoch == epoch => Event::Ready(agent, r),
        FromAgent::Armed(e) if e == epoch => Event::Armed(agent),
        FromAgent::Drained(d) if d.epoch == epoch => Event::Drained(agent, *d),
        FromAgent::Engine(state) if state.stage == EngineStage::Died => Event::EngineDied(state.message),
        FromAgent::Failed { epoch: e, stage, message } if e == epoch => {
            Event::Failed(agent, headed(&stage, &message))
        }
        // Of an earlier trial, or nothing that moves this one.
        _ => Event::Tick,
    }
}
