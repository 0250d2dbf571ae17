//! The lock of a folder: one process at a time.
//!
//! It owns the file `LOCK`, which holds the process id of whoever has it. The lock is the kernel's (`flock`), so it
//! ends with the process however that ends; the file stays and says nothing by itself. Children do not inherit it:
//! the standard library opens files close-on-exec.
//!
//! It is here because coordinator and agent both need it: the one for its data directory, the other for its spool.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// A held lock. Dropping it releases it.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
}

/// Why a folder cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Something else has its name.
    #[error("{} is not a folder", path.display())]
    NotAFolder {
        /// Its path.
        path: PathBuf,
    },
    /// Another process has it.
    #[error("{} is in use by another process ({holder})", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Who has it, as far as known.
        holder: String,
    },
    /// The disk.
    #[error("{} cannot be locked: {source}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
}

impl FolderLock {
    /// Makes `dir` when it is missing and locks it.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn take(dir: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Io { path: dir.to_owned(), source };
        if std::fs::metadata(dir).is_ok_and(|m| !m.is_dir()) {
            return Err(LockError::NotAFolder { path: dir.to_owned() });
        }
        std::fs::create_dir_all(dir).map_err(failed)?;
        // Not truncated on open: until the lock is ours the content is somebody else's.
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(dir.join("LOCK")).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(LockError::InUse { path: dir.to_owned(), holder: holder(&mut file) });
            }
            Err(e) => return Err(failed(e.into())),
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }

    /// Who has `dir`, if anybody has, without taking it from anybody or making it.
    #[must_use]
    pub fn held_by(dir: &Path) -> Option<String> {
        let mut file = File::open(dir.join("LOCK")).ok()?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => Some(holder(&mut file)),
            // Free, or not to be told: closing the file lets go of it.
            _ => None,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_and_it_is_named() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        assert_eq!(FolderLock::held_by(&dir), None);
        let held = FolderLock::take(&dir).unwrap();
        let us = format!("process {}", std::process::id());
        assert_eq!(FolderLock::held_by(&dir), Some(us.clone()));
        let refused = FolderLock::take(&dir).unwrap_err().to_string();
        assert!(refused.ends_with(&format!("is in use by another process ({us})")), "{refused}");
        drop(held);
        assert_eq!(FolderLock::held_by(&dir), None);
        drop(FolderLock::take(&dir).unwrap());
        std::fs::write(root.path().join("file"), "").unwrap();
        let error = FolderLock::take(&root.path().join("file")).unwrap_err();
        assert!(matches!(error, LockError::NotAFolder { .. }));
    }
}
