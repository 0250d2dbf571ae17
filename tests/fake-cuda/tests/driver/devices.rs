//! Which devices a client finds, and what it is told where it finds none.

use std::os::unix::process::ExitStatusExt as _;

use tempfile::TempDir;

use crate::harness::{Answer, Fake, run};

const TWO: &str = r#"{"driver": 12080, "devices": [
    {"uuid": "GPU-11111111-2222-3333-4444-555555555555", "name": "NVIDIA A", "pci": "00000000:C1:00.0",
        "memory_mib": 1000, "cc": [8, 0], "sms": 108},
    {"uuid": "GPU-99999999-8888-7777-6666-555555555555", "name": "NVIDIA B", "pci": "0001:04:00.0", "speed": 2}]}"#;

#[test]
fn devices_are_the_scenario_s() {
    let found = Fake::without(&[]).run("list", TWO, &[("CUDA_DEVICE_ORDER", "PCI_BUS_ID")]);
    assert_eq!(found.number("version"), 12080);
    assert_eq!(found.number("count"), 2);
    assert_eq!(found.get("0.uuid"), "11111111222233334444555555555555");
    assert_eq!(found.get("0.name"), "NVIDIA A");
    assert_eq!(found.get("0.bus"), "0000:C1:00.0");
    assert_eq!(found.number("0.memory"), 1000 << 20);
    assert_eq!((found.number("0.sms"), found.number("0.major")), (108, 8));
    assert_eq!(found.get("1.bus"), "0001:04:00.0");
    assert_eq!((found.number("1.sms"), found.number("1.major")), (132, 9));
}

#[test]
fn the_environment_hides_and_orders_them() {
    let fake = Fake::without(&[]);
    let names = |environment: &[(&str, &str)]| -> Vec<String> {
        let found = fake.run("list", TWO, environment);
        (0..found.number("count")).map(|ordinal| found.get(&format!("{ordinal}.name")).to_owned()).collect()
    };
    let (a, b) = ("NVIDIA A", "NVIDIA B");
    assert_eq!(names(&[]), [b, a], "the fastest is first");
    let by_bus = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    assert_eq!(names(&[by_bus]), [a, b]);
    assert_eq!(names(&[by_bus, ("CUDA_VISIBLE_DEVICES", "1")]), [b]);
    assert_eq!(names(&[("CUDA_VISIBLE_DEVICES", "1")]), [a]);
    assert_eq!(names(&[("CUDA_VISIBLE_DEVICES", "GPU-1111,0")]), [a, b]);
    let hidden = fake.run("list", TWO, &[("CUDA_VISIBLE_DEVICES", "-1")]);
    assert!(hidden.get("error").contains("CUDA_ERROR_NO_DEVICE"), "{}", hidden.get("error"));
}

#[test]
fn without_a_scenario_there_is_one_device() {
    let found = run_default();
    assert_eq!((found.number("count"), found.get("0.name")), (1, "NVIDIA H200"));
    assert_eq!(found.get("0.uuid"), "00000000fa4e40008000000000000000");
}

fn run_default() -> Answer {
    Fake::without(&[]).run("list", "{}", &[])
}

#[test]
fn without_a_library_it_is_absent() {
    let empty = TempDir::new().expect("a folder");
    let there = Fake::without(&[]).run("present", "{}", &[]);
    assert_eq!(there.get("present"), "true");
    // A machine with a GPU has a library elsewhere.
    let elsewhere = run(empty.path(), "present", "{}", &[]);
    let here = std::process::Command::new("ldconfig").arg("-p").output();
    let has_one = here.is_ok_and(|list| String::from_utf8_lossy(&list.stdout).contains("libcuda.so"));
    if !has_one {
        assert_eq!(elsewhere.get("present"), "false");
    }
}

#[test]
fn codes_are_those_of_the_rules() {
    let fake = Fake::without(&[]);
    let init = |code: &str| {
        let scenario = format!(r#"{{"calls": [{{"call": "cuInit", "code": {code}}}]}}"#);
        fake.run("raw_init", &scenario, &[]).number("code")
    };
    assert_eq!(init("12345"), 12345, "one that no bindings know");
    assert_eq!(init(r#""SYSTEM_DRIVER_MISMATCH""#), 803);
    let refused = r#"{"calls": [{"call": "cuDeviceGetUuid*", "code": "NOT_SUPPORTED", "delay_ms": 1}]}"#;
    let found = fake.run("list", refused, &[]);
    assert_eq!(found.number("count"), 1);
    assert!(found.get("error").contains("CUDA_ERROR_NOT_SUPPORTED"), "{}", found.get("error"));
    assert!(found.get("error").contains("operation not supported"), "{}", found.get("error"));
    let none = fake.run("list", "{", &[]);
    assert!(none.get("error").contains("CUDA_ERROR_UNKNOWN"), "{}", none.get("error"));
    assert!(none.stderr.contains("the scenario is refused"), "{}", none.stderr);
}

#[test]
fn a_crash_ends_the_process() {
    let fake = Fake::without(&[]);
    let scenario = r#"{"calls": [{"call": "cuDeviceGetName", "crash": true}]}"#;
    let crashed = fake.run("list", scenario, &[]);
    // SIGABRT.
    assert_eq!(crashed.status.signal(), Some(6), "{:?}", crashed.status);
    assert_eq!(crashed.number("count"), 1);
    assert!(crashed.stderr.contains("cuDeviceGetName crashes"), "{}", crashed.stderr);
    assert!(fake.run("list", "{}", &[]).status.success());
}

#[test]
fn a_missing_symbol_is_the_client_s_panic() {
    let missing = Fake::without(&["cuDeviceGetUuid_v2"]).run("list", "{}", &[]);
    assert_eq!(missing.number("count"), 1);
    assert!(!missing.status.success());
    assert!(missing.stderr.contains("cuDeviceGetUuid_v2"), "{}", missing.stderr);
}
