//! Names of what can be read of a GPU, and small sets of them and of GPUs.
//!
//! A signal's name is that of the record's field, so that the inventory's map of signals and the samples use one word.

use std::fmt;

/// Something that can be read of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "each is the record's field of its name, which is documented there")]
pub enum Signal {
    Energy,
    Instant,
    Average,
    MemoryUsed,
    MemoryReserved,
    Utilisation,
    MemoryUtilisation,
    SmClock,
    MemoryClock,
    Temperature,
    MemoryTemperature,
    ThrottleReasons,
    PowerThrottled,
    ThermalThrottled,
    PerformanceState,
    EccCorrected,
    EccUncorrected,
    PcieSent,
    PcieReceived,
    NvlinkSent,
    NvlinkReceived,
    Limit,
    Processes,
    Faults,
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::Energy,
        Self::Instant,
        Self::Average,
        Self::MemoryUsed,
        Self::MemoryReserved,
        Self::Utilisation,
        Self::MemoryUtilisation,
        Self::SmClock,
        Self::MemoryClock,
        Self::Temperature,
        Self::MemoryTemperature,
        Self::ThrottleReasons,
        Self::PowerThrottled,
        Self::ThermalThrottled,
        Self::PerformanceState,
        Self::EccCorrected,
        Self::EccUncorrected,
        Self::PcieSent,
        Self::PcieReceived,
        Self::NvlinkSent,
        Self::NvlinkReceived,
        Self::Limit,
        Self::Processes,
        Self::Faults,
    ];

    /// The name of the record's field; `processes` and `xid` are records of their own.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Energy => "energy_mj",
            Self::Instant => "instant_mw",
            Self::Average => "average_mw",
            Self::MemoryUsed => "memory_used_bytes",
            Self::MemoryReserved => "memory_reserved_bytes",
            Self::Utilisation => "utilisation_percent",
            Self::MemoryUtilisation => "memory_utilisation_percent",
            Self::SmClock => "sm_clock_mhz",
            Self::MemoryClock => "memory_clock_mhz",
            Self::Temperature => "temperature_c",
            Self::MemoryTemperature => "memory_temperature_c",
            Self::ThrottleReasons => "throttle_reasons",
            Self::PowerThrottled => "power_throttled",
            Self::ThermalThrottled => "thermal_throttled",
            Self::PerformanceState => "performance_state",
            Self::EccCorrected => "ecc_corrected",
            Self::EccUncorrected => "ecc_uncorrected",
            Self::PcieSent => "pcie_sent_bytes",
            Self::PcieReceived => "pcie_received_bytes",
            Self::NvlinkSent => "nvlink_sent_bytes",
            Self::NvlinkReceived => "nvlink_received_bytes",
            Self::Limit => "limit_enforced_mw",
            Self::Processes => "processes",
            Self::Faults => "xid",
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signals(u32);

impl Signals {
    /// No signal.
    pub const NONE: Self = Self(0);
    /// What a power sample holds.
    pub const POWER: Self = Self::of(&[Signal::Energy, Signal::Instant, Signal::Average]);
    /// What moves from one slow sample to the next.
    pub const MOVING: Self = Self::of(&[
        Signal::MemoryUsed,
        Signal::MemoryReserved,
        Signal::Utilisation,
        Signal::MemoryUtilisation,
        Signal::SmClock,
        Signal::MemoryClock,
        Signal::Temperature,
        Signal::MemoryTemperature,
        Signal::ThrottleReasons,
        Signal::PowerThrottled,
        Signal::ThermalThrottled,
        Signal::PerformanceState,
        Signal::PcieSent,
        Signal::PcieReceived,
        Signal::NvlinkSent,
        Signal::NvlinkReceived,
    ]);
    /// Errors of its memory.
    pub const ECC: Self = Self::of(&[Signal::EccCorrected, Signal::EccUncorrected]);
    /// What somebody would have to change.
    pub const LIMITS: Self = Self::of(&[Signal::Limit]);

    /// Those signals.
    #[must_use]
    pub const fn of(signals: &[Signal]) -> Self {
        let mut set = 0;
        let mut i = 0;
        while i < signals.len() {
            set |= 1 << signals[i] as u8;
            i += 1;
        }
        Self(set)
    }

    /// Whether a signal is among them.
    #[must_use]
    pub const fn has(self, signal: Signal) -> bool {
        self.0 & (1 << signal as u8) != 0
    }

    /// Whether any of `others` is among them.
    #[must_use]
    pub const fn any(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Those of either.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Those of both.
    #[must_use]
    pub const fn both(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Takes a signal in.
    pub fn insert(&mut self, signal: Signal) {
        self.0 |= 1 << signal as u8;
    }

    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = Signal> {
        Signal::ALL.into_iter().filter(move |&signal| self.has(signal))
    }
}

/// A set of GPUs by their positions in the inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gpus(u64);

impl Gpus {
    /// As many as a set can hold; a source has no more.
    pub const MOST: usize = 64;
    /// No GPU.
    pub const NONE: Self = Self(0);

    /// Whether a GPU is among them.
    #[must_use]
    pub fn has(self, gpu: u8) -> bool {
        1u64.checked_shl(gpu.into()).is_some_and(|bit| self.0 & bit != 0)
    }

    /// Takes a GPU in.
    pub fn insert(&mut self, gpu: u8) {
        self.0 |= 1u64.checked_shl(gpu.into()).unwrap_or(0);
    }

    /// All others.
    #[must_use]
    pub fn others(self) -> Self {
        Self(!self.0)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_has_its_own_bit_and_name() {
        let names: std::collections::BTreeSet<_> = Signal::ALL.iter().map(|s| s.name()).collect();
        assert_eq!(names.len(), Signal::ALL.len());
        for (i, &signal) in Signal::ALL.iter().enumerate() {
            assert_eq!(signal as usize, i);
            assert_eq!(Signals::of(&[signal]).iter().collect::<Vec<_>>(), [signal]);
        }
    }

    #[test]
    fn a_set_of_gpus_ignores_what_it_cannot_hold() {
        let mut gpus = Gpus::NONE;
        gpus.insert(63);
        gpus.insert(64);
        assert!(gpus.has(63) && !gpus.has(64) && !gpus.has(0) && gpus.others().has(0));
    }
}
