//! Looking into JSON with JSON pointers; what is missing fails the test and is named.

use std::collections::BTreeMap;

use serde_json::Value;

#[track_caller]
fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {value:#}"))
}

/// Whether something other than null is there.
#[must_use]
pub fn has(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).is_some_and(|v| !v.is_null())
}

/// A number.
///
/// # Panics
/// When it is missing or no number.
#[must_use]
#[track_caller]
pub fn number(value: &Value, pointer: &str) -> f64 {
    at(value, pointer).as_f64().unwrap_or_else(|| panic!("{pointer} is no number in {value:#}"))
}

/// A number, or null.
///
/// # Panics
/// When it is missing or something else.
#[must_use]
#[track_caller]
pub fn opt_number(value: &Value, pointer: &str) -> Option<f64> {
    if at(value, pointer).is_null() { None } else { Some(number(value, pointer)) }
}

/// A whole number from 0.
///
/// # Panics
/// When it is missing or something else.
#[must_use]
#[track_caller]
pub fn count(value: &Value, pointer: &str) -> u64 {
    at(value, pointer).as_u64().unwrap_or_else(|| panic!("{pointer} is no count in {value:#}"))
}

/// A string.
///
/// # Panics
/// When it is missing or something else.
#[must_use]
#[track_caller]
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    at(value, pointer).as_str().unwrap_or_else(|| panic!("{pointer} is no string in {value:#}"))
}

/// An array.
///
/// # Panics
/// When it is missing or something else.
#[must_use]
#[track_caller]
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    at(value, pointer).as_array().unwrap_or_else(|| panic!("{pointer} is no array in {value:#}"))
}

/// An object of counts.
///
/// # Panics
/// When it is missing or something else.
#[must_use]
#[track_caller]
pub fn counts(value: &Value, pointer: &str) -> BTreeMap<String, u64> {
    let object = at(value, pointer).as_object();
    let object = object.unwrap_or_else(|| panic!("{pointer} is no object in {value:#}"));
    let count =
        |v: &Value| v.as_u64().unwrap_or_else(|| panic!("{pointer} holds more than counts in {value:#}"));
    object.iter().map(|(name, v)| (name.clone(), count(v))).collect()
}

/// How many of `values` have each value of a string field; null counts as `null`.
#[must_use]
pub fn by<'a>(values: impl IntoIterator<Item = &'a Value>, pointer: &str) -> BTreeMap<String, u64> {
    let mut groups = BTreeMap::new();
    for value in values {
        let name = value.pointer(pointer).and_then(Value::as_str).unwrap_or("null");
        *groups.entry(name.to_owned()).or_default() += 1;
    }
    groups
}

/// A trace for a failure's message: without its text and the stamps of every event.
#[must_use]
pub fn brief(trace: &Value) -> String {
    let mut brief = trace.clone();
    if let Some(fields) = brief.as_object_mut() {
        fields.retain(|name, value| !value.is_null() && !["content_ns", "output"].contains(&name.as_str()));
    }
    brief.to_string()
}
