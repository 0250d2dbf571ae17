//! The session with a coordinator: join, keep the lease, follow through trials, deliver traces.
//!
//! An agent dials, and dials again for as long as it lives: before the coordinator is up, and after one has gone, so
//! that it serves the next. Everything here runs on the control runtime; nothing here is on the path of a request.
//!
//! - `join` makes the connection and shakes hands, with `tls` where that is wanted; `limits` says what is too much.
//! - `serve` is the loop of a joined session; `trial` is what it knows of the trial under way.
//! - `probes` keeps the clock model, `fetch` gets slice and workload, `upload` delivers the spool, `record` what is
//!   recorded beside it; `numbers` says how traces are numbered.
//! - `backlog` delivers what agent processes left that are gone; `collect` does so for a coordinator that resumes a run.
//!
//! Must never: let a wire type out of this folder, or act on a control message of another epoch.

mod backlog;
mod collect;
mod fetch;
mod join;
mod limits;
pub(crate) mod numbers;
mod probes;
mod record;
mod serve;
#[cfg(test)]
mod tests;
mod tls;
mod trial;
mod upload;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use common::clock::Clock;
use common::disk::Disk;
use common::fleet::{EngineState, Introduction};
use common::ids::Seq;
use tokio::sync::{Mutex, watch};

use crate::engine::{Access, Secret};
use crate::launch::{Keeping, Kept};
use crate::outside::Outside;
use crate::telemetry::{EngineRoot, GpuFeed};
pub use backlog::{Courier, Delivered, Undelivered, deliver};
use collect::Delivery;
use numbers::Numbers;
use probes::ClockModel;
use record::Observing;
pub use tls::JoinTls;
use trial::Trial;

/// Where a coordinator is, and what is shown there.
#[derive(Clone)]
pub struct Dial {
    /// `HOST:PORT`.
    pub join: String,
    /// It is spoken to with TLS.
    pub tls: Option<JoinTls>,
    /// The join token.
    pub token: Option<Secret>,
}

/// What an agent is started with.
pub struct AgentConfig {
    /// Where the coordinator is.
    pub dial: Dial,
    /// Who we are.
    pub introduction: Introduction,
    /// Where traces are kept until they are sealed, and workloads for the next time. This agent's alone.
    pub spool: PathBuf,
    /// End after one coordinator's work.
    pub once: bool,
    /// What this agent brings to an engine: its key, whom it trusts.
    pub access: Access,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Files.
    pub disk: Arc<dyn Disk>,
    /// Connections, the load, chance.
    pub outside: Arc<dyn Outside>,
    /// The engine that this agent launches.
    pub engine: Option<Keeping>,
    /// The GPUs of this host are read, by this library of NVML where it is not the usual one.
    pub gpu: Option<Option<OsString>>,
}

/// Why an agent ends.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The coordinator will not have this agent, and trying again does not help.
    #[error("the coordinator at {join} refused this agent: {message}")]
    Refused {
        /// Its address.
        join: String,
        /// What it said.
        message: String,
    },
    /// The address cannot be dialled at all.
    #[error("--join {join}: {message}; expected HOST:PORT, as in 10.0.0.5:7000")]
    Address {
        /// As given.
        join: String,
        /// What is wrong.
        message: String,
    },
    /// A file for TLS cannot be used.
    #[error("{option} {}: {reason}", path.display())]
    Tls {
        /// Which option names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// Why joining failed.
enum JoinError {
    /// It will fail again.
    Fatal(AgentError),
    /// The coordinator is not there, or not yet ready for us.
    Again(String),
}

/// How a session ended.
enum SessionEnd {
    /// The coordinator has no more work.
    Goodbye(String),
    /// The connection broke.
    Lost(String),
    /// The agent is to end.
    Shutdown,
}

/// What outlives a session.
struct Agent {
    config: AgentConfig,
    clock_model: ClockModel,
    /// Boot time until which the lease holds. Read by the pacer before every arrival.
    lease_until: Arc<AtomicU64>,
    trial: Option<Trial>,
    /// The engine that this agent launches.
    engine: Option<Kept>,
    /// The last order about the engine, by the coordinator's incarnation and its id, with its answer once there is one.
    engine_order: Option<((u64, u64), Option<EngineState>)>,
    /// Who the engine on this host is, and the GPUs, where they are read.
    engine_root: EngineRoot,
    gpus: Option<Arc<GpuFeed>>,
    /// What is recorded beside the run, and the number of the next record.
    observing: Option<Observing>,
    next_record: Arc<Mutex<Seq>>,
    /// How the next trial's traces are numbered.
    numbers: Numbers,
    /// What is on its way of a trial whose coordinator was lost.
    delivery: Option<Delivery>,
}

const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How urgently an agent is to end: 0 not at all, 1 after the trial under way, whose rest is not sent, 2 at once.
pub type Shutdown = watch::Receiver<u8>;

/// Serves coordinators until `shutdown` says so, or after the first with `once`.
///
/// # Errors
/// See [`AgentError`]; a coordinator that cannot be reached is not an error, it is waited for.
pub async fn run(mut config: AgentConfig, mut shutdown: Shutdown) -> Result<(), AgentError> {
    let engine = config.engine.take().map(Kept::start);
    config.introduction.gpu = config.gpu.is_some();
    let engine_root = EngineRoot::default();
    let gpus =
        config.gpu.take().map(|library| Arc::new(GpuFeed::start(library, &engine_root, &config.clock)));
    config.introduction.engine = engine.as_ref().map(|kept| kept.card().clone());
    let numbers = Numbers::new(config.introduction.incarnation);
    let mut agent = Agent {
        clock_model: ClockModel::new(Arc::clone(&config.clock)),
        config,
        lease_until: Arc::new(AtomicU64::new(0)),
        trial: None,
        engine,
        engine_root,
        gpus,
        engine_order: None,
        observing: None,
        next_record: Arc::default(),
        numbers,
        delivery: None,
    };
    let ended = serve_coordinators(&mut agent, &mut shutdown).await;
    if let Some(trial) = agent.trial.take() {
        // What is in flight has a fate that is known here and nowhere else.
        trial.end().await;
    }
    if let Some(engine) = &mut agent.engine {
        tracing::info!("stopping the engine");
        // Asked a second time to end: at once.
        let at_once = *shutdown.borrow() > 1;
        let mut again = shutdown.clone();
        tokio::select! {
            () = engine.end(at_once) => {}
            _ = asked_to_end(&mut again, 1), if !at_once => {
                tracing::warn!("the engine is ended without grace");
                engine.end(true).await;
            }
        }
    }
    if let Some(observing) = agent.observing.take() {
        observing.end().await;
    }
    if let Some(gpus) = agent.gpus.take() {
        // It waits for threads that may be stuck in the driver.
        let _ = tokio::task::spawn_blocking(move || gpus.stop()).await;
    }
    ended
}

async fn serve_coordinators(agent: &mut Agent, shutdown: &mut Shutdown) -> Result<(), AgentError> {
    let mut backoff = BACKOFF_MIN;
    let mut told = String::new();
    loop {
        let said = tokio::select! {
            joined = join::join(&agent.config) => match joined {
                Ok(link) => {
                    backoff = BACKOFF_MIN;
                    told.clear();
                    match serve::serve(agent, link, shutdown).await {
                        SessionEnd::Shutdown => return Ok(()),
                        SessionEnd::Goodbye(reason) => {
                            tracing::info!("the coordinator has no more work: {reason}");
                            agent.trial = None;
                            agent.observing = None;
                            if agent.config.once {
                                return Ok(());
                            }
                            continue;
                        }
                        SessionEnd::Lost(reason) => format!("lost the coordinator at {}: {reason}", agent.config.dial.join),
                    }
                }
                Err(JoinError::Fatal(e)) => return Err(e),
                Err(JoinError::Again(reason)) => reason,
            },
            _ = asked_to_end(shutdown, 0) => return Ok(()),
        };
        // The same reason every few seconds would bury everything else.
        if said != told {
            tracing::warn!("{said}; trying again until it works");
            told = said;
        }
        tokio::select! {
            () = tokio::time::sleep(jitter(backoff, &*agent.config.outside)) => {}
            _ = asked_to_end(shutdown, 0) => return Ok(()),
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Completes when the agent is to end, more urgently than `seen`; says how urgently.
async fn asked_to_end(shutdown: &mut Shutdown, seen: u8) -> u8 {
    // The sender lives as long as the process; if it is gone, so are we.
    shutdown.wait_for(|level| *level > seen).await.map_or(2, |level| *level)
}

/// Between half and all of `d`, so that a fleet that lost its coordinator does not come back in step.
fn jitter(d: Duration, outside: &dyn Outside) -> Duration {
    let random = (outside.random().unwrap_or(u64::MAX / 2) >> 32) as u32;
    d / 2 + d.mul_f64(f64::from(random) / f64::from(u32::MAX) / 2.0)
}
