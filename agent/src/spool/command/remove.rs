//! `agent spool rm`: removes segments, and asks before traces are lost.

use anyhow::{Context, bail};
use common::disk::{Disk, OsDisk};

use super::{RemoveOptions, lock, nothing_of, out, traces};
use crate::spool::held::Segment;

pub(super) fn run(options: &RemoveOptions) -> anyhow::Result<u8> {
    let disk: &dyn Disk = &OsDisk;
    let holdings = lock(disk, &options.place)?;
    let wanted = |s: &Segment| match &options.run {
        Some(run) => s.run == *run,
        None => options.all || s.sealed,
    };
    let segments: Vec<&Segment> = holdings.iter().flat_map(|h| &h.segments).filter(|s| wanted(s)).collect();
    if let Some(run) = options.run.as_ref().filter(|_| segments.is_empty()) {
        return Err(nothing_of(run, &options.place));
    }
    let at_risk = segments.iter().filter(|s| !s.sealed).map(|s| s.traces).sum::<u64>();
    if at_risk > 0 && !options.yes {
        bail!(
            "{} that no coordinator has sealed would be lost: deliver them first (agent spool push), or add --yes",
            traces(at_risk)
        );
    }
    for segment in &segments {
        segment.remove(disk).with_context(|| segment.path.display().to_string())?;
    }
    let held = segments.iter().map(|s| s.traces).sum::<u64>();
    out(&format!("removed {} segments with {}", segments.len(), traces(held)));
    Ok(0)
}
