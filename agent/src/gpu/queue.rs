//! Records on their way from the threads that read to whoever keeps them.
//!
//! A bounded ring: when nobody takes records, the oldest samples give way, are counted, and whoever takes the rest is
//! told by an event in front of it. Events and inventories stay, because one of them may say why there are no samples.
//! Guarded by the tests below.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::ids::Nanos;
use common::telemetry::{Event, EventKind, Record};

/// Records that are kept for somebody: over a minute of eight GPUs that are read every 20 ms, in some megabytes. A
/// coordinator that is away for longer finds a gap, and how large it is.
pub const CAPACITY: usize = 32_768;

/// The records of a sampler; several may take from it, and each record is taken once.
#[derive(Debug, Clone)]
pub struct Records(Arc<Queue>);

/// Both ends.
#[derive(Debug)]
pub(super) struct Queue {
    capacity: usize,
    ring: Mutex<Ring>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct Ring {
    records: VecDeque<Record>,
    /// Since the last taking.
    untold: u64,
    dropped_at: Nanos,
    /// Ever.
    dropped: u64,
    closed: bool,
}

impl Queue {
    pub(super) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self { capacity: capacity.max(1), ring: Mutex::default(), filled: Condvar::new() })
    }

    pub(super) fn records(self: &Arc<Self>) -> Records {
        Records(Arc::clone(self))
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds records, and never waits.
    pub(super) fn push(&self, records: impl IntoIterator<Item = Record>) {
        let mut ring = self.ring();
        for record in records {
            if ring.records.len() >= self.capacity {
                // Few are no samples, so this looks at few.
                let oldest = ring.records.iter().position(is_sample).unwrap_or(0);
                let gone = ring.records.remove(oldest);
                ring.dropped_at = gone.and_then(|record| record.at()).unwrap_or(ring.dropped_at);
                ring.untold += 1;
                ring.dropped += 1;
            }
            ring.records.push_back(record);
        }
        drop(ring);
        self.filled.notify_all();
    }

    /// No more will come.
    pub(super) fn close(&self) {
        self.ring().closed = true;
        self.filled.notify_all();
    }
}

fn is_sample(record: &Record) -> bool {
    !matches!(record, Record::Event(_) | Record::Inventory(_))
}

impl Records {
    /// All that there are, oldest first; waits for the first of them, no longer than `wait`. None once the sampler has
    /// stopped and all have been taken.
    #[must_use]
    pub fn take(&self, wait: Duration) -> Option<Vec<Record>> {
        let ring = self.0.ring();
        let empty = |ring: &mut Ring| ring.records.is_empty() && !ring.closed;
        let mut ring = match self.0.filled.wait_timeout_while(ring, wait, empty) {
            Ok((ring, _)) => ring,
            Err(poisoned) => poisoned.into_inner().0,
        };
        if ring.records.is_empty() && ring.closed {
            return None;
        }
        let mut taken = Vec::with_capacity(ring.records.len() + 1);
        let dropped = std::mem::take(&mut ring.untold);
        if dropped > 0 {
            taken.push(Record::Event(Event {
                at: ring.dropped_at,
                gpu: None,
                kind: EventKind::Dropped,
                code: None,
                message: format!("{dropped} samples before this were dropped: nobody took them in time"),
            }));
        }
        taken.extend(ring.records.drain(..));
        Some(taken)
    }

    /// Samples that were dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.ring().dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::telemetry::PowerSample;

    const NOW: Duration = Duration::ZERO;

    fn sample(at: u64) -> Record {
        Record::Power(PowerSample { at: Nanos(at), ..PowerSample::default() })
    }

    fn event(at: u64) -> Record {
        let kind = EventKind::Running;
        Record::Event(Event { at: Nanos(at), gpu: None, kind, code: None, message: String::new() })
    }

    #[test]
    fn the_oldest_samples_give_way_and_whoever_takes_the_rest_is_told() {
        let queue = Queue::new(4);
        let records = queue.records();
        queue.push([event(0), sample(1), sample(2), sample(3), sample(4), sample(5)]);
        let taken = records.take(NOW).unwrap();
        let [Record::Event(dropped), rest @ ..] = taken.as_slice() else { panic!("{taken:?}") };
        assert_eq!((dropped.kind, dropped.at), (EventKind::Dropped, Nanos(2)));
        assert!(dropped.message.starts_with("2 samples"), "{}", dropped.message);
        assert_eq!(rest, [event(0), sample(3), sample(4), sample(5)]);
        queue.push([sample(6)]);
        assert_eq!(records.take(NOW).unwrap(), [sample(6)], "told once");
        assert_eq!(records.dropped(), 2);
    }

    #[test]
    fn the_end_comes_after_the_last_record() {
        let queue = Queue::new(4);
        let records = queue.records();
        assert_eq!(records.take(NOW), Some(Vec::new()));
        queue.push([sample(1)]);
        queue.close();
        assert_eq!(records.take(Duration::MAX), Some(vec![sample(1)]));
        assert_eq!(records.take(Duration::MAX), None);
    }

    #[test]
    fn events_alone_do_not_grow_without_bound() {
        let queue = Queue::new(3);
        queue.push((0..10).map(event));
        assert_eq!(queue.records().take(NOW).unwrap().len(), 4, "three, and that others were dropped");
    }
}
