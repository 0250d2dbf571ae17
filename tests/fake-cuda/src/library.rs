//! Where `libfake_cuda.so` is, and copies of it.
//!
//! Owns the placing: each test loads a copy at a path of its own, so that its state is its own; and a copy may
//! lack symbols, as an old driver's library does. Symbols go by name in the copy's bytes, because a library cannot
//! be asked at run time not to have exported something.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The names that the driver's clients load, of which `cudarc` tries the second first: a real driver must not be
/// found before the fake.
pub const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// The library as it was built: beside the running test, or beside the folder that the test is in.
///
/// # Errors
///
/// If it is not there: the crate was not built for this test.
pub fn built() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folders = program.ancestors().skip(1).take(2);
    let candidates: Vec<PathBuf> = folders.map(|folder| folder.join("libfake_cuda.so")).collect();
    candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("none of {candidates:?}: is fake-cuda a dev-dependency?"),
        )
    })
}

/// Puts a copy without some symbols into a folder, under the names that clients look for, and returns its path.
///
/// # Errors
///
/// If it cannot be read or written, or if it has no such symbol.
pub fn place(folder: &Path, without: &[&str]) -> io::Result<PathBuf> {
    let mut library = fs::read(built()?)?;
    for symbol in without {
        remove(&mut library, symbol)?;
    }
    let path = folder.join(NAMES[0]);
    fs::write(&path, library)?;
    symlink(NAMES[0], folder.join(NAMES[1]))?;
    Ok(path)
}

/// Renames a symbol wherever a table of names has it. The table of hashes keeps the old name's, so that the loader
/// finds neither.
fn remove(library: &mut [u8], symbol: &str) -> io::Result<()> {
    let entry = [b"\0", symbol.as_bytes(), b"\0"].concat();
    let mut found = false;
    let mut from = 0;
    while let Some(at) = library[from..].windows(entry.len()).position(|window| window == entry) {
        library[from + at + 1] = b'_';
        from += at + 1;
        found = true;
    }
    if found {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no symbol {symbol} to remove")))
    }
}
