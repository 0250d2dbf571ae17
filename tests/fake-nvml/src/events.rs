//! Xid errors, as events that a client waits for.
//!
//! Owns the event sets. An event is delivered once to each set that its GPU was registered with before it happened,
//! in the order of time; the real NVML tells only the last Xid of several. Sets are named by numbers, which `ffi`
//! dresses up as pointers: nothing here is dereferenced.

use std::collections::BTreeMap;

use crate::clock::nanos;
use crate::code::Code;
use crate::scenario::Scenario;
use crate::world::{World, duration, lock, wait};

/// `nvmlEventTypeXidCriticalError`, the only type that happens here.
pub(crate) const XID: u64 = 8;

/// All sets.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    last: usize,
    sets: BTreeMap<usize, Vec<Registration>>,
}

/// A GPU in a set.
#[derive(Debug)]
struct Registration {
    gpu: usize,
    /// Events up to here were delivered, or were before the registration.
    seen_ns: i64,
    /// Of several events at that instant, how many.
    seen_then: usize,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Event {
    pub(crate) gpu: usize,
    pub(crate) xid: u64,
    at: i64,
    /// Which one of those of its GPU at that instant.
    nth: usize,
}

impl Sets {
    /// A new set.
    pub(crate) fn create(&mut self) -> usize {
        self.last += 1;
        self.sets.insert(self.last, Vec::new());
        self.last
    }

    /// Takes a set away.
    pub(crate) fn free(&mut self, set: usize) -> Result<(), Code> {
        self.sets.remove(&set).map(|_| ()).ok_or(Code::INVALID_ARGUMENT)
    }

    /// Events of `types` of a GPU from now on; `xids` are those of the GPU that were.
    pub(crate) fn register(&mut self, set: usize, gpu: usize, types: u64, now: i64) -> Result<(), Code> {
        let set = self.sets.get_mut(&set).ok_or(Code::INVALID_ARGUMENT)?;
        if types & XID != 0 && set.iter().all(|registration| registration.gpu != gpu) {
            set.push(Registration { gpu, seen_ns: now, seen_then: usize::MAX });
        }
        Ok(())
    }

    /// The first event that was not delivered yet, whenever it is.
    fn next(&self, set: usize, scenario: &Scenario) -> Result<Option<Event>, Code> {
        let set = self.sets.get(&set).ok_or(Code::INVALID_ARGUMENT)?;
        let mut first: Option<Event> = None;
        for registration in set {
            let Some(gpu) = scenario.gpus.get(registration.gpu) else { continue };
            let mut nths = BTreeMap::new();
            for xid in &gpu.xids {
                let at = nanos(xid.t_s);
                let nth: &mut usize = nths.entry(at).or_default();
                let event = Event { gpu: registration.gpu, xid: xid.xid, at, nth: *nth };
                *nth += 1;
                let is_new = at > registration.seen_ns
                    || at == registration.seen_ns && event.nth >= registration.seen_then;
                if is_new && first.is_none_or(|first| at < first.at) {
                    first = Some(event);
                }
            }
        }
        Ok(first)
    }

    fn deliver(&mut self, set: usize, event: Event) {
        let registrations = self.sets.get_mut(&set).into_iter().flatten();
        for registration in registrations.filter(|registration| registration.gpu == event.gpu) {
            registration.seen_ns = event.at;
            registration.seen_then = event.nth + 1;
        }
    }
}

/// Waits for an event, at most so long by the machine's clock, even where the scenario's is manual: a wait with an
/// end must end.
pub(crate) fn wait_for_event(set: usize, timeout_ms: u32) -> Result<Event, Code> {
    let start = crate::clock::monotonic();
    let timeout = i64::from(timeout_ms) * 1_000_000;
    let mut world = lock();
    loop {
        let running = world.open()?;
        let now = running.clock.now();
        let next = running.sets.next(set, &running.scenario)?;
        if let Some(event) = next.filter(|event| event.at <= now) {
            running.sets.deliver(set, event);
            return Ok(event);
        }
        let left = start + timeout - crate::clock::monotonic();
        if left <= 0 {
            return Err(Code::TIMEOUT);
        }
        let until_event =
            next.filter(|_| !running.clock.is_manual()).map_or(i64::MAX, |event| event.at - now);
        world = wait(world, Some(duration(left.min(until_event))));
    }
}

/// What is there after the door: the wait itself holds no lock.
pub(crate) fn enter(call: &'static str) -> Result<(), Code> {
    World::enter(call, None).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;

    #[test]
    fn each_event_comes_once_and_in_order() {
        let scenario = Scenario::parse(
            r#"{"gpus": [{"xids": [{"t_s": 3, "xid": 48}, {"t_s": 1, "xid": 13}, {"t_s": 3, "xid": 79}]},
                {"xids": [{"t_s": 2, "xid": 31}]}, {"xids": [{"t_s": 2, "xid": 62}]}]}"#,
        )
        .expect("scenario");
        let mut sets = Sets::default();
        let set = sets.create();
        sets.register(set, 0, XID, 0).expect("registered");
        sets.register(set, 0, XID, 2 * SECOND).expect("registered again: nothing is skipped");
        sets.register(set, 1, XID, 2 * SECOND).expect("registered when its event is over");
        sets.register(set, 2, 1, 0).expect("registered for something else");
        let mut seen = Vec::new();
        while let Some(event) = sets.next(set, &scenario).expect("a set") {
            sets.deliver(set, event);
            seen.push((event.gpu, event.xid));
        }
        assert_eq!(seen, [(0, 13), (0, 48), (0, 79)]);
        assert_eq!(sets.free(set), Ok(()));
        assert_eq!(sets.next(set, &scenario), Err(Code::INVALID_ARGUMENT));
    }
}
