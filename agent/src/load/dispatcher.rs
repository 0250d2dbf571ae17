//! Which arrival is sent when, as a pure state machine.
//!
//! The waiting list of a concurrency limit is the rest of the schedule itself: the dispatcher keeps two positions in
//! it, how far arrivals are due and how far they are released. Nothing is queued, so nothing can overflow.
//!
//! Invariant: every arrival of the slice leaves exactly once, by `Send` or by `Fail`, in the order of the schedule.
//! Guarded by the property test below.

use common::ids::Nanos;
use common::schedule::Arrival;
use common::trace::{Failure, FailureKind};

/// What happens to the dispatcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The first so many arrivals of the slice are due by now.
    Due(usize),
    /// A request in flight ended; its permit is free.
    Finished,
    /// Time passed: see [`Dispatcher::next_deadline`].
    Tick,
    /// Nothing more is to be sent, for this reason.
    Stop(String),
}

/// What the shell is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send the arrival at this position of the slice now.
    Send {
        /// Position in the slice.
        position: usize,
        /// It had to wait for a permit.
        waited: bool,
    },
    /// The arrival at this position is never sent.
    Fail {
        /// Position in the slice.
        position: usize,
        /// Why.
        failure: Failure,
    },
}

/// The state.
#[derive(Debug)]
pub struct Dispatcher {
    instants: Vec<Nanos>,
    /// Arrivals due.
    due: usize,
    /// Arrivals released or failed: the first of the waiting list.
    next: usize,
    /// Arrivals that were due when no permit was free; those before `next` are gone from the list.
    waiting_to: usize,
    in_flight: usize,
    permits: Option<usize>,
    queue_timeout: Nanos,
    closed: bool,
    stopped: Option<String>,
}

impl Dispatcher {
    /// For a slice, in order of time. An arrival waits for a permit no longer than `queue_timeout`.
    #[must_use]
    pub fn new(slice: &[Arrival], permits: Option<u32>, queue_timeout: Nanos) -> Self {
        Self {
            instants: slice.iter().map(|a| a.at).collect(),
            due: 0,
            next: 0,
            waiting_to: 0,
            in_flight: 0,
            permits: permits.map(|p| p as usize),
            queue_timeout,
            closed: false,
            stopped: None,
        }
    }

    /// For a closed loop of so many workers: each sends its next arrival when its last request ends. Nothing waits
    /// there, for nothing was due before.
    #[must_use]
    pub fn closed(slice: &[Arrival], workers: u32) -> Self {
        Self { closed: true, ..Self::new(slice, Some(workers), Nanos::MAX) }
    }

    /// Takes an event in at trial time `now` and appends what is to be done.
    pub fn on(&mut self, event: Event, now: Nanos, effects: &mut Vec<Effect>) {
        match event {
            Event::Due(count) => self.due = self.due.max(count.min(self.instants.len())),
            Event::Finished => self.in_flight = self.in_flight.saturating_sub(1),
            Event::Tick => {}
            Event::Stop(reason) => self.stopped = self.stopped.take().or(Some(reason)),
        }
        self.expire(now, effects);
        self.release(effects);
        // Whoever is due and not released now waits for a permit.
        self.waiting_to = self.due.max(self.next);
        if let Some(reason) = self.stopped.clone() {
            self.give_up(&reason, effects);
        }
    }

    fn expire(&mut self, now: Nanos, effects: &mut Vec<Effect>) {
        while !self.closed
            && self.next < self.waiting_to
            && self.instants[self.next] + self.queue_timeout <= now
        {
            let text = "no permit of --max-concurrency became free within the timeout";
            let failure = Failure::new(FailureKind::ClientQueueTimeout, text);
            effects.push(Effect::Fail { position: self.next, failure });
            self.next += 1;
        }
    }

    fn release(&mut self, effects: &mut Vec<Effect>) {
        if self.stopped.is_some() {
            return;
        }
        while self.next < self.due && self.permits.is_none_or(|p| self.in_flight < p) {
            let waited = !self.closed && self.next < self.waiting_to;
            effects.push(Effect::Send { position: self.next, waited });
            self.next += 1;
            self.in_flight += 1;
        }
    }

    fn give_up(&mut self, reason: &str, effects: &mut Vec<Effect>) {
        for position in self.next..self.instants.len() {
            let failure = Failure::new(FailureKind::NotDispatched, reason);
            effects.push(Effect::Fail { position, failure });
        }
        self.next = self.instants.len();
    }

    /// When [`Event::Tick`] is due: the first waiting arrival's timeout.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        (!self.closed && self.next < self.waiting_to).then(|| self.instants[self.next] + self.queue_timeout)
    }

    /// Arrivals due that wait for a permit.
    #[must_use]
    pub fn waiting(&self) -> usize {
        if self.closed { 0 } else { self.waiting_to.saturating_sub(self.next) }
    }

    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Every arrival has left and every request has ended.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.next == self.instants.len() && self.in_flight == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::ids::ArrivalIndex;
    use proptest::prelude::*;

    fn slice(n: u64) -> Vec<Arrival> {
        (0..n).map(|i| Arrival { index: ArrivalIndex(i), at: Nanos(i * 10), row: 0 }).collect()
    }

    fn positions(effects: &[Effect]) -> Vec<usize> {
        effects
            .iter()
            .map(|e| match e {
                Effect::Send { position, .. } | Effect::Fail { position, .. } => *position,
            })
            .collect()
    }

    proptest! {
        /// Whatever happens in whatever order: each arrival leaves once, in order; the limit holds; a stop ends it.
        #[test]
        fn every_arrival_leaves_exactly_once(
            n in 0u64..40, permits in prop::option::of(1u32..5), steps in prop::collection::vec((0u8..4, 0u64..60), 0..200),
        ) {
            let mut d = Dispatcher::new(&slice(n), permits, Nanos(25));
            let (mut now, mut due, mut flying) = (0, 0, 0usize);
            let mut all = Vec::new();
            for (kind, by) in steps {
                now += by;
                let mut effects = Vec::new();
                let event = match kind {
                    0 => { due = (now / 10 + 1).min(n); Event::Due(due as usize) }
                    1 if flying > 0 => { flying -= 1; Event::Finished }
                    _ => Event::Tick,
                };
                d.on(event, Nanos(now), &mut effects);
                for e in &effects {
                    match e {
                        Effect::Send { position, waited } => {
                            flying += 1;
                            prop_assert!((*position as u64) < due, "sent before it was due");
                            prop_assert!(permits.is_some() || !waited);
                        }
                        Effect::Fail { failure, .. } => {
                            prop_assert_eq!(failure.kind, FailureKind::ClientQueueTimeout);
                            prop_assert!(permits.is_some());
                        }
                    }
                }
                prop_assert!(permits.is_none_or(|p| flying <= p as usize));
                prop_assert_eq!(d.in_flight(), flying);
                all.extend(positions(&effects));
            }
            let mut effects = Vec::new();
            d.on(Event::Stop("enough".into()), Nanos(now), &mut effects);
            all.extend(positions(&effects));
            prop_assert_eq!(all, (0..n as usize).collect::<Vec<_>>());
            for _ in 0..flying {
                prop_assert!(!d.is_drained());
                d.on(Event::Finished, Nanos(now), &mut effects);
            }
            prop_assert!(d.is_drained() && d.next_deadline().is_none());
        }
    }

    /// In a closed loop one request's end is the next one's beginning, and nobody waits.
    #[test]
    fn a_closed_loop_keeps_its_workers_busy_and_nobody_waits() {
        let mut d = Dispatcher::closed(&slice(5), 2);
        let mut effects = Vec::new();
        d.on(Event::Due(5), Nanos(0), &mut effects);
        assert_eq!((positions(&effects), d.in_flight(), d.waiting()), (vec![0, 1], 2, 0));
        assert_eq!(d.next_deadline(), None);
        for now in 1..4 {
            d.on(Event::Finished, Nanos(now * 1_000_000_000_000), &mut effects);
            assert_eq!(d.in_flight(), 2);
        }
        assert_eq!(positions(&effects), [0, 1, 2, 3, 4]);
        assert!(effects.iter().all(|e| matches!(e, Effect::Send { waited: false, .. })));
    }

    /// Waiting is what a permit makes an arrival do; being late is not waiting.
    #[test]
    fn who_waits_is_marked() {
        let mut d = Dispatcher::new(&slice(3), Some(1), Nanos(1000));
        let mut effects = Vec::new();
        d.on(Event::Due(1), Nanos(0), &mut effects);
        d.on(Event::Due(2), Nanos(10), &mut effects);
        assert_eq!(d.waiting(), 1);
        assert_eq!(d.next_deadline(), Some(Nanos(1010)));
        d.on(Event::Finished, Nanos(15), &mut effects);
        d.on(Event::Finished, Nanos(18), &mut effects);
        d.on(Event::Due(3), Nanos(30), &mut effects);
        let waited: Vec<bool> =
            effects.iter().map(|e| matches!(e, Effect::Send { waited: true, .. })).collect();
        assert_eq!(waited, [false, true, false]);
    }
}
