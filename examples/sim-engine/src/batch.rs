//! Continuous batching: one loop, slots, a first-in-first-out queue, a bounded KV cache, a prefix cache.
//!
//! Owns the sequences in their slots, the queue and the iteration in flight. The loop does one thing at a time:
//! - a *prefill* takes the first waiting job into a free slot, lasts `prefill_base + tokens / prefill_rate` for the
//!   tokens that the prefix cache does not hold, and ends with that job's first token. Everybody else's decode stalls
//!   meanwhile, as in an engine that does not mix prefill into its decode steps;
//! - a *decode* step gives every running sequence one token and lasts `step + step_per_seq * batch`.
//!
//! A prefill goes first whenever a job waits, a slot is free and the KV cache has room. That is enough for a knee:
//! below it, load shows as slower steps; above it, the queue grows without end.
//!
//! A sequence holds its prompt and its generated tokens in the KV cache. When a decode step would need more than there
//! is, the youngest sequence is *preempted*, as in vLLM: it gives up what it holds, goes to the head of the queue, and
//! its prompt and tokens are prefilled again when there is room for them and for one step of everybody. The oldest is
//! never preempted, so something always gets done: a sequence alone may exceed the cache.
//!
//! Must never let an iteration start before the last one ended, nor a job join one that began before its arrival.

use std::collections::VecDeque;
use std::time::Duration;

use crate::engine::{Job, Output, QueueFull, SeqId, Stats};
use crate::prefix::PrefixCache;

/// What continuous batching costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchTiming {
    /// Sequences that run at once; at least 1.
    pub slots: usize,
    /// Sequences that may wait beyond those that find a free slot.
    pub max_queue: usize,
    /// Prompt tokens prefilled per second. Not positive: prefill costs its base only.
    pub prefill_rate: f64,
    /// Cost of a prefill whatever its length.
    pub prefill_base: Duration,
    /// Cost of a decode step whatever its batch.
    pub step: Duration,
    /// What each sequence in the batch adds to a decode step.
    pub step_per_seq: Duration,
    /// Tokens that the KV cache has room for; `None`: as many as the slots need.
    pub kv_tokens: Option<u32>,
    /// Tokens that the prefix cache has room for; 0: there is none.
    pub prefix_cache_tokens: u32,
}

impl BatchTiming {
    /// How long the prefill of so many tokens occupies the engine.
    #[must_use]
    pub fn prefill(&self, prompt_tokens: u32) -> Duration {
        let tokens = f64::from(prompt_tokens);
        let seconds = if self.prefill_rate > 0.0 { tokens / self.prefill_rate } else { 0.0 };
        let rest = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        self.prefill_base.saturating_add(rest)
    }

    /// How long a decode step of so many sequences takes.
    #[must_use]
    pub fn decode(&self, batch: usize) -> Duration {
        let sequences = u32::try_from(batch).unwrap_or(u32::MAX);
        self.step.saturating_add(self.step_per_seq.saturating_mul(sequences))
    }
}

/// A job and how far it has come.
#[derive(Debug)]
struct Sequence {
    job: Job,
    /// No prefill of it starts before.
    ready: Duration,
    generated: u32,
    /// What the prefix cache held of the prompt at its first prefill; `None` before that.
    cached: Option<u32>,
}

impl Sequence {
    /// Tokens that it holds, or would hold, in the KV cache.
    fn tokens(&self) -> u64 {
        u64::from(self.job.prompt_tokens) + u64::from(self.generated)
    }
}

#[derive(Debug)]
enum Work {
    /// `None` once the job was cancelled.
    Prefill(Option<Sequence>),
    Decode,
}

#[derive(Debug)]
struct Iteration {
    ends: Duration,
    work: Work,
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Batch {
    timing: BatchTiming,
    waiting: VecDeque<Sequence>,
    /// The oldest first.
    running: Vec<Sequence>,
    prefixes: PrefixCache,
    current: Option<Iteration>,
    /// When the last iteration ended: the next one starts no earlier.
    free_at: Duration,
    totals: Stats,
}

impl Batch {
    pub(crate) fn new(timing: BatchTiming) -> Self {
        Self {
            timing: BatchTiming { slots: timing.slots.max(1), ..timing },
            waiting: VecDeque::new(),
            running: Vec::new(),
            prefixes: PrefixCache::new(timing.prefix_cache_tokens),
            current: None,
            free_at: Duration::ZERO,
            totals: Stats::default(),
        }
    }

    pub(crate) fn submit(&mut self, arrival: Duration, job: Job) -> Result<(), QueueFull> {
        let free_slots = self.timing.slots.saturating_sub(self.slots_taken());
        if self.waiting.len() >= self.timing.max_queue.saturating_add(free_slots) {
            return Err(QueueFull { waiting: self.waiting.len() });
        }
        self.waiting.push_back(Sequence { job, ready: arrival, generated: 0, cached: None });
        if self.current.is_none() {
            self.start_next(self.free_at);
        }
        Ok(())
    }

    pub(crate) fn cancel(&mut self, id: SeqId) -> bool {
        if let Some(Iteration { work: Work::Prefill(slot), .. }) = &mut self.current
            && slot.take_if(|sequence| sequence.job.id == id).is_some()
        {
            return true;
        }
        if let Some(at) = self.running.iter().position(|sequence| sequence.job.id == id) {
            self.running.remove(at);
            return true;
        }
        let waiting = self.waiting.iter().position(|sequence| sequence.job.id == id);
        waiting.is_some_and(|at| self.waiting.remove(at).is_some())
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.current.as_ref().map(|iteration| iteration.ends)
    }

    pub(crate) fn on_time(&mut self, now: Duration) -> Vec<Output> {
        let mut outputs = Vec::new();
        while let Some(iteration) = self.current.take_if(|iteration| iteration.ends <= now) {
            match iteration.work {
                Work::Prefill(Some(sequence)) => {
                    if sequence.generated == 0 {
                        self.totals.prompt_tokens_total += u64::from(sequence.job.prompt_tokens);
                    }
                    self.prefixes.insert(&sequence.job.blocks);
                    self.running.push(sequence);
                    let newest = self.running.len() - 1;
                    self.hand_out(newest, iteration.ends, &mut outputs);
                }
                Work::Prefill(None) => {}
                Work::Decode => self.hand_out(0, iteration.ends, &mut outputs),
            }
            self.free_at = iteration.ends;
            self.start_next(iteration.ends);
        }
        outputs
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            running: self.slots_taken(),
            waiting: self.waiting.len(),
            kv_tokens: self.held() + self.prefilling().map_or(0, Sequence::tokens),
            kv_capacity: self.timing.kv_tokens.map_or(0, u64::from),
            ..self.totals
        }
    }

    fn prefilling(&self) -> Option<&Sequence> {
        match &self.current {
            Some(Iteration { work: Work::Prefill(sequence), .. }) => sequence.as_ref(),
            _ => None,
        }
    }

    fn slots_taken(&self) -> usize {
        self.running.len() + usize::from(self.prefilling().is_some())
    }

    fn held(&self) -> u64 {
        self.running.iter().map(Sequence::tokens).sum()
    }

    /// Whether the KV cache has room for so many tokens more than the running sequences hold.
    fn has_room(&self, more: u64) -> bool {
        self.timing.kv_tokens.is_none_or(|room| self.held() + more <= u64::from(room))
    }

    /// One token for each running sequence from the `first` on; those that are done leave.
    fn hand_out(&mut self, first: usize, at: Duration, outputs: &mut Vec<Output>) {
        let done = |sequence: &Sequence| sequence.generated >= sequence.job.output_tokens;
        for sequence in &mut self.running[first..] {
            sequence.generated += 1;
            let cached_tokens = sequence.cached.unwrap_or(0);
            outputs.push(Output {
                id: sequence.job.id,
                at,
                tokens: 1,
                finished: done(sequence),
                cached_tokens,
            });
        }
        self.totals.generation_tokens_total += (self.running.len() - first) as u64;
        self.running.retain(|sequence| !done(sequence));
    }

    /// Begins the iteration that follows an engine free at `at`; leaves `current` empty when there is no work.
    fn start_next(&mut self, at: Duration) {
        let slot_free = self.running.len() < self.timing.slots;
        // Room for the prompt, its first token, and then a step of everybody: without that the newcomer would be
        // preempted at once, and again for ever.
        let step = self.running.len() as u64 + 1;
        let may_prefill = |next: &Sequence| {
            self.running.is_empty() || next.ready <= at && self.has_room(next.tokens() + 1 + step)
        };
        if slot_free && self.waiting.front().is_some_and(may_prefill) {
            if let Some(sequence) = self.waiting.pop_front() {
                self.start_prefill(at, sequence);
            }
        } else if !self.running.is_empty() {
            self.make_room_for_a_step(at);
            let ends = at.saturating_add(self.timing.decode(self.running.len()));
            self.current = Some(Iteration { ends, work: Work::Decode });
        }
    }

    fn start_prefill(&mut self, at: Duration, mut sequence: Sequence) {
        let prompt = sequence.job.prompt_tokens;
        let hit = self.prefixes.hit(&sequence.job.blocks, prompt);
        // A recomputation is no query: a client would see its prompt counted twice.
        if sequence.cached.is_none() && self.prefixes.is_on() {
            self.totals.prefix_queries_total += u64::from(prompt);
            self.totals.prefix_hits_total += u64::from(hit);
        }
        sequence.cached.get_or_insert(hit);
        let tokens = prompt.saturating_sub(hit).saturating_add(sequence.generated);
        let ends = at.max(sequence.ready).saturating_add(self.timing.prefill(tokens));
        self.current = Some(Iteration { ends, work: Work::Prefill(Some(sequence)) });
    }

    fn make_room_for_a_step(&mut self, at: Duration) {
        while self.running.len() > 1
            && !self.has_room(self.running.len() as u64)
            && let Some(youngest) = self.running.pop()
        {
            self.totals.preemptions_total += 1;
            self.waiting.push_front(Sequence { ready: at, ..youngest });
        }
    }
}
