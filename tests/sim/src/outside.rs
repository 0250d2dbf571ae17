//! What a simulated agent has in the place of sockets, threads and the system's randomness.

use std::sync::{Arc, Mutex, PoisonError};

use agent::engine::Access;
use agent::load::trial::{LoadHandle, Report, Setup, carry_out, steering};
use agent::outside::{Boxed, Outside};
use common::clock::Clock;
use common::fleet::{TargetCheck, TargetReport};
use common::ids::{AgentName, Nanos};
use common::seed::Stream;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint, Error};

use crate::engine::Virtual;
use crate::ledger::{AgentDoing, Ledger, Spooling};

/// One process of a simulated agent.
pub struct SimOutside {
    /// Of what happens.
    pub ledger: Ledger,
    /// Whose it is.
    pub agent: AgentName,
    /// Its chance.
    pub random: Mutex<Stream>,
}

impl SimOutside {
    fn below(&self, bound: u64) -> u64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).below(bound)
    }
}

async fn dial(uri: Uri) -> std::io::Result<TokioIo<turmoil::net::TcpStream>> {
    let (host, port) = (uri.host().unwrap_or_default().to_owned(), uri.port_u16().unwrap_or_default());
    turmoil::net::TcpStream::connect((host, port)).await.map(TokioIo::new)
}

impl Outside for SimOutside {
    fn connect(&self, endpoint: Endpoint) -> Boxed<Result<Channel, Error>> {
        Box::pin(async move { endpoint.connect_with_connector(tower::service_fn(dial)).await })
    }

    fn connect_lazily(&self, endpoint: Endpoint) -> Channel {
        endpoint.connect_with_connector_lazy(tower::service_fn(dial))
    }

    fn load(&self, setup: Setup, reports: mpsc::Sender<Report>) -> std::io::Result<LoadHandle> {
        let (handle, steering) = steering(&setup.lease_until);
        let (ledger, agent) = (self.ledger.clone(), self.agent.clone());
        let spool = Arc::clone(setup.spool.spool());
        let origin = spool.origin().clone();
        ledger.facts().spools.push(Spooling {
            agent: agent.clone(),
            incarnation: origin.incarnation,
            trial: origin.trial,
            epoch: origin.epoch,
            upload: setup.order.upload,
            spool,
        });
        let warm_up = Nanos::from_millis(100 + self.below(1500));
        tokio::spawn(async move {
            let means = Virtual { ledger: ledger.clone(), agent: agent.clone(), warm_up };
            let last = carry_out(setup, &means, steering, &reports).await;
            if matches!(last, Report::Drained { .. }) {
                let at = ledger.now_ns();
                ledger.facts().drained.insert((agent.clone(), origin.epoch), at);
            }
            let doing =
                if matches!(last, Report::Drained { .. }) { AgentDoing::Drained } else { AgentDoing::Idle };
            ledger.agent(&agent, doing);
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
        Some(self.below(u64::MAX))
    }

    fn is_recorded(&self) -> bool {
        false
    }
}
