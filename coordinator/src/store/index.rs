//! The index: small values under ordered keys, written in atomic batches.
//!
//! It owns no meaning: [`super::keys`] says which keys exist. It exists so that the database behind it can be
//! replaced, and so that tests can crash it. It must never hold a trace: bodies belong in segment files, where they
//! cost their own size once and a scan does not fill the memory.
//!
//! # Contract of an implementation
//! - A commit that returned survives a crash.
//! - A batch is there whole or not at all, and batches survive in the order of their commits.
//! - A commit that failed may be there, now or after a crash: whoever made it repeats it.
//!
//! `both_indexes_keep_the_contract` in `store/tests/index.rs` runs the same checks on both implementations.

use super::error::IndexError;

/// Small values under ordered keys.
pub trait Index: Send + Sync {
    /// The value of `key`.
    ///
    /// # Errors
    /// When the index fails.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError>;

    /// All pairs whose key begins with `prefix`, in the order of their keys. They are collected: the largest
    /// listing is a trial's blocks, some 80 bytes for 64 traces.
    ///
    /// # Errors
    /// When the index fails.
    fn scan(&self, prefix: &[u8]) -> Result<Vec<Pair>, IndexError>;

    /// Makes the changes of a batch, whole or not at all, and durable. It waits for the disk: some milliseconds,
    /// sometimes a hundred and more.
    ///
    /// # Errors
    /// When the index fails; the batch may be there all the same.
    fn commit(&self, batch: &IndexBatch) -> Result<(), IndexError>;
}

/// A key with its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Changes that are made together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexBatch {
    /// In order; no value removes the key.
    pub(crate) changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl IndexBatch {
    /// Sets `key` to `value`.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.changes.push((key, Some(value)));
    }

    /// Whether nothing is to be changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Removes `key`.
    pub fn remove(&mut self, key: Vec<u8>) {
        self.changes.push((key, None));
    }
}
