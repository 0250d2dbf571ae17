//! The hosts: what runs on each, from its start to its end, again and again.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::session::{self, AgentConfig, Dial};
use common::disk::SimDisk;
use common::fleet::{HostFacts, Introduction, Progress};
use common::ids::{AgentName, Incarnation, Nanos, RunId, TrialId};
use common::seed::Seed;
use coordinator::fleet::{EVENTS, Fleet};
use coordinator::kept::{KeptCommand, KeptRun};
use coordinator::plan::Plan;
use coordinator::report::TrialReport;
use coordinator::rpc::{self, Door, Limits, Shared, Wire};
use coordinator::run::{self, Means, Note, Opened, RunOutcome, Ui};
use coordinator::store::{MemoryIndex, RunStore, Slowness, Store};
use coordinator::sweep::PlannedTrial;
use coordinator::trial::drive::{Standing, Watch};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use turmoil::net::TcpListener;

use crate::clock::SimClock;
use crate::judge;
use crate::ledger::{AgentDoing, Doing, Ended, Ledger};
use crate::outside::SimOutside;
use crate::plan::PORT;

/// What a host keeps from process to process.
pub struct AgentHost {
    /// Its agent.
    pub name: AgentName,
    /// Its disk.
    pub disk: SimDisk,
    /// Its clocks.
    pub clock: Arc<SimClock>,
    /// Of the simulation.
    pub seed: Seed,
    /// Processes so far.
    pub lives: AtomicU64,
}

/// Where an agent's spool is.
pub const SPOOL: &str = "/spool/a";
/// Where the coordinator's data are, on the simulated disk.
pub const DATA: &str = "/data";

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

/// An agent's process, started again when it gives up, as a supervisor does.
pub async fn agent(host: Arc<AgentHost>, ledger: Ledger) -> Result {
    loop {
        let life = host.lives.fetch_add(1, Ordering::Relaxed);
        let mut random = host.seed.stream(&format!("agent {} life {life}", host.name));
        let incarnation = Incarnation(random.below(u64::MAX - 1) + 1);
        ledger.agent(&host.name, AgentDoing::Idle);
        let outside =
            SimOutside { ledger: ledger.clone(), agent: host.name.clone(), random: Mutex::new(random) };
        let config = AgentConfig {
            dial: Dial { join: format!("coordinator:{PORT}"), tls: None, token: None },
            introduction: Introduction {
                version: "simulated".into(),
                name: host.name.clone(),
                incarnation,
                host: HostFacts { hostname: host.name.to_string(), ..HostFacts::default() },
                observer: false,
                engine: None,
                gpu: false,
                calibration: None,
            },
            spool: SPOOL.into(),
            once: false,
            access: agent::engine::Access::default(),
            clock: host.clock.clone(),
            disk: Arc::new(host.disk.clone()),
            outside: Arc::new(outside),
            engine: None,
            gpu: None,
        };
        let (_keep, shutdown) = watch::channel(0);
        let ended = session::run(config, shutdown).await;
        ledger.tell(format!("agent {} ended: {ended:?}", host.name));
        sleep(Duration::from_secs(2)).await;
    }
}

/// What the coordinator's host keeps from process to process.
pub struct CoordinatorHost {
    /// Its disk.
    pub disk: SimDisk,
    /// Its index.
    pub index: MemoryIndex,
    /// Its clocks.
    pub clock: Arc<SimClock>,
    /// How long the disk takes, now, in nanoseconds.
    pub slow_ns: Arc<AtomicU64>,
    /// How many agents the operator waits for.
    pub remote: AtomicUsize,
    /// What it is to do.
    pub plan: Plan,
    /// Of the simulation.
    pub seed: Seed,
    /// Processes so far.
    pub lives: AtomicU64,
}

impl CoordinatorHost {
    fn store(&self) -> std::result::Result<Store, coordinator::store::StoreError> {
        let slow_ns = Arc::clone(&self.slow_ns);
        let slowness = Slowness::of(move || Duration::from_nanos(slow_ns.load(Ordering::Relaxed)));
        Store::slow(Path::new(DATA), Arc::new(self.disk.clone()), Arc::new(self.index.clone()), slowness)
    }

    /// The run, where it was begun so far that it can be resumed.
    pub fn begun(&self, store: &Store) -> Option<(RunStore, KeptRun)> {
        let runs = store.runs().ok()?;
        runs.into_iter().rev().find_map(|(id, _)| {
            let run = store.run(&id).ok()?;
            let kept = KeptRun::read(&run).ok()?;
            Some((run, kept))
        })
    }
}

/// A coordinator's process: `sweep`, or `resume` where there is a run.
pub async fn coordinator(host: Arc<CoordinatorHost>, ledger: Ledger) -> Result {
    let life = host.lives.fetch_add(1, Ordering::Relaxed);
    ledger.doing(Doing::Joining, 0);
    let ended = match one_life(&host, &ledger, life).await {
        Ok(outcome) => match outcome.error {
            None => Ended::Done,
            Some(e) => Ended::Failed(format!("{e:#}")),
        },
        Err(e) => Ended::Failed(format!("{e:#}")),
    };
    ledger.tell(format!("coordinator ended: {ended:?}"));
    ledger.facts().ended = Some(ended);
    // A goodbye takes a moment.
    sleep(Duration::from_millis(500)).await;
    Ok(())
}

async fn one_life(host: &CoordinatorHost, ledger: &Ledger, life: u64) -> anyhow::Result<RunOutcome> {
    let store = host.store()?;
    let begun = host.begun(&store);
    let mut plan = host.plan.clone();
    plan.fleet.remote = host.remote.load(Ordering::Relaxed);
    if let Some((run, kept)) = &begun {
        let broken = judge::acknowledged(run, kept, ledger)?;
        ledger.facts().broken.extend(broken);
    }
    // A run that ended before anything was kept of it stays empty, and another is begun.
    let id: RunId = match &begun {
        Some((run, _)) => run.id().clone(),
        None => format!("simulated-{life}").parse()?,
    };
    ledger.facts().run = Some(id.clone());
    let incarnation = host.seed.stream(&format!("coordinator life {life}")).below(u64::MAX);
    let (events, inbox) = mpsc::channel(EVENTS);
    let clock = host.clock.clone();
    let shared = Shared::new(clock.clone(), None, incarnation, events.clone(), Limits::default());
    let streams = listen().await?;
    let (_end, ended) = watch::channel(false);
    let serving = rpc::serve(vec![Door::Simulated(streams)], Arc::clone(&shared), until(ended));
    let server = tokio::spawn(async move { serving.await.map_err(|e| e.to_string()) });
    let fleet = Fleet::new(Default::default(), plan.fleet.remote, inbox, clock.clone());
    let (_stop, stop) = watch::channel(0u8);
    let mut ui = SimUi { ledger: ledger.clone(), trial: 0 };
    let means = Means { fleet, shared, store, clock, stop, ui: &mut ui };
    let command_line = ["simulated".to_owned()];
    let outcome = match begun {
        Some((run, kept)) => {
            let opened = Opened::again(plan, run, kept)?;
            Ok(run::resume(opened, &command_line, means).await)
        }
        None => run::run(plan, id, (KeptCommand::default(), &command_line), means).await,
    };
    if server.is_finished() {
        ledger.tell(format!("the server ended: {:?}", server.await));
    }
    outcome
}

async fn until(mut ended: watch::Receiver<bool>) {
    let _ = ended.wait_for(|end| *end).await;
}

async fn listen() -> anyhow::Result<mpsc::Receiver<(Box<dyn Wire>, std::net::SocketAddr)>> {
    let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT)).await?;
    let (accepted, streams) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let wire: Box<dyn Wire> = Box::new(stream);
            if accepted.send((wire, peer)).await.is_err() {
                return;
            }
        }
    });
    Ok(streams)
}

/// Who watches: the ledger learns what the coordinator is about.
struct SimUi {
    ledger: Ledger,
    trial: u32,
}

impl Note for SimUi {
    fn note(&mut self, text: &str) {
        if text.contains("collecting what was spooled") {
            self.ledger.doing(Doing::Collecting, self.trial);
        }
        self.ledger.tell(text);
    }
}

impl Watch for SimUi {
    fn ready(&mut self, _: &[String]) {
        self.ledger.doing(Doing::Armed, self.trial);
    }

    fn starting(&mut self, _: Nanos) {}

    fn stands(&mut self, _: &AgentName, _: &Standing) {}

    fn lost(&mut self, agent: &AgentName, reason: &str) {
        let at = self.ledger.now_ns();
        self.ledger.tell(format!("agent {agent} is taken for lost: {reason}"));
        let mut facts = self.ledger.facts();
        let trial = TrialId(self.trial);
        if let Some(epoch) = facts.spools.iter().filter(|s| s.trial == trial).map(|s| s.epoch).max() {
            facts.lost.push((agent.clone(), epoch, at));
        }
    }

    fn progress(&mut self, since_start: Nanos, fleet: &BTreeMap<AgentName, Progress>) {
        if since_start == Nanos::ZERO {
            return;
        }
        let left: u64 = fleet.values().map(|p| p.scheduled.saturating_sub(p.dispatched)).sum();
        let doing = if left == 0 { Doing::Closing } else { Doing::Running };
        self.ledger.doing(doing, self.trial);
    }
}

impl Ui for SimUi {
    fn trial_begins(&mut self, trial: &PlannedTrial, _: usize, _: &Plan, _: u64) {
        self.trial = trial.trial.0;
        self.ledger.doing(Doing::Preparing, self.trial);
        self.ledger.tell(format!("trial {} begins", trial.trial));
    }

    fn trial_ended(&mut self, report: &TrialReport) {
        let at = self.ledger.now_ns();
        let verdict = report.summary.validity.verdict.name();
        self.ledger.tell(format!("trial {} is sealed: {verdict}", report.trial));
        self.ledger.facts().sealed.entry(report.trial).or_insert(at);
    }
}
