//! Several engines that serve the same: a client for each, and which of them an arrival goes to.
//!
//! Guarded by `tests/engine/replicas.rs`: every arrival reaches the engine that the record's numbers name.

use common::ids::Digest;
use common::trace::{Failure, Trace};
use tokio::sync::watch;

use super::client::{Client, ClientConfig, ConfigError, Engine, Outgoing};
use super::trial_clock::TrialClock;

/// The engines of a trial.
#[derive(Debug, Clone)]
pub struct Replicas {
    clients: Vec<Client>,
    choice: common::replicas::Replicas,
}

impl Replicas {
    /// Clients without connections yet, for every engine of the target. `schedule` is the whole schedule's digest.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(config: &ClientConfig, schedule: Digest, clock: &TrialClock) -> Result<Self, ConfigError> {
        let target = &config.target;
        // Here, for each of them alone looks permitted: what is not allowed is not to be asked in part.
        config.access.allowed.check(target)?;
        let client =
            |url| Client::new(ClientConfig { target: target.at(url), ..config.clone() }, clock.clone());
        let clients = target.engines().map(client).collect::<Result<_, _>>()?;
        Ok(Self { clients, choice: common::replicas::Replicas::new(schedule, target.engines()) })
    }

    /// A client for each engine, in the order of the target.
    #[must_use]
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// Opens connections until `n` are idle, as many to each engine.
    ///
    /// # Errors
    /// The first failure, when there is not even one connection to an engine.
    pub async fn warm(&self, n: usize) -> Result<(), Failure> {
        let each = n.div_ceil(self.clients.len().max(1));
        for client in &self.clients {
            client.warm(each).await?;
        }
        Ok(())
    }

    fn client(&self, request: &Outgoing) -> &Client {
        match self.clients.as_slice() {
            [only] => only,
            // The key that a slice's arrivals are owned by; a trace has no other (see `Arrival::ownership_key`).
            several => &several[self.choice.of(request.unsent.index.0)],
        }
    }
}

impl Engine for Replicas {
    async fn send(&self, request: Outgoing, cancel: &mut watch::Receiver<bool>) -> Trace {
        self.client(&request).send(request, cancel).await
    }
}
