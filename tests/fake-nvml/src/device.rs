//! One GPU at one instant, and its readings but for power and energy.
//!
//! Owns what each getter answers, in NVML's units. Functions here see no pointer and no lock; they must be pure, so
//! that two readings at one instant of a manual clock are the same.

use nvml_wrapper_sys::bindings::{
    NVML_VALUE_NOT_AVAILABLE, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlProcessInfo_t,
    nvmlUtilization_t, nvmlViolationTime_t,
};

use crate::clock::seconds;
use crate::code::Code;
use crate::scenario::{Gpu, Process};
use crate::world::Running;

const MIB: u64 = 1 << 20;
/// The version that a `nvmlMemory_v2_t` must carry.
const MEMORY_V2: u32 = size_of::<nvmlMemory_v2_t>() as u32 | 2 << 24;
/// `nvmlClocksThrottleReason*`: what counts as held back by power, and by heat.
const POWER_REASONS: u64 = 0x04 | 0x80;
const THERMAL_REASONS: u64 = 0x20 | 0x40;

/// A GPU at an instant.
pub(crate) struct Device<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) index: usize,
    pub(crate) now: i64,
    pub(crate) running: &'a Running,
}

impl Device<'_> {
    /// The instant in seconds.
    pub(crate) fn t(&self) -> f64 {
        seconds(self.now)
    }

    /// `NVML_DEVICE_ARCH_*`.
    pub(crate) fn architecture(&self) -> u32 {
        match self.gpu.cc {
            [6, _] => 4,
            [7, 5] => 6,
            [7, _] => 5,
            [8, 9] => 8,
            [8, _] => 7,
            [9, _] => 9,
            [major, _] if major >= 10 => 10,
            _ => u32::MAX,
        }
    }

    /// Bus id in both forms, and its parts.
    pub(crate) fn pci(&self) -> nvmlPciInfo_t {
        let mut info = nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0x2335_10DE,
            pciSubSystemId: 0x18BE_10DE,
            busId: [0; 32],
        };
        let id = &self.gpu.pci;
        let parts: Vec<u32> =
            id.split([':', '.']).filter_map(|part| u32::from_str_radix(part, 16).ok()).collect();
        if let [domain, bus, device, ..] = parts[..] {
            (info.domain, info.bus, info.device) = (domain, bus, device);
        }
        let short = format!("{:04X}:{:02X}:{:02X}.0", info.domain, info.bus, info.device);
        fill(&mut info.busId, id);
        fill(&mut info.busIdLegacy, &short);
        info
    }

    /// Reserved and used memory, in bytes.
    fn memory(&self) -> (u64, u64, u64) {
        let memory = &self.gpu.memory;
        let used = memory.used_mib.at(self.t()).round() as u64 * MIB;
        (memory.total_mib * MIB, memory.reserved_mib * MIB, used)
    }

    /// The first form, whose `used` has the reserved part in it.
    pub(crate) fn memory_v1(&self) -> nvmlMemory_t {
        let (total, reserved, used) = self.memory();
        let taken = used + reserved;
        nvmlMemory_t { total, free: total.saturating_sub(taken), used: taken }
    }

    /// The second form.
    pub(crate) fn memory_v2(&self, version: u32) -> Result<nvmlMemory_v2_t, Code> {
        if version != MEMORY_V2 {
            return Err(Code::INVALID_ARGUMENT);
        }
        let (total, reserved, used) = self.memory();
        Ok(nvmlMemory_v2_t { version, total, reserved, free: total.saturating_sub(used + reserved), used })
    }

    /// Both utilisations.
    pub(crate) fn utilization_rates(&self) -> nvmlUtilization_t {
        nvmlUtilization_t { gpu: self.gpu_utilization(self.now), memory: self.memory_utilization(self.now) }
    }

    /// `nvmlClockType_t` in MHz.
    pub(crate) fn clock_mhz(&self, kind: u32) -> Result<u32, Code> {
        let clocks = &self.gpu.clocks_mhz;
        let signal = match kind {
            0 => &clocks.graphics,
            1 => &clocks.sm,
            2 => &clocks.memory,
            3 => &clocks.video,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        Ok(signal.at(self.t()).round() as u32)
    }

    /// The highest `nvmlClockType_t` in MHz.
    pub(crate) fn max_clock_mhz(&self, kind: u32) -> Result<u32, Code> {
        self.gpu.clocks_mhz.max.get(kind as usize).copied().ok_or(Code::INVALID_ARGUMENT)
    }

    /// The only sensor is the GPU's, 0.
    pub(crate) fn temperature_c(&self, sensor: u32) -> Result<u32, Code> {
        if sensor != 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        Ok(self.gpu.temperature_c.gpu.at(self.t()).round() as u32)
    }

    /// The memory's temperature.
    pub(crate) fn memory_temperature_c(&self) -> Result<u32, Code> {
        let signal = self.gpu.temperature_c.memory.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        Ok(signal.at(self.t()).round() as u32)
    }

    /// The mask of reasons in force.
    pub(crate) fn throttle_reasons(&self) -> u64 {
        self.gpu.throttle.at(self.t())
    }

    /// For how many nanoseconds the policy held the clocks back.
    pub(crate) fn violation_ns(&self, policy: u32) -> Result<u64, Code> {
        let mask = match policy {
            0 => POWER_REASONS,
            1 => THERMAL_REASONS,
            2..=5 | 10 | 11 => 0,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        Ok((self.gpu.throttle.time_with(mask, self.t()) * 1e9).round() as u64)
    }

    /// The same with the time at which it was read.
    pub(crate) fn violation(&self, policy: u32) -> Result<nvmlViolationTime_t, Code> {
        let reference_us = self.running.clock.wall_us(self.now);
        Ok(nvmlViolationTime_t { referenceTime: reference_us, violationTime: self.violation_ns(policy)? })
    }

    /// Errors that were corrected (0) or not (1).
    pub(crate) fn ecc_errors(&self, kind: u32) -> Result<u64, Code> {
        match kind {
            _ if !self.gpu.ecc.current => Err(Code::NOT_SUPPORTED),
            0 => Ok(self.gpu.ecc.corrected.at(self.t())),
            1 => Ok(self.gpu.ecc.uncorrected.at(self.t())),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }

    /// Modes now and after a reset.
    pub(crate) fn mig(&self) -> Result<[u32; 2], Code> {
        let mode = self.gpu.mig.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        Ok([mode.current.into(), mode.pending.into()])
    }

    /// What was sent (0) or received (1) over PCIe in the last 20 ms, in KiB/s.
    pub(crate) fn pcie_kib_s(&self, counter: u32) -> Result<u32, Code> {
        let signal = match counter {
            0 => &self.gpu.pcie.tx_kib_s,
            1 => &self.gpu.pcie.rx_kib_s,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        Ok(signal.mean(self.t() - 0.020, self.t()).round() as u32)
    }

    /// Whether a link is active.
    pub(crate) fn nvlink(&self, link: u32) -> Result<u32, Code> {
        match link {
            _ if self.gpu.nvlink.links == 0 => Err(Code::NOT_SUPPORTED),
            0..18 => Ok((link < self.gpu.nvlink.links).into()),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }

    /// Who computes on it.
    pub(crate) fn processes(&self) -> Vec<nvmlProcessInfo_t> {
        let running = self.gpu.processes.iter().filter(|p| (p.from_s..p.to_s).contains(&self.t()));
        let info = |process: &Process| nvmlProcessInfo_t {
            pid: process.pid,
            // -1: not available.
            usedGpuMemory: process
                .used_mib
                .map_or(i64::from(NVML_VALUE_NOT_AVAILABLE).cast_unsigned(), |mib| mib * MIB),
            gpuInstanceId: u32::MAX,
            computeInstanceId: u32::MAX,
        };
        running.map(info).collect()
    }
}

/// Writes a text with its end mark into a field of a struct, cut where it does not fit.
fn fill(to: &mut [std::ffi::c_char], text: &str) {
    let room = to.len() - 1;
    for (to, byte) in to.iter_mut().take(room).zip(text.bytes()) {
        *to = byte as std::ffi::c_char;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::World;

    #[test]
    fn the_two_forms_of_memory_differ_by_what_is_reserved() {
        let json = r#"{"gpus": [{"memory": {"total_mib": 1000, "reserved_mib": 100, "used_mib": 250}}]}"#;
        let mut world = World::new();
        world.load(json).expect("a scenario");
        let running = world.running().expect("a scenario");
        let device = running.device(0).expect("a GPU");
        let (v1, v2) = (device.memory_v1(), device.memory_v2(MEMORY_V2).expect("the second form"));
        assert_eq!([v1.used, v1.free, v1.total].map(|bytes| bytes / MIB), [350, 650, 1000]);
        assert_eq!([v2.used, v2.free, v2.total, v2.reserved].map(|bytes| bytes / MIB), [250, 650, 1000, 100]);
        assert_eq!(device.memory_v2(MEMORY_V2 - 8).map(drop), Err(Code::INVALID_ARGUMENT));
    }
}
