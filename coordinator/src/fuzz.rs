//! Checks of what this crate reads from outside: see [`common::fuzz`].

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::disk::{Disk, SimDisk};
use common::fuzz::{self, Target};
use common::ids::{Epoch, Incarnation, Nanos, RunId, Seq, TrialId};

use crate::store::{MemoryIndex, Store, StoreError};

/// A store whose index is lost and whose segment file is of any bytes, or of any blocks whose checksums fit: what is
/// whole is indexed, contiguous from 0, and opening it again changes nothing.
pub const STORE: Target = Target {
    name: "store",
    valid: fuzz::segment_inputs,
    check: |bytes| {
        store_is_sound(bytes);
        store_is_sound(&fuzz::in_a_segment(bytes));
    },
};

#[expect(clippy::expect_used, reason = "a check fails by a panic")]
fn store_is_sound(file: &[u8]) {
    let (disk, index, root) = (SimDisk::default(), MemoryIndex::default(), Path::new("/data"));
    let run: RunId = "r".parse().expect("a name");
    let open = || Store::with_index(root, Arc::new(disk.clone()), Arc::new(index.clone()));
    open().and_then(|s| s.create_run(&run, Nanos(1))).expect("an empty store opens");
    let path = root.join("runs/r/segments/00000001.seg");
    disk.replace(&path, file).expect("it takes all");
    index.clear();
    let look = || -> Result<(Seq, u64), StoreError> {
        let run = open()?.run(&run)?;
        let mark = run.mark(&"a".parse().expect("a name"), Incarnation(7))?;
        let mut traces = 0;
        for block in run.trial_blocks(TrialId(0), Epoch(1))? {
            traces += u64::from(block?.header().count);
        }
        Ok((mark, traces))
    };
    match look() {
        Ok(found) => {
            let kept = disk.read(&path).unwrap_or_default();
            assert!(file.starts_with(&kept), "recovery wrote something of its own");
            assert_eq!(look().expect("it opens again"), found, "opening it again changed it");
            assert_eq!(disk.read(&path).unwrap_or_default(), kept);
        }
        Err(e) => {
            assert!(e.to_string().len() < 1000, "{e}");
            assert_eq!(disk.read(&path).unwrap_or_default(), file, "what was refused was changed");
        }
    }
}

/// Options from a file: taken as options that the command line parser takes or refuses, or refused by the file's name.
pub const SWEEP_TOML: Target = Target {
    name: "sweep_toml",
    valid: || {
        vec![
            b"rates = [1, 2.5, \"inf\"]\nbase-url = \"http://10.0.0.9:8000\"\nslo = [\"ttft=500ms\"]\nignore-eos = true\n"
                .to_vec(),
            b"seed = 7\nduration = \"9s\"\nlogprobs = false\narrival = \"gamma\"\ncv = 1.5\nlocal-agents = 2\n".to_vec(),
        ]
    },
    check: |bytes| {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("plimsoll-fuzz-{}-{number}.toml", std::process::id()));
        if std::fs::write(&path, bytes).is_err() {
            return;
        }
        let taken = crate::cli::parse_config(&path);
        let _ = std::fs::remove_file(&path);
        if let Err(e) = taken {
            assert!(e.contains("plimsoll-fuzz-"), "an error that does not name the file: {e}");
        }
    },
};

/// Every check of this crate.
pub const TARGETS: &[Target] = &[STORE, SWEEP_TOML];

#[cfg(test)]
mod tests {
    use super::*;
    use common::fuzz_twin;

    fuzz_twin!(stores_of_any_bytes, STORE, 256);
    fuzz_twin!(sweep_files_of_any_bytes, SWEEP_TOML, 256);
}
