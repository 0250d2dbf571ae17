//! What the barrier must never do, whatever the order of events.

use common::ids::{Incarnation, Seq};
use common::offset::Estimate;
use proptest::prelude::*;

use super::*;

const PATIENCE: Patience =
    Patience { prepare: Nanos(1_000), run: Nanos(10_000), drain: Nanos(500), lead: Nanos(300) };

fn name(i: usize) -> AgentName {
    format!("a{i}").parse().unwrap()
}

fn digest(i: usize) -> Digest {
    Digest::of(&[i as u8])
}

fn machine(n: usize) -> Machine {
    Machine::new(Epoch(3), (0..n).map(|i| (name(i), digest(i))).collect(), PATIENCE, Nanos(0))
}

fn ready(i: usize) -> Event {
    let clock = Estimate { offset_ns: 0, bound_ns: 1, drift: None };
    Event::Ready(
        name(i),
        ReadyReport { epoch: Epoch(3), slice: digest(i), slice_count: 1, clock, warnings: vec![] },
    )
}

fn drained(i: usize) -> Event {
    let report = DrainReport {
        epoch: Epoch(3),
        incarnation: Incarnation(1),
        traces: 1,
        next_seq: Seq(1),
        traces_lost: 0,
        clock: Estimate { offset_ns: 0, bound_ns: 1, drift: None },
        start_skew: Nanos(0),
        health: common::fleet::Health::default(),
    };
    Event::Drained(name(i), report)
}

fn ending(effects: &[Effect]) -> Option<&Ending> {
    effects.iter().find_map(|e| if let Effect::End(end) = e { Some(end) } else { None })
}

fn starts(effects: &[Effect]) -> bool {
    effects.iter().any(|e| matches!(e, Effect::TellAll(ToAgent::Start(_))))
}

#[test]
fn the_way_through() {
    let mut m = machine(2);
    assert!(m.on(ready(0), Nanos(10)).is_empty());
    let armed = m.on(ready(1), Nanos(20));
    assert_eq!(armed, [Effect::TellAll(ToAgent::Arm { epoch: Epoch(3), start: Nanos(320) })]);
    assert!(m.on(Event::Armed(name(0)), Nanos(30)).is_empty());
    let started = m.on(Event::Armed(name(1)), Nanos(40));
    assert_eq!(started, [Effect::Commit, Effect::TellAll(ToAgent::Start(Epoch(3)))]);
    assert!(m.on(drained(1), Nanos(5_000)).is_empty());
    let end = m.on(drained(0), Nanos(6_000));
    let Some(Ending::Ran { start, drained, lost, stopped: false, engine_died: None, cut: None }) =
        ending(&end)
    else {
        panic!("{end:?}")
    };
    assert_eq!((*start, drained.len(), lost.len()), (Nanos(320), 2, 0));
}

#[test]
fn a_missing_answer_calls_it_off_and_names_who_is_missing() {
    let mut m = machine(2);
    m.on(ready(1), Nanos(10));
    let end = m.on(Event::Tick, Nanos(1_000));
    assert_eq!(ending(&end), Some(&Ending::CalledOff("no answer in time: ready missing from a0".into())));
    let mut m = machine(2);
    m.on(ready(0), Nanos(10));
    m.on(ready(1), Nanos(10));
    m.on(Event::Armed(name(0)), Nanos(20));
    // The last answer comes after two thirds of the lead: the word to start might come after T0.
    let end = m.on(Event::Armed(name(1)), Nanos(215));
    assert!(matches!(ending(&end), Some(Ending::CalledOff(_))) && !starts(&end));
}

#[test]
fn another_slice_calls_it_off() {
    let mut m = machine(1);
    let Event::Ready(_, report) = ready(5) else { unreachable!() };
    let end = m.on(Event::Ready(name(0), report), Nanos(1));
    assert!(matches!(ending(&end), Some(Ending::CalledOff(text)) if text.contains("another slice")));
}

#[test]
fn a_lost_agent_stops_the_others_and_is_named() {
    let mut m = machine(2);
    for event in [ready(0), ready(1), Event::Armed(name(0)), Event::Armed(name(1))] {
        m.on(event, Nanos(10));
    }
    let effects = m.on(Event::Lost(name(0), "silent".into()), Nanos(400));
    assert!(matches!(&effects[..], [Effect::TellAll(ToAgent::Stop { cancel: false, .. })]));
    let end = m.on(drained(1), Nanos(500));
    let Some(Ending::Ran { lost, drained, .. }) = ending(&end) else { panic!("{end:?}") };
    assert_eq!((lost[&name(0)].as_str(), drained.len()), ("silent", 1));
}

#[test]
fn an_engine_that_died_ends_the_trial_and_is_told() {
    let mut m = machine(1);
    for event in [ready(0), Event::Armed(name(0))] {
        m.on(event, Nanos(10));
    }
    let effects = m.on(Event::EngineDied("signal 9".into()), Nanos(400));
    assert!(matches!(&effects[..], [Effect::TellAll(ToAgent::Stop { cancel: false, .. })]));
    assert!(m.on(Event::EngineDied("again".into()), Nanos(410)).is_empty());
    let end = m.on(drained(0), Nanos(500));
    let Some(Ending::Ran { engine_died, .. }) = ending(&end) else { panic!("{end:?}") };
    assert_eq!(engine_died.as_deref(), Some("signal 9"));
    let mut m = machine(1);
    let end = m.on(Event::EngineDied("signal 9".into()), Nanos(1));
    assert_eq!(ending(&end), Some(&Ending::CalledOff("the engine died: signal 9".into())));
}

proptest! {
    /// Whatever happens in whatever order: it starts at most once and only with everybody armed before T0; it ends at
    /// most once, at the latest by its last deadline; a trial that was called off is never started.
    #[test]
    fn it_starts_and_ends_at_most_once(
        n in 1usize..4, steps in prop::collection::vec((0u8..8, 0usize..4, 0u64..400), 0..60),
    ) {
        let mut m = machine(n);
        let (mut now, mut started, mut ended) = (0, 0, 0);
        let mut armed = BTreeSet::new();
        for (kind, who, by) in steps {
            now += by;
            let event = match kind {
                0 | 1 => ready(who),
                2 | 3 => { armed.insert(who); Event::Armed(name(who)) }
                4 => drained(who),
                5 => Event::Lost(name(who), "gone".into()),
                6 => Event::EngineDied("gone".into()),
                _ => Event::Tick,
            };
            let effects = m.on(event, Nanos(now));
            if starts(&effects) {
                started += 1;
                prop_assert_eq!(ended, 0);
                prop_assert!((0..n).all(|i| armed.contains(&i)));
                prop_assert!(Nanos(now) < m.start().expect("it runs"));
            }
            ended += effects.iter().filter(|e| matches!(e, Effect::End(_))).count();
        }
        for _ in 0..2 {
            now += 20_000;
            ended += m.on(Event::Tick, Nanos(now)).iter().filter(|e| matches!(e, Effect::End(_))).count();
        }
        prop_assert!(started <= 1);
        prop_assert_eq!(ended, 1);
    }
}
