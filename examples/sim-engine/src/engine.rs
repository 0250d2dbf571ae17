//! The engine model: which sequence gets which token at which instant.
//!
//! Owns the vocabulary of the model (jobs, outputs, deadlines) and the choice between its timings. It is a
//! pure state machine: [`Engine::submit`], [`Engine::cancel`] and [`Engine::on_time`] are the only events, and
//! what comes back is a list of [`Output`]s. Time is a [`Duration`] since an epoch that the caller chooses, so the
//! same model runs under a wall clock (the driver) and in virtual time (the tests).
//!
//! It must never read a clock, draw a random number that its seed and the job do not determine, or know about HTTP. Deadlines are computed from deadlines,
//! never from the instant at which somebody got round to calling: a caller that oversleeps receives everything
//! that was due, with the same `at` stamps, and the schedule does not drift. `tests/model.rs` guards this.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Batch, BatchTiming};
use crate::fixed::{Fixed, FixedTiming};
use crate::mmc::{Mmc, MmcTiming};

/// Names one sequence for as long as it is in the engine. The caller hands them out and never reuses one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u64);

/// One request as the model sees it: counts and hashes, no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Who asks.
    pub id: SeqId,
    /// Tokens to prefill.
    pub prompt_tokens: u32,
    /// Tokens to generate; at least 1.
    pub output_tokens: u32,
    /// For each full block of the prompt, a hash of everything up to its end (see [`crate::prefix`]). Empty: the
    /// prompt has no prefix in common with another.
    pub blocks: Arc<[u64]>,
}

impl Job {
    /// A job whose prompt is like no other.
    #[must_use]
    pub fn new(id: SeqId, prompt_tokens: u32, output_tokens: u32) -> Self {
        Self { id, prompt_tokens, output_tokens, blocks: Arc::default() }
    }
}

/// Tokens that became ready at one instant for one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// Whose tokens.
    pub id: SeqId,
    /// The instant at which they were due, however late the caller asked.
    pub at: Duration,
    /// How many are new.
    pub tokens: u32,
    /// These were the last ones; the sequence has left the engine.
    pub finished: bool,
    /// Tokens of the sequence's prompt that were in the prefix cache: the same in each of its outputs.
    pub cached_tokens: u32,
}

/// How the engine spends time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Timing {
    /// Continuous batching: slots, a FIFO queue, one loop that prefills or decodes.
    Batch(BatchTiming),
    /// Every request gets its tokens after fixed delays, whatever else is running.
    Fixed(FixedTiming),
    /// Servers with exponential service times: the queue M/M/c, whose closed forms are known.
    Mmc(MmcTiming),
}

/// The queue had no room. The job was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull {
    /// How many were waiting.
    pub waiting: usize,
}

impl std::fmt::Display for QueueFull {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "the request queue is full ({} waiting)", self.waiting)
    }
}

impl std::error::Error for QueueFull {}

/// What the engine is doing and has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Sequences that hold a slot.
    pub running: usize,
    /// Sequences in the queue.
    pub waiting: usize,
    /// Prompt tokens whose prefill is complete.
    pub prompt_tokens_total: u64,
    /// Tokens handed out by [`Engine::on_time`].
    pub generation_tokens_total: u64,
    /// Times that a running sequence was sent back to the queue for want of KV space.
    pub preemptions_total: u64,
    /// Tokens that the running sequences hold in the KV cache.
    pub kv_tokens: u64,
    /// Tokens that the KV cache has room for; 0 when it is unbounded.
    pub kv_capacity: u64,
    /// Prompt tokens that were looked up in the prefix cache.
    pub prefix_queries_total: u64,
    /// Those of them that were in it.
    pub prefix_hits_total: u64,
}

impl Stats {
    /// The share of the KV cache in use; 0 when it is unbounded.
    #[must_use]
    pub fn kv_usage(&self) -> f64 {
        if self.kv_capacity == 0 { 0.0 } else { self.kv_tokens as f64 / self.kv_capacity as f64 }
    }
}

/// The simulated engine. See the module's page.
#[derive(Debug)]
pub struct Engine {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Batch(Box<Batch>),
    Fixed(Fixed),
    Mmc(Mmc),
}

impl Engine {
    /// An idle engine.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        let kind = match timing {
            Timing::Batch(timing) => Kind::Batch(Box::new(Batch::new(timing))),
            Timing::Fixed(timing) => Kind::Fixed(Fixed::new(timing)),
            Timing::Mmc(timing) => Kind::Mmc(Mmc::new(timing)),
        };
        Self { kind }
    }

    /// Takes a job that arrived at `arrival`. Jobs are served in the order of these calls. A job never takes part
    /// in anything that started before it arrived, even when the caller is behind with [`Engine::on_time`].
    ///
    /// # Errors
    /// [`QueueFull`] when every slot is taken and the queue is at its bound.
    pub fn submit(&mut self, arrival: Duration, job: Job) -> Result<(), QueueFull> {
        let job = Job { output_tokens: job.output_tokens.max(1), ..job };
        match &mut self.kind {
            Kind::Batch(batch) => batch.submit(arrival, job),
            Kind::Fixed(fixed) => {
                fixed.submit(arrival, job);
                Ok(())
            }
            Kind::Mmc(mmc) => mmc.submit(arrival, job),
        }
    }

    /// Forgets a sequence, waiting or running, and frees its slot. False when it was not there. A step that has
    /// begun runs to its end: an accelerator cannot be called back from a kernel. (A server of [`Timing::Mmc`] is
    /// free at the next token's instant.)
    pub fn cancel(&mut self, id: SeqId) -> bool {
        match &mut self.kind {
            Kind::Batch(batch) => batch.cancel(id),
            Kind::Fixed(fixed) => fixed.cancel(id),
            Kind::Mmc(mmc) => mmc.cancel(id),
        }
    }

    /// When [`Engine::on_time`] has something to do next; `None` while idle.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        match &self.kind {
            Kind::Batch(batch) => batch.next_deadline(),
            Kind::Fixed(fixed) => fixed.next_deadline(),
            Kind::Mmc(mmc) => mmc.next_deadline(),
        }
    }

    /// Everything due up to and including `now`, in the order of the instants.
    pub fn on_time(&mut self, now: Duration) -> Vec<Output> {
        match &mut self.kind {
            Kind::Batch(batch) => batch.on_time(now),
            Kind::Fixed(fixed) => fixed.on_time(now),
            Kind::Mmc(mmc) => mmc.on_time(now),
        }
    }

    /// Counts for `/metrics`.
    #[must_use]
    pub fn stats(&self) -> Stats {
        match &self.kind {
            Kind::Batch(batch) => batch.stats(),
            Kind::Fixed(fixed) => fixed.stats(),
            Kind::Mmc(mmc) => mmc.stats(),
        }
    }
}
