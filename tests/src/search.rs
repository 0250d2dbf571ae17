//! Looking for a text where it must not be.

use std::path::{Path, PathBuf};

use common::telemetry::series;
use common::trace::segment::{FILE_MAGIC, scan};

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

/// The files below a folder that hold `text`. Segments and telemetry are compressed: what they hold is searched too.
///
/// # Panics
/// When a segment cannot be read: then a search would prove nothing.
#[must_use]
#[track_caller]
pub fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = files(folder);
    found.retain(|path| {
        let bytes = std::fs::read(path).unwrap_or_default();
        let holds = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        holds(&bytes)
            || (bytes.starts_with(FILE_MAGIC) && holds(unpacked(path, &bytes).as_bytes()))
            || (bytes.starts_with(series::FILE_MAGIC) && holds(records(path, &bytes).as_bytes()))
    });
    found
}

#[track_caller]
fn unpacked(path: &Path, segment: &[u8]) -> String {
    let fail = |e: &dyn std::fmt::Display| -> ! { panic!("{}: {e}", path.display()) };
    let blocks = scan(segment).unwrap_or_else(|e| fail(&e)).blocks;
    let mut said = String::new();
    for (_, block) in blocks {
        for trace in block.traces().unwrap_or_else(|e| fail(&e)) {
            said.push_str(&format!("{trace:?}\n"));
        }
    }
    said
}

#[track_caller]
fn records(path: &Path, telemetry: &[u8]) -> String {
    let frames = series::Frames::new(telemetry).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    frames.map(|(_, frame)| format!("{frame:?}\n")).collect()
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
