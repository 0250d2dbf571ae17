//! Somebody who watches a run, with the live view told of everything, too.

use std::collections::BTreeMap;

use common::fleet::Progress;
use common::ids::{AgentName, Nanos};

use super::hub::Hub;
use crate::plan::Plan;
use crate::report::TrialReport;
use crate::run::{Note, Ui};
use crate::sweep::PlannedTrial;
use crate::trial::drive::{Standing, Watch};

/// Tells the hub, and then who watched before.
pub struct Observer<U> {
    hub: Hub,
    /// Who watched before.
    pub ui: U,
}

impl<U: Ui> Observer<U> {
    /// Of a hub and somebody who watches.
    pub fn new(hub: Hub, ui: U) -> Self {
        Self { hub, ui }
    }
}

impl<U: Ui> Watch for Observer<U> {
    fn ready(&mut self, warnings: &[String]) {
        self.hub.tell(|model, now| warnings.iter().for_each(|w| model.warn(w, now)));
        self.ui.ready(warnings);
    }

    fn starting(&mut self, lead: Nanos) {
        self.hub.tell(|model, now| model.starting(lead, now));
        self.ui.starting(lead);
    }

    fn stands(&mut self, agent: &AgentName, standing: &Standing) {
        self.hub.tell(|model, _| model.stands(agent, standing));
        self.ui.stands(agent, standing);
    }

    fn lost(&mut self, agent: &AgentName, reason: &str) {
        self.hub.tell(|model, now| model.lost(agent, reason, now));
        self.ui.lost(agent, reason);
    }

    fn progress(&mut self, since_start: Nanos, fleet: &BTreeMap<AgentName, Progress>) {
        self.hub.tell(|model, now| model.progress(fleet, now));
        self.ui.progress(since_start, fleet);
    }
}

impl<U: Ui> Note for Observer<U> {
    fn note(&mut self, text: &str) {
        self.hub.tell(|model, now| model.note(text, now));
        self.ui.note(text);
    }
}

impl<U: Ui> Ui for Observer<U> {
    fn trial_begins(&mut self, trial: &PlannedTrial, of: usize, plan: &Plan, arrivals: u64) {
        self.hub.tell(|model, now| model.trial_begins(trial, plan, arrivals, now));
        self.ui.trial_begins(trial, of, plan, arrivals);
    }

    fn trial_ended(&mut self, report: &TrialReport) {
        self.hub.tell(|model, now| model.trial_ended(report, now));
        self.ui.trial_ended(report);
    }

    fn was_before(&mut self, trials: &[TrialReport]) {
        self.hub.tell(|model, _| trials.iter().for_each(|t| model.was_before(t)));
        self.ui.was_before(trials);
    }
}
