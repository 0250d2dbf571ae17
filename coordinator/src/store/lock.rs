//! The lock of a data directory: one coordinator at a time.
//!
//! It owns the file `LOCK`, which holds the process id of whoever has it. The lock is the kernel's (`flock`), so it
//! ends with the process however that ends; the file stays and says nothing by itself. Children do not inherit it:
//! the standard library opens files close-on-exec.
//!
//! `a_second_coordinator_is_told_who_has_the_directory` in `store/tests/open.rs` guards it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::error::StoreError;

/// A held lock. Dropping it releases it.
#[derive(Debug)]
pub(super) struct DirLock {
    _file: File,
}

impl DirLock {
    /// Makes `dir` when it is missing and locks it.
    pub(super) fn take(dir: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::DataDir { path: dir.to_owned(), source };
        if std::fs::metadata(dir).is_ok_and(|m| !m.is_dir()) {
            return Err(StoreError::NotADirectory { path: dir.to_owned() });
        }
        std::fs::create_dir_all(dir).map_err(failed)?;
        let path = dir.join("LOCK");
        // Not truncated on open: until the lock is ours the content is somebody else's.
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = options.map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(StoreError::InUse { path: dir.to_owned(), holder: holder(&mut file) });
            }
            Err(e) => return Err(failed(e.into())),
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// Who wrote its process id into the lock file.
fn holder(file: &mut File) -> String {
    let mut content = String::new();
    // A holder that has not written its id yet leaves it empty; the message then says less.
    let read = file.take(32).read_to_string(&mut content);
    match content.trim().parse::<u32>() {
        Ok(pid) if read.is_ok() => format!("process {pid}"),
        _ => "its process id is not known".to_owned(),
    }
}
