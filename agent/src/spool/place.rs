//! Where things lie in a spool.
//!
//! ```text
//! SPOOL/AGENT/LOCK                                         who has it
//! SPOOL/AGENT/runs/RUN/TRIAL-EPOCH-INCARNATION.seg         the traces of a trial
//! SPOOL/AGENT/runs/RUN/TRIAL-EPOCH-INCARNATION.sealed      the coordinator has sealed that trial (empty)
//! ```
//! `workloads` and `engine` beside `runs` are not the spool's.

use std::io;
use std::path::{Path, PathBuf};

use common::disk::Disk;
use common::ids::{Epoch, Incarnation, RunId, TrialId};

const RUNS: &str = "runs";

/// The folder of all runs in an agent's folder.
pub(super) fn runs_folder(dir: &Path) -> PathBuf {
    dir.join(RUNS)
}

/// The folder of a run in an agent's folder.
pub(super) fn run_folder(dir: &Path, run: &RunId) -> PathBuf {
    runs_folder(dir).join(run.as_str())
}

/// The name of a trial's file.
pub(super) fn file_name(trial: TrialId, epoch: Epoch, incarnation: Incarnation) -> String {
    format!("{trial}-{epoch}-{:016x}.seg", incarnation.0)
}

/// What the name of a trial's file says; none when it is not one.
pub(super) fn parse_name(path: &Path) -> Option<(TrialId, Epoch, Incarnation)> {
    let name = path.file_name()?.to_str()?;
    let mut parts = name.strip_suffix(".seg")?.split('-');
    let trial = TrialId(parts.next()?.parse().ok()?);
    let epoch = Epoch(parts.next()?.parse().ok()?);
    let incarnation = Incarnation(u64::from_str_radix(parts.next()?, 16).ok()?);
    // Only the one way of writing it: two names of one segment would be sent twice.
    (file_name(trial, epoch, incarnation) == name).then_some((trial, epoch, incarnation))
}

/// The file that says that a segment's trial is sealed.
pub(super) fn seal_of(segment: &Path) -> PathBuf {
    segment.with_extension("sealed")
}

/// Makes the names of a run's folder durable, and of those above it up to the agent's own.
pub(super) fn sync_names(disk: &dyn Disk, dir: &Path, folder: &Path) -> io::Result<()> {
    for above in folder.ancestors().take_while(|above| above.starts_with(dir)) {
        disk.sync_dir(above)?;
    }
    // The agent's folder and the spool itself may be as new.
    for above in dir.ancestors().skip(1).take(2) {
        match disk.sync_dir(above) {
            // A folder that may not be read is not one in which we have made another.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced?,
        }
    }
    Ok(())
}

/// Removes a segment with what is said of it, and its run's folder when nothing else is in it.
pub(super) fn remove(disk: &dyn Disk, segment: &Path) -> io::Result<()> {
    // The segment first: a seal without one is nothing, but a segment without its seal would look unsealed.
    disk.remove(segment)?;
    disk.remove(&seal_of(segment))?;
    let Some(folder) = segment.parent() else { return Ok(()) };
    if disk.list(folder)?.is_empty() {
        disk.remove_dir_all(folder)?;
        return folder.parent().map_or(Ok(()), |runs| disk.sync_dir(runs));
    }
    disk.sync_dir(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written_and_no_other_is() {
        let (trial, epoch, incarnation) = (TrialId(3), Epoch(7), Incarnation(0xbeef));
        let name = file_name(trial, epoch, incarnation);
        assert_eq!(name, "3-7-000000000000beef.seg");
        assert_eq!(parse_name(Path::new(&name)), Some((trial, epoch, incarnation)));
        for other in
            ["3-7-beef.seg", "03-7-000000000000beef.seg", "3-7-000000000000BEEF.seg", "3-7.seg", "x", ""]
        {
            assert_eq!(parse_name(Path::new(other)), None, "{other}");
        }
    }
}
