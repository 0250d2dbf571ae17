//! A disk and an index under watch: which calls have not come back, and which folders refuse to store.
//!
//! It exists because whoever waits for a disk that does not answer cannot say so. It only looks on: `cli/watchdog.rs`
//! says what is to be said. It must never change what a call does or gives back.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::disk::{Disk, DiskFile};

use super::error::IndexError;
use super::index::{Index, IndexBatch, Pair};

/// What is under way, and what was refused. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct DiskWatch(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    next: u64,
    /// Calls that have not come back, in their order, and whether they only read.
    calls: BTreeMap<u64, (PathBuf, bool)>,
    /// Folders whose last write was refused, and why.
    refused: BTreeMap<PathBuf, String>,
}

/// How it stands at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// The oldest call that has not come back: its number, which no other call has, and what it is about.
    pub oldest: Option<(u64, PathBuf)>,
    /// It only reads, and may have much to read.
    pub reads: bool,
    /// A folder in which nothing can be stored, and why.
    pub refused: Option<(PathBuf, String)>,
}

/// A call under way, until it is dropped.
struct Call<'a>(&'a DiskWatch, u64);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.seen().calls.remove(&self.1);
    }
}

impl DiskWatch {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, path: &Path, reads: bool) -> Call<'_> {
        let mut seen = self.seen();
        let number = seen.next;
        seen.next += 1;
        seen.calls.insert(number, (path.to_owned(), reads));
        Call(self, number)
    }

    /// Makes a call that reads, maybe much.
    pub(crate) fn reading<T>(&self, path: &Path, call: impl FnOnce() -> T) -> T {
        let _under_way = self.call(path, true);
        call()
    }

    /// Makes another call.
    pub(crate) fn during<T>(&self, path: &Path, call: impl FnOnce() -> T) -> T {
        let _under_way = self.call(path, false);
        call()
    }

    /// Makes a call without which nothing can be stored in `folder`.
    fn preparing<T, E: ToString>(
        &self,
        folder: &Path,
        path: &Path,
        call: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.during(path, call).inspect_err(|e| {
            self.seen().refused.insert(folder.to_owned(), e.to_string());
        })
    }

    /// Makes a call that stores something in `folder`: when it works, the folder refuses nothing any more.
    fn storing<T, E: ToString>(
        &self,
        folder: &Path,
        path: &Path,
        call: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let stored = self.preparing(folder, path, call)?;
        self.seen().refused.remove(folder);
        Ok(stored)
    }

    /// How it stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let seen = self.seen();
        Standing {
            oldest: seen.calls.first_key_value().map(|(number, (path, _))| (*number, path.clone())),
            reads: seen.calls.first_key_value().is_some_and(|(_, (_, reads))| *reads),
            refused: seen.refused.first_key_value().map(|(folder, why)| (folder.clone(), why.clone())),
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// A disk under watch.
pub(super) struct WatchedDisk(pub(super) Arc<dyn Disk>, pub(super) DiskWatch);

impl Disk for WatchedDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.1.preparing(folder_of(path), path, || self.0.open(path))?;
        Ok(Box::new(WatchedFile { file, path: path.to_owned(), watch: self.1.clone() }))
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.1.reading(path, || self.0.read(path))
    }
    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.1.storing(folder_of(path), path, || self.0.replace(path, content))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.1.preparing(path, path, || self.0.create_dir_all(path))
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.1.preparing(path, path, || self.0.sync_dir(path))
    }
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.1.reading(path, || self.0.list(path))
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.1.during(path, || self.0.remove(path))
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.1.during(path, || self.0.remove_dir_all(path))
    }
}

struct WatchedFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    watch: DiskWatch,
}

impl DiskFile for WatchedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.watch.storing(folder_of(&self.path), &self.path, || self.file.append(bytes))
    }
    fn sync(&mut self) -> io::Result<()> {
        self.watch.storing(folder_of(&self.path), &self.path, || self.file.sync())
    }
    fn len(&self) -> io::Result<u64> {
        self.watch.during(&self.path, || self.file.len())
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.watch.during(&self.path, || self.file.truncate(len))
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.watch.reading(&self.path, || self.file.read_at(offset, buffer))
    }
}

/// A file under watch that is written from its beginning to its end.
pub(crate) struct WatchedOut {
    file: std::fs::File,
    path: PathBuf,
    watch: DiskWatch,
}

impl WatchedOut {
    /// Makes the file, or empties it.
    pub(crate) fn create(path: &Path, watch: &DiskWatch) -> io::Result<Self> {
        let file = watch.during(path, || std::fs::File::create(path))?;
        Ok(Self { file, path: path.to_owned(), watch: watch.clone() })
    }
}

impl io::Write for WatchedOut {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.watch.storing(folder_of(&self.path), &self.path, || self.file.write(bytes))
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// An index under watch, which lies there.
pub(super) struct WatchedIndex(pub(super) Arc<dyn Index>, pub(super) DiskWatch, pub(super) PathBuf);

impl Index for WatchedIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        self.1.reading(&self.2, || self.0.get(key))
    }
    fn scan(&self, prefix: &[u8]) -> Result<Vec<Pair>, IndexError> {
        self.1.reading(&self.2, || self.0.scan(prefix))
    }
    fn commit(&self, batch: &IndexBatch) -> Result<(), IndexError> {
        self.1.storing(&self.2, &self.2, || self.0.commit(batch))
    }
}
