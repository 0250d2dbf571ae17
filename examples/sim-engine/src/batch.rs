//! Continuous batching: one loop, slots, a first-in-first-out queue.
//!
//! Owns the sequences in their slots, the queue and the iteration in flight. The loop does one thing at a time:
//! - a *prefill* takes the first waiting job into a free slot, lasts `prefill_base + prompt_tokens / prefill_rate`,
//!   and ends with that job's first token. Everybody else's decode stalls meanwhile, as in an engine that does not
//!   mix prefill into its decode steps;
//! - a *decode* step gives every running sequence one token and lasts `step + step_per_seq * batch`.
//!
//! A prefill goes first whenever a job waits and a slot is free. That is enough for a knee: below it, load shows
//! as slower steps; above it, the queue grows without end.
//!
//! Must never let an iteration start before the last one ended, nor a job join one that began before its arrival.

use std::collections::VecDeque;
use std::time::Duration;

use crate::engine::{Job, Output, QueueFull, SeqId, Stats};

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

#[derive(Debug)]
struct Waiting {
    arrival: Duration,
    job: Job,
}

#[derive(Debug)]
struct Running {
    id: SeqId,
    left: u32,
}

#[derive(Debug)]
enum Work {
    /// `None` once the job was cancelled.
    Prefill(Option<Job>),
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
    waiting: VecDeque<Waiting>,
    running: Vec<Running>,
    current: Option<Iteration>,
    /// When the last iteration ended: the next one starts no earlier.
    free_at: Duration,
    prompt_tokens_total: u64,
    generation_tokens_total: u64,
}

impl Batch {
    pub(crate) fn new(timing: BatchTiming) -> Self {
        Self {
            timing: BatchTiming { slots: timing.slots.max(1), ..timing },
            waiting: VecDeque::new(),
            running: Vec::new(),
            current: None,
            free_at: Duration::ZERO,
            prompt_tokens_total: 0,
            generation_tokens_total: 0,
        }
    }

    pub(crate) fn submit(&mut self, arrival: Duration, job: Job) -> Result<(), QueueFull> {
        let free_slots = self.timing.slots.saturating_sub(self.slots_taken());
        if self.waiting.len() >= self.timing.max_queue.saturating_add(free_slots) {
            return Err(QueueFull { waiting: self.waiting.len() });
        }
        self.waiting.push_back(Waiting { arrival, job });
        if self.current.is_none() {
            self.start_next(self.free_at);
        }
        Ok(())
    }

    pub(crate) fn cancel(&mut self, id: SeqId) -> bool {
        if let Some(Iteration { work: Work::Prefill(slot), .. }) = &mut self.current
            && slot.is_some_and(|job| job.id == id)
        {
            *slot = None;
            return true;
        }
        if let Some(at) = self.running.iter().position(|sequence| sequence.id == id) {
            self.running.remove(at);
            return true;
        }
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.job.id == id) {
            self.waiting.remove(at);
            return true;
        }
        false
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.current.as_ref().map(|iteration| iteration.ends)
    }

    pub(crate) fn on_time(&mut self, now: Duration) -> Vec<Output> {
        let mut outputs = Vec::new();
        while let Some(iteration) = self.current.take_if(|iteration| iteration.ends <= now) {
            match iteration.work {
                Work::Prefill(Some(job)) => {
                    self.prompt_tokens_total += u64::from(job.prompt_tokens);
                    self.running.push(Running { id: job.id, left: job.output_tokens });
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
            prompt_tokens_total: self.prompt_tokens_total,
            generation_tokens_total: self.generation_tokens_total,
        }
    }

    fn slots_taken(&self) -> usize {
        let prefilling = matches!(&self.current, Some(Iteration { work: Work::Prefill(Some(_)), .. }));
        self.running.len() + usize::from(prefilling)
    }

    /// One token for each running sequence from the `first` on; those that are done leave.
    fn hand_out(&mut self, first: usize, at: Duration, outputs: &mut Vec<Output>) {
        for sequence in &mut self.running[first..] {
            sequence.left -= 1;
            outputs.push(Output { id: sequence.id, at, tokens: 1, finished: sequence.left == 0 });
        }
        self.generation_tokens_total += (self.running.len() - first) as u64;
        self.running.retain(|sequence| sequence.left > 0);
    }

    /// Begins the iteration that follows an engine free at `at`; leaves `current` empty when there is no work.
    fn start_next(&mut self, at: Duration) {
        let slot_free = self.running.len() < self.timing.slots;
        let may_prefill = |waiting: &Waiting| waiting.arrival <= at || self.running.is_empty();
        if slot_free && self.waiting.front().is_some_and(may_prefill) {
            if let Some(Waiting { arrival, job }) = self.waiting.pop_front() {
                let starts = at.max(arrival);
                let ends = starts.saturating_add(self.timing.prefill(job.prompt_tokens));
                self.current = Some(Iteration { ends, work: Work::Prefill(Some(job)) });
            }
        } else if !self.running.is_empty() {
            let ends = at.saturating_add(self.timing.decode(self.running.len()));
            self.current = Some(Iteration { ends, work: Work::Decode });
        }
    }
}
