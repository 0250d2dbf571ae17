//! Many agents in one process: real sessions over real connections, with a load that is none.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::engine::Access;
use agent::load::trial::{LoadHandle, Report, Setup, carry_out, steering};
use agent::outside::{Boxed, Host, Outside};
use agent::session::{self, AgentConfig, AgentError, Dial};
use agent::spool::Spool;
use common::clock::{Clock, SystemClock};
use common::disk::OsDisk;
use common::fleet::{HostFacts, Introduction, TargetCheck, TargetReport};
use common::ids::{AgentName, Incarnation};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint, Error};

use crate::engine::NoLoad;

/// What all agents of a bench share.
pub struct Stage {
    events: usize,
    spools: Mutex<Vec<Arc<Spool>>>,
    /// A permit for each agent whose traces are all in its spool.
    filled: Semaphore,
    /// They may say so, and deliver.
    go: watch::Sender<bool>,
}

impl Stage {
    /// Agents whose traces have so many content events. They say that they are drained only after [`Stage::go`].
    #[must_use]
    pub fn new(events: usize) -> Arc<Self> {
        let (spools, filled) = (Mutex::default(), Semaphore::new(0));
        Arc::new(Self { events, spools, filled, go: watch::Sender::new(false) })
    }

    fn spools(&self) -> MutexGuard<'_, Vec<Arc<Spool>>> {
        self.spools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the spools of so many agents hold all their traces.
    ///
    /// # Errors
    /// Never: nobody closes it.
    pub async fn are_filled(&self, agents: usize) -> anyhow::Result<()> {
        self.filled.acquire_many(u32::try_from(agents)?).await?.forget();
        Ok(())
    }

    /// Who has waited for it is drained now.
    pub fn go(&self) {
        self.go.send_replace(true);
    }

    /// Traces that the coordinator has acknowledged.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.spools().iter().map(|s| s.delivered().0 - s.first().0).sum()
    }

    /// Starts agents that join a coordinator, and end when it has no more work.
    pub fn join(
        self: &Arc<Self>,
        agents: usize,
        address: &str,
        folder: &Path,
    ) -> JoinSet<Result<(), AgentError>> {
        let mut joined = JoinSet::new();
        for number in 0..agents {
            // A name is letters, digits and hyphens: that is one.
            let Ok(name) = format!("agent-{number}").parse::<AgentName>() else { continue };
            let config = AgentConfig {
                dial: Dial { join: address.to_owned(), tls: None, token: None },
                introduction: Introduction {
                    version: "bench".into(),
                    name: name.clone(),
                    incarnation: Incarnation(number as u64 + 1),
                    host: HostFacts { hostname: format!("host-{number}"), ..HostFacts::default() },
                    observer: false,
                    engine: None,
                    gpu: false,
                    calibration: None,
                },
                spool: folder.join(name.as_str()),
                once: true,
                access: Access::default(),
                clock: Arc::new(SystemClock),
                disk: Arc::new(OsDisk),
                outside: Arc::new(Idle(Arc::clone(self))),
                engine: None,
                gpu: None,
            };
            joined.spawn(async move {
                let (_keep, shutdown) = watch::channel(0);
                session::run(config, shutdown).await
            });
        }
        joined
    }
}

/// This host, but for the load and the engine.
struct Idle(Arc<Stage>);

impl Outside for Idle {
    fn connect(&self, endpoint: Endpoint) -> Boxed<Result<Channel, Error>> {
        Host::default().connect(endpoint)
    }

    fn connect_lazily(&self, endpoint: Endpoint) -> Channel {
        Host::default().connect_lazily(endpoint)
    }

    fn load(&self, setup: Setup, reports: mpsc::Sender<Report>) -> std::io::Result<LoadHandle> {
        let (handle, steering) = steering(&setup.lease_until);
        let stage = Arc::clone(&self.0);
        stage.spools().push(Arc::clone(setup.spool.spool()));
        tokio::spawn(async move {
            let last = carry_out(setup, &NoLoad(stage.events), steering, &reports).await;
            stage.filled.add_permits(1);
            // The stage goes last: it cannot be closed before.
            let _ = stage.go.subscribe().wait_for(|go| *go).await;
            let _ = reports.send(last).await;
        });
        Ok(handle)
    }

    fn check(&self, _: TargetCheck, _: AgentName, _: Access, _: Arc<dyn Clock>) -> Boxed<TargetReport> {
        Box::pin(async {
            TargetReport { models: vec!["m".into()], http_status: Some(200), ..TargetReport::default() }
        })
    }

    fn random(&self) -> Option<u64> {
        Host::default().random()
    }

    /// Hundreds of agents that each look at this host once a second would be the load.
    fn is_recorded(&self) -> bool {
        false
    }
}
