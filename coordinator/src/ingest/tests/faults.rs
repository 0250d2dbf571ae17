//! A disk and an index that stop at a chosen operation, as at the moment of a power cut.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use common::disk::{Disk, DiskFile, SimDisk};

use crate::store::{Failing, Index, IndexBatch, IndexError, MemoryIndex, Pair};

/// Counts down the operations that change something; below zero the power is gone. Disk and index share it.
#[derive(Clone)]
pub(super) struct Fuse(Arc<AtomicI64>);

impl Fuse {
    pub(super) fn whole() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MAX)))
    }

    /// Burns through after `operations` more.
    pub(super) fn set(&self, operations: i64) {
        self.0.store(operations, Ordering::SeqCst);
    }

    fn burn(&self) -> i64 {
        self.0.fetch_sub(1, Ordering::SeqCst)
    }

    fn check(&self) -> io::Result<()> {
        if self.burn() > 0 { Ok(()) } else { Err(io::Error::other("the power is gone")) }
    }
}

#[derive(Clone)]
pub(super) struct FusedDisk(pub(super) SimDisk, pub(super) Fuse);

impl Disk for FusedDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.1.check()?;
        Ok(Box::new(FusedFile(self.0.open(path)?, self.1.clone())))
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.read(path)
    }
    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.1.check()?;
        self.0.replace(path, content)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.1.check()?;
        self.0.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.1.check()?;
        self.0.sync_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.0.list(path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.1.check()?;
        self.0.remove(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.1.check()?;
        self.0.remove_dir_all(path)
    }
}

struct FusedFile(Box<dyn DiskFile>, Fuse);

impl DiskFile for FusedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.1.check()?;
        self.0.append(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.1.check()?;
        self.0.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.1.check()?;
        self.0.truncate(len)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }
}

#[derive(Clone)]
pub(super) struct FusedIndex(pub(super) MemoryIndex, pub(super) Fuse);

impl Index for FusedIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        self.0.get(key)
    }
    fn scan(&self, prefix: &[u8]) -> Result<Vec<Pair>, IndexError> {
        self.0.scan(prefix)
    }
    fn commit(&self, batch: &IndexBatch) -> Result<(), IndexError> {
        match self.1.burn() {
            // In the midst of it: the batch may survive.
            0 => self.0.set_failing(Some(Failing::Flushes)),
            left if left < 0 => self.0.set_failing(Some(Failing::Everything)),
            _ => {}
        }
        self.0.commit(batch)
    }
}
