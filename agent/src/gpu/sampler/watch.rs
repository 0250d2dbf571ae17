//! Says when the threads that read get no answer: a call into the library may hang, and then nobody else can tell.
//!
//! This thread makes no call of the library. What it says is decided by [`Watch`], which is pure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::ids::Nanos;
use common::telemetry::EventKind;

use super::super::pace::Ticks;
use super::Shared;

/// Without energy for this long telemetry is stalled.
const FAST: Nanos = Nanos::from_secs(1);
/// Everything else may be this slow.
const SLOW: Nanos = Nanos::from_secs(5);
/// Opening the library wakes GPUs that sleep, one after the other: it may be this slow.
const OPENING: Nanos = Nanos::from_secs(30);

/// Between two looks.
const LOOK: Nanos = Nanos::from_millis(100);

/// Since when each thread does what it does, by the agent's clock; 0 where it does not.
#[derive(Debug, Default)]
pub(super) struct Beats {
    opening: AtomicU64,
    fast: AtomicU64,
    slow: AtomicU64,
}

impl Beats {
    pub(super) fn opening(&self, since: Option<Nanos>) {
        self.opening.store(since.map_or(0, |at| at.0.max(1)), Ordering::Relaxed);
    }

    pub(super) fn fast(&self, at: Nanos) {
        self.fast.store(at.0.max(1), Ordering::Relaxed);
    }

    pub(super) fn slow(&self, at: Nanos) {
        self.slow.store(at.0.max(1), Ordering::Relaxed);
    }

    fn now(&self) -> Since {
        let read = |beat: &AtomicU64| match beat.load(Ordering::Relaxed) {
            0 => None,
            at => Some(Nanos(at)),
        };
        Since { opening: read(&self.opening), fast: read(&self.fast), slow: read(&self.slow) }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Since {
    opening: Option<Nanos>,
    fast: Option<Nanos>,
    slow: Option<Nanos>,
}

/// What was said already.
#[derive(Debug, Default)]
struct Watch {
    opening: bool,
    fast: bool,
    slow: bool,
}

impl Watch {
    fn look(&mut self, now: Nanos, since: Since) -> Vec<(EventKind, &'static str)> {
        let mut said = Vec::new();
        let late = |since: Option<Nanos>, patience: Nanos| since.is_some_and(|at| now - at > patience);
        let mut turn = |was: &mut bool, is: bool, kinds: [(EventKind, &'static str); 2]| {
            if *was != is {
                *was = is;
                said.push(kinds[usize::from(!is)]);
            }
        };
        turn(
            &mut self.opening,
            late(since.opening, OPENING),
            [
                (EventKind::Stalled, "the GPU library does not open: a call has not returned for 30 s"),
                (EventKind::Degraded, "the GPU library answers again"),
            ],
        );
        turn(
            &mut self.fast,
            late(since.fast, FAST),
            [
                (
                    EventKind::Stalled,
                    "no reading of power and energy for a second: a call into the GPU library hangs",
                ),
                (EventKind::Running, "power and energy are read again"),
            ],
        );
        turn(
            &mut self.slow,
            late(since.slow, SLOW),
            [
                (
                    EventKind::Degraded,
                    "no reading of memory, clocks and processes for 5 s: a call into the GPU library hangs",
                ),
                (EventKind::Degraded, "memory, clocks and processes are read again"),
            ],
        );
        said
    }
}

/// Looks until the end.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut watch = Watch::default();
    let mut ticks = Ticks::new(shared.now(), LOOK);
    while !shared.threads.until(&*shared.clock, ticks.next(shared.now())) {
        // Beats first: one that comes after the clock was read must not look late.
        let since = shared.beats.now();
        for (kind, message) in watch.look(shared.now(), since) {
            shared.tell(None, kind, message.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_told_once_and_so_is_its_end() {
        let mut watch = Watch::default();
        let mut said = |now: u64, fast: u64, slow: u64| {
            let since = Since { opening: None, fast: Some(Nanos(fast)), slow: Some(Nanos(slow)) };
            watch.look(Nanos(now), since).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
        };
        let s = 1_000_000_000;
        assert_eq!(said(s, 1, 1), []);
        assert_eq!(said(s + 2, 1, 1), [EventKind::Stalled]);
        assert_eq!(said(2 * s, 1, 1), []);
        assert_eq!(
            said(6 * s, 6 * s, 1),
            [EventKind::Running, EventKind::Degraded],
            "a slow call hangs, energy goes on"
        );
        assert_eq!(said(6 * s, 6 * s, 6 * s), [EventKind::Degraded]);
        assert_eq!(watch.look(Nanos(90 * s), Since::default()), [], "nobody is at work");
    }
}
