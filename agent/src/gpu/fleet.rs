//! The life of each GPU as its readings tell it: there, gone, back; and whether its energy counter is still the one of
//! before.
//!
//! A pure state machine: it takes in what a pass over the GPUs brought, and gives events. It exists because each
//! failure is harmless once and means something when it lasts, and because two readings of a counter may only be
//! subtracted when nobody began it again between them: that is what an epoch says.
//!
//! Guarded by the tests below and by `tests/gpu/lost.rs`.

use std::collections::BTreeMap;
use std::ops::Range;

use common::ids::Nanos;
use common::telemetry::{Event, EventKind, GpuInfo, PowerSample};

use super::{Batch, Failure, Gpus, Signal, Signals, SourceError, bounds};

/// A signal that fails for this long is gone, and errors of which the library says nothing for this long mean that the
/// GPU is.
const PATIENCE: Nanos = Nanos::from_secs(1);

/// From losing a GPU to looking for it; doubled at each try, up to [`SELDOM`].
const SOON: Nanos = Nanos::from_secs(1);

/// Opening the library again pauses the readings of the other GPUs for a moment: no more often than this at last.
const SELDOM: Nanos = Nanos::from_secs(30);

/// Over at least this long a counter's mean power is looked at: its steps make shorter differences jump.
const LONG_ENOUGH: Nanos = Nanos::from_secs(1);

/// All GPUs of a source.
#[derive(Debug, Default)]
pub struct Fleet(Vec<Life>);

#[derive(Debug, Default)]
struct Life {
    name: String,
    limit_mw: Option<u32>,
    lost: Option<Lost>,
    epoch: u16,
    /// The counter's last reading.
    last: Option<u64>,
    /// An older one, to see how fast it runs.
    anchor: Option<(Nanos, u64)>,
    /// Since when nothing but errors without a reason came.
    doubt: Option<Nanos>,
    failing: BTreeMap<Signal, Failing>,
}

#[derive(Debug, Clone, Copy)]
struct Lost {
    /// When to look for it.
    next: Nanos,
    wait: Nanos,
}

#[derive(Debug, Clone, Copy)]
struct Failing {
    since: Nanos,
    told: bool,
}

impl Fleet {
    /// Takes an inventory in. What is known of a GPU stays.
    pub fn know(&mut self, gpus: &[GpuInfo]) {
        self.0.resize_with(gpus.len(), Life::default);
        for (life, gpu) in self.0.iter_mut().zip(gpus) {
            life.name = format!("GPU {} ({} {})", gpu.index, gpu.name, gpu.uuid);
            let most = gpu.limit_range_mw.map(|(_, most)| most);
            life.limit_mw = most.or(gpu.limit_default_mw).or(gpu.limit_enforced_mw);
        }
    }

    /// Those that are gone: they are not asked.
    #[must_use]
    pub fn lost(&self) -> Gpus {
        let mut lost = Gpus::NONE;
        for (gpu, _) in (0u8..).zip(&self.0).filter(|(_, life)| life.lost.is_some()) {
            lost.insert(gpu);
        }
        lost
    }

    /// A pass over power: gives each sample its epoch.
    pub fn power(&mut self, now: Nanos, batch: &mut Batch<PowerSample>) -> Vec<Event> {
        let mut events = Vec::new();
        for sample in &mut batch.samples {
            let Some(life) = self.0.get_mut(usize::from(sample.gpu)) else { continue };
            if let Some(energy) = sample.energy_mj
                && let Some(why) = life.count(&asked(sample), energy)
            {
                let message = format!("{}: {why}; energy before and after is not one", life.name);
                events.push(event(sample.at, sample.gpu, EventKind::Degraded, message));
            }
            sample.epoch = life.epoch;
        }
        let heard = batch.samples.iter().map(|sample| sample.gpu);
        self.answers(now, heard, batch.asked, &batch.failures, &mut events);
        events
    }

    /// Any pass: who answered what was asked.
    pub fn answers(
        &mut self,
        now: Nanos,
        heard: impl Iterator<Item = u8>,
        asked: Signals,
        failures: &[Failure],
        events: &mut Vec<Event>,
    ) {
        let mut answered = Gpus::NONE;
        for gpu in heard {
            answered.insert(gpu);
            let Some(life) = self.0.get_mut(usize::from(gpu)) else { continue };
            life.doubt = None;
            let failed = |signal: Signal| failures.iter().any(|f| f.gpu == gpu && f.signal == signal);
            let name = &life.name;
            life.failing.retain(|&signal, failing| {
                let again = asked.has(signal) && !failed(signal);
                if again && failing.told {
                    let message = format!("{name}: {signal} is told again");
                    events.push(event(now, gpu, EventKind::Degraded, message));
                }
                !again
            });
        }
        for failure in failures {
            self.failure(now, failure, answered.has(failure.gpu), events);
        }
    }

    fn failure(&mut self, now: Nanos, failure: &Failure, answered: bool, events: &mut Vec<Event>) {
        let Some(life) = self.0.get_mut(usize::from(failure.gpu)) else { return };
        if life.lost.is_some() {
            return;
        }
        match &failure.error {
            SourceError::Lost(_) => return self.lose(now, failure.gpu, &failure.error, events),
            SourceError::Unknown(_) if !answered => {
                let since = *life.doubt.get_or_insert(now);
                if now - since >= PATIENCE {
                    return self.lose(now, failure.gpu, &failure.error, events);
                }
            }
            _ => {}
        }
        let failing = life.failing.entry(failure.signal).or_insert(Failing { since: now, told: false });
        if !failing.told && now - failing.since >= PATIENCE {
            failing.told = true;
            let message = format!("{}: {}", life.name, failure.error);
            events.push(event(now, failure.gpu, EventKind::Degraded, message));
        }
    }

    /// A GPU is gone.
    pub fn lose(&mut self, now: Nanos, gpu: u8, why: &SourceError, events: &mut Vec<Event>) {
        let Some(life) = self.0.get_mut(usize::from(gpu)) else { return };
        if life.lost.is_none() {
            life.lost = Some(Lost { next: now + SOON, wait: SOON });
            life.failing.clear();
            life.doubt = None;
            let message = format!("{} is lost: {why}; see the kernel's log", life.name);
            events.push(event(now, gpu, EventKind::Lost, message));
        }
    }

    /// Whether a lost GPU should be looked for.
    #[must_use]
    pub fn due(&self, now: Nanos) -> bool {
        self.0.iter().any(|life| life.lost.is_some_and(|lost| lost.next <= now))
    }

    /// They were looked for, and those that are still lost are let be for longer.
    pub fn tried(&mut self, now: Nanos) {
        for lost in self.0.iter_mut().filter_map(|life| life.lost.as_mut()) {
            lost.wait = Nanos(lost.wait.0 * 2).min(SELDOM);
            lost.next = now + lost.wait;
        }
    }

    /// A lost GPU answers. Its counter is another one: who knows what happened to it.
    pub fn back(&mut self, now: Nanos, gpu: u8, events: &mut Vec<Event>) {
        let Some(life) = self.0.get_mut(usize::from(gpu)) else { return };
        if life.lost.take().is_some() {
            life.begin();
            let message = format!("{} is back", life.name);
            events.push(event(now, gpu, EventKind::Back, message));
        }
    }
}

impl Life {
    fn begin(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
        (self.last, self.anchor) = (None, None);
    }

    /// Takes a reading of the counter in, and says why it is not the counter of before. It is of some instant of the
    /// call: what a board would have had to draw is taken over the longest time that may lie between two readings.
    fn count(&mut self, asked: &Range<Nanos>, energy: u64) -> Option<String> {
        let why = match (self.last, self.anchor) {
            (Some(last), _) if energy < last => {
                Some(format!("the energy counter went back from {last} to {energy} mJ"))
            }
            (_, Some((since, from))) if asked.end - since >= LONG_ENOUGH => {
                let implied = u128::from(energy - from) * 1_000_000_000 / u128::from((asked.end - since).0);
                let most = u128::from(bounds::implied(self.limit_mw));
                (implied > most).then(|| format!("the energy counter jumped from {from} to {energy} mJ"))
            }
            _ => None,
        };
        if why.is_some() {
            self.begin();
        }
        self.last = Some(energy);
        if self.anchor.is_none_or(|(since, _)| asked.end - since >= LONG_ENOUGH) {
            self.anchor = Some((asked.start, energy));
        }
        why
    }
}

/// From when to when a sample was asked for.
fn asked(sample: &PowerSample) -> Range<Nanos> {
    let half = Nanos(u64::from(sample.width_ns) / 2);
    sample.at - half..sample.at + half
}

fn event(at: Nanos, gpu: u8, kind: EventKind, message: String) -> Event {
    Event { at, gpu: Some(gpu), kind, code: None, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn two() -> Fleet {
        let mut fleet = Fleet::default();
        let gpu = GpuInfo { limit_default_mw: Some(700_000), ..GpuInfo::default() };
        fleet.know(&[gpu.clone(), gpu]);
        fleet
    }

    fn sample(gpu: u8, ms: u64, energy: u64) -> PowerSample {
        PowerSample { gpu, at: Nanos(ms * MS), energy_mj: Some(energy), ..PowerSample::default() }
    }

    fn pass(
        fleet: &mut Fleet,
        ms: u64,
        samples: Vec<PowerSample>,
        failures: &[(u8, Signal, SourceError)],
    ) -> (Vec<u16>, Vec<EventKind>) {
        let failures = failures.iter().cloned().map(|(gpu, signal, error)| Failure { gpu, signal, error });
        let mut batch = Batch { samples, asked: Signals::POWER, failures: failures.collect() };
        let events = fleet.power(Nanos(ms * MS), &mut batch);
        (batch.samples.iter().map(|s| s.epoch).collect(), events.iter().map(|e| e.kind).collect())
    }

    #[test]
    fn a_counter_that_goes_back_begins_an_epoch_of_its_gpu_only() {
        let mut fleet = two();
        pass(&mut fleet, 0, vec![sample(0, 0, 5000), sample(1, 0, 5000)], &[]);
        let (epochs, events) = pass(&mut fleet, 20, vec![sample(0, 20, 10), sample(1, 20, 5001)], &[]);
        assert_eq!((epochs, events), (vec![1, 0], vec![EventKind::Degraded]));
        assert_eq!(pass(&mut fleet, 40, vec![sample(0, 40, 20)], &[]), (vec![1], vec![]));
    }

    #[test]
    fn a_counter_that_jumps_begins_an_epoch_and_one_at_the_limit_does_not() {
        let mut fleet = two();
        // 700 W, in steps of 100 ms, and power may overshoot for a step.
        for ms in (0..3000).step_by(20) {
            let energy = 1 + ms / 100 * 70_000 + if ms > 1500 { 30_000 } else { 0 };
            assert_eq!(pass(&mut fleet, ms, vec![sample(0, ms, energy)], &[]).0, [0], "{ms}");
        }
        let (epochs, _) = pass(&mut fleet, 4100, vec![sample(0, 4100, 90_000_000)], &[]);
        assert_eq!(epochs, [1]);
    }

    /// The driver hung, and its answer is of the end of the call, or of its begin: the counter is the one of before.
    #[test]
    fn a_call_that_took_long_is_no_jump() {
        for late in [true, false] {
            let mut fleet = two();
            let at_the_limit = |ms: u64| 700 * ms;
            for ms in (0..=2000).step_by(20) {
                pass(&mut fleet, ms, vec![sample(0, ms, at_the_limit(ms))], &[]);
            }
            let hung = PowerSample {
                width_ns: 2_500_000_000,
                ..sample(0, 3270, at_the_limit(if late { 4520 } else { 2020 }))
            };
            assert_eq!(pass(&mut fleet, 4520, vec![hung], &[]), (vec![0], vec![]));
            for ms in (4540..8000).step_by(20) {
                let (epochs, events) = pass(&mut fleet, ms, vec![sample(0, ms, at_the_limit(ms))], &[]);
                assert_eq!((epochs, events), (vec![0], vec![]), "{ms}");
            }
        }
    }

    #[test]
    fn a_lost_gpu_is_told_once_looked_for_ever_more_seldom_and_back_in_a_new_epoch() {
        let mut fleet = two();
        let lost = SourceError::Lost("gone".into());
        let (_, events) = pass(
            &mut fleet,
            0,
            vec![sample(1, 0, 1)],
            &[(0, Signal::Energy, lost.clone()), (0, Signal::Average, lost.clone())],
        );
        assert_eq!(events, [EventKind::Lost]);
        assert!(fleet.lost().has(0) && !fleet.lost().has(1));
        assert_eq!(pass(&mut fleet, 20, vec![], &[(0, Signal::Energy, lost)]).1, []);
        let mut tries = Vec::new();
        for second in 0..100 {
            if fleet.due(Nanos::from_secs(second)) {
                tries.push(second);
                fleet.tried(Nanos::from_secs(second));
            }
        }
        assert_eq!(tries, [1, 3, 7, 15, 31, 61, 91]);
        let mut events = Vec::new();
        fleet.back(Nanos::from_secs(100), 0, &mut events);
        fleet.back(Nanos::from_secs(100), 0, &mut events);
        assert_eq!(events.iter().map(|e| e.kind).collect::<Vec<_>>(), [EventKind::Back]);
        assert_eq!(pass(&mut fleet, 100_020, vec![sample(0, 100_020, 7)], &[]).0, [1]);
        assert!(fleet.lost().is_empty());
    }

    #[test]
    fn errors_without_a_reason_mean_nothing_until_they_last() {
        let mut fleet = two();
        let unknown = [(0, Signal::Energy, SourceError::Unknown("?".into()))];
        for ms in (0..900).step_by(20) {
            assert_eq!(pass(&mut fleet, ms, vec![], &unknown).1, [], "{ms}");
        }
        pass(&mut fleet, 900, vec![sample(0, 900, 1)], &[]);
        for ms in (920..1900).step_by(20) {
            assert_eq!(pass(&mut fleet, ms, vec![], &unknown).1, [], "{ms}");
        }
        assert_eq!(pass(&mut fleet, 1920, vec![], &unknown).1, [EventKind::Lost]);
    }

    #[test]
    fn a_signal_that_fails_for_a_second_is_told_once_and_so_is_its_return() {
        let mut fleet = two();
        let denied = [(0, Signal::Average, SourceError::Denied("no".into()))];
        let mut kinds = Vec::new();
        for ms in (0..3000).step_by(20) {
            let failures = if ms < 2000 { &denied[..] } else { &[] };
            let (_, events) = pass(&mut fleet, ms, vec![sample(0, ms, 1 + ms)], failures);
            kinds.extend(events.into_iter().map(|kind| (ms, kind)));
        }
        assert_eq!(kinds, [(1000, EventKind::Degraded), (2000, EventKind::Degraded)]);
        // Now and then is not gone.
        for ms in (3000..9000).step_by(20) {
            let failures = if ms % 60 == 0 { &[] } else { &denied[..] };
            assert_eq!(pass(&mut fleet, ms, vec![sample(0, ms, 1 + ms)], failures).1, []);
        }
    }

    proptest::proptest! {
        /// Whatever the order of readings and losses: epochs only rise, a counter that went back has begun a new one,
        /// and a GPU is lost and back by turns.
        #[test]
        fn epochs_rise_and_losses_take_turns(
            steps in proptest::collection::vec((0u8..2, 0u8..8, 1u64..2000, 0u64..3_000_000), 1..200)
        ) {
            let mut fleet = two();
            let (mut ms, mut last) = (0, [(0u16, 0u64); 2]);
            let mut turns = [Vec::new(), Vec::new()];
            for (gpu, what, later, energy) in steps {
                ms += later;
                let at = Nanos(ms * MS);
                let mut events = Vec::new();
                let place = usize::from(gpu);
                match what {
                    0 => fleet.lose(at, gpu, &SourceError::Lost("gone".into()), &mut events),
                    1 => fleet.back(at, gpu, &mut events),
                    _ if fleet.lost().has(gpu) => {}
                    _ => {
                        let samples = vec![sample(gpu, ms, energy)];
                        let mut batch = Batch { samples, asked: Signals::POWER, failures: Vec::new() };
                        events = fleet.power(at, &mut batch);
                        let (epoch, before) = last[place];
                        let now = batch.samples[0].epoch;
                        proptest::prop_assert!(now >= epoch);
                        proptest::prop_assert!(now > epoch || energy >= before);
                        last[place] = (now, energy);
                    }
                }
                let told = |kind| matches!(kind, EventKind::Lost | EventKind::Back);
                turns[place].extend(events.iter().map(|event| event.kind).filter(|&kind| told(kind)));
            }
            for turns in turns {
                let expected = [EventKind::Lost, EventKind::Back].into_iter().cycle().take(turns.len());
                proptest::prop_assert_eq!(turns.clone(), expected.collect::<Vec<_>>());
            }
        }
    }
}
