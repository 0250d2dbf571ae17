//! What the benches share: traces as a run leaves them, in blocks as an agent sends them, and CPU time.

use common::ids::{AgentName, ArrivalIndex, Epoch, Incarnation, Nanos, Seq, TrialId};
use common::seed::{Seed, Stream};
use common::trace::segment::{BLOCK_TRACES, Block, BlockOrigin};
use common::trace::{
    Channel, ContentEvent, Failure, FailureKind, ItlEvidence, Outcome, OutputTokens, TokenSource, Trace,
    Unsent,
};
use rustix::time::{ClockId, clock_gettime};

/// Content events and output tokens of a trace, where nothing else is asked for.
pub(crate) const TOKENS: usize = 64;

/// Arrivals a second.
pub(crate) const RATE: u64 = 1000;

/// The trial that every trace is of.
pub(crate) const TRIAL: TrialId = TrialId(0);

/// Under which it is stored.
pub(crate) const EPOCH: Epoch = Epoch(1);

/// Output is made of these. A real vocabulary compresses a little worse.
const WORDS: [&str; 32] = [
    " the", " load", " of", " a", " ship", " and", " its", " mark", " water", " line", " is", " cargo",
    " hull", " in", " safe", " to", " that", " when", " sea", " port", " it", " limit", " engine",
    " request", " queue", " batch", " under", " over", " token", " slow", " fast", ".",
];

/// One agent's traces, in order.
pub(crate) struct Agent {
    origin: BlockOrigin,
    random: Stream,
    /// Arrival of the next trace; every `step`-th is this agent's.
    next: u64,
    step: u64,
    seq: u64,
    tokens: usize,
}

impl Agent {
    /// The agent with this number of `agents`. It carries every `agents`-th arrival.
    pub(crate) fn new(number: u64, agents: u64, tokens: usize) -> anyhow::Result<Self> {
        let agent = name(number)?;
        let random = Seed(7).stream(agent.as_str());
        let origin = BlockOrigin { agent, incarnation: Incarnation(1), trial: TRIAL, epoch: EPOCH };
        Ok(Self { origin, random, next: number, step: agents, seq: 0, tokens })
    }

    /// Its next traces.
    pub(crate) fn traces(&mut self) -> Vec<Trace> {
        (0..BLOCK_TRACES).map(|_| self.trace()).collect()
    }

    /// The block of its next traces.
    pub(crate) fn block(&mut self, traces: &[Trace]) -> anyhow::Result<Block> {
        let block = Block::encode(&self.origin, Seq(self.seq), traces)?;
        self.seq += traces.len() as u64;
        Ok(block)
    }

    fn trace(&mut self) -> Trace {
        let tokens = self.tokens;
        let index = self.next;
        self.next += self.step;
        let random = &mut self.random;
        let mut micros =
            |from: f64, spread: f64| Nanos(((from + spread * random.unit_exponential()) * 1e3) as u64);
        let scheduled = Nanos(index * 1_000_000_000 / RATE);
        let released = scheduled + micros(5.0, 40.0);
        let written = released + micros(10.0, 5.0);
        let first = written + micros(20_000.0, 8_000.0);
        let mut at = first;
        let mut content = Vec::with_capacity(tokens);
        for _ in 0..tokens {
            content.push(ContentEvent { at, channel: Channel::Answer });
            at = at + micros(9_000.0, 1_000.0);
        }
        let unsent = Unsent {
            index: ArrivalIndex(index),
            scheduled,
            row: (index % 997) as u32,
            requested_tokens: tokens as u32,
            prompt_tokens: None,
        };
        let mut trace = Trace::unsent(unsent, Failure::new(FailureKind::NotDispatched, ""), at);
        trace.clocks.released = Some(released);
        trace.clocks.connected = Some(released);
        trace.clocks.written = Some(written);
        trace.clocks.headers = Some(first);
        trace.clocks.content = content;
        trace.facts.outcome = Outcome::Success;
        trace.facts.output_tokens = OutputTokens { count: Some(tokens as u64), source: TokenSource::Usage };
        trace.facts.prompt_tokens = Some(100 + random.below(900));
        trace.facts.itl_evidence = ItlEvidence::None;
        trace.facts.data_events = tokens as u32 + 2;
        trace.facts.finish_reason = Some("length".to_owned());
        trace.facts.done_seen = true;
        trace.facts.http_status = Some(200);
        trace.facts.request_bytes = 1800;
        trace.facts.response_bytes = 200 * tokens as u64;
        let words = (0..tokens).map(|_| WORDS[random.below(WORDS.len() as u64) as usize]);
        let output: String = words.collect();
        trace.text.output_chars = output.len() as u64;
        trace.text.output_hash = Some(format!("{:016x}", random.below(u64::MAX)));
        trace.text.output = Some(output);
        trace
    }
}

/// What agents are called.
pub(crate) fn name(number: u64) -> anyhow::Result<AgentName> {
    Ok(format!("agent-{number}").parse()?)
}

/// CPU seconds that this process has used.
pub(crate) fn cpu_seconds() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}
