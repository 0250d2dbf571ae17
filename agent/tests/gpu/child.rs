//! The child that asks CUDA: what it answers, and what becomes of it when the driver is not what it should be.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agent::gpu::GpuSource;
use agent::gpu::nvml::NvmlSource;
use agent::gpu::probe::{Burn, Child, ChildState, CudaView, Load, run_child, seen};
use common::clock::SystemClock;
use common::ids::Nanos;

use crate::support::Fake;

/// A folder with the fake driver, as the environment names it.
struct Driver {
    folder: tempfile::TempDir,
    environment: BTreeMap<String, String>,
}

impl Driver {
    fn new(scenario: &str) -> Self {
        Self::without(&[], scenario)
    }

    fn without(symbols: &[&str], scenario: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fake_cuda::library::place(folder.path(), symbols).unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        let environment = [("LD_LIBRARY_PATH", path.as_str()), ("FAKE_CUDA_SCENARIO", scenario)];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Self { folder, environment }
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    fn ask(&self, burn: Option<Burn>) -> Result<CudaView, ChildState> {
        let child = Child {
            program: PathBuf::from(env!("CARGO_BIN_EXE_agent")),
            environment: self.environment.clone(),
            burn,
            patience: Nanos::from_secs(60),
        };
        run_child(&child, &SystemClock)
    }
}

const TWO: &str =
    r#"{"devices": [{}, {"name": "NVIDIA TEST", "cc": [8, 6], "memory_mib": 1024, "sms": 84, "speed": 2}]}"#;

#[test]
fn the_view_is_that_of_the_environment_it_was_asked_in() {
    let view = Driver::new(TWO).ask(None).unwrap();
    let names: Vec<&str> = view.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["NVIDIA TEST", "NVIDIA H200"], "CUDA's own order is the fastest first");
    assert_eq!(view.driver, Some(13_000));
    let first = &view.devices[0];
    assert_eq!((first.ordinal, first.compute_capability, first.multiprocessors), (0, Some((8, 6)), Some(84)));
    assert_eq!(first.memory_total_bytes, Some(1024 << 20));
    assert_eq!(first.memory_free_bytes, None, "that takes a context");
    assert_eq!(first.uuid, "GPU-00000001-fa4e-4000-8000-000000000001");
    assert_eq!(first.pci_bus_id, "00000000:1A:00.0");

    let by_bus = Driver::new(TWO).with("CUDA_DEVICE_ORDER", "PCI_BUS_ID").ask(None).unwrap();
    assert_eq!(by_bus.devices[0].name, "NVIDIA H200");
    let one = Driver::new(TWO).with("CUDA_VISIBLE_DEVICES", &first.uuid).ask(None).unwrap();
    assert_eq!(one.devices.len(), 1);
    let none = Driver::new(TWO).with("CUDA_VISIBLE_DEVICES", "-1").ask(None).unwrap();
    assert_eq!(none.devices, [], "no device is an answer");

    // And it is matched with the driver's list by what a GPU is, not by a number.
    let fake = Fake::new(r#"{"clock": "manual", "gpus": [{}, {}]}"#);
    let mut source: NvmlSource = fake.source();
    let inventory = source.inventory().unwrap().gpus;
    let gpus = seen(&one, &inventory);
    assert!(!gpus.has(0) && gpus.has(1));
    assert!(seen(&none, &inventory).is_empty());
}

#[test]
fn a_load_is_done_in_bursts_whose_instants_are_told() {
    let driver = Driver::new(TWO);
    let burns = driver.folder.path().join("burns");
    let driver = driver.with("FAKE_NVML_BURN_FILE", burns.to_str().unwrap());
    let ms = Nanos::from_millis;
    let burn = Burn {
        ordinal: 1,
        length: ms(300),
        on: Some(ms(20)),
        off: ms(30),
        hold_bytes: 1 << 30,
        ..Burn::default()
    };
    let view = driver.ask(Some(burn)).unwrap();
    let device = &view.devices[1];
    assert_eq!(device.memory_total_bytes.unwrap() - device.memory_free_bytes.unwrap(), 0, "before the load");
    let burnt = view.burnt.unwrap();
    assert!(burnt.kernels > 0 && burnt.per_second > 0.0, "{burnt:?}");
    assert!(burnt.bursts.len() > 1, "{burnt:?}");
    assert!(burnt.bursts.windows(2).all(|pair| pair[0].0 < pair[0].1 && pair[0].1 <= pair[1].0), "{burnt:?}");
    let busy: u64 = burnt.bursts.iter().map(|(from, to)| to.0 - from.0).sum();
    assert_eq!(busy, burnt.busy.0);

    // The kernels that ran are those of the bursts, besides the few that make out how long one takes.
    let lines = std::fs::read_to_string(burns).unwrap();
    let extra = lines.lines().count() as u64 - burnt.kernels;
    assert!((1..=8).contains(&extra), "{extra}");
    assert!(lines.lines().all(|line| line.ends_with("GPU-00000000-fa4e-4000-8000-000000000000")), "{lines}");

    let read = Burn { load: Load::Read, length: ms(50), ..Burn::default() };
    assert!(driver.ask(Some(read)).unwrap().burnt.unwrap().per_second > 0.0);
}

#[test]
fn whatever_the_driver_does_is_a_state_of_the_child() {
    // No driver at all: the loader looks into an empty folder, and this machine has none.
    let mut absent = Driver::new("{}");
    let empty = tempfile::tempdir().unwrap();
    absent.environment.insert("LD_LIBRARY_PATH".into(), empty.path().to_str().unwrap().into());
    let state = absent.ask(None);
    assert!(matches!(state, Err(ChildState::Absent(ref m)) if m.contains("libcuda")), "{state:?}");

    let rule = |rule: &str| Driver::new(&format!(r#"{{"calls": [{rule}]}}"#));
    let state = rule(r#"{"call": "cuInit", "code": 12345}"#).ask(None);
    assert!(
        matches!(state, Err(ChildState::Failed(ref m)) if m.contains("cuInit") && m.contains("12345")),
        "{state:?}"
    );
    let state = rule(r#"{"call": "cuDeviceGetName", "code": "INVALID_DEVICE"}"#).ask(None);
    assert!(matches!(state, Err(ChildState::Failed(ref m)) if m.contains("INVALID_DEVICE")), "{state:?}");

    let state = rule(r#"{"call": "cuDeviceGetCount", "crash": true}"#).ask(None);
    let Err(ChildState::Crashed { signal, said }) = state else { panic!("{state:?}") };
    assert_eq!(signal, 6);
    assert!(said.contains("cuDeviceGetCount crashes"), "{said}");

    let state = Driver::without(&["cuDeviceGetName"], "{}").ask(None);
    assert!(
        matches!(state, Err(ChildState::Failed(ref m)) if m.contains("lacks cuDeviceGetName")),
        "{state:?}"
    );
    let old = Driver::without(&["cuDeviceGetUuid_v2"], "{}").ask(None);
    assert_eq!(old.unwrap().devices.len(), 1, "the first form of the call is enough");

    // Nothing that a child prints before it gives up is taken for an answer.
    let child = Child {
        program: PathBuf::from("/bin/false"),
        environment: BTreeMap::new(),
        burn: None,
        patience: Nanos::from_secs(60),
    };
    assert!(matches!(run_child(&child, &SystemClock), Err(ChildState::GaveUp { status: 1, .. })));
    let missing = Child { program: PathBuf::from("/nowhere/agent"), ..child };
    assert!(matches!(run_child(&missing, &SystemClock), Err(ChildState::NotStarted(_))));
}

#[test]
fn a_driver_that_hangs_is_not_waited_for() {
    let driver = Driver::new(r#"{"calls": [{"call": "cuInit", "delay_ms": 600000}]}"#);
    let child = Child {
        program: PathBuf::from(env!("CARGO_BIN_EXE_agent")),
        environment: driver.environment.clone(),
        burn: None,
        patience: Nanos::from_secs(1),
    };
    assert_eq!(run_child(&child, &SystemClock), Err(ChildState::TimedOut { seconds: 1 }));
}
