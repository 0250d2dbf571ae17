//! Parquet by its low-level writer: a column after the other in row groups of bounded size, zstd, every column optional.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use serde_json::Value;

use super::Sink;
use super::columns::{Column, Kind, Table, VERSION};
use super::rows::value_at;

/// Rows of a group at most. Readers work group by group, too.
const GROUP_ROWS: usize = 65_536;
/// Bytes of text in a group at most: what a table takes in memory, whatever its length.
const GROUP_TEXT: usize = 32 << 20;

/// The values of a column that are not yet written, and for each row whether it has one.
struct Buffer {
    column: &'static Column,
    values: Values,
    there: Vec<i16>,
}

enum Values {
    Integers(Vec<i64>),
    Numbers(Vec<f64>),
    Bools(Vec<bool>),
    Texts(Vec<ByteArray>),
}

/// Writes a table.
pub(super) struct Writer<W: Write + Send> {
    file: SerializedFileWriter<W>,
    buffers: Vec<Buffer>,
    rows: usize,
    text: usize,
}

fn io_error(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            // A full disk is to be told as one.
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        e => io::Error::other(e),
    }
}

impl<W: Write + Send> Writer<W> {
    /// Begins a table.
    pub(super) fn begin(out: W, table: Table, run: &str) -> io::Result<Self> {
        let fields: Result<Vec<_>, _> =
            table.columns().iter().map(|column| field(column).map(Arc::new)).collect();
        let schema = Type::group_type_builder(table.name()).with_fields(fields.map_err(io_error)?).build();
        let about =
            [("plimsoll_schema_version", VERSION), ("plimsoll_run", run), ("plimsoll_table", table.name())];
        let about = about.map(|(key, value)| KeyValue::new(key.to_owned(), value.to_owned()));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(concat!("plimsoll ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(about.into()))
            .build();
        let schema = Arc::new(schema.map_err(io_error)?);
        let file = SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(io_error)?;
        let buffers = table.columns().iter().map(Buffer::new).collect();
        Ok(Self { file, buffers, rows: 0, text: 0 })
    }

    /// Writes what is left, and the end of the file.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.group()?;
        self.file.close().map_err(io_error)?;
        Ok(())
    }

    fn group(&mut self) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group().map_err(io_error)?;
        for buffer in &mut self.buffers {
            let Some(mut column) = group.next_column().map_err(io_error)? else { break };
            buffer.write(column.untyped())?;
            column.close().map_err(io_error)?;
        }
        group.close().map_err(io_error)?;
        (self.rows, self.text) = (0, 0);
        Ok(())
    }
}

impl<W: Write + Send> Sink for Writer<W> {
    fn row(&mut self, row: &Value) -> io::Result<()> {
        for buffer in &mut self.buffers {
            self.text += buffer.take(value_at(row, buffer.column))?;
        }
        self.rows += 1;
        if self.rows >= GROUP_ROWS || self.text >= GROUP_TEXT {
            self.group()?;
        }
        Ok(())
    }
}

impl Buffer {
    fn new(column: &'static Column) -> Self {
        let values = match column.kind {
            Kind::Integer | Kind::Unsigned => Values::Integers(Vec::new()),
            Kind::Number => Values::Numbers(Vec::new()),
            Kind::Bool => Values::Bools(Vec::new()),
            Kind::Text => Values::Texts(Vec::new()),
        };
        Self { column, values, there: Vec::new() }
    }

    /// Takes the value of a row, and says how many bytes of text it is.
    fn take(&mut self, value: &Value) -> io::Result<usize> {
        if value.is_null() {
            self.there.push(0);
            return Ok(0);
        }
        self.there.push(1);
        let mut bytes = 0;
        let unsigned = self.column.kind == Kind::Unsigned;
        let taken = match &mut self.values {
            Values::Integers(values) => {
                // The format keeps an unsigned integer in the bits of a signed one.
                let integer = if unsigned { value.as_u64().map(u64::cast_signed) } else { value.as_i64() };
                integer.map(|v| values.push(v))
            }
            Values::Numbers(values) => value.as_f64().map(|v| values.push(v)),
            Values::Bools(values) => value.as_bool().map(|v| values.push(v)),
            Values::Texts(values) => value.as_str().map(|text| {
                bytes = text.len();
                values.push(ByteArray::from(text));
            }),
        };
        let name = self.column.name;
        taken.map(|()| bytes).ok_or_else(|| io::Error::other(format!("column {name} cannot hold {value}")))
    }

    fn write(&mut self, column: &mut ColumnWriter<'_>) -> io::Result<()> {
        let there = Some(self.there.as_slice());
        match (column, &mut self.values) {
            (ColumnWriter::Int64ColumnWriter(out), Values::Integers(values)) => {
                out.write_batch(values, there, None).map_err(io_error)?;
                values.clear();
            }
            (ColumnWriter::DoubleColumnWriter(out), Values::Numbers(values)) => {
                out.write_batch(values, there, None).map_err(io_error)?;
                values.clear();
            }
            (ColumnWriter::BoolColumnWriter(out), Values::Bools(values)) => {
                out.write_batch(values, there, None).map_err(io_error)?;
                values.clear();
            }
            (ColumnWriter::ByteArrayColumnWriter(out), Values::Texts(values)) => {
                out.write_batch(values, there, None).map_err(io_error)?;
                values.clear();
            }
            _ => return Err(io::Error::other(format!("column {} has another type", self.column.name))),
        }
        self.there.clear();
        Ok(())
    }
}

/// The schema of a column.
fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.kind {
        Kind::Integer => (Physical::INT64, None),
        Kind::Unsigned => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::Number => (Physical::DOUBLE, None),
        Kind::Bool => (Physical::BOOLEAN, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    Type::primitive_type_builder(column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}
