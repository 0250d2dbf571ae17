//! How to check the result: the command again, the experiment record with what is missing in it, and how the page was made.

use std::fmt::Write;

use serde_json::Value;

use super::markup::{long_cell, section, table, text};
use super::points::Points;
use crate::page::assets;
use crate::report::Report;
use crate::report::json::document;

/// How to send it again.
pub(super) fn reproduce(report: &Report) -> String {
    let words = report.experiment["command_line"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line: Vec<String> = words.iter().filter_map(Value::as_str).map(quoted).collect();
    let line = if line.is_empty() { "not recorded".to_owned() } else { line.join(" ") };
    let again = format!("coordinator report {} --html report.html", report.run_id);
    let body = format!(
        "<h3>The command</h3><div class=\"copy\"><pre id=\"command\">{}</pre><button type=\"button\" data-copy=\"command\">Copy</button></div>\
         <h3>This page again, from the kept traces</h3><div class=\"copy\"><pre id=\"again\">{}</pre>\
         <button type=\"button\" data-copy=\"again\">Copy</button></div>\
         <h3>Schedules</h3>{}",
        text(line),
        text(again),
        schedules(report)
    );
    section("reproduce", "How to reproduce it", LEAD, &body)
}

const LEAD: &str = "The same command with the same seed sends the same requests at the same instants, from any number of agents: \
    the digests tell. Values that may be secret are hidden, and have to be typed again.";

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn schedules(report: &Report) -> String {
    let rows = report.trials.iter().map(|t| {
        format!(
            "<td>{}</td><td>{}</td><td class=\"mono\">{}</td><td class=\"left mono digest\">{}</td><td class=\"left mono digest\">{}</td>",
            t.trial,
            text(t.rate),
            t.seed.0,
            text(t.schedule_sha256),
            text(t.workload_sha256)
        )
    });
    format!(
        "<details><summary>Seeds and digests of {} trials</summary>{}</details>",
        report.trials.len(),
        table("digests", &["trial", "rate", "seed", "<schedule SHA-256", "<workload SHA-256"], rows)
    )
}

/// Parts of the record that are shown in full; the rest stands below it.
const PARTS: [(&str, &str); 7] = [
    ("hardware", "Hardware"),
    ("engine", "Engine"),
    ("model", "Model"),
    ("serving", "Serving"),
    ("workload", "Workload"),
    ("plimsoll", "Plimsoll"),
    ("agents", "Agents"),
];

/// The experiment record, and what is missing of it.
pub(super) fn record(report: &Report) -> String {
    // With the digests of the trials, as report.json has it.
    let record = document(report).experiment;
    let mut body = missing(&record);
    body.push_str("<div class=\"parts\">");
    for (name, title) in PARTS {
        let mut rows = Vec::new();
        flat("", &record[name], &mut rows);
        if rows.is_empty() {
            continue;
        }
        let rows = rows.into_iter().map(|(key, value)| {
            format!("<th scope=\"row\" class=\"left\">{}</th>{}", text(key), long_cell(value))
        });
        let _ = write!(body, "<div class=\"part\"><h3>{title}</h3>{}</div>", table("pairs", &[], rows));
    }
    body.push_str("</div>");
    let whole = serde_json::to_string_pretty(&record).unwrap_or_default();
    let _ = write!(
        body,
        "<details><summary>The whole record</summary><pre class=\"whole\">{}</pre></details>",
        text(whole)
    );
    section("record", "Experiment record", "What somebody else needs to know to check this result.", &body)
}

fn missing(record: &Value) -> String {
    let missing: Vec<&str> =
        record["missing"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match (missing.is_empty(), record["missing"].is_array()) {
        (true, true) => "<p class=\"note ok\">Nothing that is asked for is missing.</p>".to_owned(),
        (true, false) => String::new(),
        _ => {
            let items: String =
                missing.iter().map(|name| format!("<li><code>{}</code></li>", text(name))).collect();
            format!(
                "<div class=\"note warn\"><b>Missing: {}.</b> Without these the result cannot be checked in full; give them with \
                 <code>--metadata</code>.<ul class=\"missing\">{items}</ul></div>",
                missing.len()
            )
        }
    }
}

/// A value as pairs of a path and a text; null is unknown and left out, for `missing` names it.
fn flat(path: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Null => {}
        Value::Object(fields) => fields.iter().for_each(|(key, value)| flat(&below(key), value, rows)),
        Value::Array(items) if items.iter().any(|v| v.is_object() || v.is_array()) => {
            items.iter().enumerate().for_each(|(i, value)| flat(&below(&i.to_string()), value, rows));
        }
        Value::Array(items) => {
            let words: Vec<String> = items.iter().map(plain).collect();
            rows.push((path.to_owned(), words.join(" ")));
        }
        value => rows.push((path.to_owned(), plain(value))),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What the page shows of how much, and the licence of the chart library.
pub(super) fn about(points: &Points) -> String {
    let Points { requests, shown, trials_left_out, .. } = points;
    let thinned = if shown == requests {
        format!("All {requests} requests are in the scatter of their trials.")
    } else {
        format!(
            "Of {requests} requests {shown} are in the scatters: of each stretch of time the smallest and the largest TTFT, TPOT and E2E and a \
             failure of each kind, and every so many-th request beside them. Every other number is over all requests."
        )
    };
    let left_out = match trials_left_out {
        0 => String::new(),
        n => format!(" {n} trials are not shown in time."),
    };
    format!(
        "<section id=\"about\"><h2>About this page</h2><p class=\"note\" id=\"thinning\">{}{}</p>\
         <p class=\"note\">TTFT, TPOT and E2E count from the scheduled instant, whatever was in the way. Undefined is –, and never 0. \
         The numbers are those of report.json, which is embedded here whole (<code>id=\"report\"</code>).</p>\
         <details><summary>Charts by uPlot; its licence</summary><pre class=\"whole\">{}</pre></details></section>\n",
        text(thinned),
        text(left_out),
        text(assets::UPLOT_LICENSE)
    )
}
