//! `agent gpu-check` as a person runs it: its report, and when it fails.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs it with both fakes, and gives its exit code and report.
fn check(folder: &Path, nvml: Option<&str>, cuda: bool, seconds: &str) -> (Option<i32>, Value) {
    let libraries = folder.join("libraries");
    std::fs::create_dir(&libraries).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent"));
    command.args(["gpu-check", "--seconds", seconds]).env_remove("PLIMSOLL_NVML");
    let library = folder.join("libnvidia-ml.so.1");
    if let Some(scenario) = nvml {
        fake_nvml::library::place(folder, &[]).unwrap();
        command.env("FAKE_NVML_SCENARIO", scenario);
    }
    if cuda {
        fake_cuda::library::place(&libraries, &[]).unwrap();
    }
    let output = command
        .arg("--nvml-lib")
        .arg(&library)
        .env("LD_LIBRARY_PATH", &libraries)
        .env("FAKE_CUDA_SCENARIO", "{}")
        .env("FAKE_NVML_BURN_FILE", folder.join("burns"))
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), report.unwrap_or_else(|error| panic!("{error}: {said}")))
}

fn statuses(report: &Value) -> Vec<&str> {
    report["steps"].as_array().unwrap().iter().map(|step| step["status"].as_str().unwrap()).collect()
}

/// What the fakes cannot show: the memory and the processes of the child.
const NO_MEMORY: &str = r#"{"call": "nvmlDeviceGetMemoryInfo*", "code": "NOT_SUPPORTED"},
    {"call": "nvmlDeviceGetComputeRunningProcesses_v3", "code": "NOT_SUPPORTED"}"#;

#[test]
fn a_sound_gpu_passes_and_every_step_has_its_values() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = format!(r#"{{"gpus": [{{"energy": {{"period_s": 0.02}}}}], "calls": [{NO_MEMORY}]}}"#);
    let (code, report) = check(folder.path(), Some(&scenario), true, "8");
    assert_eq!(report["schema_version"], "1");
    assert_eq!(report["gpu"], 0);
    assert_eq!(report["cuda"]["devices"][0]["uuid"], report["gpus"][0]["uuid"]);
    assert_eq!(
        statuses(&report),
        ["ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok", "skipped"],
        "{report:#}"
    );
    assert_eq!((code, &report["passed"]), (Some(0), &Value::Bool(true)));

    let step = |n: usize| &report["steps"][n]["values"];
    assert_eq!(step(1)["signals"]["energy_mj"]["answer"], "ok");
    assert!(step(1)["signals"]["energy_mj"]["calls"].as_u64() > Some(0));
    assert!(step(1)["signals"]["memory_used_bytes"]["answer"].as_str().unwrap().contains("does not have it"));
    let idle = step(2)["idle_watts"]["average_power"].as_f64().unwrap();
    assert!((69.0..71.0).contains(&idle), "{idle}");
    // 70 W idle, and 500 W more while a kernel runs.
    let loaded = step(6)["average_power"]["load_watts"].as_f64().unwrap();
    assert!(loaded > idle * 2.0, "{loaded}");
    assert_eq!(step(3)["rates"].as_array().unwrap().len(), 5);
    assert_eq!(step(4)["loads"].as_array().unwrap().len(), 3);
    assert!(step(7)["fp32_tflops"].as_f64().unwrap() > 0.0);
    assert_eq!(step(8)["readings"].as_array().unwrap().len(), 3);
}

#[test]
fn a_counter_that_stands_under_load_fails() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = format!(r#"{{"gpus": [{{"burn_watts": 0}}], "calls": [{NO_MEMORY}]}}"#);
    let (code, report) = check(folder.path(), Some(&scenario), true, "1");
    assert_eq!(report["steps"][6]["status"], "failed", "{report:#}");
    assert!(report["steps"][6]["reason"].as_str().unwrap().contains("does not rise under load"));
    assert_eq!((code, &report["passed"]), (Some(1), &Value::Bool(false)));
}

#[test]
fn what_cannot_be_done_is_left_out_with_its_reason() {
    // There are GPUs and no CUDA: nothing can be loaded.
    let folder = tempfile::tempdir().unwrap();
    let (code, report) = check(folder.path(), Some("{}"), false, "1");
    assert_eq!(code, Some(0));
    assert_eq!(statuses(&report)[..3], ["ok", "ok", "ok"]);
    for step in 3..9 {
        assert_eq!(report["steps"][step]["status"], "skipped");
        assert!(report["steps"][step]["reason"].as_str().unwrap().contains("libcuda"), "{report:#}");
    }
    // There is nothing at all.
    let folder = tempfile::tempdir().unwrap();
    let (code, report) = check(folder.path(), None, false, "1");
    assert_eq!((code, report["passed"].as_bool()), (Some(0), Some(true)));
    assert_eq!(statuses(&report), ["skipped"; 10]);
    assert!(report["steps"][1]["reason"].as_str().unwrap().contains("--nvml-lib"), "{report:#}");
    // There is a GPU, and nothing can be read of it.
    let folder = tempfile::tempdir().unwrap();
    let calls = r#"{"calls": [{"call": "nvmlDeviceGet*", "from_s": 0, "code": "NOT_SUPPORTED"}]}"#;
    let (code, report) = check(folder.path(), Some(calls), false, "1");
    assert!(code == Some(1) || report["gpus"].as_array().unwrap().is_empty(), "{report:#}");
}
