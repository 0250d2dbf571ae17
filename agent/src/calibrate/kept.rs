//! The file in which a calibration is kept, and what is told of it.
//!
//! `calibration.json` lies in the folder that `--spool` names, beside the agents' own folders and not in one: it is the
//! host's, whatever agents are called. It never fails an agent: without one nothing is known, which is what is told.

use std::path::{Path, PathBuf};

use anyhow::Context;
use common::calibration::{CalibratedHost, Calibration, CalibrationCard};
use common::disk::{Disk, OsDisk};
use common::fleet::HostFacts;

/// The file's name.
pub const FILE: &str = "calibration.json";

/// Where it lies by default, for agents that have another spool: those that a coordinator starts beside itself.
const DEFAULT_SPOOL: &str = "plimsoll-spool";

/// Where the calibration of agents with this spool is kept.
#[must_use]
pub fn path(spool: &Path) -> PathBuf {
    spool.join(FILE)
}

/// Keeps it, durably and whole.
///
/// # Errors
/// The disk's, with the file's name.
pub fn keep(spool: &Path, calibration: &Calibration) -> anyhow::Result<PathBuf> {
    let file = path(spool);
    let text = serde_json::to_vec_pretty(calibration)?;
    OsDisk.create_dir_all(spool).with_context(|| spool.display().to_string())?;
    OsDisk.replace(&file, &text).with_context(|| format!("{}: cannot be written", file.display()))?;
    Ok(file)
}

/// What a coordinator is told; none where this host was never calibrated.
#[must_use]
pub fn card(given: Option<&Path>, spool: &Path, facts: &HostFacts) -> Option<CalibrationCard> {
    let places = match given {
        Some(file) => vec![file.to_owned()],
        None => vec![path(spool), path(Path::new(DEFAULT_SPOOL))],
    };
    for file in places {
        let bytes = match OsDisk.read(&file) {
            Ok(bytes) => bytes,
            Err(e) if given.is_none() && e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => {
                tracing::warn!(
                    "--calibration {}: {e}; this agent counts as never calibrated",
                    file.display()
                );
                return None;
            }
        };
        match serde_json::from_slice::<Calibration>(&bytes) {
            Ok(calibration) => {
                let card = calibration.card(&CalibratedHost::from(facts), env!("CARGO_PKG_VERSION"));
                if card.is_sound() {
                    return Some(card);
                }
                tracing::warn!("{}: its costs are none; run `agent calibrate` again", file.display());
            }
            Err(e) => tracing::warn!("{}: {e}; run `agent calibrate` again", file.display()),
        }
        return None;
    }
    None
}
