//! What a scenario can say of one GPU.
//!
//! Owns the defaults of a GPU. They must stay those of a real one that nothing is wrong with: a test that wants a
//! fault writes it down.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::signal::{Signal, Steps};

/// One GPU.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Gpu {
    /// `GPU-` and 32 hexadecimal digits; by its place in the list if empty, as are `pci` and `serial`.
    pub(crate) uuid: String,
    /// The bus id with its domain of eight digits.
    pub(crate) pci: String,
    pub(crate) serial: String,
    pub(crate) name: String,
    pub(crate) vbios: String,
    /// Compute capability.
    pub(crate) cc: [i32; 2],
    pub(crate) memory: Memory,
    pub(crate) limits_w: Limits,
    /// The truth: what the board draws.
    pub(crate) power_w: Signal,
    /// What a running kernel of the burn file adds to it.
    pub(crate) burn_watts: f64,
    /// What the whole module draws (scope 1) and the memory (scope 2); not supported if absent.
    pub(crate) module_power_w: Option<Signal>,
    pub(crate) memory_power_w: Option<Signal>,
    pub(crate) energy: Energy,
    pub(crate) instant: Sensor,
    pub(crate) average: Sensor,
    /// The sensor that `nvmlDeviceGetPowerUsage` shows.
    pub(crate) usage: Shown,
    pub(crate) utilization_pct: Utilization,
    pub(crate) clocks_mhz: Clocks,
    pub(crate) temperature_c: Temperature,
    pub(crate) pstate: Steps,
    /// The mask of `nvmlClocksThrottleReason*` in force; violation times are summed from it.
    pub(crate) throttle: Steps,
    pub(crate) throttle_supported: u64,
    pub(crate) ecc: Ecc,
    pub(crate) pcie: Pcie,
    pub(crate) nvlink: NvLink,
    pub(crate) persistence: bool,
    /// Not supported if absent.
    pub(crate) mig: Option<Mode>,
    pub(crate) processes: Vec<Process>,
    pub(crate) xids: Vec<Xid>,
    pub(crate) lost: Vec<Lost>,
    /// Whether there is GPM; by the compute capability if absent.
    pub(crate) gpm: Option<bool>,
    /// GPM metrics by id, instead of those that follow from the rest.
    pub(crate) gpm_metrics: BTreeMap<u32, Signal>,
    /// Other fields of `nvmlDeviceGetFieldValues` by id, or others' values.
    pub(crate) fields: BTreeMap<u32, Field>,
}

macro_rules! part {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$field_doc])* pub(crate) $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

part! {
    /// Device memory. `used` is what processes have, without the reserved part.
    Memory {
        total_mib: u64 = 143_771,
        reserved_mib: u64 = 600,
        used_mib: Signal = Signal::constant(0.0),
    }
}

part! {
    /// Power limits in watts.
    Limits { enforced: f64 = 700.0, default: f64 = 700.0, min: f64 = 200.0, max: f64 = 700.0, }
}

part! {
    /// The energy counter. It shows what it had at the last multiple of its period, after `phase_s`.
    Energy {
        period_s: f64 = 0.1,
        phase_s: f64 = 0.0,
        resolution_mj: u64 = 1,
        /// What it had at time 0.
        start_mj: u64 = 1_000_000_000,
        /// Counted for each joule that was used.
        gain: f64 = 1.0,
        /// When it starts again at 0.
        resets_s: Vec<f64> = Vec::new(),
    }
}

/// A power or utilisation sensor: every `period_s` a reading appears, the mean of `window_s` until `lag_s` ago.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sensor {
    #[serde(default = "tenth")]
    pub(crate) period_s: f64,
    pub(crate) window_s: f64,
    #[serde(default)]
    pub(crate) phase_s: f64,
    #[serde(default)]
    pub(crate) lag_s: f64,
    #[serde(default = "one")]
    pub(crate) gain: f64,
}

fn tenth() -> f64 {
    0.1
}

fn one() -> f64 {
    1.0
}

impl Sensor {
    fn of_window(window_s: f64) -> Self {
        Self { period_s: 0.1, window_s, phase_s: 0.0, lag_s: 0.0, gain: 1.0 }
    }
}

/// Which power sensor.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Shown {
    Instant,
    Average,
}

part! {
    /// Percent. A running kernel of the burn file makes it 100.
    Utilization {
        gpu: Signal = Signal::constant(0.0),
        memory: Signal = Signal::constant(0.0),
        sensor: Sensor = Sensor::of_window(0.1),
    }
}

part! {
    /// Clocks in MHz.
    Clocks {
        graphics: Signal = Signal::constant(1980.0),
        sm: Signal = Signal::constant(1980.0),
        memory: Signal = Signal::constant(3201.0),
        video: Signal = Signal::constant(1545.0),
        /// The highest of graphics, SM, memory and video.
        max: [u32; 4] = [1980, 1980, 3201, 1545],
    }
}

part! {
    /// Degrees Celsius.
    Temperature { gpu: Signal = Signal::constant(35.0), memory: Option<Signal> = Some(Signal::constant(45.0)), }
}

part! {
    /// Error correction: modes, and errors since the driver was loaded.
    Ecc {
        current: bool = true,
        pending: bool = true,
        corrected: Steps = Steps::default(),
        uncorrected: Steps = Steps::default(),
    }
}

part! {
    /// The PCIe link and its traffic, KiB/s.
    Pcie {
        generation: u32 = 5,
        width: u32 = 16,
        tx_kib_s: Signal = Signal::constant(0.0),
        rx_kib_s: Signal = Signal::constant(0.0),
    }
}

part! {
    /// NVLink: how many links are active, and the traffic of all, KiB/s.
    NvLink { links: u32 = 18, tx_kib_s: Signal = Signal::constant(0.0), rx_kib_s: Signal = Signal::constant(0.0), }
}

/// A mode and what it will be after a reset.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mode {
    pub(crate) current: bool,
    pub(crate) pending: bool,
}

/// A process that computes on the GPU; its memory is not available if absent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) used_mib: Option<u64>,
    #[serde(default = "super::always")]
    pub(crate) from_s: f64,
    #[serde(default = "super::never")]
    pub(crate) to_s: f64,
}

/// A critical error, as an event.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Xid {
    pub(crate) t_s: f64,
    pub(crate) xid: u64,
}

/// The GPU is lost for a while. With `needs_reinit` it stays so for whoever does not shut NVML down and open it
/// again after `to_s`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lost {
    pub(crate) from_s: f64,
    #[serde(default = "super::never")]
    pub(crate) to_s: f64,
    #[serde(default)]
    pub(crate) needs_reinit: bool,
}

/// A field's value, shown as a type of NVML's.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Field {
    pub(crate) value: Signal,
    #[serde(rename = "type", default)]
    pub(crate) shown_as: FieldType,
}

/// The types of a field's value.
#[derive(Debug, Clone, Copy, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FieldType {
    Double,
    #[default]
    Uint,
    Ulong,
    Ulonglong,
    Slonglong,
    Sint,
    Ushort,
}

impl Default for Gpu {
    fn default() -> Self {
        Self {
            uuid: String::new(),
            pci: String::new(),
            serial: String::new(),
            name: "NVIDIA H200".into(),
            vbios: "96.00.A5.00.01".into(),
            cc: [9, 0],
            memory: Memory::default(),
            limits_w: Limits::default(),
            power_w: Signal::constant(70.0),
            burn_watts: 500.0,
            module_power_w: None,
            memory_power_w: None,
            energy: Energy::default(),
            instant: Sensor::of_window(0.025),
            average: Sensor::of_window(1.0),
            usage: Shown::Average,
            utilization_pct: Utilization::default(),
            clocks_mhz: Clocks::default(),
            temperature_c: Temperature::default(),
            pstate: Steps::default(),
            throttle: Steps::constant(0),
            throttle_supported: 0x1ff,
            ecc: Ecc::default(),
            pcie: Pcie::default(),
            nvlink: NvLink::default(),
            persistence: true,
            mig: Some(Mode { current: false, pending: false }),
            processes: Vec::new(),
            xids: Vec::new(),
            lost: Vec::new(),
            gpm: None,
            gpm_metrics: BTreeMap::new(),
            fields: BTreeMap::new(),
        }
    }
}

impl Gpu {
    /// Fills in what follows from the place in the list, and checks what serde cannot.
    pub(super) fn complete(&mut self, index: usize) -> Result<(), String> {
        let fill = |text: &mut String, value: String| {
            if text.is_empty() {
                *text = value;
            }
        };
        fill(&mut self.uuid, format!("GPU-{index:08x}-fa4e-4000-8000-{index:012x}"));
        fill(&mut self.pci, format!("00000000:{:02X}:00.0", 0x19 + index));
        fill(&mut self.serial, format!("16500000{index:05}"));
        let periods = [
            ("energy", self.energy.period_s),
            ("instant", self.instant.period_s),
            ("average", self.average.period_s),
            ("utilization_pct.sensor", self.utilization_pct.sensor.period_s),
        ];
        for (name, period) in periods {
            if !(1e-6..1e6).contains(&period) {
                return Err(format!(
                    "{name}: period_s must be from a microsecond to 1e6 seconds, it is {period}"
                ));
            }
        }
        if self.energy.resolution_mj == 0 {
            return Err("energy: resolution_mj must be above 0".into());
        }
        Ok(())
    }
}
