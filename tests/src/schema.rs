//! The schemas of `docs/schemas`, and whether what a run leaves keeps to them.

use jsonschema::Validator;
use jsonschema::error::{ValidationError, ValidationErrorKind};
use serde_json::Value;

/// Of `report.json`.
pub const REPORT: &str = include_str!("../../docs/schemas/report.schema.json");
/// Of a line of `traces.jsonl`.
pub const TRACES: &str = include_str!("../../docs/schemas/traces.schema.json");
/// Of the experiment record.
pub const EXPERIMENT: &str = include_str!("../../docs/schemas/experiment.schema.json");
/// Of a line of `telemetry.jsonl`.
pub const TELEMETRY: &str = include_str!("../../docs/schemas/telemetry.schema.json");
/// Of `capture.json`.
pub const CAPTURE: &str = include_str!("../../docs/schemas/capture.schema.json");
/// Of `export.json`.
pub const EXPORT: &str = include_str!("../../docs/schemas/export.schema.json");
/// Of `agent spool ls --json`.
pub const SPOOL: &str = include_str!("../../docs/schemas/spool.schema.json");

/// Of `calibration.json`.
pub const CALIBRATION: &str = include_str!("../../docs/schemas/calibration.schema.json");

/// JSON that is known to be JSON.
#[must_use]
pub fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|e| panic!("{e} in {json}"))
}

/// A schema that is known to be one.
#[must_use]
pub fn validator(schema: &str) -> Validator {
    jsonschema::draft202012::new(&parsed(schema)).unwrap_or_else(|e| panic!("no schema: {e}"))
}

/// Where and why, down to the alternative that comes nearest.
#[must_use]
pub fn fault(error: &ValidationError<'_>) -> String {
    match error.kind() {
        ValidationErrorKind::OneOfNotValid { context } | ValidationErrorKind::AnyOf { context } => {
            let nearest = context.iter().min_by_key(|faults| faults.len()).into_iter().flatten();
            nearest.map(fault).collect::<Vec<_>>().join("\n")
        }
        _ => format!("{}: {}", error.instance_path(), error.masked()),
    }
}

/// Asserts that a value keeps to a schema.
#[track_caller]
pub fn keeps_to(schema: &Validator, value: &Value, what: &str) {
    let faults: Vec<String> = schema.iter_errors(value).map(|e| fault(&e)).collect();
    assert!(faults.is_empty(), "{what} does not keep to its schema:\n{}\n{value:#}", faults.join("\n"));
}
