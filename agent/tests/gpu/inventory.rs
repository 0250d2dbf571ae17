//! What an inventory says of each GPU, and of each signal that there is none of.

use agent::gpu::{GpuSource, Signal, SourceError};
use common::telemetry::GpuInfo;

use crate::support::Fake;

fn inventory(fake: &Fake) -> Vec<GpuInfo> {
    fake.source().inventory().unwrap().gpus
}

/// The answers of signals that are not `ok`.
fn missing(gpu: &GpuInfo) -> Vec<(&str, &str)> {
    gpu.signals.iter().filter(|(_, answer)| *answer != "ok").map(|(n, a)| (n.as_str(), a.as_str())).collect()
}

#[test]
fn a_sound_gpu_has_everything_and_says_who_it_is() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{"mig": {"current": true, "pending": true}}, {"cc": [8, 0]}]}"#,
    );
    let gpus = inventory(&fake);
    assert_eq!(gpus.len(), 2);
    let gpu = &gpus[0];
    assert_eq!(missing(gpu), []);
    assert_eq!(gpu.signals.len(), Signal::ALL.len());
    assert_eq!(gpu.uuid, "GPU-00000000-fa4e-4000-8000-000000000000");
    assert_eq!((gpu.pci_bus_id.as_str(), gpu.index), ("00000000:19:00.0", 0));
    assert_eq!(gpu.name, "NVIDIA H200");
    assert_eq!((gpu.compute_capability, gpus[1].compute_capability), (Some((9, 0)), Some((8, 0))));
    assert_eq!(gpu.driver.as_deref(), Some("580.159.03"));
    assert_eq!(gpu.cuda.as_deref(), Some("13.0"));
    assert_eq!(gpu.memory_total_bytes, Some(143_771 << 20));
    assert_eq!(gpu.limit_enforced_mw, Some(700_000));
    assert_eq!(gpu.limit_range_mw, Some((200_000, 700_000)));
    assert_eq!((gpu.persistence, gpu.mig, gpu.ecc), (Some(true), Some(true), Some(true)));
    assert_eq!((gpu.pcie_generation, gpu.pcie_width), (Some(5), Some(16)));
    assert_eq!((gpu.counter_period, gpu.used_by_engine), (None, None), "that is found out later");
}

/// A driver from before R510: no field values, no second form of the memory call.
#[test]
fn an_old_driver_is_read_by_its_own_calls() {
    let symbols = ["nvmlDeviceGetFieldValues", "nvmlDeviceGetMemoryInfo_v2"];
    let fake = Fake::without(
        &symbols,
        r#"{"clock": "manual", "driver": "470.1", "gpus": [
            {"memory": {"used_mib": 1000}}, {"cc": [8, 0], "usage": "instant", "memory": {"used_mib": 1000}}]}"#,
    );
    fake.advance_ms(2000);
    let mut source = fake.source();
    let gpus = source.inventory().unwrap().gpus;
    let names = |gpu: &GpuInfo| missing(gpu).into_iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    let by_field = [
        "memory_temperature_c",
        "nvlink_received_bytes",
        "nvlink_sent_bytes",
        "pcie_received_bytes",
        "pcie_sent_bytes",
    ];
    // What the call without a number means depends on the generation.
    for (gpu, power) in gpus.iter().zip(["instant_mw", "average_mw"]) {
        let mut expected = vec![power, "memory_reserved_bytes"];
        expected.extend(by_field);
        expected.sort_unstable();
        assert_eq!(names(gpu), expected);
        assert!(
            gpu.signals[power].contains("this driver's library does not have it"),
            "{:?}",
            gpu.signals[power]
        );
        assert!(gpu.signals["memory_reserved_bytes"].contains("part of memory_used_bytes"));
        assert_eq!(gpu.memory_total_bytes, Some(143_771 << 20));
    }
    let samples = crate::samples::power(&mut source);
    assert_eq!((samples[0].average_mw, samples[0].instant_mw), (Some(70_000), None));
    assert_eq!((samples[1].average_mw, samples[1].instant_mw), (None, Some(70_000)));
    assert!(samples.iter().all(|sample| sample.energy_mj.is_some()));
    let slow = crate::samples::slow(&mut source);
    assert_eq!(slow[0].memory_used_bytes, Some(1600 << 20), "with what the driver reserves");
    assert_eq!(slow[0].memory_reserved_bytes, None);
}

#[test]
fn what_a_gpu_lacks_or_may_not_tell_has_its_reason() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{"module_power_w": 900, "fields": {"186": {"value": 4.99e18, "type": "ulonglong"}}}],
        "calls": [
            {"call": "nvmlDeviceGetFieldValues", "field": 83, "code": "NOT_SUPPORTED"},
            {"call": "nvmlDeviceGetTotalEnergyConsumption", "code": "NOT_SUPPORTED"},
            {"call": "nvmlDeviceGetUtilizationRates", "code": "NO_PERMISSION"},
            {"call": "nvmlDeviceGetPerformanceState", "code": 12345}]}"#,
    );
    let gpus = inventory(&fake);
    let answers: Vec<(&str, &str)> = missing(&gpus[0]);
    let answer = |name: &str| answers.iter().find(|(n, _)| *n == name).map_or("ok", |(_, answer)| answer);
    assert!(answer("energy_mj").contains("this GPU does not have it"), "{answers:?}");
    assert!(answer("instant_mw").contains("cannot be true"), "{answers:?}");
    assert!(answer("utilisation_percent").contains("not permitted"), "{answers:?}");
    assert!(answer("performance_state").contains("12345"), "{answers:?}");
    assert_eq!(answers.len(), 5, "{answers:?}");
}

/// Some Grace Hopper systems tell the power of the module only: that is not the GPU's.
#[test]
fn the_power_of_a_module_is_not_taken_for_its_gpu_s() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{"module_power_w": 900}], "calls": [
            {"call": "nvmlDeviceGetFieldValues", "field": 186, "code": "NOT_SUPPORTED"},
            {"call": "nvmlDeviceGetPowerUsage", "code": "NOT_SUPPORTED"}]}"#,
    );
    let gpus = inventory(&fake);
    let (names, answers): (Vec<&str>, Vec<&str>) = missing(&gpus[0]).into_iter().unzip();
    assert_eq!(names, ["instant_mw"]);
    // The rule above is for the field with any scope, so here the module's is asked for and gone too, or it is there.
    assert!(answers[0].contains("does not have it") || answers[0].contains("whole module"), "{answers:?}");
}

#[test]
fn a_gpu_of_which_nothing_can_be_read_is_named_and_does_not_hide_the_others() {
    let fake = Fake::new(r#"{"clock": "manual", "gpus": [{}, {"lost": [{"from_s": 0}]}, {}]}"#);
    let found = fake.source().inventory().unwrap();
    assert_eq!(found.gpus.len(), 3);
    assert_eq!(found.trouble.len(), 1, "{:?}", found.trouble);
    assert!(matches!(found.trouble[0], (1, SourceError::Lost(_))), "{:?}", found.trouble);
    assert!(found.gpus[1].signals.values().all(|answer| answer != "ok"));
    assert_eq!((missing(&found.gpus[0]), missing(&found.gpus[2])), (vec![], vec![]));
}
