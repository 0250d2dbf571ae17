//! The agent's command line.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{Parser, ValueEnum};
use common::clock::{Clock, SystemClock};
use common::dialect::Dialect;
use common::disk::{FolderLock, LockError, OsDisk, raise_open_files, readable_by_others};
use common::fleet::Introduction;
use common::ids::{AgentName, Incarnation, Nanos};
use common::plan::Target;
use tokio::sync::watch;

use crate::calibrate::kept;
use crate::engine::{Access, AllowedTarget, AllowedTargets, Secret, Tls, TlsFiles};
use crate::host;
use crate::launch::{Keeping, Launcher, Recipe};
use crate::load::scheduling::Scheduling;
use crate::session::{self, AgentConfig, AgentError, Dial, JoinTls};

/// Serves a Plimsoll coordinator: sends its part of the load and records every clock.
///
/// Start one on every host that is to send load, before or after the coordinator; it keeps trying to join, serves one
/// coordinator after another, and ends with ctrl-c.
#[derive(Debug, Parser)]
#[command(name = "agent", version, about, long_about, after_help = COMMANDS)]
pub struct Options {
    /// Where, and what is shown there
    #[command(flatten)]
    pub join: JoinOptions,

    /// This agent's name. Two agents of one coordinator need two names; keep it from run to run, for it decides which
    /// arrivals are sent from here [default: the host's name]
    #[arg(long)]
    pub name: Option<AgentName>,

    /// Folder for traces that the coordinator has not sealed yet, and for workloads
    #[arg(long, value_name = "DIR", default_value = "plimsoll-spool")]
    pub spool: PathBuf,

    /// What `agent calibrate` found on this host [default: calibration.json of the spool, or of plimsoll-spool]
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_CALIBRATION")]
    pub calibration: Option<PathBuf>,

    /// End after the first coordinator's work
    #[arg(long)]
    pub once: bool,

    /// File with the engine's API key [default: the environment's OPENAI_API_KEY, if set]
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,

    /// PEM file of the authorities that may vouch for an https engine, instead of those that this host trusts
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_ENGINE_CA", help_heading = "Engine")]
    pub engine_ca: Option<PathBuf>,

    /// PEM file of this agent's certificate, for an https engine that asks for one
    #[arg(
        long,
        value_name = "FILE",
        env = "PLIMSOLL_ENGINE_CERT",
        requires = "engine_key",
        help_heading = "Engine"
    )]
    pub engine_cert: Option<PathBuf>,

    /// PEM file of its key
    #[arg(
        long,
        value_name = "FILE",
        env = "PLIMSOLL_ENGINE_KEY",
        requires = "engine_cert",
        help_heading = "Engine"
    )]
    pub engine_key: Option<PathBuf>,

    /// Engine that a plan may name, as URL, HOST or HOST:PORT; may be repeated. A plan that names another one is refused
    /// before anything is sent [default: any]
    #[arg(
        long,
        value_name = "TARGET",
        env = "PLIMSOLL_ALLOW_TARGET",
        value_delimiter = ',',
        help_heading = "Engine"
    )]
    pub allow_target: Vec<AllowedTarget>,

    /// Recipe of the engine that this agent launches and stops, on this host (see deploy/engines)
    #[arg(long, value_name = "FILE", help_heading = "Engine")]
    pub engine: Option<PathBuf>,

    /// Recipe whose fields go over those of --engine
    #[arg(long, value_name = "FILE", requires = "engine", help_heading = "Engine")]
    pub engine_overlay: Option<PathBuf>,

    /// Variable of the recipe, as NAME=VALUE; may be repeated. A secret is better a line of PLIMSOLL_ENGINE_VARS
    #[arg(long, value_name = "NAME=VALUE", requires = "engine", help_heading = "Engine")]
    pub engine_var: Vec<String>,

    /// Give the threads that send and read real-time priority (SCHED_FIFO), where this host allows it. For hosts with cores
    /// to spare
    #[arg(long)]
    pub rt: bool,

    /// Send no load: be there for the engine, or its GPUs, only
    #[arg(long, help_heading = "Engine")]
    pub no_load: bool,

    /// Record what the GPUs of this host draw and do (NVML)
    #[arg(long, help_heading = "Telemetry")]
    pub gpu: bool,

    /// NVML's library, where it is not the usual one
    #[arg(long, value_name = "FILE", requires = "gpu", help_heading = "Telemetry")]
    pub nvml_lib: Option<PathBuf>,

    /// End when the process that started this one is gone: how a coordinator starts its own agents
    #[arg(long, hide = true)]
    pub until_parent_exits: bool,

    /// How to log, to stderr. RUST_LOG says how much [default: info]
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log: LogFormat,
}

/// Where a coordinator is, and what is shown there.
#[derive(Debug, clap::Args)]
pub struct JoinOptions {
    /// Where the coordinator listens, as HOST:PORT; with https:// before it only ever with TLS
    #[arg(long, value_name = "HOST:PORT")]
    pub join: String,

    /// File with the join token [default: the environment's PLIMSOLL_TOKEN, if set]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Speak TLS, and only to a coordinator whose certificate one of these has signed, as PEM; see docs/security.md
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// This agent's certificate, as PEM, for a coordinator that wants one
    #[arg(long, value_name = "FILE", requires = "tls_ca", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// Its private key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// The name that the coordinator's certificate must have [default: the host of --join]
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub tls_name: Option<String>,
}

/// Commands that are programs of their own: see `gpu::command`, `spool::command`, `calibrate` and
/// `null_engine`.
const COMMANDS: &str = "Commands that serve no coordinator:
  agent spool        shows, delivers or removes what earlier agents left in the spool (see docs/spool.md)
  agent calibrate    measures what this host can carry (see docs/calibration.md)
  agent null-engine  an engine without a model, to measure clients against
  agent gpu-check    finds out what telemetry of this host's GPUs is worth, and prints JSON
  agent gpu-probe    says what CUDA shows this process, and prints JSON";

/// How long an agent waits for another one to let go of its folder.
const UNLOCKED_WITHIN: Nanos = Nanos::from_secs(15);

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl JoinOptions {
    /// What they say, with the files read.
    ///
    /// # Errors
    /// With the option and the file.
    pub(crate) fn read(&self) -> anyhow::Result<Dial> {
        let (join, only_tls) = match self.join.strip_prefix("https://") {
            Some(join) => (join.to_owned(), true),
            None => (self.join.clone(), false),
        };
        let tls = match &self.tls_ca {
            None if only_tls => {
                let message =
                    "https:// needs --tls-ca, the certificate that has signed the coordinator's".into();
                return Err(AgentError::Address { join: self.join.clone(), message }.into());
            }
            None => None,
            Some(ca) => {
                let identity = self.tls_cert.as_deref().zip(self.tls_key.as_deref());
                if let Some(key) = &self.tls_key {
                    not_for_others(key);
                }
                Some(JoinTls::read(ca, identity, self.tls_name.clone())?)
            }
        };
        Ok(Dial { join, tls, token: secret(self.token_file.as_deref(), "PLIMSOLL_TOKEN")? })
    }
}

/// Warns when a secret's file can be read by others.
fn not_for_others(path: &Path) {
    if let Some(mode) = readable_by_others(path) {
        tracing::warn!("{}: others on this host can read it (mode {mode:o}); chmod 600 it", path.display());
    }
}

/// Reads a secret from a file or, without one, from the environment.
fn secret(file: Option<&Path>, variable: &str) -> anyhow::Result<Option<Secret>> {
    let text = match file {
        Some(path) => {
            not_for_others(path);
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?
        }
        None => std::env::var(variable).unwrap_or_default(),
    };
    let secret = Secret::new(&text);
    match (secret, file) {
        (None, Some(path)) => bail!("{} is empty", path.display()),
        (secret, _) => Ok(secret),
    }
}

fn log(format: LogFormat) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder.json().init(),
        LogFormat::Text => {
            use std::io::IsTerminal;
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            builder.with_ansi(colour).with_target(false).init();
        }
    }
}

/// Takes the agent's folder. One that ends at this moment, of a coordinator that was killed say, is waited for.
fn lock(dir: &Path, clock: &dyn Clock) -> anyhow::Result<FolderLock> {
    let deadline = clock.monotonic() + UNLOCKED_WITHIN;
    let mut told = false;
    loop {
        match FolderLock::take(dir) {
            Err(LockError::InUse { holder, .. }) if clock.monotonic() < deadline => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(
                        "{} is in use by another agent ({holder}): waiting for its end",
                        dir.display()
                    );
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(e @ LockError::InUse { .. }) => {
                return Err(e).context("two agents cannot share a spool: give one another --name or --spool");
            }
            taken => return taken.context("--spool"),
        }
    }
}

/// The recipe, with the variables of the command line.
fn recipe(path: &Path, overlay: Option<&Path>, vars: &[String]) -> anyhow::Result<Recipe> {
    let split = |text: &String| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        // Not repeated: a value without its name may be a secret.
        None => Err(anyhow!("--engine-var: expected NAME=VALUE")),
    };
    let given = std::env::var("PLIMSOLL_ENGINE_VARS").unwrap_or_default();
    let given: Vec<String> = given.lines().map(str::to_owned).collect();
    let vars = given.iter().chain(vars).map(split).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Recipe::load(path, overlay, &vars)?)
}

/// Runs the agent until it is told to end.
///
/// # Errors
/// What is wrong, for a person.
pub fn run(options: Options) -> anyhow::Result<()> {
    log(options.log);
    let dial = options.join.read()?;
    let open_files_limit = raise_open_files();
    let mut facts = host::facts();
    facts.open_files_limit = open_files_limit;
    let name = match options.name {
        Some(name) => name,
        None => {
            facts.hostname.parse().context("the host's name cannot be the agent's; give one with --name")?
        }
    };
    let incarnation = Incarnation(getrandom::u64().context("no randomness from the system")?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let spool = options.spool.join(name.as_str());
    // Held to the end of the process: what is in the folder is this agent's alone.
    let _lock = lock(&spool, &*clock)?;
    let api_key = secret(options.api_key_file.as_deref(), "OPENAI_API_KEY")?;
    let tls =
        TlsFiles { ca: options.engine_ca.clone(), identity: options.engine_cert.zip(options.engine_key) };
    let access =
        Access { api_key, tls: Tls::read(&tls)?, allowed: AllowedTargets::new(options.allow_target) };
    let engine = match &options.engine {
        None => None,
        Some(path) => {
            let mut launcher = Launcher::new(spool.join("engine"), Arc::clone(&clock));
            launcher.secrets.extend(access.api_key.clone());
            let recipe = recipe(path, options.engine_overlay.as_deref(), &options.engine_var)?;
            access.allowed.check(&Target::plain(recipe.base_url.clone())).context("--engine")?;
            let dialect = recipe.check_dialect(str::parse::<Dialect>)?;
            Some(Keeping { recipe, dialect, launcher, agent: name.clone(), access: access.clone() })
        }
    };
    let scheduling = if options.rt { Scheduling::RealTime } else { Scheduling::Usual };
    if let Err(e) = scheduling.check() {
        tracing::warn!("--rt: {e}; going on without");
    }
    let calibration = kept::card(options.calibration.as_deref(), &options.spool, &facts);
    let config = AgentConfig {
        dial,
        spool,
        introduction: Introduction {
            version: env!("CARGO_PKG_VERSION").into(),
            name,
            incarnation,
            host: facts,
            observer: options.no_load,
            engine: None,
            gpu: false,
            calibration,
        },
        once: options.once,
        access,
        clock,
        disk: Arc::new(OsDisk),
        outside: Arc::new(crate::outside::Host { scheduling }),
        engine,
        gpu: options.gpu.then(|| options.nvml_lib.map(PathBuf::into_os_string)),
    };
    // One control thread: it has little to do, and the cores are for the load.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let (stop, shutdown) = watch::channel(0u8);
        if options.until_parent_exits {
            tokio::spawn(orphaned(stop.clone()));
        }
        tokio::spawn(signals(stop));
        session::run(config, shutdown).await
    })?;
    Ok(())
}

/// First ctrl-c or SIGTERM: the rest of a trial under way is not sent, what is in flight finishes. Second: at once.
async fn signals(stop: watch::Sender<u8>) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
    for level in [1, 2] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        stop.send_replace(level);
    }
}

/// Completes the shutdown when this process has got another parent.
async fn orphaned(stop: watch::Sender<u8>) {
    let parent = rustix::process::getppid();
    while rustix::process::getppid() == parent {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    tracing::warn!("the coordinator is gone");
    stop.send_replace(2);
}
