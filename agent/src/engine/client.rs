//! Sends requests to one engine: an arrival goes in, exactly one trace comes out.
//!
//! One request is one future that owns its connection from start to end. It never retries, but for the one
//! replacement of a connection that the engine closed while it was idle.
//!
//! Guarded by failures, connections and stamps in `tests/engine/`.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use common::dialect::Answer;
use common::ids::{AgentName, ArrivalIndex, Nanos, RunId};
use common::plan::{Scheme, Target};
use common::trace::{Failure, FailureKind, Trace, Unsent};
use http::Method;
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::access::Access;
use super::allowed::NotAllowed;
use super::connection::{Broken, Connection, Step};
use super::exchange::{Ended, Exchange, interrupted};
use super::faults;
use super::http::Heard;
use super::pool::Pool;
use super::requests::{self, HeadTemplate};
use super::secret::Secret;
use super::stream::{BodyEnd, Rules, Stream};
use super::tls::{Session, TlsError};
use super::trial_clock::TrialClock;

/// Connections that are opened at the same time while warming: more would overflow an engine's accept queue.
const WARM_AT_ONCE: usize = 64;
/// For what is not measured.
const GET_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer to it: an engine's metrics are a few hundred kilobytes, and as JSON in memory it is up to sixteen
/// times as much.
const MAX_GET_BYTES: usize = 2 << 20;
/// What the socket may bring with it: framing.
const MAX_GET_OVERHEAD: u64 = 1 << 20;
/// What is kept of a `Server` header.
const MAX_SERVER_BYTES: usize = 256;

/// Everything about a client but time.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The engine and how it is asked.
    pub target: Target,
    /// Read by this agent from its own host; never from the plan.
    pub access: Access,
    /// Sent as `x-plimsoll-agent`.
    pub agent: AgentName,
    /// First part of `x-request-id`.
    pub run: RunId,
    /// Second part of `x-request-id`.
    pub trial: String,
}

/// Why a client cannot be made. Nothing has been sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The base URL's path cannot stand in a request line.
    #[error("the path {0:?} cannot be requested; check --base-url")]
    Path(String),
    /// A header that HTTP does not allow.
    #[error("--header {0:?} is not a valid header name, or its value has control characters")]
    Header(String),
    /// A header that is not the user's to set.
    #[error("--header {0:?} is set by plimsoll; remove it")]
    ReservedHeader(String),
    /// The key itself must not be shown.
    #[error("the API key has characters that a header cannot carry; check the key file or OPENAI_API_KEY")]
    ApiKey,
    /// A name that ends up in a header.
    #[error("the {0} has characters that a header cannot carry")]
    Value(&'static str),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The plan names an engine that this agent is not to be sent to.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
}

/// An arrival that is ready to be sent.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// What is known of the arrival.
    pub unsent: Unsent,
    /// When it was ready to be sent, since the trial's start.
    pub released: Nanos,
    /// It waited for a permit of the concurrency limit.
    pub waited_for_permit: bool,
    /// The row's body, from [`super::Requests::body`].
    pub body: Bytes,
}

/// Whatever turns an arrival into its trace.
pub trait Engine: Send + Sync + 'static {
    /// Sends one arrival and reads its answer to the end. Gives exactly one trace, whatever happens; soon after `cancel`
    /// becomes true.
    fn send(
        &self,
        request: Outgoing,
        cancel: &mut watch::Receiver<bool>,
    ) -> impl Future<Output = Trace> + Send;
}

impl Engine for Client {
    async fn send(&self, request: Outgoing, cancel: &mut watch::Receiver<bool>) -> Trace {
        Self::send(self, request, cancel).await
    }
}

/// Sends requests to one engine and keeps the connections to it. Clones share them.
///
/// Futures of its methods are `Send`, and are meant to run on one thread: nothing in them waits for another task.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    target: Target,
    api_key: Option<Secret>,
    /// Of an https engine.
    tls: Option<Session>,
    rules: Rules,
    head: HeadTemplate,
    clock: TrialClock,
    pool: Pool,
    /// Looked up once: a name server must not be part of what is measured.
    addresses: OnceCell<Vec<SocketAddr>>,
    /// The address that last answered.
    preferred: AtomicUsize,
}

impl Client {
    /// A client without connections yet.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(config: ClientConfig, clock: TrialClock) -> Result<Self, ConfigError> {
        let ClientConfig { target, access, agent, run, trial } = config;
        let Access { api_key, tls, allowed } = access;
        // Here, for there is no other way to an engine, and first, for nothing is to be asked about another one.
        allowed.check(&target)?;
        let tls = match target.base_url.scheme() {
            Scheme::Http => None,
            Scheme::Https => Some(tls.session(&target.base_url)?),
        };
        let head = HeadTemplate::new(&target, api_key.as_ref(), &agent, &run, &trial)?;
        Ok(Self(Arc::new(Inner {
            rules: Rules::of(&target),
            target,
            api_key,
            tls,
            head,
            clock,
            pool: Pool::default(),
            addresses: OnceCell::new(),
            preferred: AtomicUsize::new(0),
        })))
    }

    /// Opens connections until `n` are idle; says how many are: fewer than `n` where some could not be opened.
    ///
    /// # Errors
    /// The first failure, when not even one connection is there.
    pub async fn warm(&self, n: usize) -> Result<usize, Failure> {
        let mut opening = JoinSet::new();
        let mut failure = None;
        let mut missing = n.saturating_sub(self.0.pool.len());
        loop {
            while missing > 0 && opening.len() < WARM_AT_ONCE && failure.is_none() {
                missing -= 1;
                let inner = Arc::clone(&self.0);
                opening.spawn(async move { inner.connect().await.map(|c| inner.pool.give_back(c)) });
            }
            match opening.join_next().await {
                None => break,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(e))) => failure = failure.or(Some(e)),
                // Only when the runtime is going down.
                Some(Err(_)) => failure = failure.or_else(|| Some(faults::cancelled())),
            }
        }
        match (self.0.pool.len(), failure) {
            (0, Some(failure)) => Err(failure),
            (idle, _) => Ok(idle),
        }
    }

    /// Sends one arrival and reads its answer to the end. Always gives exactly one trace, whatever happens.
    ///
    /// The future is the request: dropping it closes the connection and leaves no trace, so let it end, or cancel it.
    pub async fn send(&self, request: Outgoing, cancel: &mut watch::Receiver<bool>) -> Trace {
        let inner = &*self.0;
        let Outgoing { unsent, released, waited_for_permit, body } = request;
        let mut stream = Stream::new(inner.rules, unsent, released, waited_for_permit, body.len() as u64);
        let interrupt = pin!(interrupted(cancel));
        let mut exchange = Exchange { clock: &inner.clock, stream: &mut stream, interrupt };
        if let Err(failure) = inner.carry(&mut exchange, released, unsent.index, body).await {
            stream.fail(inner.clock.now(), failure);
        }
        stream.finish(inner.api_key.as_ref())
    }

    /// The answer to a GET of `path`, for what is not measured, such as `/v1/models`.
    ///
    /// # Errors
    /// When no whole answer of at most 2 MiB came within 10 s.
    pub async fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(Method::GET, path).await
    }

    /// The answer to a POST without a body.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn post(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(Method::POST, path).await
    }

    async fn ask(&self, method: Method, path: &str) -> Result<Answer, Failure> {
        let inner = &*self.0;
        let request = requests::bare(&inner.target, inner.api_key.as_ref(), &method, path)
            .map_err(|e| Failure::new(FailureKind::NotDispatched, e.to_string()))?;
        let mut connection = inner.connect().await?;
        connection.begin(request);
        let mut answer = Asked::default();
        let whole = poll_fn(|cx| {
            loop {
                connection.poll_write(cx);
                let step = connection.poll_read(cx, |_, _, heard| answer.hear(&heard));
                answer.weigh(connection.meter().received());
                if let Some(failure) = answer.failed.take() {
                    return Poll::Ready(Err(failure));
                }
                if connection.is_endless() {
                    return Poll::Ready(Err(connection.before_head(&Broken::Endless)));
                }
                match ready!(step) {
                    Step::More => {}
                    Step::End => return Poll::Ready(Ok(())),
                    Step::Broken(broken) if !connection.has_head() => {
                        return Poll::Ready(Err(connection.before_head(&broken)));
                    }
                    Step::Broken(broken) => {
                        return Poll::Ready(Err(match faults::in_body(&broken) {
                            BodyEnd::Broken(failure) => failure,
                            _ => Failure::new(FailureKind::TruncatedStream, "the answer is cut"),
                        }));
                    }
                }
            }
        });
        let late = |_| {
            Failure::new(FailureKind::TimeoutTotal, format!("no answer within {} s", GET_TIMEOUT.as_secs()))
        };
        timeout(GET_TIMEOUT, whole).await.map_err(late)??;
        Ok(answer.answer)
    }
}

/// The answer to what is not measured, as far as it has come.
struct Asked {
    answer: Answer,
    failed: Option<Failure>,
}

impl Default for Asked {
    fn default() -> Self {
        Self { answer: Answer { status: 0, server: None, body: Vec::new() }, failed: None }
    }
}

impl Asked {
    fn hear(&mut self, heard: &Heard<'_>) {
        match heard {
            Heard::Head(head) => {
                self.answer.status = head.status;
                let server = head.header("server").and_then(|s| std::str::from_utf8(s).ok());
                self.answer.server = server.map(|s| s.chars().take(MAX_SERVER_BYTES).collect());
                self.failed = head.coding().map(|coding| faults::coded(&coding));
            }
            Heard::Body(bytes) if self.answer.body.len() + bytes.len() > MAX_GET_BYTES => {
                let message = format!("the answer is longer than {} MiB", MAX_GET_BYTES >> 20);
                self.failed = Some(Failure::new(FailureKind::MalformedStream, message));
            }
            Heard::Body(bytes) => self.answer.body.extend_from_slice(bytes),
        }
    }

    /// What the socket brought for it must be about what it is. Before a head the connection has a bound of its own.
    fn weigh(&mut self, received: u64) {
        if self.answer.status == 0 || self.failed.is_some() {
            return;
        }
        if received.saturating_sub(self.answer.body.len() as u64) > MAX_GET_OVERHEAD {
            let message = "the answer is more framing than answer";
            self.failed = Some(Failure::new(FailureKind::MalformedStream, message));
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("target", &self.0.target.base_url).finish_non_exhaustive()
    }
}

impl Inner {
    /// From a connection to a verdict. An error is the verdict, before anything was sent.
    async fn carry<I>(
        &self,
        exchange: &mut Exchange<'_, I>,
        released: Nanos,
        index: ArrivalIndex,
        body: Bytes,
    ) -> Result<(), Failure>
    where
        I: Future<Output = ()>,
    {
        if let Some(mut idle) = self.pool.take() {
            if poll_fn(|cx| Poll::Ready(idle.poll_usable(cx))).await {
                exchange.stream.on_connected(released);
                let request = self.head.request(index, body.clone());
                if let Ended::Over(connection) = exchange.run(idle, request, true).await {
                    self.keep(connection);
                    return Ok(());
                }
            }
            exchange.stream.on_reconnection();
        }
        let fresh = tokio::select! {
            biased;
            connection = self.connect() => connection?,
            () = &mut exchange.interrupt => return Err(faults::cancelled()),
        };
        exchange.stream.on_connected(self.clock.now());
        if let Ended::Over(connection) = exchange.run(fresh, self.head.request(index, body), false).await {
            self.keep(connection);
        }
        Ok(())
    }

    fn keep(&self, connection: Option<Connection>) {
        if let Some(connection) = connection {
            self.pool.give_back(connection);
        }
    }

    /// A fresh connection to the first address that gives one, the one that last did before the others.
    async fn connect(&self) -> Result<Connection, Failure> {
        let limit = self.target.connect_timeout.to_duration();
        let (host, port) = (self.target.base_url.host(), self.target.base_url.port());
        let late = || {
            let message = format!("connect to {host}:{port}: no connection within {} s", limit.as_secs_f64());
            Failure::new(FailureKind::Connect, message)
        };
        let lookup = self.addresses.get_or_try_init(|| async {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
            if found.is_empty() { Err(std::io::Error::other("the name has no address")) } else { Ok(found) }
        });
        let addresses = timeout(limit, lookup).await.map_err(|_| late())?;
        let addresses = addresses.map_err(|e| faults::connect(format_args!("{host}:{port}"), &e))?;
        let first = self.preferred.load(Ordering::Relaxed);
        let mut failure = None;
        for offset in 0..addresses.len() {
            let which = (first + offset) % addresses.len();
            // An address that swallows packets leaves the others their share of the time.
            let share = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
            let until = Instant::now() + share;
            let opened = match timeout_at(until, Connection::socket(addresses[which])).await {
                Ok(Ok(socket)) => self.speak(socket, until, limit).await,
                Ok(Err(e)) => Err(e),
                Err(_) => Err(failure.take().unwrap_or_else(late)),
            };
            match opened {
                Ok(connection) => {
                    self.preferred.store(which, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(e) if e.kind == FailureKind::LocalLimit => return Err(e),
                Err(e) => failure = Some(e),
            }
        }
        Err(failure.unwrap_or_else(late))
    }

    /// HTTP over a socket, inside TLS where the engine is an https one.
    async fn speak(&self, socket: TcpStream, until: Instant, limit: Duration) -> Result<Connection, Failure> {
        let Some(session) = &self.tls else { return Ok(Connection::plain(socket, &self.clock)) };
        let shaken = timeout_at(until, Connection::inside_tls(socket, session, &self.clock)).await;
        shaken.unwrap_or_else(|_| Err(session.late(limit.as_secs_f64())))
    }
}
