//! What a run leaves behind: a table and `report.html` for a person, `report.json` and `traces.jsonl` for programs.
//!
//! Owns the form of the four, and nothing else: every number is computed in `common`, and whoever calls this says
//! where the bytes go. `docs/report.md` describes each field; a test here holds the two together. It must never show
//! a number without the validity of its trial beside it, and never show what is undefined as 0.

mod beside;
mod energy;
mod evidence;
pub mod html;
mod json;
mod notes;
mod replicas;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod traces;

pub use beside::render_window;
pub use energy::{Energy, RateEnergy};
pub use json::{SCHEMA_VERSION, to_json, to_value};
pub use table::render_table;
pub use traces::{TraceRow, write_trace, write_traces};

use common::ids::{Digest, RunId, TrialId};
use common::knee::search::{Cut, SearchResult};
use common::knee::{Knee, RateResult, TrialRef, pool_rates};
use common::plan::OfferedRate;
use common::seed::Seed;
use common::slo::{SloSet, Target};
use common::summary::TrialSummary;
use serde::Serialize;

use crate::sweep::search;
use crate::telemetry::TrialTelemetry;

/// Everything that a report shows. Make one with [`Report::new`], which pools the rates and finds the knee.
#[derive(Debug, Clone)]
pub struct Report {
    /// The run.
    pub run_id: RunId,
    /// The experiment record: an object. The digests of each trial are added to it when it is written.
    pub experiment: serde_json::Value,
    /// The objectives.
    pub slos: SloSet,
    /// The share of requests that has to be good.
    pub target: Target,
    /// The trials, in the order in which they were sent.
    pub trials: Vec<TrialReport>,
    /// The trials pooled by rate, lowest first.
    pub rates: Vec<RateResult>,
    /// The knee.
    pub knee: Knee,
    /// What the search found, where the rates were searched for.
    pub search: Option<SearchResult>,
}

/// One trial of a report.
#[derive(Debug, Clone, Serialize)]
pub struct TrialReport {
    /// Its number within the run, from 0, in the order in which the trials were sent.
    pub trial: TrialId,
    /// The configured rate; in JSON the text that was given, as `rates[].offered_rate` has it.
    #[serde(rename = "offered_rate", serialize_with = "as_text")]
    pub rate: OfferedRate,
    /// Which repeat of the rate, from 0.
    pub repeat: u32,
    /// The trial that it was sent again for, because an agent was lost in that.
    pub rerun_of: Option<TrialId>,
    /// The trial's seed.
    pub seed: Seed,
    /// Digest of the schedule.
    pub schedule_sha256: Digest,
    /// Digest of the workload file.
    pub workload_sha256: Digest,
    /// How much of its schedule the search left away, because the rate could not pass any more; none of a whole trial.
    pub cut: Option<Cut>,
    /// Its numbers.
    pub summary: TrialSummary,
    /// What was recorded beside it; none when nothing was.
    pub telemetry: Option<TrialTelemetry>,
}

impl Report {
    /// A report on `trials`.
    #[must_use]
    pub fn new(
        run_id: RunId,
        experiment: serde_json::Value,
        slos: SloSet,
        target: Target,
        trials: Vec<TrialReport>,
    ) -> Self {
        let rates =
            pool_rates(trials.iter().map(|t| TrialRef { rate: t.rate, summary: &t.summary, cut: t.cut }));
        let knee = Knee::find(&rates, &slos, target);
        let search = search::of_record(&experiment, &slos, target);
        let search = search.map(|search| search.result(&search::evidence(&trials), &slos));
        Self { run_id, experiment, slos, target, trials, rates, knee, search }
    }

    /// The trials that count for the run as a whole: those that were not sent again.
    pub fn standing(&self) -> impl Iterator<Item = &TrialReport> {
        standing(&self.trials)
    }

    /// What the engine's GPUs took at each rate; none when no GPU was recorded.
    #[must_use]
    pub fn energy(&self) -> Option<Energy> {
        Energy::of(&self.trials, &self.rates, &self.slos, self.target)
    }
}

/// The trials among `trials` that were not sent again.
pub fn standing(trials: &[TrialReport]) -> impl Iterator<Item = &TrialReport> {
    let again = |trial: TrialId| trials.iter().any(|t| t.rerun_of == Some(trial));
    trials.iter().filter(move |t| !again(t.trial))
}

fn as_text<S: serde::Serializer>(rate: &OfferedRate, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(rate)
}
