//! The judge: what a run says of itself against what the engine saw.
//!
//! Its only witnesses are the report, the traces and the engine's own log. It holds for every run, however it was
//! disturbed: what may differ from scenario to scenario is said by what it gives back, and asserted there.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_tests::{Ended, Results, brief, by, count, list, text};
use serde_json::Value;

/// How much the engine can still say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// Everything that it saw.
    Whole,
    /// What it saw until it was asked the last time before its death.
    UntilDeath,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Trials in the report.
    pub trials: usize,
    /// Arrivals, each with its one trace.
    pub arrivals: u64,
    /// Traces by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Invalid trials, each with the kinds of its reasons.
    pub invalid: BTreeMap<u64, BTreeSet<String>>,
    /// Of those, the ones that nothing was sent again for.
    pub standing_invalid: BTreeSet<u64>,
    /// Traces that nobody measured, by agent.
    pub synthetic: BTreeMap<String, u64>,
}

/// Holds a run against the engine's log.
///
/// # Panics
/// When they contradict each other.
#[must_use]
#[track_caller]
pub fn judge(results: &Results, log: &[Value], whole: Log) -> Found {
    let mut found = Found { trials: results.trials().len(), ..Found::default() };
    found.outcomes = results.outcomes();
    let replaced: BTreeSet<u64> = results.trials().iter().filter_map(|t| t["rerun_of"].as_u64()).collect();
    let mut seen = by_trial(log, results.run());
    for trial in results.trials() {
        let (number, summary) = (count(trial, "/trial"), &trial["summary"]);
        let requests = count(summary, "/requests");
        found.arrivals += requests;
        let entries = seen.remove(&number).unwrap_or_default();
        for (index, entries) in &entries {
            assert!(*index < requests, "trial {number}: the engine saw arrival {index} of {requests}");
            assert!(
                entries.len() == 1,
                "trial {number}: the engine saw arrival {index} {} times",
                entries.len()
            );
        }
        for trace in results.traces_of(number) {
            judge_trace(trace, entries.get(&count(trace, "/index")), whole);
            if trace["synthetic"] == true {
                *found.synthetic.entry(text(trace, "/agent").to_owned()).or_default() += 1;
            }
        }
        if text(summary, "/validity/verdict") == "invalid" {
            let reasons = by(list(summary, "/validity/reasons"), "/kind");
            assert!(!reasons.is_empty(), "trial {number} is invalid and does not say why");
            found.invalid.insert(number, reasons.into_keys().collect());
            if !replaced.contains(&number) {
                found.standing_invalid.insert(number);
            }
        } else {
            let generator = results
                .traces_of(number)
                .into_iter()
                .find(|t| t["failure_class"] == "generator" || t["synthetic"] == true);
            assert!(
                generator.is_none(),
                "trial {number} counts with {}",
                brief(generator.unwrap_or(&Value::Null))
            );
        }
    }
    assert!(
        seen.is_empty(),
        "the engine saw requests of trials that are not in the report: {:?}",
        seen.keys()
    );
    found
}

type Entries<'a> = BTreeMap<u64, Vec<&'a Value>>;

/// The engine's entries of a run, by trial and index.
fn by_trial<'a>(log: &'a [Value], run: &str) -> BTreeMap<u64, Entries<'a>> {
    let mut trials: BTreeMap<u64, Entries> = BTreeMap::new();
    for entry in log {
        // RUN/TRIAL/INDEX.
        let parts: Vec<&str> = text(entry, "/request_id").split('/').collect();
        let [of, trial, index] = parts.as_slice() else { continue };
        let (Ok(trial), Ok(index)) = (trial.parse(), index.parse()) else { continue };
        if *of == run {
            trials.entry(trial).or_default().entry(index).or_default().push(entry);
        }
    }
    trials
}

#[track_caller]
fn judge_trace(trace: &Value, seen: Option<&Vec<&Value>>, whole: Log) {
    let entry = seen.and_then(|s| s.first());
    match text(trace, "/outcome") {
        "success" if whole == Log::Whole => {
            let entry = entry.unwrap_or_else(|| panic!("the engine never saw {}", brief(trace)));
            assert_eq!(entry["outcome"], "finished", "{} is not what the engine says: {entry}", brief(trace));
            assert_eq!(entry["agent"], trace["agent"], "{}", brief(trace));
        }
        "not_dispatched" => assert!(entry.is_none(), "it was sent: {}", brief(trace)),
        _ => {}
    }
}

/// Rate, repeat, seed and digests of the trials that count: the same for every run of one plan.
#[must_use]
pub fn schedules(results: &Results) -> BTreeSet<String> {
    let again: BTreeSet<u64> = results.trials().iter().filter_map(|t| t["rerun_of"].as_u64()).collect();
    let standing = results.trials().iter().filter(|t| !again.contains(&count(t, "/trial")));
    let fields = ["offered_rate", "repeat", "seed", "schedule_sha256", "workload_sha256"];
    standing.map(|t| fields.map(|f| t[f].to_string()).join(" ")).collect()
}

/// A run that ended with 0 has every trial of the undisturbed one, and none of them invalid; one that ended otherwise
/// says so: with 4 for a trial that is invalid, and in words.
///
/// # Panics
/// When it is neither.
#[track_caller]
pub fn usable_or_plainly_invalid(
    ended: &Ended,
    results: &Results,
    found: &Found,
    undisturbed: &BTreeSet<String>,
) {
    let known = schedules(results);
    assert!(known.is_subset(undisturbed), "it has trials that nobody planned: {known:#?}");
    match ended.code {
        Some(0) => {
            assert!(found.standing_invalid.is_empty(), "0 with an invalid trial: {}", ended.story());
            assert_eq!(&known, undisturbed, "0 without every trial: {}", ended.story());
        }
        Some(4) => {
            assert!(!found.standing_invalid.is_empty(), "4 without an invalid trial: {}", ended.story())
        }
        Some(1) => assert!(ended.stderr.contains("coordinator: "), "1 without a word: {}", ended.story()),
        code => panic!("it ended with {code:?}: {}", ended.story()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A run of one trial of two arrivals: one success, one of `outcome`.
    fn results(verdict: &str, outcome: &str) -> Results {
        let reasons = if verdict == "valid" { json!([]) } else { json!([{"kind": "agent_lost"}]) };
        let summary = json!({"requests": 2, "validity": {"verdict": verdict, "reasons": reasons}});
        let report = json!({"run_id": "r", "trials": [{"trial": 0, "rerun_of": null, "summary": summary}]});
        let trace = |index: u64, outcome: &str| {
            let class = if outcome == "success" { Value::Null } else { json!("generator") };
            let synthetic = outcome == "agent_lost";
            json!({"trial": 0, "index": index, "outcome": outcome, "agent": "a", "failure_class": class,
                "synthetic": synthetic})
        };
        Results { report, traces: vec![trace(0, "success"), trace(1, outcome)] }
    }

    fn seen(id: &str, outcome: &str) -> Value {
        json!({"request_id": id, "outcome": outcome, "agent": "a"})
    }

    fn says_no(results: &Results, log: &[Value]) -> bool {
        std::panic::catch_unwind(|| judge(results, log, Log::Whole)).is_err()
    }

    #[test]
    fn what_agrees_is_accepted_and_counted() {
        let log = [seen("r/0/0", "finished"), seen("other/0/1", "open"), seen("r/0/1", "cancelled")];
        let found = judge(&results("invalid", "agent_lost"), &log, Log::Whole);
        assert_eq!((found.arrivals, found.synthetic["a"], found.standing_invalid.len()), (2, 1, 1));
        assert!(!says_no(&results("invalid", "not_dispatched"), &log[..2]));
    }

    #[test]
    fn what_contradicts_the_engine_is_not() {
        let (finished, again) = (seen("r/0/0", "finished"), seen("r/0/0", "finished"));
        let lost = results("invalid", "agent_lost");
        assert!(says_no(&lost, &[finished.clone(), again]), "sent twice");
        assert!(says_no(&lost, &[]), "a success that the engine never saw");
        assert!(says_no(&lost, &[seen("r/0/0", "cancelled")]), "a success that the engine did not finish");
        assert!(
            says_no(&lost, &[finished.clone(), seen("r/0/2", "open")]),
            "an arrival that nobody scheduled"
        );
        assert!(says_no(&lost, &[finished.clone(), seen("r/1/0", "open")]), "a trial that is not reported");
        let unsent = results("invalid", "not_dispatched");
        assert!(says_no(&unsent, &[finished.clone(), seen("r/0/1", "open")]), "it was sent");
        assert!(says_no(&results("valid", "agent_lost"), &[finished]), "it counts, and a trace is made up");
    }
}
