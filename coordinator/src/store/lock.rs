//! The lock of a data directory: one coordinator at a time.
//!
//! It says in the store's words what [`common::disk::FolderLock`] found.
//! `a_second_coordinator_is_told_who_has_the_directory` in `store/tests/open.rs` guards it.

use std::path::Path;

use common::disk::{FolderLock, LockError};

use super::error::StoreError;

/// A held lock. Dropping it releases it.
#[derive(Debug)]
pub(super) struct DirLock(#[expect(dead_code, reason = "held, not read")] FolderLock);

impl DirLock {
    /// Makes `dir` when it is missing and locks it.
    pub(super) fn take(dir: &Path) -> Result<Self, StoreError> {
        FolderLock::take(dir).map(Self).map_err(|e| match e {
            LockError::NotAFolder { path } => StoreError::NotADirectory { path },
            LockError::InUse { path, holder } => StoreError::InUse { path, holder },
            LockError::Io { path, source } => StoreError::DataDir { path, source },
        })
    }
}
