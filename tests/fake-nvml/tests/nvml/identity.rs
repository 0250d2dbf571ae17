//! Who the GPUs are, and what hardly changes.

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, PerformancePolicy, PerformanceState, TemperatureSensor,
};
use nvml_wrapper::enums::device::UsedGpuMemory;

use crate::harness::{Fake, assert_error};

const TWO: &str = r#"{"clock": "manual", "driver": "570.1.2", "nvml": "12.570.1.2", "cuda": 12080, "gpus": [
    {"uuid": "GPU-1", "name": "NVIDIA H100", "pci": "00000000:C1:00.0"},
    {"uuid": "GPU-2", "name": "NVIDIA A100", "cc": [8, 0], "pci": "00000001:04:00.0", "serial": "42"}]}"#;

#[test]
fn versions_and_identities_are_the_scenario_s() {
    let fake = Fake::new(TWO);
    let nvml = fake.open();
    assert_eq!(nvml.sys_driver_version().expect("driver"), "570.1.2");
    assert_eq!(nvml.sys_nvml_version().expect("nvml"), "12.570.1.2");
    assert_eq!(nvml.sys_cuda_driver_version().expect("cuda"), 12080);
    assert_eq!(nvml.device_count().expect("count"), 2);

    let second = nvml.device_by_index(1).expect("the second");
    assert_eq!(second.uuid().expect("uuid"), "GPU-2");
    assert_eq!(second.name().expect("name"), "NVIDIA A100");
    assert_eq!(second.serial().expect("serial"), "42");
    let capability = second.cuda_compute_capability().expect("capability");
    assert_eq!((capability.major, capability.minor), (8, 0));
    assert_eq!(format!("{:?}", second.architecture().expect("architecture")), "Ampere");
    let pci = second.pci_info().expect("pci");
    assert_eq!((pci.bus_id.as_str(), pci.domain, pci.bus), ("00000001:04:00.0", 1, 4));
}

#[test]
fn a_gpu_is_found_by_each_of_its_names() {
    let fake = Fake::new(TWO);
    let nvml = fake.open();
    let index = |device: Result<nvml_wrapper::Device<'_>, _>| device.and_then(|device| device.index());
    assert_eq!(index(nvml.device_by_uuid("GPU-2")).expect("by uuid"), 1);
    assert_eq!(index(nvml.device_by_pci_bus_id("00000000:C1:00.0")).expect("by bus"), 0);
    assert_eq!(index(nvml.device_by_pci_bus_id("0000:c1:00.0")).expect("by the short bus"), 0);
    assert_error(index(nvml.device_by_uuid("GPU-3")), "NotFound");
    assert_error(index(nvml.device_by_pci_bus_id("0000:c2:00.0")), "NotFound");
    assert_error(index(nvml.device_by_index(2)), "InvalidArg");
}

#[test]
fn a_gpu_of_which_nothing_is_said_is_an_idle_one() {
    let fake = Fake::new(r#"{"clock": "manual"}"#);
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    assert_eq!(gpu.name().expect("name"), "NVIDIA H200");
    assert_eq!(gpu.power_usage().expect("power"), 70_000);
    assert_eq!(gpu.enforced_power_limit().expect("limit"), 700_000);
    assert_eq!(gpu.power_management_limit_default().expect("default"), 700_000);
    assert_eq!(gpu.power_management_limit_constraints().expect("constraints").min_limit, 200_000);
    assert_eq!(gpu.clock_info(Clock::SM).expect("clock"), 1980);
    assert_eq!(gpu.max_clock_info(Clock::Memory).expect("clock"), 3201);
    assert_eq!(gpu.temperature(TemperatureSensor::Gpu).expect("temperature"), 35);
    assert_eq!(gpu.performance_state().expect("state"), PerformanceState::Zero);
    assert_eq!(gpu.current_throttle_reasons().expect("reasons"), ThrottleReasons::empty());
    assert!(gpu.supported_throttle_reasons().expect("reasons").contains(ThrottleReasons::SW_POWER_CAP));
    assert_eq!(gpu.current_pcie_link_gen().expect("generation"), 5);
    assert_eq!(gpu.current_pcie_link_width().expect("width"), 16);
    assert_eq!(gpu.pcie_throughput(PcieUtilCounter::Send).expect("throughput"), 0);
    assert!(gpu.link_wrapper_for(17).is_active().expect("link"));
    assert!(gpu.is_in_persistent_mode().expect("persistence"));
    assert!(gpu.is_ecc_enabled().expect("ecc").currently_enabled);
    assert_eq!(gpu.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile).expect("errors"), 0);
    assert_eq!(gpu.mig_mode().expect("mig").current, 0);
    assert!(gpu.running_compute_processes().expect("processes").is_empty());
    assert!(gpu.mps_running_compute_processes().expect("processes").is_empty());
    assert!(gpu.vbios_version().is_ok_and(|version| !version.is_empty()));
    let memory = gpu.memory_info().expect("memory");
    assert_eq!((memory.used, memory.reserved), (0, 600 << 20));
    assert_eq!(memory.free + memory.used + memory.reserved, memory.total);
}

#[test]
fn what_changes_in_steps_and_lines_is_read_at_its_time() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [{
            "memory": {"total_mib": 1000, "reserved_mib": 100, "used_mib": [[0, 0], [10, 500]]},
            "clocks_mhz": {"sm": [[0, 1980], [10, 1000]]},
            "temperature_c": {"gpu": [[0, 30], [10, 80]], "memory": null},
            "pstate": [[0, 0], [5, 2]],
            "throttle": [[1, 4], [3, 36], [6, 0]],
            "ecc": {"corrected": [[4, 2]], "uncorrected": [[7, 1]]},
            "persistence": false, "mig": null, "nvlink": {"links": 0},
            "processes": [{"pid": 11, "used_mib": 300, "from_s": 2}, {"pid": 12, "to_s": 6}]}]}"#,
    );
    let nvml = fake.open();
    let gpu = nvml.device_by_index(0).expect("a GPU");
    assert_eq!(gpu.running_compute_processes().expect("processes").len(), 1);
    fake.advance_ms(5000);

    let memory = gpu.memory_info().expect("memory");
    assert_eq!((memory.used >> 20, memory.free >> 20), (250, 650));
    assert_eq!(gpu.clock_info(Clock::SM).expect("clock"), 1490);
    assert_eq!(gpu.temperature(TemperatureSensor::Gpu).expect("temperature"), 55);
    assert_eq!(gpu.performance_state().expect("state"), PerformanceState::Two);
    let reasons = ThrottleReasons::SW_POWER_CAP | ThrottleReasons::SW_THERMAL_SLOWDOWN;
    assert_eq!(gpu.current_throttle_reasons().expect("reasons"), reasons);
    let violation = |policy| gpu.violation_status(policy).expect("violation").violation_time;
    assert_eq!(violation(PerformancePolicy::Power), 4_000_000_000);
    assert_eq!(violation(PerformancePolicy::Thermal), 2_000_000_000);
    let errors = |kind| gpu.total_ecc_errors(kind, EccCounter::Volatile).expect("errors");
    assert_eq!((errors(MemoryError::Corrected), errors(MemoryError::Uncorrected)), (2, 0));
    assert!(!gpu.is_in_persistent_mode().expect("persistence"));
    assert_error(gpu.mig_mode(), "NotSupported");
    assert_error(gpu.link_wrapper_for(0).is_active(), "NotSupported");

    let processes = gpu.running_compute_processes().expect("processes");
    let seen: Vec<_> = processes.iter().map(|p| (p.pid, p.used_gpu_memory.clone())).collect();
    assert_eq!(seen, [(11, UsedGpuMemory::Used(300 << 20)), (12, UsedGpuMemory::Unavailable)]);
    fake.advance_ms(1000);
    assert_eq!(gpu.running_compute_processes().expect("processes").len(), 1);
    assert_eq!(gpu.current_throttle_reasons().expect("reasons"), ThrottleReasons::empty());
}
