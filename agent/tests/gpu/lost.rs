//! GPUs that go away and come back, counters that begin again, and the driver's errors.

use common::ids::Nanos;
use common::telemetry::{EventKind, Record};

use crate::support::{Fake, of_kind};

const EVERY: Nanos = Nanos::from_millis(10);

#[test]
fn a_lost_gpu_leaves_the_others_running_and_is_back_in_a_new_epoch() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{}, {"lost": [{"from_s": 5, "to_s": 8, "needs_reinit": true}]}]}"#,
    );
    let mut watched = fake.sampler_with(|config| config.interval = Some(EVERY));
    watched.event(EventKind::Running);
    assert!(watched.power(1, 3).iter().all(|sample| sample.epoch == 0));

    fake.advance_ms(5000);
    let lost = watched.event(EventKind::Lost);
    assert_eq!(lost.gpu, Some(1));
    assert!(lost.message.contains("GPU 1 (NVIDIA H200 GPU-"), "{}", lost.message);
    let before = watched.records.len();
    // It is looked for meanwhile, in vain.
    let shutdowns = fake.control.calls("nvmlShutdown");
    let others = watched.power(0, 30);
    while fake.control.calls("nvmlShutdown") == shutdowns {
        watched.power(0, 10);
    }
    assert!(others.iter().all(|sample| sample.epoch == 0 && sample.energy_mj.is_some()));
    assert!(crate::support::power(&watched.records[before..], 1).is_empty(), "of a GPU that is lost");
    assert_eq!(of_kind(&watched.records, EventKind::Lost).count(), 1);

    fake.advance_ms(3000);
    assert_eq!(watched.event(EventKind::Back).gpu, Some(1));
    assert!(watched.power(1, 3).iter().all(|sample| sample.epoch == 1));
    assert!(watched.power(0, 3).iter().all(|sample| sample.epoch == 0));
    let inventory = watched.sampler().inventory();
    assert_eq!(inventory.len(), 2);
    assert!(inventory[1].signals.values().all(|answer| answer == "ok"), "{:?}", inventory[1]);
    assert_eq!(watched.stop(), Vec::<&str>::new());
}

#[test]
fn a_gpu_that_is_lost_from_the_start_has_a_place_and_is_found() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{"lost": [{"from_s": 0, "to_s": 5, "needs_reinit": true}]}, {}]}"#,
    );
    let mut watched = fake.sampler_with(|config| config.interval = Some(EVERY));
    assert_eq!(watched.event(EventKind::Lost).gpu, Some(0));
    watched.power(1, 5);
    fake.advance_ms(6000);
    assert_eq!(watched.event(EventKind::Back).gpu, Some(0));
    watched.power(0, 3);
    let inventory = watched.sampler().inventory();
    let uuids: Vec<&str> = inventory.iter().map(|gpu| &gpu.uuid[..12]).collect();
    assert_eq!(uuids, ["GPU-00000000", "GPU-00000001"]);
    watched.stop();
}

#[test]
fn a_counter_that_begins_again_begins_an_epoch() {
    let fake = Fake::new(r#"{"clock": "manual", "gpus": [{"energy": {"resets_s": [5]}}, {}]}"#);
    let mut watched = fake.sampler_with(|config| config.interval = Some(EVERY));
    watched.event(EventKind::Running);
    fake.advance_ms(4000);
    watched.power(0, 3);
    assert!(watched.power(1, 3).iter().all(|sample| sample.epoch == 0));
    fake.advance_ms(2000);
    let degraded = watched.event(EventKind::Degraded);
    assert!(degraded.message.contains("went back"), "{}", degraded.message);
    assert!(watched.power(0, 3).iter().all(|sample| sample.epoch == 1));
    watched.stop();
    // The clock of the second GPU jumped with the scenario's, which looks like a counter that jumped, or not; what
    // matters is that the order of epochs is that of time.
    let epochs: Vec<u16> =
        crate::support::power(&watched.records, 0).iter().map(|sample| sample.epoch).collect();
    assert!(epochs.is_sorted(), "{epochs:?}");
}

/// A container whose devices were taken away: the library answers everything with "unknown".
#[test]
fn errors_without_a_reason_that_last_are_a_loss() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{}, {}], "calls": [
            {"call": "nvmlDeviceGet*", "gpu": 0, "from_s": 5, "to_s": 9, "code": "UNKNOWN"}]}"#,
    );
    let mut watched = fake.sampler_with(|config| config.interval = Some(EVERY));
    watched.event(EventKind::Running);
    fake.advance_ms(5000);
    assert_eq!(watched.event(EventKind::Lost).gpu, Some(0));
    watched.power(1, 20);
    fake.advance_ms(4000);
    assert_eq!(watched.event(EventKind::Back).gpu, Some(0));
    watched.power(0, 3);
    watched.stop();
}

#[test]
fn a_signal_that_fails_for_long_is_told_and_so_is_its_return() {
    let fake = Fake::new(
        r#"{"clock": "manual", "calls": [
            {"call": "nvmlDeviceGetFieldValues", "field": 185, "from_s": 5, "to_s": 9, "code": "NOT_SUPPORTED"}]}"#,
    );
    let mut watched = fake.sampler_with(|config| config.interval = Some(EVERY));
    watched.event(EventKind::Running);
    fake.advance_ms(5000);
    let gone = watched.event(EventKind::Degraded);
    assert!(gone.message.contains("average_mw"), "{}", gone.message);
    let samples = watched.power(0, 3);
    assert!(samples.iter().all(|s| s.average_mw.is_none() && s.energy_mj.is_some()), "{samples:?}");
    fake.advance_ms(4000);
    let again =
        |records: &[Record]| of_kind(records, EventKind::Degraded).any(|e| e.message.contains("again"));
    watched.until("its return", again);
    assert!(watched.power(0, 3).iter().all(|s| s.average_mw.is_some()));
    watched.stop();
}

#[test]
fn the_driver_s_errors_are_events_of_their_gpu() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{}, {"xids": [{"t_s": 5, "xid": 79}, {"t_s": 6, "xid": 12345}]}]}"#,
    );
    let mut watched = fake.sampler_with(|config| config.interval = Some(EVERY));
    watched.event(EventKind::Running);
    // Errors from before anybody waited are not told.
    while fake.control.calls("nvmlEventSetWait_v2") == 0 {
        watched.power(0, 1);
    }
    fake.advance_ms(5000);
    let xid = watched.event(EventKind::Xid);
    assert_eq!((xid.gpu, xid.code), (Some(1), Some(79)));
    assert!(xid.message.contains("fallen off the bus"), "{}", xid.message);
    fake.advance_ms(1000);
    watched.until("the other", |records| of_kind(records, EventKind::Xid).any(|e| e.code == Some(12345)));
    watched.stop();
}
