use std::collections::BTreeSet;
use std::fmt::Write as _;

use common::ids::{AgentName, TrialId};
use serde_json::{Value, json};

use super::columns::Table;
use super::*;
use crate::report::tests::{failed, good};
use crate::report::{TraceRow, write_trace};

/// The table of a table's columns, as docs/exports.md has it.
fn described(table: Table) -> String {
    let mut out =
        format!("### {}\n\n| column | type | unit | meaning |\n| --- | --- | --- | --- |\n", table.name());
    for column in table.columns() {
        let kind = json!(column.kind);
        let (name, kind) = (column.name, kind.as_str().unwrap());
        let _ =
            writeln!(out, "| `{name}` | {kind} | {} | {} |", column.unit, column.meaning.replace('|', "\\|"));
    }
    out
}

#[test]
fn the_docs_describe_every_column() {
    let docs = include_str!("../../../docs/exports.md");
    for table in Table::ALL {
        let expected = described(table);
        assert!(docs.contains(&expected), "docs/exports.md should have\n\n{expected}");
    }
    assert!(docs.contains(&format!("schema version is `{VERSION}`")));
}

#[test]
fn no_column_has_the_name_of_another() {
    for table in Table::ALL {
        let names: BTreeSet<&str> = table.columns().iter().map(|c| c.name).collect();
        assert_eq!(names.len(), table.columns().len(), "{table:?}");
    }
}

fn line(trace: &common::trace::Trace) -> Value {
    let agent: AgentName = "a1".parse().unwrap();
    let mut bytes = Vec::new();
    write_trace(&mut bytes, TraceRow { trial: TrialId(0), agent: &agent, trace, retokenized: None }).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// A field that is added to traces.jsonl gets a column, and a column has a field.
#[test]
fn every_field_of_a_trace_is_a_column() {
    let line = line(&good(1)[0]);
    let fields: BTreeSet<String> = (line.as_object().unwrap().iter())
        .flat_map(|(name, value)| match value {
            Value::Object(inner) => inner.keys().map(|key| format!("{name}.{key}")).collect(),
            _ => vec![name.clone()],
        })
        // They are the table of events.
        .filter(|name| !name.starts_with("content_"))
        .collect();
    let added = ["validity", "offered_rate", "cut"];
    let columns = Table::Traces.columns().iter().map(|c| c.path.to_owned());
    let columns: BTreeSet<String> = columns.filter(|path| !added.contains(&path.as_str())).collect();
    assert_eq!(columns, fields);
}

fn rows() -> Vec<Value> {
    let mut hostile = line(&failed(3));
    hostile["failure_message"] = json!("a \"quoted\", text\nof two lines");
    hostile["error_body"] = json!("");
    vec![line(&good(1)[0]), hostile]
}

#[test]
fn a_line_of_csv_says_what_is_null_and_what_is_an_empty_text() {
    let mut out = Vec::new();
    let mut sink = csv::Writer::begin(&mut out, Table::Traces.columns()).unwrap();
    rows().iter().for_each(|row| sink.row(row).unwrap());
    let text = String::from_utf8(out).unwrap();
    let (head, body) = text.split_once('\n').unwrap();
    assert!(head.starts_with("trial,offered_rate,validity,agent,index,"), "{head}");
    assert!(body.starts_with("0,,,\"a1\",0,0,\"success\",,,,0,0,0,0,,20000000,"), "{body}");
    assert!(body.contains(",\"a \"\"quoted\"\", text\nof two lines\","), "{body}");
    assert!(body.ends_with(",\"\"\n"), "{body}");
    // Undefined is empty, and not 0: the failed one had no content.
    assert!(body.contains("\"connect\",\"network\""), "{body}");
}

#[cfg(feature = "parquet")]
mod of_parquet {
    use std::sync::Arc;

    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::Field;

    use super::super::columns::Kind;
    use super::super::parquet::Writer;
    use super::*;

    /// A file of these rows, with the name of a run.
    fn written(table: Table, rows: impl Iterator<Item = Value>) -> SerializedFileReader<File> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        out::whole(&path, |out| {
            let mut sink = Writer::begin(out, table, "run-1")?;
            for row in rows {
                sink.row(&row)?;
            }
            sink.finish()
        })
        .unwrap();
        SerializedFileReader::new(File::open(path).unwrap()).unwrap()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let file = written(Table::Traces, rows().into_iter());
        let read: Vec<_> = file.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(read.len(), 2);
        for (row, expected) in read.iter().zip(rows()) {
            for ((name, field), column) in row.get_column_iter().zip(Table::Traces.columns()) {
                assert_eq!(name, column.name);
                let expected = super::super::rows::value_at(&expected, column);
                let same = match field {
                    Field::Null => expected.is_null(),
                    Field::Long(v) => expected == &json!(v),
                    Field::Double(v) => expected == &json!(v),
                    Field::Bool(v) => expected == &json!(v),
                    Field::Str(v) => expected == &json!(v),
                    other => panic!("{name} is {other}"),
                };
                assert!(same, "{name}: {field} is not {expected}");
            }
        }
        let about = file.metadata().file_metadata().key_value_metadata().unwrap().clone();
        let said =
            about.iter().find(|kv| kv.key == "plimsoll_schema_version").and_then(|kv| kv.value.as_deref());
        assert_eq!(said, Some(VERSION));
    }

    #[test]
    fn long_tables_are_parted_into_groups_and_seeds_keep_all_of_their_bits() {
        let rows = 70_000;
        let row = |i: u64| json!({"trial": i, "seed": u64::MAX - i});
        let file = written(Table::Trials, (0..rows).map(row));
        let groups: Vec<i64> = file.metadata().row_groups().iter().map(|g| g.num_rows()).collect();
        assert_eq!(groups, [65_536, 4_464]);
        let seed = Table::Trials.columns().iter().position(|c| c.kind == Kind::Unsigned).unwrap();
        let all = file.get_row_iter(None).unwrap().map(Result::unwrap).enumerate().all(|(i, row)| {
            matches!(row.get_column_iter().nth(seed), Some((_, Field::ULong(v))) if *v == u64::MAX - i as u64)
        });
        assert!(all);
    }

    #[test]
    fn much_text_ends_a_group_early() {
        let text: Arc<str> = "x".repeat(1 << 20).into();
        let file = written(Table::Incidents, (0..40).map(|i| json!({"trial": i, "message": &*text})));
        let groups: Vec<i64> = file.metadata().row_groups().iter().map(|g| g.num_rows()).collect();
        assert_eq!(groups, [32, 8], "memory is bounded by what a group holds");
    }

    #[test]
    fn a_value_of_another_type_is_an_error_and_not_a_null() {
        let mut sink = Writer::begin(Vec::new(), Table::Traces, "r").unwrap();
        let said = sink.row(&json!({"trial": "one"})).unwrap_err().to_string();
        assert_eq!(said, "column trial cannot hold \"one\"");
    }

    /// A disk that takes so many bytes.
    struct Full(usize);

    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_told_as_one() {
        let mut sink = Writer::begin(Full(200), Table::Traces, "r").unwrap();
        let ended = rows().iter().try_for_each(|row| sink.row(row)).and_then(|()| sink.finish());
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
