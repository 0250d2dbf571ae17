//! The energy counter against the truth.

use nvml_wrapper::enums::device::SampleValue;

use crate::harness::{ENERGY, Fake, assert_close, fields};

/// A period of the counter, and its resolution in joules, for a test's bound.
const PERIOD_MS: i64 = 100;
const RESOLUTION_J: f64 = 0.001;

/// Reads the counter at each of its steps and once between two of them, and compares.
fn assert_counts_the_truth(power: &str, known_joules_of_10_s: f64) {
    let fake = Fake::new(&format!(r#"{{"clock": "manual", "gpus": [{{"power_w": {power}}}]}}"#));
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    assert_close(fake.joules_until_ms(10_000), known_joules_of_10_s, 1e-6);

    let start = gpu.total_energy_consumption().expect("energy");
    for step in 0..100 {
        let at_step = gpu.total_energy_consumption().expect("energy");
        let counted = (at_step - start) as f64 / 1000.0;
        assert_close(counted, fake.joules_until_ms(step * PERIOD_MS), RESOLUTION_J);
        fake.advance_ms(99);
        assert_eq!(gpu.total_energy_consumption().expect("energy"), at_step, "it moved between steps");
        fake.advance_ms(1);
    }
    let counted = gpu.total_energy_consumption().expect("energy") - start;
    assert_close(counted as f64 / 1000.0, known_joules_of_10_s, RESOLUTION_J);
    match &fields(&gpu, &[ENERGY])[..] {
        [Ok(SampleValue::U64(value))] => assert_eq!(*value, start + counted),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_constant_is_counted() {
    assert_counts_the_truth("70", 700.0);
}

#[test]
fn a_ramp_is_counted() {
    assert_counts_the_truth("[[0, 100], [10, 600]]", 3500.0);
}

#[test]
fn a_step_is_counted() {
    assert_counts_the_truth("[[2.5, 70], [2.5, 500], [7.25, 500], [7.25, 70]]", 70.0 * 5.25 + 500.0 * 4.75);
}

#[test]
fn a_square_wave_is_counted() {
    // Thirteen whole periods of 0.73 s, and 0.365 s of the 0.51 s that are left at the higher.
    let high = 13.0 * 0.365 + 0.365;
    let square = r#"{"square": {"low": 120, "high": 550, "period_s": 0.73, "duty": 0.5}}"#;
    assert_counts_the_truth(square, 120.0 * 10.0 + 430.0 * high);
}

#[test]
fn a_square_wave_on_a_ramp_is_counted() {
    let both = r#"{"points": [[0, 100], [10, 200]],
        "square": {"low": 0, "high": 300, "period_s": 0.1, "duty": 0.3, "from_s": 2, "to_s": 4}}"#;
    assert_counts_the_truth(both, 1500.0 + 300.0 * 0.6);
}

#[test]
fn a_counter_that_starts_again_loses_what_was_before() {
    let scenario = r#"{"clock": "manual", "gpus": [{"power_w": [[0, 100], [10, 600]],
        "energy": {"resets_s": [4.03, 8], "start_mj": 5000000}}]}"#;
    let fake = Fake::new(scenario);
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    let joules = || gpu.total_energy_consumption().expect("energy") as f64 / 1000.0;
    fake.advance_ms(4090);
    let before = joules();
    assert_close(before, 5000.0 + fake.joules_until_ms(4000), RESOLUTION_J);
    fake.advance_ms(10);
    assert_close(joules(), fake.control.true_joules(0, 4_030_000, 4_100_000), RESOLUTION_J);
    assert!(joules() < before);
    fake.advance_ms(4900);
    assert_close(joules(), fake.control.true_joules(0, 8_000_000, 9_000_000), RESOLUTION_J);
}

#[test]
fn period_phase_resolution_and_gain_are_the_scenario_s() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{"power_w": 100, "energy":
            {"period_s": 0.02, "phase_s": 0.005, "resolution_mj": 1000, "gain": 1.05, "start_mj": 0}}]}"#,
    );
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    let mut seen = Vec::new();
    // Every 5 ms of 0.1 s: after 5, 25, 45, 65 and 85 ms there are 0.525, 2.625, 4.725, 6.825 and 8.925 J.
    for _ in 0..20 {
        seen.push(gpu.total_energy_consumption().expect("energy"));
        fake.advance_ms(5);
    }
    assert_eq!(seen, [[0; 5].as_slice(), &[2000; 4], &[4000; 4], &[6000; 4], &[8000; 3]].concat());
}

#[test]
fn the_truth_of_no_gpu_is_no_number() {
    let fake = Fake::new(r#"{"clock": "manual"}"#);
    assert!(fake.control.true_joules(1, 0, 1).is_nan());
    assert_close(fake.control.true_joules(0, 0, 1_000_000), 70.0, 1e-9);
}
