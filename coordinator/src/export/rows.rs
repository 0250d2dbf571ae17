//! Where the rows of a table come from: the report, the stored traces, the recorded series.

use std::collections::BTreeMap;
use std::io;

use common::ids::{AgentName, TrialId};
use common::validity::Verdict;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Sink;
use super::columns::{Column, Table};
use crate::analysis::{counted, each_line};
use crate::kept::{KeptRun, KeptTrial};
use crate::report::Report;
use crate::retokenize::Retokenizer;
use crate::store::RunStore;
use crate::telemetry;

/// What is exported.
pub struct Source<'a> {
    /// The run.
    pub run: &'a RunStore,
    /// What is kept of it.
    pub kept: &'a KeptRun,
    /// Counts kept text.
    pub tokenizer: Option<&'a Retokenizer>,
}

/// The value of a column; null where there is none.
pub(super) fn value_at<'a>(row: &'a Value, column: &Column) -> &'a Value {
    column.path.split('.').fold(row, |value, step| &value[step])
}

/// Gives `sink` every row of a table, and says how many they are.
pub(super) fn each(
    source: &Source<'_>,
    report: &Report,
    table: Table,
    sink: &mut dyn Sink,
) -> io::Result<u64> {
    match table {
        Table::Trials => trials(report, sink),
        Table::Traces | Table::Events => traces(source, report, table, sink),
        Table::Power => recorded(source, report, "power", sink),
        Table::Gpu => recorded(source, report, "gpu", sink),
        Table::Host => recorded(source, report, "host", sink),
        Table::Engine => recorded(source, report, "engine", sink),
        Table::Incidents => recorded(source, report, "event", sink),
    }
}

fn trials(report: &Report, sink: &mut dyn Sink) -> io::Result<u64> {
    for trial in &report.trials {
        let mut row = serde_json::to_value(trial)?;
        let why: Vec<&str> = trial.summary.validity.reasons.iter().map(|r| r.message.as_str()).collect();
        row["why"] = json!(why.join("; "));
        sink.row(&row)?;
    }
    Ok(report.trials.len() as u64)
}

fn verdicts(report: &Report) -> BTreeMap<TrialId, Verdict> {
    report.trials.iter().map(|t| (t.trial, t.summary.validity.verdict)).collect()
}

fn traces(source: &Source<'_>, report: &Report, table: Table, sink: &mut dyn Sink) -> io::Result<u64> {
    let verdicts = verdicts(report);
    let mut rows = 0;
    for trial in &source.kept.trials {
        let number = trial.planned.trial;
        let Some(verdict) = verdicts.get(&number) else { continue };
        let (verdict, rate) = (verdict.name(), trial.planned.rate.to_string());
        each_line(source.run, trial, source.tokenizer, &mut |line: &[u8]| {
            if table == Table::Events {
                rows += events(line, verdict, sink)?;
                return Ok(());
            }
            let mut row: Value = serde_json::from_slice(line)?;
            (row["validity"], row["offered_rate"]) = (json!(verdict), json!(rate));
            row["cut"] = json!(row["index"].as_u64().is_some_and(|index| index >= counted(trial)));
            rows += 1;
            sink.row(&row)
        })?;
    }
    Ok(rows)
}

/// The part of a trace's line that its events are in.
#[derive(Deserialize)]
struct Stream {
    trial: TrialId,
    agent: AgentName,
    index: u64,
    content_ns: Vec<u64>,
    content_channels: Vec<Channel>,
}

#[derive(Deserialize)]
struct Channel {
    channel: String,
    events: u64,
}

fn events(line: &[u8], verdict: &str, sink: &mut dyn Sink) -> io::Result<u64> {
    let Stream { trial, agent, index, content_ns, content_channels } = serde_json::from_slice(line)?;
    let mut channels = content_channels.iter().flat_map(|run| (0..run.events).map(|_| run.channel.as_str()));
    let mut before: Option<u64> = None;
    for (event, at) in content_ns.iter().enumerate() {
        let gap = before.map(|before| at.saturating_sub(before));
        before = Some(*at);
        sink.row(&json!({
            "trial": trial, "validity": verdict, "agent": agent, "index": index, "event": event, "at_ns": at,
            "gap_ns": gap, "channel": channels.next(),
        }))?;
    }
    Ok(content_ns.len() as u64)
}

/// Records of a kind, boot by boot and agent by agent.
fn recorded(source: &Source<'_>, report: &Report, kind: &str, sink: &mut dyn Sink) -> io::Result<u64> {
    let verdicts: BTreeMap<u64, &str> =
        verdicts(report).into_iter().map(|(trial, verdict)| (u64::from(trial.0), verdict.name())).collect();
    let mut rows = 0;
    for boot in 0..=source.kept.restarts() {
        let series = source.run.telemetry_series_of(boot).map_err(io::Error::other)?;
        let trials: Vec<&KeptTrial> = source.kept.trials.iter().filter(|t| t.boot == boot).collect();
        // A position is by the inventory that was read before.
        let mut uuids: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        telemetry::each_line(&series, &trials, |line| {
            let agent = line["agent"].as_str().unwrap_or_default().to_owned();
            if line["kind"] == "inventory" {
                let gpus = line["gpus"].as_array().into_iter().flatten();
                uuids.insert(agent, gpus.map(|gpu| gpu["uuid"].clone()).collect());
                return Ok(());
            }
            if line["kind"] != kind {
                return Ok(());
            }
            let verdict = line["trial"].as_u64().and_then(|trial| verdicts.get(&trial));
            line["validity"] = json!(verdict);
            let gpu = line["gpu"].as_u64().and_then(|gpu| uuids.get(&agent)?.get(gpu as usize).cloned());
            if line.get("gpu").is_some() {
                line["gpu_uuid"] = gpu.unwrap_or_default();
            }
            rows += 1;
            sink.row(line)
        })?;
    }
    Ok(rows)
}
