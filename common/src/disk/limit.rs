//! How many files this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files as far as the host allows, since every socket is one, and says what it is then.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // Refused only where the hard limit cannot be read back right; the soft limit stays then.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
