//! `report.json`.

use common::ids::RunId;
use common::knee::search::SearchResult;
use common::knee::{Knee, RateResult};
use common::slo::{SloSet, Target};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Energy, Report, TrialReport};

/// Version of the form of `report.json` and `traces.jsonl`. It changes when a field changes its meaning or goes; a
/// new field changes nothing.
pub const SCHEMA_VERSION: &str = "1";

/// The whole of it, in the order in which it is written.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    schema_version: &'static str,
    run_id: &'a RunId,
    slos: &'a SloSet,
    slo_target: Target,
    knee: &'a Knee,
    search: Option<&'a SearchResult>,
    rates: &'a [RateResult],
    energy: Option<Energy>,
    trials: &'a [TrialReport],
    pub(super) experiment: Value,
}

/// The report as a JSON document, indented, with a line end.
///
/// # Errors
/// When a value cannot be written as JSON, which no value of a report is.
pub fn to_json(report: &Report) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(&document(report))?;
    text.push('\n');
    Ok(text)
}

/// The report as a JSON value.
///
/// # Errors
/// As [`to_json`].
pub fn to_value(report: &Report) -> serde_json::Result<Value> {
    serde_json::to_value(document(report))
}

pub(super) fn document(report: &Report) -> Document<'_> {
    Document {
        schema_version: SCHEMA_VERSION,
        run_id: &report.run_id,
        slos: &report.slos,
        slo_target: report.target,
        knee: &report.knee,
        search: report.search.as_ref(),
        rates: &report.rates,
        energy: report.energy(),
        trials: &report.trials,
        experiment: experiment(report),
    }
}

/// The record as given, with the digests of every trial: they make the result checkable, so they cannot be left out.
fn experiment(report: &Report) -> Value {
    let mut record = match &report.experiment {
        Value::Object(fields) => fields.clone(),
        Value::Null => serde_json::Map::new(),
        // Not a record, and yet what was given is not dropped.
        other => serde_json::Map::from_iter([("record".to_owned(), other.clone())]),
    };
    let trials = report.trials.iter().map(|t| {
        json!({
            "trial": t.trial,
            "seed": t.seed,
            "schedule_sha256": t.schedule_sha256,
            "workload_sha256": t.workload_sha256,
        })
    });
    record.entry("trials").or_insert_with(|| trials.collect());
    Value::Object(record)
}
