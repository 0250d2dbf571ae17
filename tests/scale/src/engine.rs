//! The load of an agent that has none: every arrival has its trace at once, of the size of a real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent::engine::{Engine, Outgoing, TrialClock};
use agent::load::lead::Lead;
use agent::load::pacer::Guard;
use agent::load::run::Pace;
use agent::load::trial::{Means, Paced, Setup, pace_by_task};
use agent::load::warmup::StageError;
use agent::spool::Spool;
use common::clock::Clock;
use common::fleet::Health;
use common::ids::Nanos;
use common::seed::Seed;
use common::trace::{
    Channel, Clocks, ContentEvent, Failure, FailureKind, Outcome, OutputTokens, TokenSource, Trace,
};
use tokio::sync::{mpsc, watch};

/// Output is made of these. A real vocabulary compresses a little worse.
const WORDS: [&str; 32] = [
    " the", " load", " of", " a", " ship", " and", " its", " mark", " water", " line", " is", " cargo",
    " hull", " in", " safe", " to", " that", " when", " sea", " port", " it", " limit", " engine",
    " request", " queue", " batch", " under", " over", " token", " slow", " fast", ".",
];

/// Traces that may be on their way to the spool: well below what it takes before it loses some.
const AHEAD: u64 = 4_096;

/// What makes up traces.
pub struct MadeUp {
    clock: TrialClock,
    spool: Arc<Spool>,
    sent: AtomicU64,
    events: usize,
}

impl Engine for MadeUp {
    async fn send(&self, request: Outgoing, _: &mut watch::Receiver<bool>) -> Trace {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let durable = self.spool.durable();
        while number > durable.borrow().0 - self.spool.first().0 + AHEAD {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.trace(request)
    }
}

impl MadeUp {
    fn trace(&self, request: Outgoing) -> Trace {
        let Outgoing { unsent, released, waited_for_permit, body } = request;
        let mut random = Seed(unsent.index.0).stream("trace");
        let mut micros =
            |from: f64, spread: f64| Nanos(((from + spread * random.unit_exponential()) * 1e3) as u64);
        let written = released + micros(10.0, 5.0);
        let first = written + micros(20_000.0, 8_000.0);
        let mut at = first;
        let mut content = Vec::with_capacity(self.events);
        for _ in 0..self.events {
            content.push(ContentEvent { at, channel: Channel::Answer });
            at = at + micros(9_000.0, 1_000.0);
        }
        let mut trace = Trace::unsent(unsent, Failure::new(FailureKind::NotDispatched, ""), at);
        trace.clocks = Clocks {
            scheduled: unsent.scheduled,
            released: Some(released),
            connected: Some(released),
            written: Some(written),
            headers: Some(first),
            finished: at.max(self.clock.now()),
            content,
        };
        let tokens = self.events as u64;
        let facts = &mut trace.facts;
        facts.outcome = Outcome::Success;
        facts.output_tokens = OutputTokens { count: Some(tokens), source: TokenSource::Usage };
        facts.prompt_tokens = Some(100 + random.below(900));
        facts.data_events = self.events as u32 + 2;
        facts.finish_reason = Some("length".to_owned());
        facts.done_seen = true;
        facts.http_status = Some(200);
        facts.request_bytes = body.len() as u64;
        facts.response_bytes = 200 * tokens;
        facts.waited_for_permit = waited_for_permit;
        let words = (0..self.events).map(|_| WORDS[random.below(WORDS.len() as u64) as usize]);
        let output: String = words.collect();
        trace.text.output_chars = output.len() as u64;
        trace.text.output_hash = Some(format!("{:016x}", random.below(u64::MAX)));
        trace.text.output = Some(output);
        trace
    }
}

/// What such a trial is carried out with: traces of so many content events.
pub struct NoLoad(pub usize);

impl Means for NoLoad {
    type Engine = MadeUp;

    async fn prepare(&self, setup: &Setup, clock: &TrialClock) -> Result<Arc<MadeUp>, StageError> {
        let (clock, spool) = (clock.clone(), Arc::clone(setup.spool.spool()));
        Ok(Arc::new(MadeUp { clock, spool, sent: AtomicU64::new(0), events: self.0 }))
    }

    fn pace(
        &self,
        start: Nanos,
        instants: Vec<Nanos>,
        _: Arc<Lead>,
        guard: Arc<Guard>,
        clock: Arc<dyn Clock>,
        announce: mpsc::Sender<Pace>,
    ) -> std::io::Result<impl Future<Output = Paced> + Send> {
        Ok(pace_by_task(start, instants, guard, clock, announce))
    }

    fn watch(&self, _: Nanos, _: &Arc<dyn Clock>) -> impl FnOnce(&dyn Clock) -> Health + Send {
        |_: &dyn Clock| Health { cores: 1, ..Health::default() }
    }
}
