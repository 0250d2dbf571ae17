//! Fixed delays: every request is answered on its own, as if the engine had no limits.
//!
//! Owns the sequences in flight and their next instants. It exists for exactness tests: the first token is due
//! exactly `ttft` after the arrival and each next one exactly `itl` later, so whatever a load generator reports
//! beyond that is its own error (or the machine's). Must never let one sequence's timing depend on another's.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use crate::engine::{Job, Output, SeqId, Stats};

/// The delays of the fixed mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedTiming {
    /// From the arrival to the first token.
    pub ttft: Duration,
    /// From one token to the next. Zero: all tokens come with the first.
    pub itl: Duration,
}

#[derive(Debug)]
struct Sequence {
    prompt_tokens: u32,
    started: bool,
    left: u32,
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Fixed {
    timing: FixedTiming,
    sequences: HashMap<SeqId, Sequence>,
    /// Next instants; entries of cancelled sequences stay until they are due.
    due: BinaryHeap<Reverse<(Duration, SeqId)>>,
    prompt_tokens_total: u64,
    generation_tokens_total: u64,
}

impl Fixed {
    pub(crate) fn new(timing: FixedTiming) -> Self {
        Self {
            timing,
            sequences: HashMap::new(),
            due: BinaryHeap::new(),
            prompt_tokens_total: 0,
            generation_tokens_total: 0,
        }
    }

    pub(crate) fn submit(&mut self, arrival: Duration, job: Job) {
        let Job { id, prompt_tokens, output_tokens: left, .. } = job;
        self.sequences.insert(id, Sequence { prompt_tokens, started: false, left });
        self.due.push(Reverse((arrival.saturating_add(self.timing.ttft), id)));
    }

    pub(crate) fn cancel(&mut self, id: SeqId) -> bool {
        self.sequences.remove(&id).is_some()
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    pub(crate) fn on_time(&mut self, now: Duration) -> Vec<Output> {
        let mut outputs = Vec::new();
        while let Some(&Reverse((at, id))) = self.due.peek()
            && at <= now
        {
            self.due.pop();
            let Some(sequence) = self.sequences.get_mut(&id) else { continue };
            if !sequence.started {
                sequence.started = true;
                self.prompt_tokens_total += u64::from(sequence.prompt_tokens);
            }
            let tokens = if self.timing.itl.is_zero() { sequence.left } else { 1 };
            sequence.left -= tokens;
            let finished = sequence.left == 0;
            self.generation_tokens_total += u64::from(tokens);
            outputs.push(Output { id, at, tokens, finished, cached_tokens: 0 });
            if finished {
                self.sequences.remove(&id);
            } else {
                self.due.push(Reverse((at.saturating_add(self.timing.itl), id)));
            }
        }
        outputs
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            running: self.sequences.len(),
            waiting: 0,
            prompt_tokens_total: self.prompt_tokens_total,
            generation_tokens_total: self.generation_tokens_total,
            ..Stats::default()
        }
    }
}
