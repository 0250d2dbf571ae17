//! A queue that mathematics knows: `c` servers, exponential service times, first in, first out, no limit to the wait.
//!
//! Owns the servers, the queue and the draw of each job's service time. It exists so that a load generator's
//! statistics can be held against the truth: with Poisson arrivals this is M/M/c, whose sojourn times
//! [`crate::closed_form`] knows exactly. A job holds one server for its whole service time and gets its tokens evenly
//! over it, the last one at its end.
//!
//! A service time is a pure function of the seed and of the job's id, so that two ways of offering the same jobs (an
//! open and a closed loop, say) serve the same work. Must never start a job on a server before that server was free,
//! nor before the job arrived. `tests/mmc.rs` guards this and the closed forms.

use std::collections::VecDeque;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::engine::{Job, Output, QueueFull, SeqId, Stats};

/// What the servers are like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MmcTiming {
    /// Jobs that are served at once; at least 1.
    pub servers: usize,
    /// Jobs that may wait. The closed forms hold without a bound: `usize::MAX`.
    pub max_queue: usize,
    /// Mean of the exponential service time, of a job or of each of its tokens.
    pub mean_service: Duration,
    /// `mean_service` is for one output token: a job's mean is that times its output tokens.
    pub per_token: bool,
    /// Seed of the service times.
    pub seed: u64,
}

impl MmcTiming {
    /// How long a server works on this job.
    #[must_use]
    pub fn service(&self, job: &Job) -> Duration {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        seed[8..16].copy_from_slice(b"service\0");
        let mut random = ChaCha8Rng::from_seed(seed);
        random.set_stream(job.id.0);
        // The middle of one of 2^53 equal cells: its logarithm is finite.
        let unit = ((random.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let tokens = if self.per_token { f64::from(job.output_tokens) } else { 1.0 };
        // `libm`, because the platform's logarithm differs between platforms in the last bit.
        let seconds = -libm::log(unit) * tokens * self.mean_service.as_secs_f64();
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

#[derive(Debug)]
struct Serving {
    job: Job,
    start: Duration,
    service: Duration,
    /// Tokens handed out.
    given: u32,
    /// When the next token is due. Kept, because it is asked for at every instant.
    due: Duration,
    /// Cancelled: the server is free at the next token's instant, which nobody gets.
    cancelled: bool,
}

impl Serving {
    fn next_due(&self) -> Duration {
        let (next, all) = (u128::from(self.given) + 1, u128::from(self.job.output_tokens));
        let nanos = self.service.as_nanos() * next / all;
        self.start.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Mmc {
    timing: MmcTiming,
    waiting: VecDeque<(Duration, Job)>,
    serving: Vec<Serving>,
    /// Since when each idle server has been free.
    idle: Vec<Duration>,
    prompt_tokens_total: u64,
    generation_tokens_total: u64,
}

impl Mmc {
    pub(crate) fn new(timing: MmcTiming) -> Self {
        let timing = MmcTiming { servers: timing.servers.max(1), ..timing };
        Self {
            timing,
            waiting: VecDeque::new(),
            serving: Vec::new(),
            idle: vec![Duration::ZERO; timing.servers],
            prompt_tokens_total: 0,
            generation_tokens_total: 0,
        }
    }

    pub(crate) fn submit(&mut self, arrival: Duration, job: Job) -> Result<(), QueueFull> {
        let first_idle = self.idle.iter().enumerate().min_by_key(|(_, since)| **since).map(|(at, _)| at);
        match first_idle {
            Some(at) => {
                let since = self.idle.swap_remove(at);
                self.start(since.max(arrival), job);
            }
            None if self.waiting.len() >= self.timing.max_queue => {
                return Err(QueueFull { waiting: self.waiting.len() });
            }
            None => self.waiting.push_back((arrival, job)),
        }
        Ok(())
    }

    fn start(&mut self, start: Duration, job: Job) {
        let service = self.timing.service(&job);
        let mut serving = Serving { job, start, service, given: 0, due: start, cancelled: false };
        serving.due = serving.next_due();
        self.serving.push(serving);
    }

    pub(crate) fn cancel(&mut self, id: SeqId) -> bool {
        if let Some(serving) = self.serving.iter_mut().find(|serving| serving.job.id == id) {
            return !std::mem::replace(&mut serving.cancelled, true);
        }
        let waiting = self.waiting.iter().position(|(_, job)| job.id == id);
        waiting.is_some_and(|at| self.waiting.remove(at).is_some())
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.serving.iter().map(|serving| serving.due).min()
    }

    pub(crate) fn on_time(&mut self, now: Duration) -> Vec<Output> {
        let mut outputs = Vec::new();
        // Servers are few: a scan is cheaper than a heap.
        while let Some((place, at)) =
            self.serving.iter().map(|serving| serving.due).enumerate().min_by_key(|(_, due)| *due)
            && at <= now
        {
            let serving = &mut self.serving[place];
            if !serving.cancelled {
                serving.given += 1;
                let finished = serving.given == serving.job.output_tokens;
                if serving.given == 1 {
                    self.prompt_tokens_total += u64::from(serving.job.prompt_tokens);
                }
                self.generation_tokens_total += 1;
                outputs.push(Output { id: serving.job.id, at, tokens: 1, finished, cached_tokens: 0 });
                if !finished {
                    serving.due = serving.next_due();
                    continue;
                }
            }
            self.serving.swap_remove(place);
            match self.waiting.pop_front() {
                Some((arrival, job)) => self.start(at.max(arrival), job),
                None => self.idle.push(at),
            }
        }
        outputs
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            running: self.serving.iter().filter(|serving| !serving.cancelled).count(),
            waiting: self.waiting.len(),
            prompt_tokens_total: self.prompt_tokens_total,
            generation_tokens_total: self.generation_tokens_total,
            ..Stats::default()
        }
    }
}
