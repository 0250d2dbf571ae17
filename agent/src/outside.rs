//! What a session needs of the world beyond clock and disk: connections to the coordinator, the load, a look at the
//! engine, and chance.
//!
//! One trait, so that a simulation of a whole fleet runs the session as it is. [`Host`] is the real one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use common::clock::Clock;
use common::fleet::{TargetCheck, TargetReport};
use common::ids::AgentName;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint, Error};

use crate::engine::Access;
use crate::load::scheduling::Scheduling;
use crate::load::thread;
use crate::load::trial::{LoadHandle, Report, Setup};
use crate::probe;

/// A future in a box.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// See the module.
pub trait Outside: Send + Sync {
    /// Connects to a coordinator.
    fn connect(&self, endpoint: Endpoint) -> Boxed<Result<Channel, Error>>;

    /// A connection that is made when it is needed.
    fn connect_lazily(&self, endpoint: Endpoint) -> Channel;

    /// Starts a trial's load. `reports` has room for the few reports of a trial.
    ///
    /// # Errors
    /// When it cannot be started.
    fn load(&self, setup: Setup, reports: mpsc::Sender<Report>) -> std::io::Result<LoadHandle>;

    /// Tries the engine.
    fn check(
        &self,
        check: TargetCheck,
        agent: AgentName,
        access: Access,
        clock: Arc<dyn Clock>,
    ) -> Boxed<TargetReport>;

    /// A random number; none where the system has none.
    fn random(&self) -> Option<u64>;

    /// What this host and its engine do can be recorded.
    fn is_recorded(&self) -> bool {
        true
    }
}

/// This host.
#[derive(Debug, Clone, Copy, Default)]
pub struct Host {
    /// How the threads of a trial's load are scheduled.
    pub scheduling: Scheduling,
}

impl Outside for Host {
    fn connect(&self, endpoint: Endpoint) -> Boxed<Result<Channel, Error>> {
        Box::pin(async move { endpoint.connect().await })
    }

    fn connect_lazily(&self, endpoint: Endpoint) -> Channel {
        endpoint.connect_lazy()
    }

    fn load(&self, setup: Setup, reports: mpsc::Sender<Report>) -> std::io::Result<LoadHandle> {
        thread::spawn(setup, self.scheduling, reports)
    }

    fn check(
        &self,
        check: TargetCheck,
        agent: AgentName,
        access: Access,
        clock: Arc<dyn Clock>,
    ) -> Boxed<TargetReport> {
        Box::pin(probe::check(check, agent, access, clock))
    }

    fn random(&self) -> Option<u64> {
        getrandom::u64().ok()
    }
}
