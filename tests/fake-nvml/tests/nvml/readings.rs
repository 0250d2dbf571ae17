//! Power and utilisation as their sensors show them; fields, buffered samples and GPM.

use std::thread;

use nvml_wrapper::enum_wrappers::device::Sampling;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::gpm::gpm_metrics_get;

use crate::harness::{AVERAGE, ENERGY, Fake, INSTANT, assert_close, assert_error, field_u32, fields};

/// High for the first 30 ms of each 100 ms, which is the sensors' period.
const LOCKED: &str = r#"{"square": {"low": 100, "high": 500, "period_s": 0.1, "duty": 0.3}}"#;

#[test]
fn the_instant_is_blind_where_the_average_is_not() {
    let fake = Fake::new(&format!(r#"{{"clock": "manual", "gpus": [{{"power_w": {LOCKED}}}]}}"#));
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    fake.advance_ms(5000);
    for _ in 0..20 {
        // The last 25 ms of each period are always the low ones.
        assert_eq!(field_u32(&gpu, INSTANT), 100_000);
        assert_eq!(field_u32(&gpu, AVERAGE), 220_000);
        fake.advance_ms(50);
    }
    assert_close(fake.control.true_joules(0, 4_000_000, 5_000_000), 220.0, 1e-6);
}

#[test]
fn a_reading_appears_each_period_and_is_the_mean_of_its_window() {
    let ramp = r#"{"clock": "manual", "gpus": [{"power_w": [[0, 0], [100, 1000]]}]}"#;
    let fake = Fake::new(ramp);
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    fake.advance_ms(5000);
    for tenth in 50..60 {
        // 10 W/s: half a window behind the last multiple of 100 ms.
        let want = |window_ms: u32| tenth * 1000 - 5 * window_ms;
        for _ in 0..2 {
            assert_eq!(field_u32(&gpu, INSTANT), want(25));
            assert_eq!(field_u32(&gpu, AVERAGE), want(1000));
            assert_eq!(gpu.power_usage().expect("power"), want(1000));
            fake.advance_ms(50);
        }
    }
}

#[test]
fn sensors_are_the_scenario_s() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{"power_w": [[0, 0], [100, 1000]], "usage": "instant",
            "instant": {"period_s": 0.02, "window_s": 0.01, "phase_s": 0.005, "lag_s": 0.1, "gain": 0.95},
            "module_power_w": 900, "average": {"window_s": 0}}]}"#,
    );
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    fake.advance_ms(5000);
    // 4985 ms is the last step; the window is from 4875 to 4885 ms.
    assert_eq!(gpu.power_usage().expect("power"), 46_360);
    fake.advance_ms(5);
    assert_eq!(gpu.power_usage().expect("power"), 46_550);
    assert_eq!(field_u32(&gpu, AVERAGE), 50_000);
}

#[test]
fn each_field_has_its_own_code_and_type() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{"fields": {"9": {"value": 1.5, "type": "double"},
                "10": {"value": -3, "type": "slonglong"}, "11": {"value": -3, "type": "sint"}}}, {}],
            "calls": [{"call": "nvmlDeviceGetFieldValues", "field": 83, "code": "NOT_SUPPORTED", "gpu": 0},
                {"call": "nvmlDeviceGetFieldValues", "field": 186, "code": "NO_PERMISSION", "from_s": 1, "to_s": 2}]}"#,
    );
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    let read = || fields(&gpu, &[ENERGY, AVERAGE, INSTANT, 250, 9, 10, 11]);
    let mut values = read().into_iter();
    assert_error(values.next().expect("energy"), "NotSupported");
    assert_eq!(values.next().expect("average").expect("a value"), SampleValue::U32(70_000));
    assert_eq!(values.next().expect("instant").expect("a value"), SampleValue::U32(70_000));
    assert_error(values.next().expect("unknown"), "NotSupported");
    assert_eq!(values.next().expect("double").expect("a value"), SampleValue::F64(1.5));
    assert_eq!(values.next().expect("signed").expect("a value"), SampleValue::I64(-3));
    // A type that the wrapper does not know.
    assert_error(values.next().expect("int"), "UnexpectedVariant(5)");

    fake.advance_ms(1500);
    assert_error(read().swap_remove(2), "NoPermission");
    fake.advance_ms(500);
    assert_eq!(read().swap_remove(2).expect("a value"), SampleValue::U32(70_000));
    let other = nvml.device_by_index(1).expect("a GPU");
    assert!(fields(&other, &[ENERGY]).swap_remove(0).is_ok());
    assert_error(gpu.field_values_for(&[]), "InvalidArg");
}

#[test]
fn utilisation_is_the_mean_of_its_window() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{"utilization_pct": {"memory": 40,
            "gpu": {"square": {"low": 0, "high": 100, "period_s": 1, "duty": 0.5}},
            "sensor": {"period_s": 0.25, "window_s": 0.5}}}]}"#,
    );
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    fake.advance_ms(10_000);
    let mut seen = Vec::new();
    for _ in 0..5 {
        let rates = gpu.utilization_rates().expect("utilisation");
        assert_eq!(rates.memory, 40);
        seen.push(rates.gpu);
        fake.advance_ms(250);
    }
    assert_eq!(seen, [0, 50, 100, 50, 0]);
}

#[test]
fn samples_are_buffered_and_come_once() {
    let fake = Fake::new(r#"{"clock": "manual", "gpus": [{"power_w": [[0, 0], [100, 1000]]}]}"#);
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    fake.advance_ms(60_050);
    let all = gpu.samples(Sampling::Power, None).expect("samples");
    assert_eq!(all.len(), 120);
    assert!(all.windows(2).all(|pair| pair[0].timestamp + 100_000 == pair[1].timestamp));
    assert_eq!(all.last().map(|sample| sample.value.clone()), Some(SampleValue::U32(599_875)));

    let last_seen = all.last().map(|sample| sample.timestamp);
    assert_error(gpu.samples(Sampling::Power, last_seen), "NotFound");
    fake.advance_ms(200);
    assert_eq!(gpu.samples(Sampling::Power, last_seen).expect("samples").len(), 2);
    assert_error(gpu.samples(Sampling::ProcessorClock, None), "NotSupported");
}

#[test]
fn gpm_is_the_mean_between_two_samples() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{"utilization_pct": {"gpu": [[0, 0], [10, 100]]},
            "pcie": {"tx_kib_s": 2048}, "gpm_metrics": {"5": 33.5}}, {"cc": [8, 0]}]}"#,
    );
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    assert!(gpu.gpm_support().expect("support"));
    let first = gpu.gpm_sample().expect("a sample");
    fake.advance_ms(5000);
    let second = gpu.gpm_sample().expect("a sample");
    let wanted =
        [GpmMetricId::SmUtil, GpmMetricId::AnyTensorUtil, GpmMetricId::PcieTxPerSec, GpmMetricId::Fp64Util];
    let mut metrics = gpm_metrics_get(&nvml, &first, &second, &wanted).expect("metrics");
    assert_error(metrics.pop().expect("four"), "NotSupported");
    let values: Vec<f64> = metrics.into_iter().map(|metric| metric.expect("a value").value).collect();
    assert_eq!(values, [25.0, 33.5, 2.0]);
    assert_error(gpm_metrics_get(&nvml, &second, &first, &wanted), "InvalidArg");

    let older = nvml.device_by_index(1).expect("a GPU");
    assert!(!older.gpm_support().expect("support"));
    assert_error(older.gpm_sample().map(drop), "NotSupported");
}

#[test]
fn one_instant_reads_the_same_on_every_thread_and_copy() {
    let scenario = format!(
        r#"{{"clock": "manual", "gpus": [{{"power_w": {LOCKED}, "utilization_pct": {{"gpu": [[0, 0], [9, 90]]}}}}]}}"#
    );
    let readings = || {
        let fake = Fake::new(&scenario);
        let nvml = fake.open();
        let gpu = nvml.device_by_index(0).expect("a GPU");
        let mut readings = Vec::new();
        for step in 0..300 {
            fake.advance_ms(7 + step % 30);
            let values = fields(&gpu, &[ENERGY, AVERAGE, INSTANT]);
            let values: Vec<SampleValue> = values.into_iter().map(|value| value.expect("a value")).collect();
            readings.push((values, gpu.utilization_rates().expect("utilisation").gpu));
        }
        readings
    };
    let one = readings();
    let others: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(readings)).collect();
        threads.into_iter().map(|thread| thread.join().expect("readings")).collect()
    });
    assert!(others.iter().all(|other| *other == one));
    assert!(one.windows(2).any(|pair| pair[0] != pair[1]), "nothing ever changed");
}
