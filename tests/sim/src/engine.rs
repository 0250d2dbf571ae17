//! The engine: no sockets, no processor, only a time and an end that the request's position decides, and a ledger of
//! what it was sent.

use std::sync::Arc;

use agent::engine::{Engine, Outgoing, TrialClock};
use agent::load::lead::Lead;
use agent::load::pacer::Guard;
use agent::load::run::Pace;
use agent::load::trial::{Means, Paced, Setup, pace_by_task};
use agent::load::warmup::StageError;
use common::clock::Clock;
use common::fleet::Health;
use common::ids::{AgentName, Epoch, Nanos, TrialId};
use common::seed::Seed;
use common::trace::{
    Channel, Clocks, ContentEvent, Failure, FailureKind, Outcome, OutputTokens, TokenSource, Trace,
};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::ledger::{AgentDoing, Ledger, Sent};

/// Tokens of an answer.
const TOKENS: u64 = 5;

/// The engine as one agent's trial sees it.
pub struct VirtualEngine {
    ledger: Ledger,
    clock: TrialClock,
    agent: AgentName,
    trial: TrialId,
    epoch: Epoch,
}

/// How a request goes: to its first token, between tokens, and whether it ends well.
struct Course {
    first: Nanos,
    gap: Nanos,
    good: bool,
}

/// The same for the same position, whoever sends it and however often.
fn course(index: u64) -> Course {
    let mut random = Seed(index).stream("engine");
    let first = Nanos::from_millis(40 + random.below(400));
    Course { first, gap: Nanos::from_millis(5 + random.below(60)), good: random.below(25) > 0 }
}

impl VirtualEngine {
    fn note_outcome(&self, number: usize, outcome: &Outcome) {
        let name = match outcome {
            Outcome::Success => "success".to_owned(),
            Outcome::Failure(f) => f.kind.name().to_owned(),
        };
        self.ledger.facts().sent[number].outcome = Some(name);
    }
}

impl Engine for VirtualEngine {
    async fn send(&self, request: Outgoing, cancel: &mut watch::Receiver<bool>) -> Trace {
        let Outgoing { unsent, released, waited_for_permit, body } = request;
        let written = self.clock.now();
        let number = {
            let at_ns = self.ledger.now_ns();
            let mut facts = self.ledger.facts();
            facts.sent.push(Sent {
                at_ns,
                agent: self.agent.clone(),
                trial: self.trial,
                epoch: self.epoch,
                index: unsent.index.0,
                outcome: None,
            });
            facts.sent.len() - 1
        };
        let Course { first, gap, good } = course(unsent.index.0);
        let mut content = Vec::new();
        let answer = async {
            sleep(first.to_duration()).await;
            for _ in 0..if good { TOKENS } else { 1 } {
                content.push(ContentEvent { at: self.clock.now(), channel: Channel::Answer });
                sleep(gap.to_duration()).await;
            }
        };
        let outcome = tokio::select! {
            () = answer => match good {
                true => Outcome::Success,
                false => Outcome::Failure(Failure::new(FailureKind::TruncatedStream, "the engine ended the stream")),
            },
            _ = cancel.wait_for(|cut| *cut) => Outcome::Failure(Failure::new(FailureKind::Cancelled, "cut")),
        };
        let finished = self.clock.now();
        self.note_outcome(number, &outcome);
        let mut trace = Trace::unsent(unsent, Failure::new(FailureKind::NotDispatched, ""), finished);
        let (connected, headers) = (Some(released), content.first().map(|e: &ContentEvent| e.at));
        trace.clocks = Clocks {
            scheduled: unsent.scheduled,
            released: Some(released),
            connected,
            written: Some(written),
            headers,
            finished,
            content,
        };
        let facts = &mut trace.facts;
        facts.data_events = trace.clocks.content.len() as u32;
        facts.done_seen = outcome.is_success();
        facts.output_tokens =
            OutputTokens { count: Some(u64::from(facts.data_events)), source: TokenSource::Usage };
        facts.http_status = headers.map(|_| 200);
        facts.request_bytes = body.len() as u64;
        facts.waited_for_permit = waited_for_permit;
        facts.outcome = outcome;
        trace
    }
}

/// What a simulated trial is carried out with.
pub struct Virtual {
    /// Of what happens.
    pub ledger: Ledger,
    /// Whose it is.
    pub agent: AgentName,
    /// How long the warm-up takes.
    pub warm_up: Nanos,
}

impl Means for Virtual {
    type Engine = VirtualEngine;

    async fn prepare(&self, setup: &Setup, clock: &TrialClock) -> Result<Arc<VirtualEngine>, StageError> {
        self.ledger.agent(&self.agent, AgentDoing::Preparing);
        sleep(self.warm_up.to_duration()).await;
        self.ledger.agent(&self.agent, AgentDoing::Ready);
        let (trial, epoch) = (setup.order.trial, setup.order.epoch);
        let (ledger, clock, agent) = (self.ledger.clone(), clock.clone(), self.agent.clone());
        Ok(Arc::new(VirtualEngine { ledger, clock, agent, trial, epoch }))
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
        self.ledger.agent(&self.agent, AgentDoing::Sending);
        Ok(pace_by_task(start, instants, guard, clock, announce))
    }

    fn watch(&self, _: Nanos, _: &Arc<dyn Clock>) -> impl FnOnce(&dyn Clock) -> Health + Send {
        |_: &dyn Clock| Health { cores: 1, ..Health::default() }
    }
}
