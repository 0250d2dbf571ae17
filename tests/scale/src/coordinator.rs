//! The coordinator's process: a run, as `coordinator run` carries it out, without its command line and its terminal.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use common::clock::{Clock, SystemClock};
use common::disk::{Disk, DiskFile, OsDisk};
use common::fleet::{ProbeDepth, Progress, Upload};
use common::ids::{AgentName, Nanos};
use common::plan::{Extent, Process, Target};
use common::seed::Seed;
use common::validity::ValidityLimits;
use common::workload::Workload;
use coordinator::fleet::{EVENTS, Fleet};
use coordinator::kept::KeptCommand;
use coordinator::plan::{BetweenTrials, EnginePlan, FleetPlan, LoadedWorkload, Plan};
use coordinator::report::TrialReport;
use coordinator::rpc::{self, Door, Limits, Shared};
use coordinator::run::{self, Means, Note, Ui};
use coordinator::store::Store;
use coordinator::sweep::{self, PlannedTrial};
use coordinator::trial::drive::{Standing, Watch};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

/// What the process is to do. It goes to it by its environment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Agents that it waits for.
    pub agents: usize,
    /// The rate, as `--rates` takes it; or `closed N`.
    pub rate: String,
    /// Requests of the only trial; none is `seconds`.
    pub requests: Option<u64>,
    /// Length of the schedule, where `requests` is none.
    pub seconds: u64,
    /// Traces stay with the agents until the drain.
    pub upload_after: bool,
    /// What every sync of the store's segments takes on top, in milliseconds: a slow disk.
    pub slow_sync_ms: u64,
    /// Where data and report go.
    pub folder: PathBuf,
}

/// Carries a job out, and says on standard output where agents join, when the trial starts and how it ended.
///
/// # Errors
/// Why it ended early.
pub fn carry_out(job: &Job) -> anyhow::Result<()> {
    // As the program does.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run_of(job))
}

async fn run_of(job: &Job) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = Store::open(&job.folder.join("data"), Arc::new(SlowDisk(job.slow_sync_ms)))?;
    let (events, inbox) = mpsc::channel(EVENTS);
    let shared = Shared::new(Arc::clone(&clock), None, 1, events.clone(), Limits::default());
    let (listener, address) = rpc::bind("127.0.0.1:0").await?;
    let (end, mut ended) = watch::channel(false);
    let until = async move { _ = ended.wait_for(|end| *end).await };
    let door = Door::Socket { listener, tls: None };
    let serving = tokio::spawn(rpc::serve(vec![door], Arc::clone(&shared), until));
    say(&format!("listening {address}"));
    let fleet = Fleet::new(Default::default(), job.agents, inbox, Arc::clone(&clock));
    let (_stop, stop) = watch::channel(0u8);
    let means = Means { fleet, shared, store, clock, stop, ui: &mut Told };
    let command_line = ["bench".to_owned()];
    let outcome =
        run::run(plan(job)?, "bench".parse()?, (KeptCommand::default(), &command_line), means).await?;
    end.send_replace(true);
    // Connections of agents that linger are of no interest.
    let _ = tokio::time::timeout(Duration::from_secs(2), serving).await;
    outcome.error.map_or(Ok(()), Err)
}

fn plan(job: &Job) -> anyhow::Result<Plan> {
    let bytes = b"{\"prompt\": \"one\"}\n".to_vec();
    let rows = Workload::parse(&bytes)?;
    let rate = job.rate.parse().map_err(|e| anyhow!("rate {}: {e}", job.rate))?;
    Ok(Plan {
        trials: sweep::order(&[rate], 1, Seed(1)),
        process: Process::Poisson,
        extent: job.requests.map_or(Extent::Duration(Nanos::from_secs(job.seconds)), Extent::Requests),
        seed: Seed(1),
        target: Target::plain("http://127.0.0.1:1".parse()?),
        workload: LoadedWorkload { source: "made".into(), bytes: Arc::from(bytes), rows },
        slos: "ttft=1s".parse()?,
        slo_target: Default::default(),
        search: None,
        stop_after_knee: false,
        max_failures: None,
        allow_over_ceiling: false,
        max_concurrency: None,
        warmup: 0,
        warm_connections: 0,
        upload: if job.upload_after { Upload::After } else { Upload::During },
        limits: ValidityLimits::default(),
        fleet: FleetPlan {
            local: 0,
            remote: job.agents,
            listen: "127.0.0.1:0".to_owned(),
            awaits_engine: false,
            awaits_gpu: false,
            join_timeout: Nanos::from_secs(120),
        },
        require_gpu: false,
        engine: EnginePlan {
            dialect: Some(common::dialect::Dialect::OPENAI),
            probe: ProbeDepth::None,
            base_url_is_default: false,
            launched: false,
            between: BetweenTrials::Nothing,
            scrape: false,
        },
        metadata: serde_json::Map::new(),
        tokenizer: None,
        data: job.folder.join("data"),
        out: Some(job.folder.join("out")),
    })
}

/// A line for the bench. It is gone when nobody reads.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Who watches.
struct Told;

impl Note for Told {
    fn note(&mut self, text: &str) {
        if !text.contains(" joined (") {
            say(&format!("note {text}"));
        }
    }
}

impl Watch for Told {
    fn ready(&mut self, _: &[String]) {}
    fn starting(&mut self, lead: Nanos) {
        say(&format!("starting {}", lead.0));
    }
    fn stands(&mut self, _: &AgentName, _: &Standing) {}
    fn lost(&mut self, agent: &AgentName, reason: &str) {
        say(&format!("note agent {agent} is lost: {reason}"));
    }
    fn progress(&mut self, _: Nanos, _: &BTreeMap<AgentName, Progress>) {}
}

impl Ui for Told {
    fn trial_begins(&mut self, _: &PlannedTrial, _: usize, _: &Plan, arrivals: u64) {
        say(&format!("begins {arrivals}"));
    }
    fn trial_ended(&mut self, report: &TrialReport) {
        let summary = &report.summary;
        let books = &summary.conservation;
        say(&format!("ended {} {} {}", books.scheduled, books.recorded, summary.validity.verdict.name()));
    }
}

/// The system's disk, whose syncs take so many milliseconds more.
struct SlowDisk(u64);

struct SlowFile(Box<dyn DiskFile>, u64);

impl Disk for SlowDisk {
    fn open(&self, path: &Path) -> std::io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(SlowFile(OsDisk.open(path)?, self.0)))
    }
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        OsDisk.read(path)
    }
    fn replace(&self, path: &Path, content: &[u8]) -> std::io::Result<()> {
        OsDisk.replace(path, content)
    }
    fn create_dir_all(&self, path: &Path) -> std::io::Result<()> {
        OsDisk.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> std::io::Result<()> {
        OsDisk.sync_dir(path)
    }
    fn list(&self, path: &Path) -> std::io::Result<Vec<PathBuf>> {
        OsDisk.list(path)
    }
    fn remove(&self, path: &Path) -> std::io::Result<()> {
        OsDisk.remove(path)
    }
    fn remove_dir_all(&self, path: &Path) -> std::io::Result<()> {
        OsDisk.remove_dir_all(path)
    }
}

impl DiskFile for SlowFile {
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.append(bytes)
    }
    fn sync(&mut self) -> std::io::Result<()> {
        std::thread::sleep(Duration::from_millis(self.1));
        self.0.sync()
    }
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }
    fn truncate(&mut self, len: u64) -> std::io::Result<()> {
        self.0.truncate(len)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(offset, buffer)
    }
}

/// The job that this process was started for, if it was.
///
/// # Errors
/// When it makes no sense.
pub fn wanted() -> anyhow::Result<Option<Job>> {
    std::env::var(crate::child::JOB).ok().map(|text| serde_json::from_str(&text).context(text)).transpose()
}
