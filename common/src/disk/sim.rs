//! A disk in memory that loses what was not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile};
use crate::seed::Stream;

/// A disk in memory. Clones share their content.
///
/// What a crash may take is what POSIX lets it take: bytes that were not synced (all of them, or all but a prefix whose
/// end may be garbage), names in a folder that was not synced since (files and folders that were made vanish, files
/// that were removed come back), and bytes whose sync has failed, whatever later syncs say of them.
#[derive(Debug, Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, File>,
    /// Folders, and whether their names are durable.
    dirs: BTreeMap<PathBuf, bool>,
    /// Files whose removal is not durable yet.
    removed: BTreeMap<PathBuf, File>,
    /// Appends beyond this many bytes in all fail with `StorageFull`.
    capacity: Option<u64>,
    /// The next append writes so many bytes and fails.
    short_append: Option<usize>,
    /// Whatever must reach the disk itself fails.
    syncs_fail: bool,
    /// Files cannot be removed.
    removals_fail: bool,
    /// So many changes more are made before the power goes.
    fuse: Option<u64>,
    /// Raised by a crash: files opened before it answer errors.
    generation: u64,
}

#[derive(Debug, Default, Clone)]
struct File {
    content: Vec<u8>,
    /// Bytes that survive a crash for sure.
    synced: usize,
    /// Of a sync that failed: a system may forget that what follows was not written, so no later sync makes it durable.
    doubtful: bool,
    /// The name survives a crash for sure.
    named: bool,
}

impl File {
    /// What a crash leaves of its bytes.
    fn crash(&mut self, random: &mut Stream) {
        let unsynced = self.content.len() - self.synced;
        let kept = random.below(unsynced as u64 + 1) as usize;
        self.content.truncate(self.synced + kept);
        if kept > 0 && random.below(2) == 0 {
            let torn = self.synced + random.below(kept as u64) as usize;
            self.content[torn..].iter_mut().for_each(|b| *b ^= 0x5a);
        }
        (self.synced, self.doubtful, self.named) = (self.content.len(), false, true);
    }
}

impl State {
    /// Before every change: whether there is still power.
    fn burn(&mut self) -> io::Result<()> {
        match &mut self.fuse {
            Some(0) => Err(io::Error::other("the power is gone")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Before everything that must reach the disk itself.
    fn burn_syncing(&mut self) -> io::Result<()> {
        self.burn()?;
        if self.syncs_fail { Err(refused()) } else { Ok(()) }
    }

    fn sync_dir(&mut self, path: &Path) {
        let inside = |p: &Path| p.parent() == Some(path);
        self.files.iter_mut().filter(|(p, _)| inside(p)).for_each(|(_, f)| f.named = true);
        self.dirs.iter_mut().filter(|(p, _)| inside(p)).for_each(|(_, durable)| *durable = true);
        self.removed.retain(|p, _| !inside(p));
    }
}

impl SimDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets appends fail once the files hold `bytes` in all.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = Some(bytes);
    }

    /// Lets the next append write only its first `bytes` bytes and fail.
    pub fn cut_next_append(&self, bytes: usize) {
        self.state().short_append = Some(bytes);
    }

    /// Lets everything fail that must reach the disk itself (syncs, cuts, replacements), or no more.
    pub fn set_syncs_failing(&self, failing: bool) {
        self.state().syncs_fail = failing;
    }

    /// Lets the removal of a file fail, or no more.
    pub fn set_removals_failing(&self, failing: bool) {
        self.state().removals_fail = failing;
    }

    /// Ends every fault but the fuse.
    pub fn mend(&self) {
        let mut state = self.state();
        (state.capacity, state.short_append) = (None, None);
        (state.syncs_fail, state.removals_fail) = (false, false);
    }

    /// Lets every change fail after so many more, as at the moment at which the power goes; [`SimDisk::crash`] follows.
    pub fn set_fuse(&self, changes: u64) {
        self.state().fuse = Some(changes);
    }

    /// Whether the power has gone by [`SimDisk::set_fuse`].
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state().fuse == Some(0)
    }

    /// Bytes that the files hold in all.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state().files.values().map(|f| f.content.len() as u64).sum()
    }

    /// Power loss: of what was not synced a random part survives (see [`SimDisk`]). Open files answer errors from now
    /// on.
    pub fn crash(&self, random: &mut Stream) {
        let mut state = self.state();
        let State { files, dirs, removed, .. } = &mut *state;
        files.retain(|_, file| file.named || random.below(2) == 0);
        for (path, file) in std::mem::take(removed) {
            if !files.contains_key(&path) && random.below(2) == 0 {
                files.insert(path, file);
            }
        }
        let gone: Vec<PathBuf> = dirs
            .iter()
            .filter(|(_, durable)| !**durable)
            .map(|(path, _)| path.clone())
            .filter(|_| random.below(2) == 0)
            .collect();
        for dir in gone {
            files.retain(|p, _| !p.starts_with(&dir));
            dirs.retain(|p, _| !p.starts_with(&dir));
        }
        dirs.values_mut().for_each(|durable| *durable = true);
        files.values_mut().for_each(|file| file.crash(random));
        (state.short_append, state.fuse) = (None, None);
        (state.syncs_fail, state.removals_fail) = (false, false);
        state.generation += 1;
    }
}

fn refused() -> io::Error {
    io::Error::other("the simulated disk cannot write")
}

impl Disk for SimDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        if !state.files.contains_key(path) {
            state.burn()?;
            state.files.insert(path.to_owned(), File::default());
        }
        Ok(Box::new(SimFile { disk: self.clone(), path: path.to_owned(), generation: state.generation }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.state().files.get(path).map(|f| f.content.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.burn_syncing()?;
        let file = File { content: content.to_vec(), synced: content.len(), doubtful: false, named: true };
        state.files.insert(path.to_owned(), file);
        state.sync_dir(path.parent().unwrap_or(path));
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.burn()?;
        for dir in path.ancestors() {
            // The root was always there.
            let durable = dir.parent().is_none();
            state.dirs.entry(dir.to_owned()).or_insert(durable);
        }
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.burn_syncing()?;
        state.sync_dir(path);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let state = self.state();
        let inside = state.files.keys().chain(state.dirs.keys()).filter(|p| p.parent() == Some(path));
        Ok(inside.cloned().collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.burn()?;
        if state.removals_fail {
            return Err(refused());
        }
        if let Some(file) = state.files.remove(path).filter(|file| file.named) {
            state.removed.insert(path.to_owned(), file);
        }
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.burn()?;
        state.files.retain(|p, _| !p.starts_with(path));
        state.dirs.retain(|p, _| !p.starts_with(path));
        state.removed.retain(|p, _| !p.starts_with(path));
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
            let mut state = self.disk.state();
            state.burn()?;
            let used: u64 = state.files.values().map(|f| f.content.len() as u64).sum();
            let room = state.capacity.map_or(u64::MAX, |c| c.saturating_sub(used));
            (room, state.short_append.take())
        };
        // A full disk takes what fits, as a real one does: a torn block at the end.
        let fits = bytes.len().min(usize::try_from(room.0).unwrap_or(usize::MAX));
        let written = room.1.map_or(fits, |short| fits.min(short));
        self.with(|f| {
            f.content.extend_from_slice(&bytes[..written]);
            Ok(())
        })?;
        match (fits < bytes.len(), room.1) {
            (true, _) => Err(io::ErrorKind::StorageFull.into()),
            (false, Some(_)) => Err(refused()),
            (false, None) => Ok(()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        let done = self.disk.state().burn_syncing();
        self.with(|f| {
            if let Err(e) = done {
                f.doubtful |= f.synced < f.content.len();
                return Err(e);
            }
            if !f.doubtful {
                f.synced = f.content.len();
            }
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|f| Ok(f.content.len() as u64))
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.disk.state().burn_syncing()?;
        self.with(|f| {
            f.content.truncate(usize::try_from(len).unwrap_or(usize::MAX));
            f.doubtful &= f.content.len() > f.synced;
            if !f.doubtful {
                f.synced = f.content.len();
            }
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
