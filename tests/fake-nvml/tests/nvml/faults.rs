//! What goes wrong: errors, lost GPUs, slow and stuck calls, missing symbols, no start.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fake_nvml::{Control, library};
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::structs::device::FieldId;
use tempfile::TempDir;

use crate::harness::{ENERGY, Fake, assert_error, fields, now_ns, wait_until};

#[test]
fn errors_are_those_of_the_rules() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{}, {}], "calls": [
            {"call": "nvmlDeviceGetPowerUsage", "gpu": 0, "code": "NOT_SUPPORTED"},
            {"call": "nvmlDeviceGetTemperature", "code": "NO_PERMISSION", "from_s": 1, "to_s": 2},
            {"call": "nvmlDeviceGetMemoryInfo_v2", "code": "FUNCTION_NOT_FOUND"},
            {"call": "nvmlDeviceGetName", "code": 12345},
            {"call": "nvmlSystemGet*", "code": "NVML_ERROR_UNKNOWN"}]}"#,
    );
    let nvml = fake.open();
    let [first, second] = [0, 1].map(|index| nvml.device_by_index(index).expect("a GPU"));
    assert_error(first.power_usage(), "NotSupported");
    assert_eq!(second.power_usage().expect("power"), 70_000);
    assert_error(first.memory_info(), "FunctionNotFound");
    assert_error(first.name(), "UnexpectedVariant(12345)");
    assert_error(nvml.sys_nvml_version(), "Unknown");
    let temperature = || first.temperature(TemperatureSensor::Gpu);
    assert!(temperature().is_ok());
    fake.advance_ms(1000);
    assert_error(temperature(), "NoPermission");
    fake.advance_ms(1000);
    assert!(temperature().is_ok());
    assert_eq!(fake.control.calls("nvmlDeviceGetTemperature"), 3);
    assert_eq!(fake.control.calls("nvmlDeviceGetSerial"), 0);
}

#[test]
fn a_lost_gpu_answers_nothing_while_the_other_goes_on() {
    let fake = Fake::new(r#"{"clock": "manual", "gpus": [{"lost": [{"from_s": 2, "to_s": 4}]}, {}]}"#);
    let nvml = fake.open();
    let [lost, other] = [0, 1].map(|index| nvml.device_by_index(index).expect("a GPU"));
    let both = || (lost.power_usage().is_ok(), other.power_usage().is_ok());
    assert_eq!(both(), (true, true));
    fake.advance_ms(2000);
    assert_eq!(both(), (false, true));
    assert_error(lost.power_usage(), "GpuLost");
    assert_error(lost.field_values_for(&[FieldId(ENERGY)]).map(|_| ()), "GpuLost");
    assert_error(lost.name(), "GpuLost");
    assert_error(nvml.device_by_index(0).map(drop), "GpuLost");
    assert_eq!(nvml.device_count().expect("count"), 2);
    fake.advance_ms(2000);
    assert_eq!(both(), (true, true));
}

#[test]
fn a_gpu_that_needs_it_comes_back_to_those_who_open_nvml_again() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{"lost": [{"from_s": 2, "to_s": 4, "needs_reinit": true}]}]}"#,
    );
    let nvml = fake.open();
    fake.advance_ms(5000);
    assert_error(nvml.device_by_index(0).map(drop), "GpuLost");
    let energy = {
        drop(nvml);
        let nvml = fake.open();
        let gpu = nvml.device_by_index(0).expect("it is back");
        gpu.total_energy_consumption().expect("energy")
    };
    let joules = energy as f64 / 1000.0 - 1_000_000.0;
    assert!((joules - fake.joules_until_ms(5000)).abs() < 0.001, "{joules} J");
}

#[test]
fn a_scenario_goes_on_when_nobody_has_the_library() {
    let folder = TempDir::new().expect("a folder");
    let path = library::place(folder.path(), &[]).expect("a copy of the library");
    let load =
        |control: Control| assert!(control.load(r#"{"clock": "manual"}"#) && control.advance_us(7_000_000));
    load(Control::open(&path).expect("it loads"));
    let nvml = Nvml::builder().lib_path(path.as_os_str()).init().expect("NVML opens");
    let energy = nvml.device_by_index(0).and_then(|gpu| gpu.total_energy_consumption()).expect("energy");
    assert_eq!(energy, 1_000_000_000 + 7 * 70_000);
}

#[test]
fn a_slow_call_takes_its_time_on_either_clock() {
    let slow = r#""calls": [{"call": "nvmlDeviceGetUtilizationRates", "delay_ms": 20}]"#;
    let fake = Fake::new(&format!(r#"{{"clock": "manual", {slow}}}"#));
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    let energy = || gpu.total_energy_consumption().expect("energy");
    let before = energy();
    for _ in 0..5 {
        gpu.utilization_rates().expect("utilisation");
    }
    // Five calls are 0.1 s, so the counter took a step of 7 J.
    assert_eq!(energy() - before, 7000);

    let fake = Fake::new(&format!("{{{slow}}}"));
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    let before = now_ns();
    gpu.utilization_rates().expect("utilisation");
    let took = now_ns() - before;
    assert!(took >= 20_000_000, "{took} ns");
}

#[test]
fn a_call_that_hangs_leaves_the_others_alone() {
    let fake = Fake::new(
        r#"{"clock": "manual", "calls": [{"call": "nvmlDeviceGetName", "from_s": 1, "to_s": 3, "hang": true}]}"#,
    );
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    gpu.name().expect("before its time it does not hang");
    fake.advance_ms(1000);
    let is_back = AtomicBool::new(false);
    thread::scope(|scope| {
        let stuck = scope.spawn(|| {
            let name = gpu.name();
            is_back.store(true, Ordering::SeqCst);
            name
        });
        wait_until("second call", || fake.control.calls("nvmlDeviceGetName") == 2);
        for _ in 0..10 {
            assert!(fields(&gpu, &[ENERGY])[0].is_ok());
            fake.advance_ms(100);
        }
        assert!(!is_back.load(Ordering::SeqCst), "it is back before its time");
        fake.advance_ms(1000);
        assert_eq!(stuck.join().expect("it ends").expect("name"), "NVIDIA H200");
    });
}

#[test]
fn nvml_may_not_open() {
    for (code, error) in [
        ("DRIVER_NOT_LOADED", "DriverNotLoaded"),
        ("LIB_RM_VERSION_MISMATCH", "LibRmVersionMismatch"),
        ("NO_PERMISSION", "NoPermission"),
    ] {
        let fake = Fake::new(&format!(r#"{{"clock": "manual", "init_error": "{code}"}}"#));
        assert_error(fake.try_open(), error);
        assert_eq!(fake.control.calls("nvmlInit_v2"), 1);
    }
    let fake = Fake::new(
        r#"{"clock": "manual", "calls": [{"call": "nvmlInit*", "to_s": 1, "code": "DRIVER_NOT_LOADED"}]}"#,
    );
    assert_error(fake.try_open(), "DriverNotLoaded");
    fake.advance_ms(1000);
    assert!(fake.try_open().is_ok());
}

#[test]
fn there_may_be_no_gpu() {
    let fake = Fake::new(r#"{"clock": "manual", "gpus": []}"#);
    let nvml = fake.open();
    assert_eq!(nvml.device_count().expect("count"), 0);
    assert_error(nvml.device_by_index(0).map(drop), "InvalidArg");
}

#[test]
fn an_old_driver_lacks_symbols() {
    let fake = Fake::without(
        r#"{"clock": "manual"}"#,
        &["nvmlDeviceGetFieldValues", "nvmlDeviceGetMemoryInfo_v2", "nvmlGpmQueryDeviceSupport"],
    );
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    assert_error(gpu.field_values_for(&[]).map(|_| ()), "FailedToLoadSymbol");
    assert_error(gpu.memory_info(), "FailedToLoadSymbol");
    assert_error(gpu.gpm_support(), "FailedToLoadSymbol");
    assert_eq!(gpu.power_usage().expect("power"), 70_000);
    assert!(gpu.total_energy_consumption().is_ok());
    let folder = TempDir::new().expect("a folder");
    assert!(library::place(folder.path(), &["nvmlDeviceGetFieldValue"]).is_err(), "a part of a name is none");
}

#[test]
fn what_is_no_scenario_is_refused() {
    let fake = Fake::new(r#"{"clock": "manual"}"#);
    for json in ["", "{", r#"{"gpus": [{"powerw": 70}]}"#, r#"{"calls": [{"call": "x"}]}"#] {
        assert!(!fake.control.load(json), "{json}");
    }
    // What was under way still is.
    assert!(fake.try_open().is_ok());
}

#[test]
fn nothing_answers_before_it_is_opened_and_after_it_is_shut() {
    let fake = Fake::new(r#"{"clock": "manual"}"#);
    let nvml = fake.open();
    // A new scenario is as a driver that was loaded again.
    assert!(fake.control.load(r#"{"clock": "manual"}"#));
    assert_error(nvml.device_count(), "Uninitialized");
    let again = fake.open();
    assert_eq!(nvml.device_count().expect("count"), 1);
    again.shutdown().expect("shut");
    assert_error(nvml.device_count(), "Uninitialized");
}
