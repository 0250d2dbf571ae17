//! The run service: carries out a plan, from the first agent that joins to the report.
//!
//! `coordinator sweep` and `coordinator run` are clients of it. It owns the order of things: nothing is stored before
//! the engine has answered, nothing is sent before it is written down, nothing is computed before the books are
//! closed.
//!
//! `prepare` gathers the agents and tries the engine, `suits` says whether the engine can do what is asked, `headroom`
//! whether the agents can; `sending` sends the trials and reports.

mod beside;
mod engine;
mod headroom;
mod prepare;
mod sending;
mod suits;

use std::path::PathBuf;
use std::sync::Arc;

use common::clock::Clock;
use common::ids::RunId;

use crate::fleet::{Fleet, ToAgent};
use crate::kept::KeptCommand;
use crate::plan::Plan;
use crate::record::record;
use crate::report::{Report, TrialReport};
use crate::rpc::Shared;
use crate::store::Store;
use crate::sweep::PlannedTrial;
use crate::trial::drive::{StopLevel, Watch};
pub use beside::{Captured, capture, export_series};
pub use prepare::{Gathered, Gathering, gather};
pub use sending::Opened;
use sending::Sending;

/// Who is told something now and then.
pub trait Note {
    /// Something to know.
    fn note(&mut self, text: &str);
}

/// What somebody who watches a run is told.
pub trait Ui: Watch + Note {
    /// A trial begins.
    fn trial_begins(&mut self, trial: &PlannedTrial, of: usize, plan: &Plan, arrivals: u64);
    /// A trial is sealed and analysed.
    fn trial_ended(&mut self, report: &TrialReport);
    /// Trials of a run that goes on were over before.
    fn was_before(&mut self, trials: &[TrialReport]) {
        let _ = trials;
    }
}

/// What a run leaves.
pub struct RunOutcome {
    /// The report; none when it ended before the first trial did.
    pub report: Option<Report>,
    /// Files written.
    pub files: Vec<PathBuf>,
    /// The operator ended it early.
    pub interrupted: bool,
    /// Why it ended before its last trial.
    pub error: Option<anyhow::Error>,
}

/// What a run works with.
pub struct Means<'a> {
    /// The fleet.
    pub fleet: Fleet,
    /// The services.
    pub shared: Arc<Shared>,
    /// The store.
    pub store: Store,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The operator's wishes.
    pub stop: StopLevel,
    /// Who watches.
    pub ui: &'a mut dyn Ui,
}

/// Agents and engine, and whether they suit what is planned. None when the operator stopped it.
async fn prepare(plan: &mut Plan, means: &mut Means<'_>) -> anyhow::Result<Option<Gathered>> {
    let row = plan.workload.first_row();
    let with =
        Gathering { fleet: &mut means.fleet, clock: &*means.clock, stop: means.stop.clone(), ui: means.ui };
    let gathered = gather(&plan.fleet, &plan.engine, &mut plan.target, &row, with).await?;
    if let Some(Gathered { probe, .. }) = &gathered {
        suits::check(plan, probe.as_ref())?.iter().for_each(|note| means.ui.note(note));
        let senders = means.fleet.registry().senders();
        let agents: Vec<_> = senders.map(|(n, m)| (n.clone(), m.introduction.calibration.clone())).collect();
        headroom::check(plan, &agents)?.iter().for_each(|note| means.ui.note(note));
    }
    Ok(gathered)
}

/// Goes on with a run whose coordinator was lost, or that was ended early: closes the trial that was under way, and sends
/// what is left. What keeps it from going on is in the outcome, beside what was measured before.
pub async fn resume(run: Opened, command_line: &[String], mut means: Means<'_>) -> RunOutcome {
    let mut sending = Sending::new(run, &mut means);
    let ended = sending.go_on(command_line).await;
    sending.finish(ended).await
}

/// Waits for the agents, tries the engine, sends every trial and writes the report. The command is kept for `resume`.
///
/// # Errors
/// When it fails before the first trial; later errors are in the outcome, beside what was measured.
pub async fn run(
    mut plan: Plan,
    run: RunId,
    (command, command_line): (KeptCommand, &[String]),
    mut means: Means<'_>,
) -> anyhow::Result<RunOutcome> {
    let prepared = prepare(&mut plan, &mut means).await;
    if let Err(e) = &prepared {
        // The first line: what may follow are the engine's own words, which do not belong in an agent's log.
        let reason = e.to_string().lines().next().unwrap_or_default().to_owned();
        means.fleet.tell_all(&ToAgent::Goodbye(format!("the run ends: {reason}")));
    }
    let Some(gathered) = prepared? else {
        means.fleet.tell_all(&ToAgent::Goodbye("stopped by the operator".into()));
        let files = Vec::new();
        return Ok(RunOutcome { report: None, files, interrupted: true, error: None });
    };
    let record = record(&plan, &gathered, command_line);
    match Opened::begin(plan, run, record, command, &means) {
        Ok(run) => {
            let mut sending = Sending::new(run, &mut means);
            sending.take_up(gathered);
            let ended = sending.every_trial().await;
            Ok(sending.finish(ended).await)
        }
        Err(e) => {
            means.fleet.tell_all(&ToAgent::Goodbye("the run cannot begin".into()));
            Err(e)
        }
    }
}
