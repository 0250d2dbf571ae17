//! The search for the knee, as the coordinator has it: from the record and the reports of trials to the pure machine
//! of [`common::knee::search`].
//!
//! It exists so that the run that sends the trials, the run that goes on with them and the report that is computed
//! again ask the same machine with the same evidence. It must never decide anything itself.

use common::ids::TrialId;
use common::knee::search::{Search, SearchSettings, Step, TrialEvidence, Why};
use common::plan::{Extent, Process};
use common::seed::Seed;
use common::slo::{SloSet, Target};
use serde_json::Value;

use super::PlannedTrial;
use crate::report::{TrialReport, standing};

/// The search that a run was, by its record; none when it was another sweep, and none under other objectives than its own:
/// those were not asked when it chose its rates, and what it ended early was hopeless only for its own.
#[must_use]
pub fn of_record(record: &Value, slos: &SloSet, target: Target) -> Option<Search> {
    let plan = &record["plan"];
    let own = serde_json::to_value(slos).is_ok_and(|slos| slos == plan["slos"]);
    if !own || plan["slo_target"].as_f64() != Some(target.share()) {
        return None;
    }
    let settings: SearchSettings = serde_json::from_value(plan["search"].clone()).ok()?;
    let process: Process = serde_json::from_value(plan["arrival"].clone()).ok()?;
    let duration = || plan["duration_seconds"].as_f64().map(common::ids::Nanos::from_secs_f64);
    let extent = match plan["requests"].as_u64() {
        Some(requests) => Extent::Requests(requests),
        None => Extent::Duration(duration()?),
    };
    Some(Search { settings, target, process, extent })
}

/// What the machine takes from the trials of a run: from those that count, in the order of sending.
#[must_use]
pub fn evidence(trials: &[TrialReport]) -> Vec<TrialEvidence> {
    let of = |t: &TrialReport| Some(TrialEvidence::of(t.rate.per_second()?, &t.summary, t.cut));
    standing(trials).filter_map(of).collect()
}

/// The next trial of a search, numbered `trial`, and why; none when the search is over. Its seed is that of its repeat,
/// as in every sweep: the same for every rate.
#[must_use]
pub fn planned(step: Step, trial: TrialId, seed: Seed) -> Option<(PlannedTrial, Why)> {
    let Step::Trial { rate, repeat, why } = step else { return None };
    let seed = super::seed_of_repeat(seed, repeat);
    Some((PlannedTrial { trial, rate, repeat, seed, rerun_of: None }, why))
}
