//! Kernels of the burn file heat the GPU; and the environment, for another process.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use fake_nvml::library;
use nvml_wrapper::Nvml;
use tempfile::TempDir;

use crate::harness::{AVERAGE, Fake, assert_close, field_u32};

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
}

#[test]
fn kernels_add_power_and_use_the_gpu() {
    let folder = TempDir::new().expect("a folder");
    let burns = folder.path().join("burns");
    let fake = Fake::new(&format!(
        r#"{{"clock": "manual", "burn_file": {burns:?}, "t0_ns": 1000000000000,
            "gpus": [{{"burn_watts": 400, "uuid": "GPU-a"}}, {{"uuid": "GPU-b"}}]}}"#
    ));
    let nvml = fake.open();
    let [hot, other] = [0, 1].map(|index| nvml.device_by_index(index).expect("a GPU"));
    let utilisation = |gpu: &nvml_wrapper::Device<'_>| gpu.utilization_rates().expect("utilisation").gpu;
    fake.advance_ms(2000);
    assert_eq!((field_u32(&hot, AVERAGE), utilisation(&hot)), (70_000, 0));

    // From 2 to 4 s; the line for both GPUs overlaps it; the last one is not whole yet.
    append(&burns, "1002000000000 1004000000000 GPU-a\n1003500000000 1004500000000\n10060000");
    fake.advance_ms(1000);
    assert_eq!((field_u32(&hot, AVERAGE), utilisation(&hot)), (470_000, 100));
    assert_eq!((field_u32(&other, AVERAGE), utilisation(&other)), (70_000, 0));
    fake.advance_ms(2000);
    assert_eq!((field_u32(&hot, AVERAGE), utilisation(&hot)), (270_000, 0));
    assert_eq!(field_u32(&other, AVERAGE), 320_000);
    assert_close(fake.control.true_joules(0, 0, 5_000_000), 5.0 * 70.0 + 2.5 * 400.0, 1e-6);
    assert_close(fake.control.true_joules(1, 0, 5_000_000), 5.0 * 70.0 + 500.0, 1e-6);

    append(&burns, "00000 1007000000000 GPU-b\n");
    assert_close(fake.control.true_joules(1, 5_000_000, 7_000_000), 2.0 * 70.0 + 500.0, 1e-6);
}

/// What the child finds, where it was told by its environment alone.
const CHILD: &str = "FAKE_NVML_TEST_CHILD";

#[test]
#[ignore = "it is the child of the test below"]
fn child() {
    let library = std::env::var_os(CHILD).expect("it is started by its parent");
    let nvml = Nvml::builder().lib_path(&library).init().expect("NVML opens");
    let gpu = nvml.device_by_index(0).expect("a GPU");
    println!("name {}", gpu.name().expect("name"));
    println!("average {}", field_u32(&gpu, AVERAGE));
}

#[test]
fn another_process_is_told_by_its_environment() {
    let folder = TempDir::new().expect("a folder");
    let library = library::place(folder.path(), &[]).expect("a copy of the library");
    let scenario = r#"{"gpus": [{"name": "NVIDIA TEST", "burn_watts": 430}]}"#;
    let file = folder.path().join("scenario.json");
    fs::write(&file, scenario).expect("written");
    let burns = folder.path().join("burns");
    append(&burns, &format!("0 {}\n", i64::MAX));
    for scenario in [scenario, file.to_str().expect("a path")] {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "burn::child", "--ignored", "--nocapture"])
            .env(CHILD, &library)
            .env("FAKE_NVML_SCENARIO", scenario)
            .env("FAKE_NVML_BURN_FILE", &burns)
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("name NVIDIA TEST\n"), "{said}");
        assert!(said.contains("average 500000\n"), "{said}");
    }
}
