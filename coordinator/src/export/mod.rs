//! Exports: what is kept of a run, as tables for other programs, in CSV, Parquet or JSON Lines.
//!
//! Rows are the lines of `traces.jsonl` and `telemetry.jsonl`, with the verdict of their trial beside them: no number is
//! computed here. `columns` says what a table has, `rows` where its rows come from, `csv` and `parquet` how they are
//! written. Memory is bounded by a row group, whatever the run's size; a file has its name only when it is whole.

mod columns;
mod csv;
mod jsonl;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

pub use columns::{Column, Kind, Table, VERSION};
pub use rows::Source;

use crate::out;
use crate::report::Report;

/// How tables are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// RFC 4180, with a line of names. An empty cell is null; an empty text is `""`.
    Csv,
    /// Parquet, zstd.
    Parquet,
    /// An object a line; traces and telemetry as the run itself writes them.
    Jsonl,
}

impl Format {
    /// What a file's name ends in.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Jsonl => "jsonl",
        }
    }
}

/// Why a table was not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// What is stored, or the file: the message names it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The program was built without it.
    #[error("this program was built without Parquet (feature `parquet`); --format csv has the same columns")]
    NoParquet,
}

/// A table that was written.
#[derive(Debug, Clone, Serialize)]
pub struct Written {
    /// Its name.
    pub table: &'static str,
    /// The file's name, in the folder of the export.
    pub file: String,
    /// How many rows it has.
    pub rows: u64,
    /// Its columns.
    columns: &'static [Column],
}

/// Takes the rows of a table.
trait Sink {
    /// A row: an object that has the columns' values under their paths.
    fn row(&mut self, row: &Value) -> io::Result<()>;
}

/// Writes tables of a run into `folder`, which is made. Gives those that were written: one of which nothing was recorded is
/// left out, and a file of that name that stood there before is taken away. It waits for the disk.
///
/// # Errors
/// See [`ExportError`]; tables that were written before stay.
pub fn export(
    source: &Source<'_>,
    report: &Report,
    tables: &[Table],
    format: Format,
    folder: &Path,
) -> Result<Vec<Written>, ExportError> {
    if format == Format::Parquet && !cfg!(feature = "parquet") {
        return Err(ExportError::NoParquet);
    }
    std::fs::create_dir_all(folder)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", folder.display())))?;
    let mut written = Vec::new();
    for &table in tables {
        let file = format!("{}.{}", table.name(), format.extension());
        let path = folder.join(&file);
        let mut rows = 0;
        out::whole(&path, |out| {
            rows = fill(source, report, table, format, out)?;
            Ok(())
        })?;
        if rows == 0 {
            std::fs::remove_file(&path)?;
            continue;
        }
        written.push(Written { table: table.name(), file, rows, columns: table.columns() });
    }
    manifest(report, &written, folder)?;
    Ok(written)
}

/// Writes the rows of a table and says how many they are.
fn fill(
    source: &Source<'_>,
    report: &Report,
    table: Table,
    format: Format,
    out: &mut BufWriter<File>,
) -> io::Result<u64> {
    match format {
        Format::Csv => {
            let mut sink = csv::Writer::begin(out, table.columns())?;
            rows::each(source, report, table, &mut sink)
        }
        Format::Jsonl => rows::each(source, report, table, &mut jsonl::Writer::new(out, table)),
        #[cfg(feature = "parquet")]
        Format::Parquet => {
            let mut sink = parquet::Writer::begin(out, table, report.run_id.as_str())?;
            let rows = rows::each(source, report, table, &mut sink)?;
            sink.finish()?;
            Ok(rows)
        }
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Err(io::Error::other(ExportError::NoParquet)),
    }
}

/// `export.json`: what lies beside it, for a program that does not know these columns.
fn manifest(report: &Report, written: &[Written], folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join("export.json");
    let manifest = serde_json::json!({"schema_version": VERSION, "run_id": report.run_id, "tables": written});
    out::whole(&path, |out| serde_json::to_writer_pretty(out, &manifest).map_err(io::Error::from))?;
    Ok(path)
}
