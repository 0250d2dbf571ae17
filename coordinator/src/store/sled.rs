//! The index on sled 0.34.7: the only file that names it.
//!
//! It owns the folder `index`. It must never be trusted to open: abrupt stops are known to leave files that sled
//! cannot read or panics over. So every call is guarded against panics, a database that does not open is moved aside
//! (the index can be rebuilt from the segments), and one that failed is closed and opened anew before the next call,
//! because sled keeps its first write error for good.
//!
//! `store/tests/open.rs` breaks it in several ways and opens it again.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use ::sled::{Batch, Config, Db, Error};

use super::error::IndexError;
use super::index::{Index, IndexBatch, Pair};

/// Enough for the keys of several runs; traces are never in it.
const CACHE_BYTES: u64 = 64 << 20;

/// How often opening is tried while sled's own lock is held: its threads let go of a closed database a little late.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The index on sled.
pub(super) struct SledIndex {
    path: PathBuf,
    /// None after an error, until the next call opens it anew.
    db: RwLock<Option<Db>>,
}

/// Why sled did not do what it should.
enum Trouble {
    /// The operating system refused: the files may be fine.
    Io { reason: String, full: bool },
    /// The files are not what they should be.
    Damaged(String),
}

impl Trouble {
    fn of(error: &Error) -> Self {
        match error {
            Error::Io(e) => {
                // Kinds that sled itself makes, or that say that a file is shorter or fewer than expected.
                let damaged = [
                    ErrorKind::InvalidData,
                    ErrorKind::InvalidInput,
                    ErrorKind::UnexpectedEof,
                    ErrorKind::NotFound,
                    ErrorKind::Other,
                ];
                if damaged.contains(&e.kind()) && !is_locked(error) {
                    return Self::Damaged(e.to_string());
                }
                let full = matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
                Self::Io { reason: e.to_string(), full }
            }
            other => Self::Damaged(other.to_string()),
        }
    }

    fn at(self, path: &Path) -> IndexError {
        let path = path.to_owned();
        match self {
            Self::Io { reason, full } => IndexError::Io { path, reason, full },
            Self::Damaged(reason) => IndexError::Damaged { path, reason },
        }
    }
}

fn is_locked(error: &Error) -> bool {
    matches!(error, Error::Io(e) if e.to_string().contains("could not acquire lock"))
}

/// Runs a call of sled; a panic in it is an error like any other.
fn guarded<T>(call: impl FnOnce() -> Result<T, Error>) -> Result<T, Trouble> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(Trouble::of(&e)),
        Err(_) => Err(Trouble::Damaged("sled panicked".to_owned())),
    }
}

fn open_db(path: &Path) -> Result<Db, Trouble> {
    let open = || {
        // No flushing in the background: what is durable, and when, is decided by the writer alone.
        let config = Config::default().path(path).cache_capacity(CACHE_BYTES).flush_every_ms(None);
        let mut tries = 1;
        loop {
            match config.open() {
                Err(e) if is_locked(&e) && tries < LOCK_TRIES => {
                    tries += 1;
                    std::thread::sleep(LOCK_PAUSE);
                }
                result => return result,
            }
        }
    };
    guarded(open)
}

/// Moves a folder to the first free name of `index.broken-1`, `index.broken-2`, …
fn move_aside(path: &Path) -> std::io::Result<PathBuf> {
    let free = (1u32..).map(|n| path.with_extension(format!("broken-{n}"))).find(|p| !p.exists());
    let aside = free.ok_or(ErrorKind::AlreadyExists)?;
    std::fs::rename(path, &aside)?;
    Ok(aside)
}

impl SledIndex {
    /// Opens the database at `path`, made when missing. One that is damaged is moved aside and an empty one made in
    /// its place.
    pub(super) fn open(path: &Path) -> Result<Self, IndexError> {
        let db = match open_db(path) {
            Ok(db) => db,
            Err(Trouble::Damaged(reason)) => {
                let failed = |e: std::io::Error| {
                    let full = e.kind() == ErrorKind::StorageFull;
                    Trouble::Io { reason: format!("cannot be moved aside: {e}"), full }.at(path)
                };
                let aside = move_aside(path).map_err(failed)?;
                tracing::warn!(
                    %reason, moved_to = %aside.display(),
                    "the index cannot be opened; it can be rebuilt from segments, and is now"
                );
                open_db(path).map_err(|t| t.at(path))?
            }
            Err(trouble) => return Err(trouble.at(path)),
        };
        Ok(Self { path: path.to_owned(), db: RwLock::new(Some(db)) })
    }

    fn with<T>(&self, call: impl Fn(&Db) -> Result<T, Error>) -> Result<T, IndexError> {
        {
            let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(db) = db.as_ref()
                && let Ok(value) = guarded(|| call(db))
            {
                return Ok(value);
            }
        }
        // It failed now or before. Sled answers its first write error to every later call, so only a database opened
        // anew can work. Nothing is lost with the old one: a commit is one call that applies and flushes, and no call
        // is under way while this lock is held.
        let mut slot = self.db.write().unwrap_or_else(PoisonError::into_inner);
        *slot = None;
        let db = open_db(&self.path).map_err(|t| t.at(&self.path))?;
        let value = guarded(|| call(&db)).map_err(|t| t.at(&self.path))?;
        *slot = Some(db);
        Ok(value)
    }
}

impl Index for SledIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        self.with(|db| Ok(db.get(key)?.map(|v| v.to_vec())))
    }

    fn scan(&self, prefix: &[u8]) -> Result<Vec<Pair>, IndexError> {
        self.with(|db| {
            db.scan_prefix(prefix).map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect()
        })
    }

    fn commit(&self, batch: &IndexBatch) -> Result<(), IndexError> {
        self.with(|db| {
            let mut changes = Batch::default();
            for (key, value) in &batch.changes {
                match value {
                    Some(value) => changes.insert(key.as_slice(), value.as_slice()),
                    None => changes.remove(key.as_slice()),
                }
            }
            db.apply_batch(changes)?;
            db.flush().map(drop)
        })
    }
}
