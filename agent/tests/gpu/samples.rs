//! What a pass reads: the scenario's values, each with its own return code, and the energy that they amount to.

use agent::gpu::nvml::NvmlSource;
use agent::gpu::pace::{Steps, interval};
use agent::gpu::{Batch, GpuSource, Gpus, Signals, SourceError};
use common::ids::Nanos;
use common::telemetry::energy::{EnergyInput, Method, window_energy};
use common::telemetry::{GpuSample, PowerSample, Record, Window};

use crate::support::Fake;

pub(crate) fn power(source: &mut NvmlSource) -> Vec<PowerSample> {
    let mut batch = Batch::default();
    source.power(Gpus::NONE, &mut batch).unwrap();
    assert_eq!(batch.failures, []);
    batch.samples
}

pub(crate) fn slow(source: &mut NvmlSource) -> Vec<GpuSample> {
    let mut batch = Batch::default();
    source.slow(Gpus::NONE, Signals::MOVING.and(Signals::ECC).and(Signals::LIMITS), &mut batch).unwrap();
    assert_eq!(batch.failures, []);
    batch.samples
}

#[test]
fn everything_else_is_the_scenario_s() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{
            "memory": {"used_mib": [[0, 0], [10, 1000]]}, "utilization_pct": {"gpu": 80, "memory": 30},
            "clocks_mhz": {"sm": 1755}, "temperature_c": {"gpu": 61, "memory": 72}, "pstate": [[0, 2]],
            "throttle": [[0, 0], [2, 4], [5, 32]], "ecc": {"corrected": [[1, 3]], "uncorrected": [[1, 1]]},
            "pcie": {"tx_kib_s": 100, "rx_kib_s": 200},
            "nvlink": {"tx_kib_s": 300, "rx_kib_s": 400}, "limits_w": {"enforced": 650}}]}"#,
    );
    let mut source = fake.source();
    source.inventory().unwrap();
    fake.advance_ms(10_000);
    let [sample] = slow(&mut source)[..] else { panic!("one GPU") };
    let mib = |mib: u64| Some(mib << 20);
    assert_eq!(
        sample,
        GpuSample {
            gpu: 0,
            at: Nanos::from_secs(10),
            memory_used_bytes: mib(1000),
            memory_reserved_bytes: mib(600),
            utilisation_percent: Some(80),
            memory_utilisation_percent: Some(30),
            sm_clock_mhz: Some(1755),
            memory_clock_mhz: Some(3201),
            temperature_c: Some(61),
            memory_temperature_c: Some(72),
            throttle_reasons: Some(32),
            power_throttled: Some(Nanos::from_secs(3)),
            thermal_throttled: Some(Nanos::from_secs(5)),
            performance_state: Some(2),
            ecc_corrected: Some(3),
            ecc_uncorrected: Some(1),
            pcie_sent_bytes: Some(10 * 100 * 1024),
            pcie_received_bytes: Some(10 * 200 * 1024),
            nvlink_sent_bytes: Some(10 * 300 * 1024),
            nvlink_received_bytes: Some(10 * 400 * 1024),
            limit_enforced_mw: Some(650_000),
        }
    );
}

/// Read as the sampler does, a load that switches amounts to what it used.
#[test]
fn samples_amount_to_the_energy_that_was_used() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [
            {"power_w": {"square": {"low": 120, "high": 550, "period_s": 0.73, "duty": 0.5}}, "energy": {"phase_s": 0.037}}]}"#,
    );
    let mut source = fake.source();
    source.inventory().unwrap();
    let mut samples = Vec::new();
    for _ in 0..600 {
        fake.advance_ms(20);
        samples.extend(power(&mut source));
    }
    let window = Window { from: Nanos::from_millis(1030), to: Nanos::from_millis(9490) };
    let energy = window_energy(&samples, window, &EnergyInput::default());
    let truth = fake.control.true_joules(0, 1_030_000, 9_490_000);
    assert_eq!(energy.method, Method::Counter);
    let ratio = energy.joules.unwrap() / truth;
    assert!((0.98..1.02).contains(&ratio), "{energy:?} of {truth}");
}

#[test]
fn the_counter_s_period_is_found_and_decides_how_often_it_is_read() {
    for (period, poll, ms) in [("0.1", 3, 100), ("0.02", 3, 20), ("0.25", 5, 250)] {
        let fake =
            Fake::new(&format!(r#"{{"clock": "manual", "gpus": [{{"energy": {{"period_s": {period}}}}}]}}"#));
        let mut source = fake.source();
        source.inventory().unwrap();
        let mut steps = Steps::default();
        for _ in 0..3000 / poll {
            fake.advance_ms(poll);
            let [sample] = power(&mut source)[..] else { panic!("one GPU") };
            steps.read(sample.at, sample.energy_mj.unwrap());
        }
        let found = steps.period().unwrap();
        assert!(found.0.abs_diff(ms * 1_000_000) <= poll * 1_000_000, "{period}: {found:?}");
        let every = interval([found]);
        assert!(every == Nanos(found.0 / 5) || every == Nanos::from_millis(5), "{period}: {every:?}");
    }
}

/// In real time the sampler finds it too, and reads at a fifth of it.
#[test]
fn the_sampler_finds_the_period_before_it_says_that_it_runs() {
    let fake = Fake::new(r#"{"gpus": [{"energy": {"period_s": 0.25}}]}"#);
    let mut watched = fake.sampler_with(|config| config.looking = Nanos::from_secs(4));
    let running = watched.event(common::telemetry::EventKind::Running);
    assert!(running.message.contains("energy counters move every"), "{}", running.message);
    let interval = watched.sampler().counts().interval.unwrap().as_secs_f64();
    let inventory = watched.sampler().inventory();
    let period = inventory[0].counter_period.unwrap().as_secs_f64();
    assert!((0.7..1.4).contains(&(period / 0.25)), "{period}");
    assert!((0.9..1.1).contains(&(interval * 5.0 / period)), "{interval} {period}");
    let told = |record: &Record| matches!(record, Record::Inventory(gpus) if *gpus == inventory);
    assert!(watched.records.iter().any(told), "an inventory with the period is handed on");
    assert_eq!(watched.stop(), Vec::<&str>::new());
}

#[test]
fn a_field_that_fails_is_none_with_its_reason_and_the_others_go_on() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{}, {}], "calls": [
            {"call": "nvmlDeviceGetFieldValues", "field": 186, "gpu": 1, "from_s": 5, "code": "NO_DATA"},
            {"call": "nvmlDeviceGetUtilizationRates", "gpu": 0, "from_s": 5, "code": 12345}]}"#,
    );
    let mut source = fake.source();
    source.inventory().unwrap();
    fake.advance_ms(6000);
    let mut batch = Batch::default();
    source.power(Gpus::NONE, &mut batch).unwrap();
    let [first, second] = batch.samples[..] else { panic!("{batch:?}") };
    assert!(first.instant_mw.is_some() && second.instant_mw.is_none());
    assert!(second.energy_mj.is_some() && second.average_mw.is_some());
    let [failure] = &batch.failures[..] else { panic!("{batch:?}") };
    assert_eq!((failure.gpu, failure.signal.name()), (1, "instant_mw"));
    assert!(matches!(failure.error, SourceError::Transient(_)), "{failure:?}");

    let mut batch = Batch::default();
    source.slow(Gpus::NONE, Signals::MOVING, &mut batch).unwrap();
    assert_eq!(batch.samples.len(), 2);
    assert!(batch.samples[0].utilisation_percent.is_none() && batch.samples[0].temperature_c.is_some());
    assert!(
        batch.failures.iter().all(|f| f.gpu == 0 && matches!(f.error, SourceError::Unsupported(_))),
        "{batch:?}"
    );
}
