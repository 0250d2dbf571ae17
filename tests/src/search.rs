//! Looking for a text where it must not be.

use std::path::{Path, PathBuf};

/// All files below a folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(_) => found.push(entry.path()),
                Err(_) => {}
            }
        }
    }
    found.sort();
    found
}

/// The files below a folder that hold `text`, compressed or not: blocks of traces are zstd, so a search in the raw
/// bytes alone would prove nothing of them.
#[must_use]
pub fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = files(folder);
    found.retain(|path| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    });
    found
}

/// A process' command line, its arguments separated by spaces; empty when it has ended.
#[must_use]
pub fn command_line(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// The ids among `pids` whose command line holds `text`.
#[must_use]
pub fn pids_with_argument(pids: &[u32], text: &str) -> Vec<u32> {
    pids.iter().copied().filter(|pid| command_line(*pid).contains(text)).collect()
}
