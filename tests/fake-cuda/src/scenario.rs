//! What a scenario file can say, and what is meant where it says nothing.
//!
//! Owns the schema: every key of the JSON is a field of a struct here. An unknown key is an error. The devices are
//! those of the machine, before any environment variable hides or orders them; a device of which nothing is said is
//! the fake NVML's GPU at the same place.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::code::Code;

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Scenario {
    /// The driver's version, 13000 for 13.0.
    pub(crate) driver: i32,
    /// The devices, in any order.
    pub(crate) devices: Vec<Device>,
    /// Errors, delays and crashes of single functions.
    pub(crate) calls: Vec<Rule>,
    /// How long a kernel runs.
    pub(crate) kernel_ms: f64,
    /// How long kernels of these names run.
    pub(crate) kernels_ms: BTreeMap<String, f64>,
}

/// One device.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Device {
    /// `GPU-` and 32 hexadecimal digits; by its place in the list if empty, as is `pci`.
    pub(crate) uuid: String,
    /// The bus id; its domain may have four digits or eight.
    pub(crate) pci: String,
    pub(crate) name: String,
    /// Compute capability.
    pub(crate) cc: [i32; 2],
    pub(crate) memory_mib: usize,
    /// What others have of it.
    pub(crate) used_mib: usize,
    /// Multiprocessors.
    pub(crate) sms: i32,
    /// The higher, the earlier in the order FASTEST_FIRST.
    pub(crate) speed: f64,
    /// `CUdevice_attribute` by number, in place of what follows from the rest.
    pub(crate) attributes: BTreeMap<i32, i32>,
}

/// What is wrong with a function.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// The symbol; a `*` at its end stands for any rest.
    call: String,
    /// What is answered.
    pub(crate) code: Option<Code>,
    /// How long a call takes.
    #[serde(default)]
    pub(crate) delay_ms: f64,
    /// The process aborts.
    #[serde(default)]
    pub(crate) crash: bool,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            driver: 13000,
            devices: vec![Device::default()],
            calls: Vec::new(),
            kernel_ms: 1.0,
            kernels_ms: BTreeMap::new(),
        }
    }
}

impl Default for Device {
    fn default() -> Self {
        Self {
            uuid: String::new(),
            pci: String::new(),
            name: "NVIDIA H200".into(),
            cc: [9, 0],
            memory_mib: 143_171,
            used_mib: 0,
            sms: 132,
            speed: 1.0,
            attributes: BTreeMap::new(),
        }
    }
}

impl Rule {
    /// Whether it is about this symbol.
    pub(crate) fn is_about(&self, call: &str) -> bool {
        match self.call.strip_suffix('*') {
            Some(start) => call.starts_with(start),
            None => call == self.call,
        }
    }
}

impl Scenario {
    /// Reads JSON, and fills in what depends on a device's place in the list.
    pub(crate) fn parse(json: &str) -> Result<Self, String> {
        let mut scenario: Self = serde_json::from_str(json).map_err(|error| error.to_string())?;
        for (index, device) in scenario.devices.iter_mut().enumerate() {
            if device.uuid.is_empty() {
                device.uuid = format!("GPU-{index:08x}-fa4e-4000-8000-{index:012x}");
            }
            if device.pci.is_empty() {
                device.pci = format!("00000000:{:02X}:00.0", 0x19 + index);
            }
            if uuid_bytes(&device.uuid).is_none() {
                return Err(format!("{} is not GPU- and 32 hexadecimal digits", device.uuid));
            }
        }
        for rule in &scenario.calls {
            if rule.code.is_none() && rule.delay_ms == 0.0 && !rule.crash {
                return Err(format!("the rule for {} has neither code, delay_ms nor crash", rule.call));
            }
        }
        Ok(scenario)
    }

    /// How long a kernel runs, in milliseconds.
    pub(crate) fn run_ms(&self, kernel: &str) -> f64 {
        self.kernels_ms.get(kernel).copied().unwrap_or(self.kernel_ms)
    }
}

impl Device {
    /// The 16 bytes that CUDA knows it by.
    pub(crate) fn uuid_bytes(&self) -> [u8; 16] {
        uuid_bytes(&self.uuid).unwrap_or_default()
    }

    /// Domain, bus and device.
    pub(crate) fn pci_parts(&self) -> [i32; 3] {
        let mut parts = self.pci.split([':', '.']).map(|part| i32::from_str_radix(part, 16).unwrap_or(0));
        std::array::from_fn(|_| parts.next().unwrap_or(0))
    }

    /// The bus id as CUDA writes it: a domain of four digits.
    pub(crate) fn bus_id(&self) -> String {
        let [domain, bus, device] = self.pci_parts();
        format!("{domain:04X}:{bus:02X}:{device:02X}.0")
    }

    /// A `CUdevice_attribute`; 0 for what this fake has nothing to say of.
    pub(crate) fn attribute(&self, attribute: i32) -> Option<i32> {
        if let Some(&value) = self.attributes.get(&attribute) {
            return Some(value);
        }
        let [domain, bus, device] = self.pci_parts();
        Some(match attribute {
            1 => 1024,       // threads of a block
            10 => 32,        // threads of a warp
            13 => 1_980_000, // clock, kHz
            16 => self.sms,
            33 => bus,
            34 => device,
            36 => 3_201_000, // memory's clock, kHz
            37 => 6144,      // memory's bus, bits
            39 => 2048,      // threads of a multiprocessor
            50 => domain,
            75 => self.cc[0],
            76 => self.cc[1],
            other if (1..=200).contains(&other) => 0,
            _ => return None,
        })
    }
}

fn uuid_bytes(uuid: &str) -> Option<[u8; 16]> {
    let digits: String = uuid.strip_prefix("GPU-")?.chars().filter(|&c| c != '-').collect();
    let value = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?;
    Some(value.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_cuda_s() {
        let json = r#"{"devices": [{"uuid": "GPU-00112233-4455-6677-8899-aabbccddeeff",
            "pci": "00000001:C3:00.0"}, {}]}"#;
        let scenario = Scenario::parse(json).expect("scenario");
        let bytes =
            [0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
        assert_eq!(scenario.devices[0].uuid_bytes(), bytes);
        assert_eq!(scenario.devices[0].bus_id(), "0001:C3:00.0");
        assert_eq!(scenario.devices[1].bus_id(), "0000:1A:00.0");
        assert_eq!(scenario.devices[0].attribute(33), Some(0xC3));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (json, why) in [
            (r#"{"gpus": []}"#, "unknown field `gpus`"),
            (r#"{"devices": [{"uuid": "GPU-1"}]}"#, "GPU-1 is not"),
            (r#"{"calls": [{"call": "cuInit"}]}"#, "neither code"),
            (r#"{"calls": [{"call": "cuInit", "code": "SUCCESS"}]}"#, "SUCCESS"),
        ] {
            let error = Scenario::parse(json).expect_err(json);
            assert!(error.contains(why), "{json}: {error}");
        }
    }
}
