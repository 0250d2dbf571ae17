//! What can go wrong with a data directory, in words that say what to do.

use std::io;
use std::path::{Path, PathBuf};

use common::disk::LockError;
use common::ids::RunId;
use common::trace::segment::SegmentError;

/// Why the store cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The data directory cannot be made or used.
    #[error("the data directory {} cannot be used: {source}; choose another with --data", path.display())]
    DataDir {
        /// The data directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file lies where the data directory should be.
    #[error("{} is not a directory; choose a directory with --data", path.display())]
    NotADirectory {
        /// What was given.
        path: PathBuf,
    },
    /// Another process holds the lock.
    #[error(
        "the data directory {} is in use by another coordinator ({holder}); wait until it ends, or choose another \
         directory with --data", path.display()
    )]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// `process 123`, or that it is not known.
        holder: String,
    },
    /// A file of a run cannot be read or written.
    #[error("{}: {source}", path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// A run that is being written or read.
    #[error("run {0} is in use")]
    RunInUse(RunId),
    /// A run of that name was made before.
    #[error("run {0} exists already; choose another run id")]
    RunExists(RunId),
    /// No run of that name.
    #[error("there is no run {run} in {}{known}", path.display())]
    NoSuchRun {
        /// What was asked for.
        run: RunId,
        /// The data directory.
        path: PathBuf,
        /// `; it holds a, b, c`, the latest few.
        known: String,
    },
    /// A block that the index names is not there as it was written.
    #[error("{} at byte {offset}: {source}; the file was damaged after it was written", path.display())]
    Block {
        /// The segment file.
        path: PathBuf,
        /// Where the block should begin.
        offset: u64,
        /// What is wrong with it.
        source: SegmentError,
    },
    /// A block is whole but not the one that the index names there.
    #[error("{} at byte {offset}: another block than the index names; {REBUILD}", path.display())]
    WrongBlock {
        /// The segment file.
        path: PathBuf,
        /// Where it is.
        offset: u64,
    },
    /// A whole block has facts that cannot be decoded.
    #[error("a stored block cannot be used: {0}; the agent that sent it may be of another version")]
    Facts(SegmentError),
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A writer for this run exists already.
    #[error("run {0} is being written already; a run has one writer")]
    HasWriter(RunId),
    /// The writer cannot start.
    #[error("the thread that writes run {run} cannot be started: {source}")]
    Thread {
        /// The run.
        run: RunId,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Names the path at which the disk refused.
pub(crate) trait At<T> {
    fn at(self, path: &Path) -> Result<T, StoreError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Disk { path: path.to_owned(), source })
    }
}

/// What to do about an index that cannot be trusted.
pub(crate) const REBUILD: &str = "stop the coordinator and move the folder `index` away: it is rebuilt from the segments at the next start";

/// Why the index cannot do what was asked. It can be cloned, because every submitter of a group gets it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The operating system refused: no space, no permission.
    #[error("the index {}: {reason}{}", path.display(), if *full { "; free some space" } else { "" })]
    Io {
        /// The index's folder.
        path: PathBuf,
        /// What it said.
        reason: String,
        /// The disk is full.
        full: bool,
    },
    /// The index's own files are not what they should be.
    #[error("the index {} is damaged ({reason}); {REBUILD}", path.display())]
    Damaged {
        /// The index's folder.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
    /// Written by a version of Plimsoll that keeps other keys.
    #[error(
        "the index has format {found}, and this version of plimsoll reads format {known}; use the version that wrote it"
    )]
    Format {
        /// What stands there.
        found: u8,
        /// What this version reads.
        known: u8,
    },
    /// A value cannot be decoded.
    #[error("the index holds {what} that cannot be read; {REBUILD}")]
    Value {
        /// What kind of value.
        what: &'static str,
    },
}

/// In the store's words.
impl From<LockError> for StoreError {
    fn from(e: LockError) -> Self {
        match e {
            LockError::NotAFolder { path } => Self::NotADirectory { path },
            LockError::InUse { path, holder } => Self::InUse { path, holder },
            LockError::Io { path, source } => Self::DataDir { path, source },
        }
    }
}
