//! A disk in memory that loses what was not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile};
use crate::seed::Stream;

/// A disk in memory. Clones share their content.
#[derive(Debug, Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, File>,
    dirs: BTreeSet<PathBuf>,
    /// Appends beyond this many bytes in all fail with `StorageFull`.
    capacity: Option<u64>,
    /// Raised by a crash: files opened before it answer errors.
    generation: u64,
}

#[derive(Debug, Default, Clone)]
struct File {
    content: Vec<u8>,
    /// Bytes that survive a crash for sure.
    synced: usize,
}

impl SimDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets appends fail once the files hold `bytes` in all.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = Some(bytes);
    }

    /// Power loss: of what was not synced a random prefix survives, and its last bytes may be garbage. Open files
    /// answer errors from now on.
    pub fn crash(&self, random: &mut Stream) {
        let mut state = self.state();
        state.generation += 1;
        for file in state.files.values_mut() {
            let unsynced = file.content.len() - file.synced;
            let kept = random.below(unsynced as u64 + 1) as usize;
            file.content.truncate(file.synced + kept);
            if kept > 0 && random.below(2) == 0 {
                let torn = file.synced + random.below(kept as u64) as usize;
                file.content[torn..].iter_mut().for_each(|b| *b ^= 0x5a);
            }
            file.synced = file.content.len();
        }
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.files.entry(path.to_owned()).or_default();
        Ok(Box::new(SimFile { disk: self.clone(), path: path.to_owned(), generation: state.generation }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.state().files.get(path).map(|f| f.content.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let file = File { content: content.to_vec(), synced: content.len() };
        self.state().files.insert(path.to_owned(), file);
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.state().dirs.extend(path.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let state = self.state();
        let inside = state.files.keys().chain(&state.dirs).filter(|p| p.parent() == Some(path));
        Ok(inside.cloned().collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.state().files.remove(path);
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.files.retain(|p, _| !p.starts_with(path));
        state.dirs.retain(|p| !p.starts_with(path));
        Ok(())
    }
}

struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    generation: u64,
}

impl SimFile {
    fn with<T>(&self, f: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state();
        if state.generation != self.generation {
            return Err(io::Error::other("the simulated host crashed"));
        }
        f(state.files.get_mut(&self.path).ok_or(io::ErrorKind::NotFound)?)
    }
}

impl DiskFile for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = {
            let state = self.disk.state();
            let used: u64 = state.files.values().map(|f| f.content.len() as u64).sum();
            state.capacity.map_or(u64::MAX, |c| c.saturating_sub(used))
        };
        // A full disk takes what fits, as a real one does: a torn block at the end.
        let fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.with(|f| {
            f.content.extend_from_slice(&bytes[..fits]);
            Ok(())
        })?;
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.with(|f| {
            f.synced = f.content.len();
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|f| Ok(f.content.len() as u64))
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.with(|f| {
            f.content.truncate(usize::try_from(len).unwrap_or(usize::MAX));
            f.synced = f.content.len();
            Ok(())
        })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.with(|f| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let bytes = start.checked_add(buffer.len()).and_then(|end| f.content.get(start..end));
            buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }
}
