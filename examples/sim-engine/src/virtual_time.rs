//! The engine in virtual time: what each request gets, as fast as the processor can count.
//!
//! Owns the order in which arrivals and the engine's deadlines are taken, and a client that may send too much at once
//! ([`serve`]), only so much at once ([`serve_limited`]), or only when its last answer is complete
//! ([`serve_closed`]). No clock, no thread, no runtime: millions of requests take seconds, and the same input gives
//! the same output. Must never let the future change the past: the earliest instant always goes first, and of two at
//! one instant the engine's, so that what is free by then can be used.

use std::time::Duration;

use crate::engine::{Engine, Job, SeqId};

/// What became of one request. Instants are since the engine's epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// When the client sent it: the arrival, or later where it had to wait for one of its own to end.
    pub released: Duration,
    /// When its first token was ready; `None` when the engine's queue was full.
    pub first_token: Option<Duration>,
    /// When its last token was ready; `None` when the engine's queue was full.
    pub last_token: Option<Duration>,
    /// When it was over.
    pub ended: Duration,
    /// Prompt tokens that the engine found in its prefix cache.
    pub cached_tokens: u32,
}

impl Served {
    fn nothing_yet(released: Duration) -> Self {
        Self { released, first_token: None, last_token: None, ended: released, cached_tokens: 0 }
    }
}

/// Sends each job at its arrival, whatever became of those before: an open loop. Arrivals must be in order of time.
/// The jobs' ids are replaced by their positions.
#[must_use]
pub fn serve(engine: &mut Engine, arrivals: &[(Duration, Job)]) -> Vec<Served> {
    serve_limited(engine, arrivals, usize::MAX)
}

/// As [`serve`], with at most `permits` (at least 1) requests in flight: an arrival that finds none free waits for
/// one, in order.
#[must_use]
pub fn serve_limited(engine: &mut Engine, arrivals: &[(Duration, Job)], permits: usize) -> Vec<Served> {
    let permits = permits.max(1);
    let mut served: Vec<Served> = Vec::with_capacity(arrivals.len());
    let mut in_flight = 0;
    // Since when there has been a permit to give.
    let mut permit_since = Duration::ZERO;
    loop {
        let deadline = engine.next_deadline();
        let next = arrivals.get(served.len()).filter(|_| in_flight < permits);
        if let Some((arrival, job)) = next
            && let released = permit_since.max(*arrival)
            && deadline.is_none_or(|deadline| released < deadline)
        {
            let job = Job { id: SeqId(served.len() as u64), ..job.clone() };
            in_flight += usize::from(engine.submit(released, job).is_ok());
            served.push(Served::nothing_yet(released));
            continue;
        }
        let Some(deadline) = deadline else { return served };
        for output in engine.on_time(deadline) {
            let request = usize::try_from(output.id.0).ok().and_then(|id| served.get_mut(id));
            let Some(request) = request else { continue };
            request.first_token.get_or_insert(output.at);
            request.last_token = Some(output.at);
            request.ended = output.at;
            request.cached_tokens = output.cached_tokens;
            if output.finished {
                if in_flight == permits {
                    permit_since = output.at;
                }
                in_flight -= 1;
            }
        }
    }
}

/// `workers` clients that share the jobs, each sending its next when its last is complete: a closed loop. The arrival
/// of a request is its release, which is what a closed loop hides.
#[must_use]
pub fn serve_closed(engine: &mut Engine, jobs: &[Job], workers: usize) -> Vec<Served> {
    let at_once: Vec<(Duration, Job)> = jobs.iter().map(|job| (Duration::ZERO, job.clone())).collect();
    serve_limited(engine, &at_once, workers)
}
