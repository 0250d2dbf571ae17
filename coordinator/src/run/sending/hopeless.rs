//! A trial of a search that cannot pass any more is ended early: its traces are looked at while it is sent.
//!
//! At fixed points of the schedule only, so that looking costs little beside the agents, and by what has arrived: what is
//! still in flight is taken for good. It must never end a trial of a plan whose rates were given.

use std::collections::BTreeMap;

use common::fleet::Progress;
use common::ids::{AgentName, Epoch, Nanos, TrialId};
use common::knee::search::{CUT_LOOKS, Cut, Search};
use common::metrics::RequestMetrics;
use common::slo::SloSet;
use common::trace::{Facts, FailureKind, Outline};

use super::Sending;
use crate::plan::Plan;
use crate::run::Ui;
use crate::store::RunStore;
use crate::sweep::PlannedTrial;
use crate::trial::drive::{Standing, Watch};
use crate::trial::seal::SealError;

/// What agents are told begins so, and so do the traces of what was not sent for that reason.
const CUT_WORD: &str = "the search ends the trial";

/// A trial that may be ended.
struct Looks {
    store: RunStore,
    trial: TrialId,
    epoch: Epoch,
    planned: u64,
    length: Nanos,
    slos: SloSet,
    search: Search,
    taken: usize,
}

impl Looks {
    /// None where it may not be ended: only a search ends trials, and only where what is stored tells what is good.
    fn of(
        plan: &Plan,
        store: &RunStore,
        planned: &PlannedTrial,
        epoch: Epoch,
        arrivals: u64,
    ) -> Option<Self> {
        let search = plan.search().filter(|_| plan.tokenizer.is_none())?;
        Some(Self {
            store: store.clone(),
            trial: planned.trial,
            epoch,
            planned: arrivals,
            length: plan.arrivals(planned.rate).length()?,
            slos: plan.slos.clone(),
            search,
            taken: 0,
        })
    }

    fn look(&mut self, since_start: Nanos) -> Option<String> {
        let share = since_start.as_secs_f64() / self.length.as_secs_f64();
        let due = CUT_LOOKS.iter().filter(|at| share >= **at).count();
        // After the schedule there is nothing to leave away.
        if due <= self.taken || share >= 1.0 {
            return None;
        }
        self.taken = due;
        // What cannot be read now is read when the trial is over, and its error is told there.
        let missed = crate::aside::here(|| self.missed()).ok()?;
        let planned = self.planned;
        self.search
            .is_hopeless(missed, planned)
            .then(|| format!("{CUT_WORD}: {missed} of {planned} requests missed already"))
    }

    fn missed(&self) -> Result<u64, SealError> {
        let mut missed = 0;
        each_trace(&self.store, self.trial, self.epoch, |outline, facts| {
            let losses = RequestMetrics::of_outline(outline, facts).losses(facts, &self.slos);
            missed += u64::from(!losses.is_good());
        })?;
        Ok(missed)
    }
}

/// Tells `take` of each trace that is stored of a trial, whether it is sealed or not.
fn each_trace(
    store: &RunStore,
    trial: TrialId,
    epoch: Epoch,
    mut take: impl FnMut(Outline, &Facts),
) -> Result<(), SealError> {
    for block in store.trial_blocks(trial, epoch)? {
        let block = block?;
        let facts = block.facts()?;
        let mut facts = facts.iter();
        block.outlines(|outline, _| {
            if let Some(facts) = facts.next() {
                take(outline, facts);
            }
        })?;
    }
    Ok(())
}

/// Who watches a trial, and looks whether it is hopeless.
pub(super) struct Looking<'u> {
    ui: &'u mut dyn Ui,
    looks: Option<Looks>,
}

impl<'u> Looking<'u> {
    pub(super) fn at(
        ui: &'u mut dyn Ui,
        plan: &Plan,
        store: &RunStore,
        (planned, epoch, arrivals): (&PlannedTrial, Epoch, u64),
    ) -> Self {
        Self { ui, looks: Looks::of(plan, store, planned, epoch, arrivals) }
    }
}

impl Watch for Looking<'_> {
    fn ready(&mut self, warnings: &[String]) {
        self.ui.ready(warnings);
    }

    fn starting(&mut self, lead: Nanos) {
        self.ui.starting(lead);
    }

    fn stands(&mut self, agent: &AgentName, standing: &Standing) {
        self.ui.stands(agent, standing);
    }

    fn lost(&mut self, agent: &AgentName, reason: &str) {
        self.ui.lost(agent, reason);
    }

    fn hopeless(&mut self, since_start: Nanos) -> Option<String> {
        let why = self.looks.as_mut()?.look(since_start)?;
        // It is said once.
        self.looks = None;
        self.ui.note(&format!("search       {why}"));
        Some(why)
    }

    fn progress(&mut self, since_start: Nanos, fleet: &BTreeMap<AgentName, Progress>) {
        self.ui.progress(since_start, fleet);
    }
}

impl Sending<'_, '_> {
    /// How much of a trial that was ended counts: the arrivals before the first that was not sent for that reason, with
    /// their number. None when all had been sent by then.
    pub(super) fn cut_of(
        &self,
        trial: TrialId,
        epoch: Epoch,
        planned: u64,
    ) -> Result<Option<(u64, Cut)>, SealError> {
        crate::aside::here(|| {
            let mut first: Option<(u64, Nanos)> = None;
            each_trace(&self.run.store, trial, epoch, |outline, facts| {
                if was_cut(facts) && first.is_none_or(|(index, _)| facts.index.0 < index) {
                    first = Some((facts.index.0, outline.scheduled));
                }
            })?;
            Ok(first.map(|(index, at)| (index, Cut { planned, length_seconds: at.as_secs_f64() })))
        })
    }
}

fn was_cut(facts: &Facts) -> bool {
    let unsent = facts.outcome.failure().filter(|f| f.kind == FailureKind::NotDispatched);
    unsent.is_some_and(|failure| failure.message.starts_with(CUT_WORD))
}
