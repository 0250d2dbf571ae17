//! The loop of one observation.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use common::clock::Clock;
use common::fleet::Observation;
use common::ids::{AgentName, Incarnation, Nanos, Seq};
use common::offset::Estimate;
use common::plan::{BaseUrl, Target};
use common::telemetry::series::{self, Frame};
use common::telemetry::{ClockSample, Event, EventKind, Record};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, Timeout, interval, timeout};

use super::engine::Page;
use super::gpus::EngineRoot;
use super::host::{HostLook, tree};
use crate::engine::Access;
use crate::{launch, probe};

/// Between two tries to find the engine's process.
const SEEK_EVERY: Nanos = Nanos::from_secs(10);
/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// The engine's metrics are waited for this long: what comes later belongs to the next look.
const SCRAPE: Duration = Duration::from_millis(900);
/// The coordinator's answer is waited for this long; then the same is sent again, which does no harm.
const ANSWER: Duration = Duration::from_secs(10);
/// Frames that wait for the network, one a second: what is older is dropped.
const KEPT: usize = 900;
/// Frames of one call.
const AT_ONCE: usize = 60;

/// What an observation works with.
pub struct Means {
    /// This agent.
    pub agent: AgentName,
    /// Its process.
    pub incarnation: Incarnation,
    /// What this agent brings to the engine.
    pub access: Access,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The coordinator's clock, as far as it is known.
    pub offset: Box<dyn Fn() -> Option<Estimate> + Send + Sync>,
    /// The first process of the engine that this agent launches, while there is one; none when it launches none.
    pub launched: Option<watch::Receiver<Option<i32>>>,
    /// Where it is kept who the engine is.
    pub root: EngineRoot,
    /// What the GPUs' sampler has recorded since the last call.
    pub gpus: Box<dyn Fn() -> Vec<Record> + Send + Sync>,
    /// Records that come before all others.
    pub first: Vec<Record>,
}

/// Records until it is dropped. `send` gives frames to the coordinator and says below which number they are kept;
/// `next` is the number of the next record of this process. A call that hangs holds up no look.
pub async fn observe<S, F>(what: Observation, means: Means, next: &mut Seq, mut send: S)
where
    S: FnMut(Vec<Vec<u8>>) -> F,
    F: Future<Output = Result<Seq, String>>,
{
    let mut pulse = interval(EVERY);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut look = Look::new(what, means);
    let mut waiting = Waiting::default();
    // At most one call is under way.
    let mut sending = None;
    loop {
        tokio::select! {
            answer = answer(&mut sending), if sending.is_some() => {
                sending = None;
                waiting.sent(answer);
            }
            _ = pulse.tick() => {
                let mut records = look.records().await;
                records.extend(waiting.lost(&look));
                waiting.add(&look.means, records, next);
                sending = sending.or_else(|| Some(Box::pin(timeout(ANSWER, send(waiting.batch())))));
            }
        }
    }
}

type Answer = Result<Seq, String>;

async fn answer<F: Future<Output = Answer>>(sending: &mut Option<Pin<Box<Timeout<F>>>>) -> Answer {
    match sending {
        Some(call) => match call.await {
            Ok(answer) => answer,
            Err(_) => Err(format!("the coordinator does not answer within {} s", ANSWER.as_secs())),
        },
        None => std::future::pending().await,
    }
}

/// Frames that are not known to be kept.
#[derive(Default)]
struct Waiting {
    /// Each with the number of the record after it.
    frames: VecDeque<(Seq, Vec<u8>)>,
    dropped: bool,
    /// Why the last call failed, when it did.
    told: String,
}

impl Waiting {
    /// Whether something was dropped since the last time.
    fn lost(&mut self, look: &Look) -> Option<Record> {
        let dropped = std::mem::take(&mut self.dropped);
        dropped.then(|| look.event(EventKind::Dropped, "records of some seconds could not be sent in time"))
    }

    fn add(&mut self, means: &Means, records: Vec<Record>, next: &mut Seq) {
        let frame =
            Frame { agent: means.agent.clone(), incarnation: means.incarnation, first_seq: *next, records };
        match series::encode(&frame) {
            Ok(bytes) => {
                *next = frame.next_seq();
                self.frames.push_back((*next, bytes));
            }
            Err(e) => tracing::warn!("a second of telemetry is lost: {e}"),
        }
        while self.frames.len() > KEPT {
            self.frames.pop_front();
            self.dropped = true;
        }
    }

    fn batch(&self) -> Vec<Vec<u8>> {
        self.frames.iter().take(AT_ONCE).map(|(_, bytes)| bytes.clone()).collect()
    }

    fn sent(&mut self, answer: Answer) {
        match answer {
            Ok(up_to) => {
                self.frames.retain(|(end, _)| *end > up_to);
                self.told.clear();
            }
            // The same reason every second would bury everything else.
            Err(reason) if reason != self.told => {
                tracing::warn!("telemetry waits here: {reason}");
                self.told = reason;
            }
            Err(_) => {}
        }
    }
}

/// One look after the other.
struct Look {
    means: Means,
    /// None while a look is under way.
    host: Option<HostLook>,
    /// Where the engine is.
    engine: Option<BaseUrl>,
    /// When its process was last looked for.
    sought: Option<Nanos>,
    /// The engine whose metrics are read.
    metrics: Option<Target>,
    find_dialect: bool,
    /// The engine's metrics could be read the last time.
    readable: bool,
}

impl Look {
    fn new(what: Observation, means: Means) -> Self {
        // What this agent is not to be sent to is not looked for either: that would ask the resolver.
        let allowed = |target: &&Target| means.access.allowed.check(target).is_ok();
        let engine = what.engine.as_ref().filter(allowed).map(|target| target.base_url.clone());
        let metrics = what.engine.filter(|_| what.metrics);
        Self {
            means,
            engine,
            sought: None,
            host: Some(HostLook::default()),
            metrics,
            find_dialect: what.find_dialect,
            readable: true,
        }
    }

    async fn records(&mut self) -> Vec<Record> {
        let mut records = std::mem::take(&mut self.means.first);
        records.extend((self.means.gpus)());
        records.extend((self.means.offset)().map(|estimate| {
            Record::Clock(ClockSample {
                at: self.means.clock.monotonic(),
                offset_ns: estimate.offset_ns,
                bound_ns: estimate.bound_ns,
            })
        }));
        self.find_dialect().await;
        let find = self.find();
        let host = self.host(find);
        let engine = self.engine();
        let (host, engine) = tokio::join!(host, engine);
        self.host = host.as_ref().map(|(look, _)| look.clone());
        records.extend(host.map(|(_, sample)| Record::Host(sample)));
        match engine {
            None => {}
            Some(Ok(sample)) => {
                if !std::mem::replace(&mut self.readable, true) {
                    records.push(self.event(EventKind::Metrics, "the engine's metrics can be read again"));
                }
                records.push(Record::Engine(sample));
            }
            Some(Err(why)) if std::mem::replace(&mut self.readable, false) => {
                let message = format!("the engine's metrics cannot be read: {why}");
                records.push(self.event(EventKind::Metrics, &message));
            }
            Some(Err(_)) => {}
        }
        records
    }

    /// Which engine it is, until that is known.
    async fn find_dialect(&mut self) {
        let Some(target) = self.metrics.as_mut().filter(|_| self.find_dialect) else { return };
        let Means { agent, access, clock, .. } = &self.means;
        let asked = probe::dialect(target, agent.clone(), access.clone(), Arc::clone(clock));
        // An engine that is not there yet is asked again.
        if let Ok(Ok(dialect)) = timeout(SCRAPE, asked).await {
            (target.dialect, self.find_dialect) = (dialect, false);
        }
    }

    fn event(&self, kind: EventKind, message: &str) -> Record {
        let at = self.means.clock.monotonic();
        Record::Event(Event { at, gpu: None, kind, code: None, message: message.to_owned() })
    }

    /// Where to look for the engine's process, when it is time to: not every second, for a resolver may be asked.
    fn find(&mut self) -> Option<BaseUrl> {
        let now = self.means.clock.monotonic();
        let due = self.sought.is_none_or(|at| now - at >= SEEK_EVERY);
        let unknown = self.means.launched.is_none() && self.means.root.get().is_none();
        let url = self.engine.clone().filter(|_| due && unknown)?;
        self.sought = Some(now);
        Some(url)
    }

    /// Looking through `/proc` takes milliseconds where there are many processes: not on this thread.
    async fn host(&self, find: Option<BaseUrl>) -> Option<(HostLook, common::telemetry::HostSample)> {
        let mut look = self.host.clone().unwrap_or_default();
        let (root, clock) = (self.means.root.clone(), Arc::clone(&self.means.clock));
        if let Some(launched) = &self.means.launched {
            root.set(*launched.borrow());
        }
        let launched = self.means.launched.is_some();
        let work = move || {
            // It may begin later than the recording.
            if let Some(url) = find {
                root.set(launch::listener(&url));
            }
            let pids = root.get().map(tree);
            if !launched && pids.as_ref().is_some_and(Vec::is_empty) {
                // It has ended; another may take its place.
                root.set(None);
            }
            let sample = look.sample(clock.monotonic(), pids.as_deref());
            (look, sample)
        };
        tokio::task::spawn_blocking(work).await.ok()
    }

    async fn engine(&self) -> Option<Result<common::telemetry::EngineSample, String>> {
        let target = self.metrics.as_ref()?;
        let Some(metrics) = target.dialect.traits().metrics else {
            return Some(Err(format!("none are known of an engine of dialect {}", target.dialect)));
        };
        let clock = &self.means.clock;
        let before = clock.monotonic();
        let read = match timeout(SCRAPE, self.pages(target, metrics.path)).await {
            Ok(read) => read,
            Err(_) => return Some(Err(format!("no answer within {} ms", SCRAPE.as_millis()))),
        };
        // The middle of the call is nearest to when the engine looked at its counters.
        let at = Nanos(before.0 / 2 + clock.monotonic().0 / 2);
        Some(read.map(|pages| Page::read(&pages).sample(&metrics, at)))
    }

    /// What every engine of the target says, one after the other. Together it is one page: its values are summed over
    /// their labels, and over the engines by that. An engine that does not answer leaves no sum.
    async fn pages(&self, target: &Target, path: &str) -> Result<Vec<u8>, String> {
        let Means { agent, access, clock, .. } = &self.means;
        let mut asked = JoinSet::new();
        for url in target.engines() {
            let (engine, path) = (target.at(url), path.to_owned());
            let (agent, access, clock) = (agent.clone(), access.clone(), Arc::clone(clock));
            asked.spawn(async move {
                let answer = probe::get(&engine, &path, agent, access, clock).await;
                let page = answer.and_then(|answer| match answer.status {
                    200 => Ok(answer.body),
                    status => Err(format!("GET {path}: status {status}")),
                });
                page.map_err(|why| (engine.base_url, why))
            });
        }
        let mut pages = Vec::new();
        while let Some(page) = asked.join_next().await {
            let page = page.map_err(|e| e.to_string())?;
            pages.extend(page.map_err(|(url, why)| {
                if target.replicas.is_empty() { why } else { format!("{url}: {why}") }
            })?);
            pages.push(b'\n');
        }
        Ok(pages)
    }
}
