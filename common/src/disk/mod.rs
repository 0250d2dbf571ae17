//! Files of spool and store, behind one small trait.
//!
//! Both keep append-only files and small ones that are replaced whole; that is all the trait offers. [`OsDisk`] is
//! the one implementation on the operating system's files. [`SimDisk`] keeps everything in memory and, when told to
//! crash, loses what was not synced, in the ways in which a real disk may.

mod limit;
mod lock;
mod os;
mod sim;

pub use limit::raise_open_files;
pub use lock::{FolderLock, LockError};
pub use os::{OsDisk, readable_by_others};
pub use sim::SimDisk;

use std::io;
use std::path::{Path, PathBuf};

/// A place for files.
pub trait Disk: Send + Sync {
    /// Opens a file for appending, made when missing. Its name is durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// When the file cannot be opened.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Reads a file whole.
    ///
    /// # Errors
    /// `NotFound` when it is missing, or what the disk says.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Replaces a file's content, durably and whole: after a crash either the old or the new content is there.
    ///
    /// # Errors
    /// When the disk refuses; the old content stays.
    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Makes a folder and those above it. One that exists is no error.
    ///
    /// # Errors
    /// When the disk refuses.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// When the disk refuses.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Paths of a folder's entries, sorted. A missing folder is empty.
    ///
    /// # Errors
    /// When the disk refuses.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;
    /// Removes a file. One that is missing is no error.
    ///
    /// # Errors
    /// When the disk refuses.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder with all in it. One that is missing is no error.
    ///
    /// # Errors
    /// When the disk refuses.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Send {
    /// Appends all of `bytes`, or reports an error after which the file may hold a part of them.
    ///
    /// # Errors
    /// When the disk refuses, for instance because it is full.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was appended durable.
    ///
    /// # Errors
    /// When the disk refuses; what was appended since the last success may be lost.
    fn sync(&mut self) -> io::Result<()>;
    /// Bytes in the file.
    ///
    /// # Errors
    /// When the disk refuses.
    fn len(&self) -> io::Result<u64>;
    /// Cuts the file to `len` bytes, durably: this is how a torn tail goes.
    ///
    /// # Errors
    /// When the disk refuses.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    /// Reads exactly `buffer.len()` bytes from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file is shorter, or what the disk says.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Whether the file is empty.
    ///
    /// # Errors
    /// When the disk refuses.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both implementations behave alike, as long as nothing crashes.
    fn exercise(disk: &dyn Disk, root: &Path) {
        let dir = root.join("a/b");
        assert!(disk.list(&dir).unwrap().is_empty());
        disk.create_dir_all(&dir).unwrap();
        let path = dir.join("f");
        assert_eq!(disk.read(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let mut file = disk.open(&path).unwrap();
        assert!(file.is_empty().unwrap());
        file.append(b"hello ").unwrap();
        file.append(b"world").unwrap();
        file.sync().unwrap();
        let mut part = [0; 5];
        file.read_at(6, &mut part).unwrap();
        assert_eq!(&part, b"world");
        assert_eq!(file.read_at(7, &mut part).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        file.truncate(5).unwrap();
        file.append(b"!").unwrap();
        assert_eq!((file.len().unwrap(), disk.read(&path).unwrap()), (6, b"hello!".to_vec()));
        disk.open(&path).unwrap().append(b"?").unwrap();
        assert_eq!(disk.read(&path).unwrap(), b"hello!?");
        disk.replace(&path, b"new").unwrap();
        assert_eq!(disk.read(&path).unwrap(), b"new");
        disk.sync_dir(&dir).unwrap();
        assert_eq!(disk.list(&dir).unwrap(), std::slice::from_ref(&path));
        disk.remove(&path).unwrap();
        disk.remove(&path).unwrap();
        disk.replace(&dir.join("g"), b"x").unwrap();
        disk.remove_dir_all(&root.join("a")).unwrap();
        disk.remove_dir_all(&root.join("a")).unwrap();
        assert!(disk.list(&dir).unwrap().is_empty());
    }

    #[test]
    fn the_two_disks_behave_alike() {
        let dir = tempfile::tempdir().unwrap();
        exercise(&OsDisk, dir.path());
        exercise(&SimDisk::default(), Path::new("/sim"));
    }
}
