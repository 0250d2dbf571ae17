//! Which records are of which GPU.
//!
//! A sample names its GPU by a position in an inventory, and inventories may be replaced while samples go on; what is
//! computed must only ever see a GPU by its uuid.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::Nanos;
use crate::telemetry::{EventKind, GpuInfo, GpuSample, PowerSample, Record, Window};

/// Records of one GPU.
pub(super) struct Collected {
    /// As the last inventory before the window's end has it; its `used_by_engine` is what the window's inventories say.
    pub(super) info: GpuInfo,
    pub(super) known: bool,
    pub(super) power: Vec<PowerSample>,
    pub(super) samples: Vec<GpuSample>,
    /// Process ids that are not the engine's, where that is known.
    pub(super) foreign: Option<BTreeSet<u32>>,
    pub(super) xids: Vec<Option<u64>>,
    /// There were some of which the driver does not say which GPU's they are.
    pub(super) xids_of_unknown: bool,
    pub(super) lost: bool,
}

impl Collected {
    fn new(info: GpuInfo, known: bool) -> Self {
        let (power, samples, xids) = (Vec::new(), Vec::new(), Vec::new());
        let (foreign, xids_of_unknown, lost) = (None, false, false);
        Self { info, known, power, samples, foreign, xids, xids_of_unknown, lost }
    }
}

/// Sorts records by the GPU that they are of. A sample names its GPU by the position in the inventory before it, or in
/// the first where there is none before. What comes after the window says nothing of it: an engine that is started again
/// then uses no GPU for a while.
pub(super) fn collect(records: &[Record], window: Window) -> Vec<Collected> {
    let mut gpus: Vec<Collected> = Vec::new();
    let mut places: BTreeMap<u8, usize> = BTreeMap::new();
    let inventories =
        || records.iter().filter_map(|r| if let Record::Inventory(i) = r { Some(i) } else { None });
    if let Some(first) = inventories().next() {
        take_inventory(first, When::Before, &mut gpus, &mut places);
    }
    let mut when = When::Before;
    for record in records {
        if let Some(at) = record.at() {
            when = when.max(When::of(at, window));
        }
        match record {
            Record::Inventory(inventory) => take_inventory(inventory, when, &mut gpus, &mut places),
            Record::Power(s) => at(s.gpu, &mut gpus, &mut places, |g| g.power.push(*s)),
            Record::Gpu(s) => at(s.gpu, &mut gpus, &mut places, |g| g.samples.push(*s)),
            Record::Processes(s) if window.contains(s.at) => at(s.gpu, &mut gpus, &mut places, |g| {
                if let Some(foreign) = &s.foreign {
                    g.foreign.get_or_insert_default().extend(foreign);
                }
            }),
            Record::Event(e) if window.contains(e.at) => match (e.kind, e.gpu) {
                (EventKind::Xid, Some(gpu)) => at(gpu, &mut gpus, &mut places, |g| g.xids.push(e.code)),
                (EventKind::Xid, None) => gpus.iter_mut().for_each(|g| g.xids_of_unknown = true),
                (EventKind::Lost, Some(gpu)) => at(gpu, &mut gpus, &mut places, |g| g.lost = true),
                (EventKind::Lost, None) => gpus.iter_mut().for_each(|g| g.lost = true),
                _ => {}
            },
            _ => {}
        }
    }
    gpus
}

/// Where a record stands to the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum When {
    Before,
    Within,
    After,
}

impl When {
    fn of(at: Nanos, window: Window) -> Self {
        match at {
            at if at < window.from => Self::Before,
            at if at <= window.to => Self::Within,
            _ => Self::After,
        }
    }
}

fn take_inventory(
    inventory: &[GpuInfo],
    when: When,
    gpus: &mut Vec<Collected>,
    places: &mut BTreeMap<u8, usize>,
) {
    places.clear();
    for (position, info) in (0..=u8::MAX).zip(inventory) {
        let place = gpus.iter().position(|g| g.known && g.info.uuid == info.uuid).unwrap_or(gpus.len());
        match gpus.get_mut(place) {
            // Positions may be new, what a GPU was in the window is not.
            Some(_) if when == When::After => {}
            Some(gpu) => {
                let used = match when {
                    When::Before => info.used_by_engine,
                    // Used for a part of the window is used; and what is known of a part is known.
                    _ => match (gpu.info.used_by_engine, info.used_by_engine) {
                        (Some(true), _) | (_, Some(true)) => Some(true),
                        (before, now) => now.or(before),
                    },
                };
                gpu.info = GpuInfo { used_by_engine: used, ..info.clone() };
            }
            None => gpus.push(Collected::new(info.clone(), true)),
        }
        places.insert(position, place);
    }
}

fn at(
    gpu: u8,
    gpus: &mut Vec<Collected>,
    places: &mut BTreeMap<u8, usize>,
    then: impl FnOnce(&mut Collected),
) {
    let place = *places.entry(gpu).or_insert_with(|| {
        let info = GpuInfo { uuid: format!("unknown-{gpu}"), ..GpuInfo::default() };
        gpus.push(Collected::new(info, false));
        gpus.len() - 1
    });
    if let Some(gpu) = gpus.get_mut(place) {
        then(gpu);
    }
}
