//! One seed: the hosts on their network, what is done to them, and what is found at the end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use common::disk::SimDisk;
use common::fleet::Upload;
use common::ids::AgentName;
use common::seed::{Seed, Stream};
use coordinator::store::MemoryIndex;
use serde::{Deserialize, Serialize};
use turmoil::{Builder, Sim};

use crate::clock::SimClock;
use crate::faults::{Fault, Planned, draw};
use crate::hosts::{self, AgentHost, CoordinatorHost};
use crate::judge;
use crate::ledger::{AgentDoing, Cause, Doing, Ended, Excuse, Ledger};
use crate::plan;

/// Of virtual time between two looks at everything.
const TICK: Duration = Duration::from_millis(10);
/// Within so much virtual time every run ends.
const MOST: Duration = Duration::from_secs(1800);
/// So often the operator types `resume` before giving up.
const MOST_RESUMES: u32 = 12;
/// How long the operator takes for it.
const OPERATOR: u64 = 3_000_000_000;

const COORDINATOR: &str = "coordinator";

/// What came of a seed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Found {
    /// What does not hold; empty when all does.
    pub broken: Vec<String>,
    /// Faults that happened: what, what the coordinator was doing, what the agent was doing.
    pub done: Vec<(String, Doing, Option<AgentDoing>)>,
    /// What the operator saw.
    pub told: Vec<(u64, String)>,
    /// Arrivals, and those of unknown fate.
    pub arrivals: u64,
    /// See there.
    pub unknown: u64,
    /// A digest of everything that happened: two runs of a seed have the same.
    pub digest: String,
    /// Virtual time, in seconds.
    pub seconds: u64,
}

/// Something that is to be done at an instant.
enum Todo {
    Start(String),
    Release(usize),
    Cut { agent: usize, lasts_ms: u64, how: Cutting },
    Latency(usize),
    FastStore,
    Mend(SimDisk),
}

/// What becomes of what is sent over a link that is cut.
#[derive(Clone, Copy)]
enum Cutting {
    /// It comes later.
    Holds,
    /// It never comes.
    Drops,
    /// The same, of what the agent says.
    Deafens,
}

struct World<'a> {
    sim: Sim<'a>,
    ledger: Ledger,
    agents: Vec<Arc<AgentHost>>,
    coordinator: Arc<CoordinatorHost>,
    random: Stream,
    /// By true time.
    todo: Vec<(u64, Todo)>,
    /// Waits for its moment; with the instant once that is known.
    planned: Vec<(Option<u64>, Planned)>,
    /// Hosts whose fuse burns, with how long they will be down.
    fuses: BTreeMap<String, u64>,
    found: Found,
    resumes: u32,
}

/// Runs a seed. Results are written below `out`, a folder that is there.
pub fn run(seed: u64, out: &Path, undisturbed: bool) -> Found {
    let (agents, faults) = draw(Seed(seed));
    let faults = if undisturbed { Vec::new() } else { faults };
    let mut random = Seed(seed).stream("world");
    // Up to 400 s ahead of each other, or behind.
    let mut clock = || {
        let offset = 1_000_000_000_000 + random.below(400_000_000_000);
        Arc::new(SimClock::new(offset, random.below(401) as i64 - 200))
    };
    let coordinator_clock = clock();
    let clocks: Vec<_> = (0..agents).map(|_| clock()).collect();
    run_on(seed, faults, out, coordinator_clock, clocks)
}

/// The same with these faults, and hosts that have these clocks.
pub fn run_on(
    seed: u64,
    faults: Vec<Planned>,
    out: &Path,
    coordinator_clock: Arc<SimClock>,
    clocks: Vec<Arc<SimClock>>,
) -> Found {
    common::simulated::simulate();
    align_tasks();
    let plan = match plan::plan(clocks.len(), upload(seed), out) {
        Ok(plan) => plan,
        Err(e) => return Found { broken: vec![format!("no plan: {e:#}")], ..Found::default() },
    };
    let ledger = Ledger::default();
    let coordinator = Arc::new(CoordinatorHost {
        disk: SimDisk::default(),
        index: MemoryIndex::default(),
        clock: coordinator_clock,
        slow_ns: Arc::new(AtomicU64::new(0)),
        remote: AtomicUsize::new(plan.fleet.remote),
        plan,
        seed: Seed(seed),
        lives: AtomicU64::new(0),
    });
    let agents = clocks.into_iter().enumerate().map(|(number, clock)| {
        let name: AgentName = format!("a{number}").parse().unwrap_or_else(|_| unreachable!("it is a name"));
        let (disk, lives) = (SimDisk::default(), AtomicU64::new(0));
        Arc::new(AgentHost { name, disk, clock, seed: Seed(seed), lives })
    });
    let mut world = World {
        sim: network(seed),
        ledger,
        agents: agents.collect(),
        coordinator,
        random: Seed(seed).stream("power"),
        todo: Vec::new(),
        planned: faults.into_iter().map(|p| (None, p)).collect(),
        fuses: BTreeMap::new(),
        found: Found::default(),
        resumes: 0,
    };
    world.start();
    world.go();
    world.end(out)
}

/// One seed in three keeps a trial's traces until its drain.
#[must_use]
pub fn upload(seed: u64) -> Upload {
    match Seed(seed).stream("upload").below(3) {
        0 => Upload::After,
        _ => Upload::During,
    }
}

/// A runtime drops its tasks in an order that depends on their numbers, which count on from seed to seed. So each seed
/// begins at a multiple of the number of lists in which a runtime keeps them.
fn align_tasks() {
    const LISTS: u64 = 64;
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return };
    runtime.block_on(async {
        loop {
            let task = tokio::spawn(async {});
            let number = task.id().to_string().parse::<u64>().unwrap_or_default();
            let _ = task.await;
            if number % LISTS == 0 {
                return;
            }
        }
    });
}

fn network<'a>(seed: u64) -> Sim<'a> {
    let mut builder = Builder::new();
    builder
        .tick_duration(TICK)
        .simulation_duration(MOST * 2)
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(40))
        .tcp_capacity(4096)
        .enable_random_order()
        .rng_seed(seed);
    builder.build()
}

impl World<'_> {
    fn start(&mut self) {
        let (host, ledger) = (Arc::clone(&self.coordinator), self.ledger.clone());
        self.sim.host(COORDINATOR, move || hosts::coordinator(Arc::clone(&host), ledger.clone()));
        for host in &self.agents {
            let (host, ledger) = (Arc::clone(host), self.ledger.clone());
            let name = host.name.to_string();
            self.sim.host(name, move || hosts::agent(Arc::clone(&host), ledger.clone()));
        }
    }

    fn now_ns(&self) -> u64 {
        self.sim.elapsed().as_nanos() as u64
    }

    fn go(&mut self) {
        loop {
            if let Err(e) = self.sim.step() {
                self.found.broken.push(format!("a host failed: {e}"));
                return;
            }
            if self.sim.elapsed() > MOST {
                self.found.broken.push(format!("it did not end within {MOST:?} of virtual time"));
                return;
            }
            self.find_early_traces();
            self.do_what_is_due();
            self.burn();
            self.strike();
            if self.is_over() {
                return;
            }
        }
    }

    /// The run has come to its end, or the operator has given up. Otherwise it is resumed when its coordinator has ended.
    fn is_over(&mut self) -> bool {
        let Some(ended) = self.ledger.facts().ended.take() else { return false };
        match ended {
            // An end that the operator was told may be followed by faults that are still to come: they find nobody.
            Ended::Done => true,
            Ended::Failed(e) if self.resumes >= MOST_RESUMES => {
                self.found.broken.push(format!("resumed {MOST_RESUMES} times, and still: {e}"));
                true
            }
            Ended::Failed(e) => {
                self.resumes += 1;
                // Of the agents, these are there: the operator wants no more.
                if let Some((joined, _)) = e.split_once(" of ").filter(|_| e.contains("agents joined within"))
                {
                    let joined = joined.parse().unwrap_or(0).max(1);
                    self.coordinator.remote.store(joined, Ordering::Relaxed);
                }
                self.ledger.doing(Doing::Down, 0);
                self.at(OPERATOR, Todo::Start(COORDINATOR.into()));
                false
            }
        }
    }

    /// With `--upload after` no trace is delivered before its agent's drain.
    fn find_early_traces(&mut self) {
        let facts = self.ledger.facts();
        let early = facts.spools.iter().filter(|s| {
            s.upload == Upload::After
                && s.spool.delivered() > s.spool.first()
                && !facts.drained.contains_key(&(s.agent.clone(), s.epoch))
        });
        let told = early
            .map(|s| format!("agent {} delivered traces of trial {} before its drain", s.agent, s.trial));
        let told: Vec<String> = told.filter(|told| !self.found.broken.contains(told)).collect();
        self.found.broken.extend(told);
    }

    fn at(&mut self, from_now_ns: u64, what: Todo) {
        self.todo.push((self.now_ns() + from_now_ns, what));
    }

    fn do_what_is_due(&mut self) {
        let now = self.now_ns();
        let (due, later) = std::mem::take(&mut self.todo).into_iter().partition(|(at, _)| *at <= now);
        self.todo = later;
        let due: Vec<(u64, Todo)> = due;
        for (_, what) in due {
            match what {
                Todo::Start(host) => {
                    self.told(format!("{host} is started"));
                    self.sim.bounce(host);
                }
                Todo::Release(agent) => {
                    let name = self.name(agent);
                    self.told(format!("the link of {name} is mended"));
                    self.sim.release(name.clone(), COORDINATOR);
                    self.sim.repair(name, COORDINATOR);
                }
                Todo::Cut { agent, lasts_ms, how } => self.cut(agent, lasts_ms, how),
                Todo::Latency(agent) => {
                    self.sim.set_link_max_message_latency(
                        self.name(agent),
                        COORDINATOR,
                        Duration::from_millis(40),
                    );
                    self.sim.set_link_latency(self.name(agent), COORDINATOR, Duration::from_millis(10));
                }
                Todo::FastStore => self.coordinator.slow_ns.store(0, Ordering::Relaxed),
                Todo::Mend(disk) => disk.mend(),
            }
        }
    }

    fn name(&self, agent: usize) -> String {
        self.agents[agent].name.to_string()
    }

    fn told(&self, text: String) {
        let at = self.now_ns();
        self.ledger.facts().told.push((at, format!("*** {text}")));
    }

    /// Faults whose moment has come.
    fn strike(&mut self) {
        let now = self.now_ns();
        let Some((doing, _)) = self.ledger.facts().doing else { return };
        let mut due = Vec::new();
        self.planned.retain_mut(|(at, planned)| {
            if at.is_none() && planned.doing == doing {
                *at = Some(now + planned.after_ms * 1_000_000);
            }
            let is_due = at.is_some_and(|at| at <= now);
            if is_due {
                due.push(planned.fault.clone());
            }
            !is_due
        });
        due.into_iter().for_each(|fault| self.carry_out(&fault));
    }

    fn carry_out(&mut self, fault: &Fault) {
        let agents = self.ledger.facts().agents.clone();
        let doing = self.ledger.facts().doing.map_or(Doing::Joining, |(doing, _)| doing);
        let of = fault.agent().map(|a| agents.get(&self.agents[a].name).copied().unwrap_or(AgentDoing::Idle));
        if of == Some(AgentDoing::Down) || (of.is_none() && doing == Doing::Down) {
            return;
        }
        self.told(format!("{fault:?} while {doing:?}, {of:?}"));
        self.found.done.push((fault.name().to_owned(), doing, of));
        for (excuse, lasts_ms) in fault.excuses() {
            let agent = fault.agent().filter(|_| !fault.is_of_all()).map(|a| self.agents[a].name.clone());
            self.excuse(agent, excuse, lasts_ms);
        }
        match *fault {
            Fault::KillAgent { agent, power, down_ms } => self.kill_agent(agent, power, down_ms),
            Fault::FuseAgent { agent, changes, down_ms } => {
                self.agents[agent].disk.set_fuse(changes);
                self.fuses.insert(self.name(agent), down_ms);
            }
            Fault::KillCoordinator { power, index, down_ms } => self.kill_coordinator(power, index, down_ms),
            Fault::FuseCoordinator { changes, down_ms } => {
                self.coordinator.disk.set_fuse(changes);
                self.fuses.insert(COORDINATOR.into(), down_ms);
            }
            Fault::Cut { agent, lasts_ms, drops } => {
                self.cut(agent, lasts_ms, if drops { Cutting::Drops } else { Cutting::Holds });
            }
            Fault::SlowStoreAndCut { agent, each_ms, lasts_ms } => {
                self.slow_store(each_ms, lasts_ms);
                self.at(3_000_000_000, Todo::Cut { agent, lasts_ms: 2500, how: Cutting::Drops });
            }
            Fault::SlowThenCut { agent, latency_ms, slow_ms, cut_ms, one_way } => {
                let how = if one_way { Cutting::Deafens } else { Cutting::Holds };
                self.slow(agent, latency_ms, slow_ms + cut_ms);
                self.at(slow_ms * 1_000_000, Todo::Cut { agent, lasts_ms: cut_ms, how });
            }
            Fault::SlowLink { agent, latency_ms, lasts_ms } => self.slow(agent, latency_ms, lasts_ms),
            Fault::SlowStore { each_ms, lasts_ms } => self.slow_store(each_ms, lasts_ms),
            Fault::FullSpool { agent, lasts_ms } => self.fill(self.agents[agent].disk.clone(), lasts_ms),
            Fault::FullStore { lasts_ms } => self.fill(self.coordinator.disk.clone(), lasts_ms),
            Fault::StepWall { host, by_s } => {
                let clocks =
                    std::iter::once(&self.coordinator.clock).chain(self.agents.iter().map(|a| &a.clock));
                if let Some(clock) = clocks.into_iter().nth(host) {
                    clock.step_wall(by_s * 1_000_000_000);
                }
            }
        }
    }

    fn excuse(&mut self, agent: Option<AgentName>, excuse: Excuse, lasts_ms: u64) {
        let from_ns = self.now_ns();
        let to_ns = from_ns.saturating_add(lasts_ms * 1_000_000);
        self.ledger.facts().causes.push(Cause { agent, from_ns, to_ns, excuse });
    }

    fn fill(&mut self, disk: SimDisk, lasts_ms: u64) {
        disk.set_capacity(disk.used() + 100);
        self.at(lasts_ms * 1_000_000, Todo::Mend(disk));
    }

    fn slow(&mut self, agent: usize, latency_ms: u64, lasts_ms: u64) {
        self.sim.set_link_max_message_latency(
            self.name(agent),
            COORDINATOR,
            Duration::from_millis(latency_ms),
        );
        self.sim.set_link_latency(self.name(agent), COORDINATOR, Duration::from_millis(latency_ms));
        self.at(lasts_ms * 1_000_000, Todo::Latency(agent));
    }

    fn slow_store(&mut self, each_ms: u64, lasts_ms: u64) {
        self.coordinator.slow_ns.store(each_ms * 1_000_000, Ordering::Relaxed);
        self.at(lasts_ms * 1_000_000, Todo::FastStore);
    }

    fn cut(&mut self, agent: usize, lasts_ms: u64, how: Cutting) {
        match how {
            Cutting::Holds => self.sim.hold(self.name(agent), COORDINATOR),
            Cutting::Drops => self.sim.partition(self.name(agent), COORDINATOR),
            Cutting::Deafens => self.sim.partition_oneway(self.name(agent), COORDINATOR),
        }
        self.at(lasts_ms * 1_000_000, Todo::Release(agent));
    }

    /// Hosts whose disk has taken its last change lose their power.
    fn burn(&mut self) {
        for (host, down_ms) in self.fuses.clone() {
            let number = self.agents.iter().position(|a| a.name.as_str() == host);
            let disk = number.map_or(&self.coordinator.disk, |n| &self.agents[n].disk);
            if !disk.is_dead() {
                continue;
            }
            self.told(format!("the power of {host} goes"));
            match number {
                Some(agent) => {
                    let name = Some(self.agents[agent].name.clone());
                    self.excuse(name.clone(), Excuse::Lossy, 0);
                    self.excuse(name, Excuse::Lost, down_ms);
                    self.kill_agent(agent, true, down_ms);
                }
                None => {
                    self.excuse(None, Excuse::Lost, down_ms);
                    self.excuse(None, Excuse::Late, down_ms);
                    self.kill_coordinator(true, false, down_ms);
                }
            }
        }
    }

    fn kill_agent(&mut self, agent: usize, power: bool, down_ms: u64) {
        let host = Arc::clone(&self.agents[agent]);
        let before = judge::spooled(&host, &self.ledger);
        self.sim.crash(host.name.to_string());
        if power {
            host.disk.crash(&mut self.random);
            self.fuses.remove(host.name.as_str());
        }
        let at = self.now_ns();
        judge::survived(&host, &before, &self.ledger, at);
        self.ledger.agent(&host.name, AgentDoing::Down);
        self.at(down_ms * 1_000_000, Todo::Start(host.name.to_string()));
    }

    fn kill_coordinator(&mut self, power: bool, index: bool, down_ms: u64) {
        self.sim.crash(COORDINATOR);
        if power {
            self.coordinator.disk.crash(&mut self.random);
            self.coordinator.index.crash(&mut self.random);
            self.fuses.remove(COORDINATOR);
        }
        if index {
            self.coordinator.index.clear();
        }
        self.ledger.doing(Doing::Down, 0);
        // Whoever starts it again starts it once.
        self.todo.retain(|(_, todo)| !matches!(todo, Todo::Start(host) if host == COORDINATOR));
        self.at(down_ms * 1_000_000, Todo::Start(COORDINATOR.into()));
    }

    fn end(mut self, out: &Path) -> Found {
        let told = self.ledger.facts().told.clone();
        // Whoever judges has a disk that works.
        self.coordinator.disk.set_fuse(u64::MAX);
        self.coordinator.disk.mend();
        if self.found.broken.is_empty() {
            match judge::judge(&self.coordinator, &self.agents, &self.ledger, out) {
                Ok(judged) => {
                    self.found.broken.extend(judged.broken);
                    (self.found.arrivals, self.found.unknown) = (judged.arrivals, judged.unknown);
                }
                Err(e) => self.found.broken.push(format!("it cannot be judged: {e:#}")),
            }
        }
        let facts = self.ledger.facts();
        self.found.broken.extend(facts.broken.iter().cloned());
        self.found.digest = judge::digest(&facts);
        drop(facts);
        self.found.told = told;
        self.found.seconds = self.sim.elapsed().as_secs();
        self.found
    }
}
