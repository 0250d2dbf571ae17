//! CSV as RFC 4180 has it, with line feeds: a line of names, then a line a row.
//!
//! A text always stands in quotes, so that an empty one and none at all are two things.

use std::io::{self, Write};

use serde_json::Value;

use super::Sink;
use super::columns::Column;
use super::rows::value_at;

/// Writes a table.
pub(super) struct Writer<W> {
    out: W,
    columns: &'static [Column],
}

impl<W: Write> Writer<W> {
    /// Writes the names.
    pub(super) fn begin(mut out: W, columns: &'static [Column]) -> io::Result<Self> {
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        writeln!(out, "{}", names.join(","))?;
        Ok(Self { out, columns })
    }
}

impl<W: Write> Sink for Writer<W> {
    fn row(&mut self, row: &Value) -> io::Result<()> {
        for (i, column) in self.columns.iter().enumerate() {
            if i > 0 {
                self.out.write_all(b",")?;
            }
            match value_at(row, column) {
                Value::Null => {}
                Value::String(text) => write!(self.out, "\"{}\"", text.replace('"', "\"\""))?,
                // Numbers and truth values as JSON writes them: every digit that there is.
                other => write!(self.out, "{other}")?,
            }
        }
        self.out.write_all(b"\n")
    }
}
