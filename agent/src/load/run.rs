//! The load thread's loop: turns the dispatcher's effects into requests and their ends into traces.
//!
//! The one dispatcher of the program: whatever the arrival process, requests are sent here and nowhere else.
//!
//! An arrival that will be due soon is waited for here, by looking at the clock whenever nothing else is to be done: each
//! look is followed by a look at the sockets and by whoever can go on, so that no stream waits for it. And a request is
//! begun here, up to the first wait of it, before it gets a task of its own: a new task would have to wait for its turn
//! behind every stream that has something to read.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use common::ids::Nanos;
use common::schedule::Arrival;
use common::trace::{Failure, FailureKind, Trace, Unsent};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};

use super::counters::Counters;
use super::dispatcher::{Dispatcher, Effect, Event};
use super::lead::Lead;
use super::pacer::PaceEnd;
use crate::engine::{Engine, Outgoing, Prepared, TrialClock};

/// What the pacer says.
#[derive(Debug)]
pub enum Pace {
    /// The first so many arrivals are due by now.
    Due(usize),
    /// They will be due soon.
    Soon {
        /// The first so many.
        count: usize,
        /// When, on the monotonic clock.
        at: Nanos,
        /// When the pacer wanted to say so.
        wanted: Nanos,
    },
    /// It ended.
    Ended(PaceEnd),
}

/// What the session says while a trial runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// Why nothing more is to be sent.
    pub reason: String,
    /// Cut what is in flight, too.
    pub cancel: bool,
}

/// The agent's part of a trial.
#[derive(Debug, Clone)]
pub struct Part {
    /// Arrivals, in order of time.
    pub slice: Vec<Arrival>,
    /// Each row that the slice uses.
    pub rows: Vec<Option<Prepared>>,
    /// The agent's part of the concurrency limit.
    pub permits: Option<u32>,
    /// How long an arrival waits for a permit.
    pub queue_timeout: Nanos,
    /// A closed loop: the permits are its workers, and an arrival is due when one of them is free.
    pub closed: bool,
}

impl Part {
    fn unsent(&self, position: usize) -> (Unsent, Bytes) {
        let arrival = self.slice[position];
        let row = self.rows.get(arrival.row as usize).cloned().flatten().unwrap_or_default();
        (row.unsent(arrival.index, arrival.at, arrival.row), row.body)
    }

    /// An arrival that ends unsent at `now`. In a closed loop it was never due: it counts from its end.
    fn never_sent(&self, position: usize, now: Nanos) -> Unsent {
        let (unsent, _) = self.unsent(position);
        if self.closed { Unsent { scheduled: now, ..unsent } } else { unsent }
    }
}

/// Why nothing is sent after the lease.
const LEASE_OVER: &str = "the agent's lease ran out: no answer from the coordinator";

/// What requests are sent with.
pub struct Sender<E> {
    /// The engine's client.
    pub client: Arc<E>,
    /// The trial's time.
    pub clock: TrialClock,
    /// What the heartbeat shows.
    pub counters: Arc<Counters>,
}

impl<E> Clone for Sender<E> {
    fn clone(&self) -> Self {
        let Self { client, clock, counters } = self;
        Self { client: Arc::clone(client), clock: clock.clone(), counters: Arc::clone(counters) }
    }
}

/// Where the load thread hears from.
pub struct Orders {
    /// The pacer.
    pub pace: mpsc::Receiver<Pace>,
    /// How early it says so.
    pub lead: Arc<Lead>,
    /// The session.
    pub stops: mpsc::Receiver<Stop>,
}

/// Sends `part` as the pacer announces it and gives every trace to `sink`. Returns when every arrival has its trace.
///
/// `lease_over` is asked before anything is sent: an arrival that waited for a permit is not the pacer's any more.
pub async fn run<E: Engine>(
    part: &Part,
    sender: Sender<E>,
    mut orders: Orders,
    lease_over: impl Fn() -> bool,
    mut sink: impl FnMut(Trace),
) {
    let mut dispatcher = match (part.closed, part.permits) {
        (true, Some(workers)) => Dispatcher::closed(&part.slice, workers),
        _ => Dispatcher::new(&part.slice, part.permits, part.queue_timeout),
    };
    let Sender { clock, counters, .. } = sender.clone();
    let mut requests = Requests::new(sender);
    let mut effects = Vec::new();
    let mut soon = Soon::default();
    while !dispatcher.is_drained() {
        let event = match next(&mut orders, &mut soon, &mut requests, dispatcher.next_deadline()).await {
            Heard::Event(event) => event,
            Heard::Soon => continue,
            Heard::Ended(trace) => {
                counters.ended(trace.facts.outcome.is_success());
                sink(*trace);
                Event::Finished
            }
            Heard::Stop(stop) => {
                requests.cut(stop.cancel);
                Event::Stop(stop.reason)
            }
        };
        if lease_over() {
            dispatcher.on(Event::Stop(LEASE_OVER.into()), clock.now(), &mut effects);
        }
        dispatcher.on(event, clock.now(), &mut effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Send { position, waited } => {
                    requests.begin(part.unsent(position), waited, part.closed)
                }
                Effect::Fail { position, failure } => {
                    counters.ended(false);
                    sink(Trace::unsent(part.never_sent(position, clock.now()), failure, clock.now()));
                }
            }
        }
        counters.stand(dispatcher.in_flight(), dispatcher.waiting());
    }
}

/// What the load thread hears next.
enum Heard {
    Event(Event),
    /// Some arrivals will be due soon.
    Soon,
    Ended(Box<Trace>),
    Stop(Stop),
}

/// Waits for the pacer, a request's end, the session or `deadline`; a sender that is gone says nothing any more.
async fn next<E: Engine>(
    orders: &mut Orders,
    soon: &mut Soon,
    requests: &mut Requests<E>,
    deadline: Option<Nanos>,
) -> Heard {
    if let Some(trace) = requests.ended_at_once.pop() {
        return Heard::Ended(Box::new(trace));
    }
    let clock = requests.sender.clock.clone();
    let awaited = soon.awaited;
    tokio::select! {
        // In this order: an arrival that is due comes before everything else.
        biased;
        count = due(awaited, &clock), if awaited.is_some() => {
            soon.awaited = None;
            Heard::Event(Event::Due(count))
        }
        // One after the other: what the pacer says next is due no sooner.
        Some(message) = orders.pace.recv(), if awaited.is_none() => match message {
            Pace::Due(count) => Heard::Event(Event::Due(count)),
            Pace::Soon { count, at, wanted } => {
                // Said while the arrival before it was waited for, it was heard late for that reason.
                if wanted >= soon.last {
                    orders.lead.learn(wanted, clock.monotonic());
                }
                *soon = Soon { awaited: Some((count, at)), last: at };
                Heard::Soon
            }
            Pace::Ended(PaceEnd::LeaseExpired) => Heard::Event(Event::Stop(LEASE_OVER.into())),
            Pace::Ended(PaceEnd::Complete | PaceEnd::Stopped) => Heard::Event(Event::Tick),
        },
        Some(ended) = requests.set.join_next_with_id() => match requests.trace(ended) {
            Some(trace) => Heard::Ended(Box::new(trace)),
            None => Heard::Event(Event::Finished),
        },
        Some(stop) = orders.stops.recv() => Heard::Stop(stop),
        () = until(deadline, &clock) => Heard::Event(Event::Tick),
    }
}

/// Arrivals that will be due soon.
#[derive(Debug, Default)]
struct Soon {
    /// So many of the slice, and when.
    awaited: Option<(usize, Nanos)>,
    /// When the last of them were due that were waited for.
    last: Nanos,
}

/// Waits for arrivals that are due soon, and lets everybody else go on meanwhile.
async fn due(awaited: Option<(usize, Nanos)>, clock: &TrialClock) -> usize {
    let Some((count, at)) = awaited else { return std::future::pending().await };
    while clock.monotonic() < at {
        tokio::task::yield_now().await;
    }
    count
}

struct Requests<E> {
    sender: Sender<E>,
    cut: watch::Sender<bool>,
    set: JoinSet<Trace>,
    /// Traces of requests that came to an end where they were begun.
    ended_at_once: Vec<Trace>,
    /// What each task was given: a panic in one request must not lose its arrival.
    given: HashMap<tokio::task::Id, Unsent>,
}

impl<E: Engine> Requests<E> {
    fn new(sender: Sender<E>) -> Self {
        Self {
            sender,
            cut: watch::Sender::new(false),
            set: JoinSet::new(),
            ended_at_once: Vec::new(),
            given: HashMap::new(),
        }
    }

    /// Cuts what is in flight, if so. A later order must not take an earlier cut back.
    fn cut(&self, cut: bool) {
        self.cut.send_modify(|before| *before |= cut);
    }

    /// Begins a request here and now, and gives what is left of it a task.
    fn begin(&mut self, (mut unsent, body): (Unsent, Bytes), waited_for_permit: bool, closed: bool) {
        let Sender { client, clock, counters } = self.sender.clone();
        let mut cancelled = self.cut.subscribe();
        let released = clock.now();
        if closed {
            unsent.scheduled = released;
        }
        counters.released(released - unsent.scheduled, waited_for_permit);
        let mut request = Box::pin(async move {
            let request = Outgoing { unsent, released, waited_for_permit, body };
            client.send(request, &mut cancelled).await
        });
        // Nobody is woken by what happens between here and the task's first turn: it looks again then.
        let mut nobody = Context::from_waker(Waker::noop());
        let first = catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(&mut nobody)));
        match first {
            Ok(Poll::Pending) => {
                let task = self.set.spawn(request);
                self.given.insert(task.id(), unsent);
            }
            Ok(Poll::Ready(trace)) => self.ended_at_once.push(trace),
            Err(_) => self.ended_at_once.push(self.failed(unsent, &"it panicked")),
        }
    }

    /// The trace of a request that our own code failed.
    fn failed(&self, unsent: Unsent, why: &dyn std::fmt::Display) -> Trace {
        tracing::error!(index = unsent.index.0, "a request's task failed: {why}");
        let failure = Failure::new(FailureKind::LocalLimit, "the agent's own code failed; see its log");
        Trace::unsent(unsent, failure, self.sender.clock.now())
    }

    /// The trace of a task that ended, however it ended.
    fn trace(&mut self, ended: Result<(tokio::task::Id, Trace), JoinError>) -> Option<Trace> {
        match ended {
            Ok((id, trace)) => {
                self.given.remove(&id);
                Some(trace)
            }
            Err(e) => {
                let unsent = self.given.remove(&e.id())?;
                Some(self.failed(unsent, &e))
            }
        }
    }
}

async fn until(deadline: Option<Nanos>, clock: &TrialClock) {
    match deadline {
        Some(deadline) => tokio::time::sleep((deadline - clock.now()).to_duration()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
