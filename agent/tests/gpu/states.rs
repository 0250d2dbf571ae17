//! The states of telemetry, each one event with words that help: no library, no driver, no permission, no GPU, nothing to
//! read, calls that hang. None of them panics, and none of them stops the end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::gpu::nvml::NvmlSource;
use agent::gpu::{Batch, Fault, Found, GpuSource, Gpus, Signals, SourceError};
use common::clock::{Clock, SystemClock};
use common::ids::Nanos;
use common::telemetry::{EventKind, GpuInfo, GpuProcesses, GpuSample, PowerSample, Record};

use crate::support::{Fake, Watched, of_kind};

/// The one event of a sampler that cannot run, and how it tries again.
fn state(fake: &Fake) -> (EventKind, String) {
    told(fake.sampler_with(|config| config.retry = Nanos::from_millis(10)))
}

fn told(mut watched: Watched) -> (EventKind, String) {
    watched.until("a state", |records| records.iter().any(|r| matches!(r, Record::Event(_))));
    // It is tried again and again, and told once.
    while watched.sampler().counts().openings < 4 {
        watched.until("nothing more", |_| true);
    }
    let events = watched.events();
    assert_eq!(watched.stop(), Vec::<&str>::new());
    assert_eq!(events.len(), 1, "{events:#?}");
    (events[0].kind, events[0].message.clone())
}

fn library(path: &Path) -> (EventKind, String) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let source = NvmlSource::new(Some(path.as_os_str()), Arc::clone(&clock));
    told(Watched::new(Box::new(source), clock, |config| config.retry = Nanos::from_millis(10)))
}

#[test]
fn without_a_library_that_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let (kind, message) = library(&folder.path().join("libnvidia-ml.so.1"));
    assert_eq!(kind, EventKind::SourceAbsent);
    assert!(message.contains("--nvml-lib") && message.contains("driver"), "{message}");

    let text = folder.path().join("text.so");
    std::fs::write(&text, "not a library").unwrap();
    assert_eq!(library(&text).0, EventKind::SourceAbsent);

    // A library that is none of NVIDIA's: the fake of the other one.
    let cuda = fake_cuda::library::place(folder.path(), &[]).unwrap();
    let (kind, message) = library(&cuda);
    assert_eq!(kind, EventKind::SourceAbsent);
    assert!(message.contains("is not NVML"), "{message}");
}

#[test]
fn what_init_answers_becomes_a_state() {
    for (code, kind, says) in [
        ("DRIVER_NOT_LOADED", EventKind::DriverUnusable, "modprobe"),
        ("LIB_RM_VERSION_MISMATCH", EventKind::DriverUnusable, "different versions"),
        ("NO_PERMISSION", EventKind::Denied, "/dev/nvidiactl"),
        ("UNKNOWN", EventKind::DriverUnusable, "does not open"),
        ("GPU_IS_LOST", EventKind::DriverUnusable, "kernel's log"),
    ] {
        let (told, message) = state(&Fake::new(&format!(r#"{{"init_error": "{code}"}}"#)));
        assert_eq!(told, kind, "{code}: {message}");
        assert!(message.contains(says), "{code}: {message}");
    }
}

#[test]
fn no_gpu_no_permission_and_nothing_to_read_are_three_things() {
    let (kind, message) = state(&Fake::new(r#"{"gpus": []}"#));
    assert_eq!(kind, EventKind::NoDevices);
    assert!(message.contains("NVIDIA_VISIBLE_DEVICES"), "{message}");

    let denied = r#"{"calls": [{"call": "nvmlDeviceGetHandleByIndex_v2", "code": "NO_PERMISSION"}]}"#;
    assert_eq!(state(&Fake::new(denied)).0, EventKind::Denied);

    // A Jetson: init and count succeed, and that is all.
    let calls: Vec<String> = [
        "FieldValues",
        "TotalEnergyConsumption",
        "PowerUsage",
        "UtilizationRates",
        "MemoryInfo*",
        "ClockInfo",
        "Temperature",
        "PerformanceState",
        "CurrentClocks*",
        "ViolationStatus",
        "TotalEccErrors",
        "EnforcedPowerLimit",
        "ComputeRunningProcesses_v3",
    ]
    .iter()
    .map(|call| format!(r#"{{"call": "nvmlDeviceGet{call}", "code": "NOT_SUPPORTED"}}"#))
    .collect();
    let (kind, message) = state(&Fake::new(&format!(r#"{{"calls": [{}]}}"#, calls.join(","))));
    assert_eq!(kind, EventKind::NoTelemetry, "{message}");
    let may_not: Vec<String> =
        calls.iter().map(|call| call.replace("NOT_SUPPORTED", "NO_PERMISSION")).collect();
    let (kind, message) = state(&Fake::new(&format!(r#"{{"calls": [{}]}}"#, may_not.join(","))));
    assert_eq!(kind, EventKind::Denied, "{message}");
}

/// A library may lack what the wrapper takes for granted, and what it calls when it is dropped.
#[test]
fn missing_symbols_are_no_panic() {
    let all = [
        "nvmlShutdown",
        "nvmlEventSetFree",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetViolationStatus",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    ];
    let fake = Fake::without(&all, "{}");
    let mut watched = fake.sampler_with(|_| {});
    watched.event(EventKind::Running);
    let samples = watched.power(0, 5);
    assert!(samples.iter().all(|s| s.energy_mj.is_some() && s.average_mw.is_some()));
    assert_eq!(watched.stop(), Vec::<&str>::new());
    assert!(!watched.kinds().contains(&EventKind::Degraded), "{:#?}", watched.events());
}

#[test]
fn a_source_that_comes_later_is_found() {
    let fake = Fake::new(r#"{"gpus": []}"#);
    let mut watched = fake.sampler_with(|config| config.retry = Nanos::from_millis(20));
    watched.event(EventKind::NoDevices);
    assert!(fake.control.load(r#"{"gpus": [{}]}"#));
    watched.event(EventKind::Running);
    assert!(!watched.power(0, 3).is_empty());
    watched.stop();
}

/// A source that panics, as a wrapper of a library might.
struct Panics;

impl GpuSource for Panics {
    fn inventory(&mut self) -> Result<Found, SourceError> {
        Ok(Found { gpus: vec![GpuInfo::default()], trouble: Vec::new() })
    }

    fn power(&mut self, _: Gpus, _: &mut Batch<PowerSample>) -> Result<(), SourceError> {
        panic!("as the test says")
    }

    fn slow(&mut self, _: Gpus, _: Signals, out: &mut Batch<GpuSample>) -> Result<(), SourceError> {
        out.samples.push(GpuSample::default());
        Ok(())
    }

    fn processes(&mut self, _: Gpus, _: &mut Batch<GpuProcesses>) -> Result<(), SourceError> {
        Ok(())
    }

    fn fault(&mut self, _: Nanos) -> Result<Option<Fault>, SourceError> {
        Err(SourceError::Unsupported("no faults".into()))
    }

    fn reopen(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    fn another(&self) -> Box<dyn GpuSource> {
        Box::new(Self)
    }
}

#[test]
fn a_panic_stays_in_its_thread() {
    let mut watched = Watched::new(Box::new(Panics), Arc::new(SystemClock), |_| {});
    let degraded = watched.event(EventKind::Degraded);
    assert!(degraded.message.contains("gpu-fast"), "{}", degraded.message);
    let before = watched.records.len();
    watched.until("the rest", |records| records[before..].iter().any(|r| matches!(r, Record::Gpu(_))));
    assert_eq!(watched.stop(), Vec::<&str>::new());
}

/// Energy hangs: that is told, and told again when it is over. Neither the end nor anything else waits for it.
#[test]
fn a_call_that_hangs_is_a_state_and_so_is_its_end() {
    let fake = Fake::new(
        r#"{"clock": "manual", "calls": [{"call": "nvmlDeviceGetFieldValues", "from_s": 5, "to_s": 9, "hang": true}]}"#,
    );
    let mut watched = fake.sampler_with(|config| config.interval = Some(Nanos::from_millis(20)));
    watched.event(EventKind::Running);
    watched.power(0, 3);
    fake.advance_ms(5000);
    watched.event(EventKind::Stalled);
    let before = watched.records.len();
    fake.advance_ms(4000);
    watched
        .until("readings again", |records| of_kind(&records[before..], EventKind::Running).next().is_some());
    watched.power(0, 3);
    assert_eq!(watched.stop(), Vec::<&str>::new());
}

#[test]
fn the_end_does_not_wait_for_a_call_that_hangs_for_ever() {
    let fake = Fake::new(
        r#"{"clock": "manual", "calls": [{"call": "nvmlDeviceGetFieldValues", "from_s": 5, "to_s": 9, "hang": true}]}"#,
    );
    let mut watched = fake.sampler_with(|config| config.interval = Some(Nanos::from_millis(20)));
    watched.power(0, 3);
    fake.advance_ms(5000);
    watched.event(EventKind::Stalled);
    let records = watched.sampler().records.clone();
    let stuck = watched.stop_within(Duration::from_millis(200));
    assert!(stuck.contains(&"gpu-fast"), "{stuck:?}");
    while records.take(Duration::ZERO).is_some() {}
    // So that no thread of this test outlives it in a library of its own.
    fake.advance_ms(4000);
}

/// The slow calls hang; energy goes on as if nothing were.
#[test]
fn a_slow_call_that_hangs_does_not_stop_energy() {
    let fake = Fake::new(
        r#"{"clock": "manual", "calls": [
            {"call": "nvmlDeviceGetUtilizationRates", "from_s": 5, "to_s": 9, "hang": true}]}"#,
    );
    let mut watched = fake.sampler_with(|config| config.interval = Some(Nanos::from_millis(20)));
    watched.event(EventKind::Running);
    watched.until("a slow sample", |records| records.iter().any(|r| matches!(r, Record::Gpu(_))));
    fake.advance_ms(5000);
    let called = fake.control.calls("nvmlDeviceGetUtilizationRates");
    let mut waited = watched.power(0, 10).len();
    while fake.control.calls("nvmlDeviceGetUtilizationRates") == called {
        waited += watched.power(0, 1).len();
    }
    // One call was begun and has not returned: no slow sample comes, and power does.
    let before = watched.records.len();
    let samples = watched.power(0, 100);
    assert!(samples.len() >= 100 && waited >= 10);
    let slow = watched.records[before..].iter().filter(|r| matches!(r, Record::Gpu(_))).count();
    assert!(slow <= 1, "{slow} slow samples while a call hung");
    let degraded = watched.event(EventKind::Degraded);
    assert!(degraded.message.contains("memory, clocks and processes"), "{}", degraded.message);
    fake.advance_ms(4000);
    let before = watched.records.len();
    watched
        .until("slow samples again", |records| records[before..].iter().any(|r| matches!(r, Record::Gpu(_))));
    assert_eq!(watched.stop(), Vec::<&str>::new());
}
