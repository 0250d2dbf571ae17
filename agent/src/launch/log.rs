//! The engine's log: its end for a person, its size and digest for the record.
//!
//! Logs are other people's: of any size, in any encoding, with colours and progress bars. Only their end is held in
//! memory, and nothing is shown before secrets are out of it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use common::ids::Digest;
use sha2::Digest as _;

use super::scrub::Scrub;

/// Lines of a tail.
const LINES: usize = 20;
/// The end of a log that is looked at.
const END_BYTES: u64 = 64 << 10;
/// Characters of a line that are shown.
const LINE_CHARS: usize = 400;

/// A log as it is at one instant. The engine may still write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFacts {
    /// Where it lies.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Of that many bytes.
    pub sha256: Digest,
    /// Its last lines, without secrets.
    pub tail: Vec<String>,
}

/// The end of a log, for an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEnd {
    /// Where it lies.
    pub path: PathBuf,
    /// Its last lines, without secrets.
    pub tail: Vec<String>,
}

impl fmt::Display for LogEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tail.as_slice() {
            [] => write!(f, "its log {} is empty", self.path.display()),
            lines => write!(f, "the end of its log {}:\n    {}", self.path.display(), lines.join("\n    ")),
        }
    }
}

/// Reads a whole log. Blocks.
pub(super) fn facts(path: &Path, scrub: &Scrub) -> io::Result<LogFacts> {
    let mut file = File::open(path)?;
    let mut hash = sha2::Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        bytes += read as u64;
    }
    let sha256 = Digest(hash.finalize().into());
    Ok(LogFacts { path: path.to_owned(), bytes, sha256, tail: tail(path, scrub) })
}

/// The last lines, without secrets, colours and blank lines. Empty when there is no log.
pub(super) fn tail(path: &Path, scrub: &Scrub) -> Vec<String> {
    let end = read_end(path).unwrap_or_default();
    let text = scrub.text(&end);
    // A progress bar is many states of one line.
    let lines: Vec<String> =
        text.split(['\n', '\r']).map(clean).filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].to_vec()
}

fn read_end(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(END_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(END_BYTES).read_to_end(&mut bytes)?;
    // The first line may be half a line, and its secret half a secret.
    let cut =
        if from == 0 { 0 } else { bytes.iter().position(|&b| b == b'\n').map_or(bytes.len(), |at| at + 1) };
    Ok(String::from_utf8_lossy(&bytes[cut..]).into_owned())
}

/// A line that can go to a terminal: no colours, no other control characters, not too long.
fn clean(line: &str) -> String {
    let mut shown = String::new();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // ESC [ parameters letter
            if chars.next() == Some('[') {
                let _ = chars.find(char::is_ascii_alphabetic);
            }
        } else if c == '\t' || !c.is_control() {
            shown.push(c);
        }
    }
    match shown.char_indices().nth(LINE_CHARS) {
        Some((at, _)) => format!("{}…", &shown[..at]),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.log");
        std::fs::write(&path, bytes).unwrap();
        (folder, path)
    }

    #[test]
    fn a_tail_is_for_people() {
        let log = b"one\n\n\x1b[32mINFO\x1b[0m two \xff\n 10%|#\r 99%|#########\r\nkey=hf-secret\x07\n";
        let (_folder, path) = written(log);
        let mut scrub = Scrub::default();
        scrub.hide("hf-secret");
        let expected = ["one", "INFO two \u{fffd}", " 10%|#", " 99%|#########", "key=[redacted]"];
        assert_eq!(tail(&path, &scrub), expected);
        assert!(tail(Path::new("/no/such/log"), &scrub).is_empty());
    }

    #[test]
    fn a_tail_is_bounded_and_never_begins_in_the_middle_of_a_line() {
        let mut log = b"hf-secret".repeat(10_000);
        log.extend(b"\nlast\n");
        let (_folder, path) = written(&log);
        assert_eq!(tail(&path, &Scrub::default()), ["last"]);
        let many: String = (0..100).map(|n| format!("{n} {}\n", "x".repeat(1_000))).collect();
        let (_folder, path) = written(many.as_bytes());
        let tail = tail(&path, &Scrub::default());
        assert_eq!(tail.len(), LINES);
        assert!(tail[19].starts_with("99 x") && tail.iter().all(|l| l.chars().count() == LINE_CHARS + 1));
    }

    #[test]
    fn the_digest_is_of_the_bytes_that_were_counted() {
        let log = vec![7; 200_000];
        let (_folder, path) = written(&log);
        let facts = facts(&path, &Scrub::default()).unwrap();
        assert_eq!((facts.bytes, facts.sha256), (200_000, Digest::of(&log)));
    }
}
