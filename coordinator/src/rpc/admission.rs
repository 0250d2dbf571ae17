//! Who may call: the join token of every call, and the pass of every call but the first.
//!
//! The token says that a peer belongs here; all agents have the same. The pass is drawn for each session and says which
//! agent calls, so that none fetches or uploads for another, whatever it writes into a message. Both are checked by one
//! interceptor in front of every service: a call that is added later cannot forget them. Neither is kept as it is, only
//! its SHA-256; the token's is compared in constant time.
//!
//! An agent's pass outlives its session, because an agent that has lost the connection still delivers what it has.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::ids::{AgentName, Digest, Incarnation};
use proto::{PASS_METADATA, TOKEN_METADATA};
use subtle::ConstantTimeEq;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use super::Shared;
use super::guest::Guest;
use super::limits::{MAX_CALLS_PER_AGENT, MAX_PASSES};

/// An agent process with a pass.
pub(super) struct Holder {
    pub(super) agent: AgentName,
    pub(super) incarnation: Incarnation,
    calls: Arc<Semaphore>,
    /// Bytes of telemetry taken from it.
    telemetry: AtomicU64,
    /// Raised when another process has taken its name: its calls end.
    revoked: watch::Sender<bool>,
}

impl Holder {
    /// Completes when another process has taken its name.
    pub(super) async fn is_revoked(&self) {
        // The sender is this one's own: it cannot be gone.
        let _ = self.revoked.subscribe().wait_for(|revoked| *revoked).await;
    }

    /// Counts telemetry; false when that is more than `limit` in all.
    pub(super) fn record(&self, bytes: u64, limit: u64) -> bool {
        let before = self.telemetry.fetch_add(bytes, Ordering::Relaxed);
        before.saturating_add(bytes) <= limit
    }

    /// Another run: what was counted is of the one before.
    fn forget_telemetry(&self) {
        self.telemetry.store(0, Ordering::Relaxed);
    }
}

struct Entry {
    pass: Digest,
    session: u64,
    /// Its session lasts.
    here: bool,
    holder: Arc<Holder>,
}

/// The passes that are good.
#[derive(Default)]
pub(super) struct Passes(Mutex<BTreeMap<AgentName, Entry>>);

impl Passes {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<AgentName, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the pass of a session of this agent process. The one of its session before is good no more.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub(super) fn issue(
        &self,
        agent: &AgentName,
        incarnation: Incarnation,
        session: u64,
    ) -> Result<String, getrandom::Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        let pass: String = random.iter().map(|b| format!("{b:02x}")).collect();
        let mut entries = self.entries();
        let holder = match entries.remove(agent) {
            // The same process, over a new connection: its calls go on, and count.
            Some(old) if old.holder.incarnation == incarnation => old.holder,
            old => {
                if let Some(old) = old {
                    old.holder.revoked.send_replace(true);
                }
                Arc::new(Holder {
                    agent: agent.clone(),
                    incarnation,
                    calls: Arc::new(Semaphore::new(MAX_CALLS_PER_AGENT)),
                    telemetry: AtomicU64::new(0),
                    revoked: watch::channel(false).0,
                })
            }
        };
        if entries.len() >= MAX_PASSES {
            let oldest =
                entries.iter().min_by_key(|(_, e)| (e.here, e.session)).map(|(name, _)| name.clone());
            if let Some(gone) = oldest.and_then(|name| entries.remove(&name)) {
                gone.holder.revoked.send_replace(true);
            }
        }
        let entry = Entry { pass: Digest::of(pass.as_bytes()), session, here: true, holder };
        entries.insert(agent.clone(), entry);
        Ok(pass)
    }

    /// A session of this agent lasts.
    pub(super) fn is_here(&self, agent: &AgentName) -> bool {
        self.entries().get(agent).is_some_and(|e| e.here)
    }

    /// A session has ended.
    pub(super) fn left(&self, agent: &AgentName, session: u64) {
        if let Some(entry) = self.entries().get_mut(agent).filter(|e| e.session == session) {
            entry.here = false;
        }
    }

    /// What was counted for the run before is forgotten.
    pub(super) fn begin_run(&self) {
        self.entries().values().for_each(|e| e.holder.forget_telemetry());
    }

    fn holder(&self, pass: &[u8]) -> Option<Arc<Holder>> {
        // Found by its hash: how long that takes says nothing of a pass.
        let pass = Digest::of(pass);
        self.entries().values().find(|e| e.pass == pass).map(|e| Arc::clone(&e.holder))
    }
}

/// An agent's call. It counts as under way until the last clone is dropped.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) holder: Arc<Holder>,
    _call: Arc<OwnedSemaphorePermit>,
}

impl Caller {
    /// Refuses what is said in the name of another agent. Earlier processes of the same agent are no others: it delivers
    /// what they left.
    pub(super) fn is(&self, agent: &str, message: &str) -> Result<(), Status> {
        let own = &self.holder;
        if own.agent.as_str() == agent {
            return Ok(());
        }
        Err(Status::permission_denied(format!(
            "{message}: agent {} may not speak for another agent",
            own.agent
        )))
    }
}

/// Who calls.
///
/// # Errors
/// When the call carries no pass.
pub(super) fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    let caller = request.extensions().get::<Caller>().cloned();
    caller.ok_or_else(|| Status::unauthenticated("this call wants the pass of a session; join first"))
}

/// Stands in front of a service.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) shared: Arc<Shared>,
    /// No call of this service is without a pass.
    pub(super) pass_required: bool,
}

impl Interceptor for Gate {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let guest = request.extensions().get::<Guest>().cloned();
        let admitted = self.has_token(&request).and_then(|()| {
            guest.iter().for_each(Guest::prove);
            self.has_pass(&mut request)
        });
        if let (Err(status), Some(guest)) = (&admitted, &guest) {
            guest.refuse();
            self.shared.turned_away(guest.peer(), status.message());
        }
        admitted.map(|()| request)
    }
}

impl Gate {
    fn has_token(&self, request: &Request<()>) -> Result<(), Status> {
        let Some(token) = &self.shared.token else { return Ok(()) };
        let given = request.metadata().get(TOKEN_METADATA).map(|v| v.as_bytes());
        // Hashes have the same length, so that not even that of the token shows.
        let shown = Digest::of(given.unwrap_or_default());
        if bool::from(shown.0.ct_eq(&token.0)) {
            return Ok(());
        }
        Err(Status::unauthenticated(match given {
            None => {
                "no join token: set PLIMSOLL_TOKEN or --token-file on the agent to what the coordinator has"
            }
            Some(_) => "the join token is wrong: compare PLIMSOLL_TOKEN or --token-file on both sides",
        }))
    }

    fn has_pass(&self, request: &mut Request<()>) -> Result<(), Status> {
        let Some(pass) = request.metadata().get(PASS_METADATA).map(|v| v.as_bytes()) else {
            return match self.pass_required {
                false => Ok(()),
                true => Err(Status::unauthenticated("this call wants the pass of a session; join first")),
            };
        };
        let holder = self.shared.passes.holder(pass);
        let holder = holder
            .ok_or_else(|| Status::unauthenticated("the pass is of no session (any more); join again"))?;
        let call = Arc::clone(&holder.calls).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "agent {} has {MAX_CALLS_PER_AGENT} calls under way, and more are not taken",
                holder.agent
            ))
        })?;
        request.extensions_mut().insert(Caller { holder, _call: Arc::new(call) });
        Ok(())
    }
}
