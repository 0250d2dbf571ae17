//! Which devices a process sees, and in which order.
//!
//! Owns the meaning of `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`. It is pure: the environment is read elsewhere.
//! The order of the list is that of the ordinals; the first entry that names no device ends it, and so does one that
//! names a device again (the real driver then shows none at all). MIG instances are not known here.

use crate::scenario::Device;

/// The devices that are left, in order.
pub(crate) fn visible(devices: &[Device], list: Option<&str>, order: Option<&str>) -> Vec<Device> {
    let mut ordered: Vec<Device> = devices.to_vec();
    ordered.sort_by_key(Device::pci_parts);
    if order != Some("PCI_BUS_ID") {
        ordered.sort_by(|a, b| b.speed.total_cmp(&a.speed));
    }
    let Some(list) = list else { return ordered };
    let mut left: Vec<Device> = Vec::new();
    for entry in list.split(',').map(str::trim) {
        match named(&ordered, entry) {
            Some(device) if !left.contains(device) => left.push(device.clone()),
            _ => break,
        }
    }
    left
}

/// An ordinal, or the beginning of a UUID that only one device has.
fn named<'a>(ordered: &'a [Device], entry: &str) -> Option<&'a Device> {
    if entry.starts_with("GPU-") {
        let mut begun = ordered.iter().filter(|device| device.uuid.starts_with(entry));
        return begun.next().filter(|_| begun.next().is_none());
    }
    ordered.get(entry.parse::<usize>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn the_list_hides_and_orders() {
        // By bus: b, c, a. By speed: c, then b before a.
        let json = r#"{"devices": [
            {"name": "a", "pci": "0000:C0:00.0", "uuid": "GPU-aaaaaaaa-0000-0000-0000-000000000000"},
            {"name": "b", "pci": "0000:10:00.0", "uuid": "GPU-bbbbbbbb-0000-0000-0000-000000000000"},
            {"name": "c", "pci": "0000:20:00.0", "uuid": "GPU-bbbbcccc-0000-0000-0000-000000000000", "speed": 2}
        ]}"#;
        let devices = Scenario::parse(json).expect("scenario").devices;
        let bus = Some("PCI_BUS_ID");
        for (list, order, want) in [
            (None, bus, "bca"),
            (None, None, "cba"),
            (None, Some("FASTEST_FIRST"), "cba"),
            (Some("1"), bus, "c"),
            (Some("1"), None, "b"),
            (Some("2, 0"), bus, "ab"),
            (Some("GPU-aa,0"), bus, "ab"),
            (Some("GPU-bbbbc"), bus, "c"),
            (Some("GPU-bbbb"), bus, ""),
            (Some("0,-1,1"), bus, "b"),
            (Some("0,7,1"), bus, "b"),
            (Some("1,1,0"), bus, "c"),
            (Some("-1"), bus, ""),
            (Some(""), bus, ""),
        ] {
            let seen: String =
                visible(&devices, list, order).iter().map(|device| device.name.as_str()).collect();
            assert_eq!(seen, want, "{list:?} {order:?}");
        }
    }
}
