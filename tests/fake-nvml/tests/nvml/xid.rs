//! Xid errors as events.

use std::thread;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::event::EventSet;

use crate::harness::{Fake, assert_error, now_ns, wait_until};

fn set_of_all(nvml: &Nvml) -> EventSet<'_> {
    let mut set = nvml.create_event_set().expect("a set");
    for index in 0..nvml.device_count().expect("count") {
        let gpu = nvml.device_by_index(index).expect("a GPU");
        assert!(gpu.supported_event_types().expect("types").contains(EventTypes::CRITICAL_XID_ERROR));
        set = gpu.register_events(EventTypes::CRITICAL_XID_ERROR, set).expect("registered");
    }
    set
}

fn next_event(set: &EventSet<'_>, timeout_ms: u32) -> (u32, u64) {
    let event = set.wait(timeout_ms).expect("an event");
    assert_eq!(event.event_type, EventTypes::CRITICAL_XID_ERROR);
    match event.event_data {
        Some(XidError::Value(xid)) => (event.device.index().expect("index"), xid),
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_come_when_they_happen_and_once() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{"xids": [{"t_s": 3, "xid": 79}, {"t_s": 1, "xid": 13}]},
            {"xids": [{"t_s": 2, "xid": 31}]}]}"#,
    );
    let nvml = fake.open();
    let set = set_of_all(&nvml);
    assert_error(set.wait(0).map(drop), "Timeout");
    fake.advance_ms(1000);
    assert_eq!(next_event(&set, 0), (0, 13));
    assert_error(set.wait(0).map(drop), "Timeout");
    fake.advance_ms(2000);
    assert_eq!(next_event(&set, 0), (1, 31));
    assert_eq!(next_event(&set, 0), (0, 79));
    assert_error(set.wait(1).map(drop), "Timeout");

    let late = set_of_all(&nvml);
    assert_error(late.wait(0).map(drop), "Timeout");
}

#[test]
fn who_waits_is_woken_by_the_clock() {
    let fake = Fake::new(r#"{"clock": "manual", "gpus": [{"xids": [{"t_s": 1, "xid": 79}]}]}"#);
    let nvml = fake.open();
    let set = set_of_all(&nvml);
    thread::scope(|scope| {
        let waiting = scope.spawn(move || next_event(&set, 60_000));
        wait_until("wait", || fake.control.calls("nvmlEventSetWait_v2") == 1);
        fake.advance_ms(1000);
        assert_eq!(waiting.join().expect("an event"), (0, 79));
    });
}

#[test]
fn on_the_real_clock_an_event_ends_the_wait() {
    // A machine that is too busy to register within 0.2 s gets another try, with a scenario of its own.
    for _ in 0..100 {
        let fake = Fake::new(r#"{"gpus": [{"xids": [{"t_s": 0.2, "xid": 79}]}]}"#);
        let nvml = fake.open();
        let set = set_of_all(&nvml);
        if now_ns() - fake.control.t0_ns().expect("a zero") < 200_000_000 {
            assert_eq!(next_event(&set, 60_000), (0, 79));
            return;
        }
    }
    panic!("this machine never registered an event in time");
}
