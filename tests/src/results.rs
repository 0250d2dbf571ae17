//! What a run leaves: `report.json` and `traces.jsonl`, and whether they agree.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::values::{brief, by, count, counts, list, text};

/// The clocks of a trace, in the order in which they must stand.
pub const CLOCKS: [&str; 8] = [
    "scheduled_ns",
    "released_ns",
    "connected_ns",
    "written_ns",
    "headers_ns",
    "first_content_ns",
    "last_content_ns",
    "finished_ns",
];

/// A run's report and traces. Reading them checks the books.
#[derive(Debug)]
pub struct Results {
    /// `report.json`.
    pub report: Value,
    /// `traces.jsonl`, a value a line.
    pub traces: Vec<Value>,
}

impl Results {
    /// Reads a run's folder.
    ///
    /// # Errors
    /// When a file is missing or no JSON, or when the books do not balance.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
        };
        let parse = |text: &str| serde_json::from_str(text).map_err(|e| format!("{e} in {text:?}"));
        let results = Self {
            report: parse(&read("report.json")?)?,
            traces: read("traces.jsonl")?.lines().map(parse).collect::<Result<_, _>>()?,
        };
        results.balance()?;
        Ok(results)
    }

    /// The run's name.
    #[must_use]
    #[track_caller]
    pub fn run(&self) -> &str {
        text(&self.report, "/run_id")
    }

    /// The trials, in the order in which they were sent.
    #[must_use]
    #[track_caller]
    pub fn trials(&self) -> &[Value] {
        list(&self.report, "/trials")
    }

    /// The summary of the only trial.
    ///
    /// # Panics
    /// When there is not one trial.
    #[must_use]
    #[track_caller]
    pub fn summary(&self) -> &Value {
        let [trial] = self.trials() else { panic!("not one trial: {:#}", self.report) };
        &trial["summary"]
    }

    /// The trial at a rate.
    ///
    /// # Panics
    /// When there is not one.
    #[must_use]
    #[track_caller]
    pub fn trial_at(&self, rate: &str) -> &Value {
        let found: Vec<_> = self.trials().iter().filter(|t| t["offered_rate"] == rate).collect();
        let [trial] = found.as_slice() else { panic!("not one trial at {rate}: {:#}", self.report) };
        trial
    }

    /// The traces of a trial, by index.
    #[must_use]
    #[track_caller]
    pub fn traces_of(&self, trial: u64) -> Vec<&Value> {
        let mut traces: Vec<_> = self.traces.iter().filter(|t| count(t, "/trial") == trial).collect();
        traces.sort_by_key(|t| count(t, "/index"));
        traces
    }

    /// Traces by their outcome.
    #[must_use]
    pub fn outcomes(&self) -> BTreeMap<String, u64> {
        by(&self.traces, "/outcome")
    }

    /// `scheduled == recorded`, in the report, in the traces and between them.
    fn balance(&self) -> Result<(), String> {
        let mut lines = 0;
        for trial in self.trials() {
            let (number, summary) = (count(trial, "/trial"), &trial["summary"]);
            let fail = |what: String| Err(format!("trial {number}: {what} in {summary:#}"));
            let requests = count(summary, "/requests");
            for (key, expected) in [
                ("scheduled", requests),
                ("recorded", requests),
                ("missing", 0),
                ("duplicates", 0),
                ("unknown", 0),
            ] {
                if summary["conservation"][key] != expected {
                    return fail(format!("{key} is not {expected}"));
                }
            }
            let mut traces = self.traces_of(number);
            lines += traces.len();
            let indices: Vec<u64> = traces.iter().map(|t| count(t, "/index")).collect();
            // Of a trial that a search ended the whole schedule is there, and what was sent before that counts.
            let planned = trial["cut"]["planned"].as_u64().unwrap_or(requests);
            if !indices.iter().copied().eq(0..planned) {
                return fail(format!("traces.jsonl has the arrivals {indices:?}"));
            }
            traces.truncate(requests as usize);
            let mut outcomes = by(traces.iter().copied(), "/outcome");
            let successful = outcomes.remove("success").unwrap_or(0);
            if outcomes != counts(summary, "/failures_by_kind") {
                return fail(format!("traces.jsonl has the failures {outcomes:?}"));
            }
            let failed: u64 = outcomes.values().sum();
            if count(summary, "/successful") != successful || count(summary, "/failed") != failed {
                return fail(format!("traces.jsonl has {successful} successes and {failed} failures"));
            }
            let by_agent = by(traces.iter().copied(), "/agent");
            for agent in list(summary, "/agents") {
                if by_agent.get(text(agent, "/name")).copied().unwrap_or(0) != count(agent, "/requests") {
                    return fail(format!("traces.jsonl has by agent {by_agent:?}"));
                }
            }
            traces.iter().try_for_each(|t| in_order(t))?;
        }
        if lines != self.traces.len() {
            return Err(format!("{} traces, and {lines} of a trial in the report", self.traces.len()));
        }
        Ok(())
    }
}

/// The clocks of a trace must stand in their order; one that was never reached is null, and so are those that
/// follow from it. An arrival that is given up before it is due ends before it.
fn in_order(trace: &Value) -> Result<(), String> {
    let (stages, last) = CLOCKS.split_at(CLOCKS.len() - 1);
    let reached: Vec<Option<u64>> = stages.iter().map(|clock| trace[*clock].as_u64()).collect();
    let mut known: Vec<u64> = reached.iter().flatten().copied().collect();
    if trace["outcome"] != "not_dispatched" {
        known.push(count(trace, &format!("/{}", last[0])));
    }
    let complete = trace["outcome"] != "success" || known.len() == CLOCKS.len();
    if complete && known.is_sorted() && reached.is_sorted_by(|a, b| a.is_some() >= b.is_some()) {
        Ok(())
    } else {
        Err(format!("clocks out of order: {}", brief(trace)))
    }
}
