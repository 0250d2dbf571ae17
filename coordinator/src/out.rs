//! A file of results that has its name only when it is whole.
//!
//! A disk may be full, or the program may be killed: what stands under a result's name must be a whole result, and what
//! stood there before must stay until then.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// Writes a file by `fill`, beside `path` first; it replaces `path` once it is whole and on the disk. When anything fails
/// nothing is left of it.
///
/// # Errors
/// Those of `fill` and of the disk, with the file's name.
pub fn whole(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let part = beside(path);
    let written = (|| {
        let mut out = BufWriter::new(File::create(&part)?);
        fill(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        std::fs::rename(&part, path)
    })();
    written.map_err(|e| {
        let _ = std::fs::remove_file(&part);
        io::Error::new(e.kind(), format!("{}: {e}", path.display()))
    })
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_that_could_not_be_finished_is_not_there_and_the_one_before_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let full = |out: &mut BufWriter<File>| {
            out.write_all(b"half")?;
            Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on device"))
        };
        let said = whole(&path, full).unwrap_err();
        assert_eq!(said.kind(), io::ErrorKind::StorageFull);
        assert!(said.to_string().contains("a.csv: no space left"), "{said}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        whole(&path, |out| out.write_all(b"first")).unwrap();
        whole(&path, full).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
