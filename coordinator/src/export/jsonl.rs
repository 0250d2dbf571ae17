//! JSON Lines: an object a row, whole. Of traces and telemetry it is the line that the run itself writes, with the verdict of
//! its trial.

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::Sink;
use super::columns::Table;
use super::rows::value_at;

/// Writes a table.
pub(super) struct Writer<W> {
    out: W,
    table: Table,
}

impl<W: Write> Writer<W> {
    /// A table of `table`'s.
    pub(super) fn new(out: W, table: Table) -> Self {
        Self { out, table }
    }
}

impl<W: Write> Sink for Writer<W> {
    fn row(&mut self, row: &Value) -> io::Result<()> {
        if self.table == Table::Trials {
            // Of a trial's report only the columns: all of it is in report.json.
            let columns = self.table.columns().iter();
            let named = columns.map(|column| (column.name.to_owned(), value_at(row, column).clone()));
            serde_json::to_writer(&mut self.out, &Value::Object(named.collect::<Map<_, _>>()))?;
        } else {
            serde_json::to_writer(&mut self.out, row)?;
        }
        self.out.write_all(b"\n")
    }
}
