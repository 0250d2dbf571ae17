//! A search among the trials of a run: after each trial the machine is asked for the next, instead of a list.
//!
//! What it says follows from the sealed trials alone, so a run that goes on asks with those that are there. It must
//! never keep a state of its own.

use common::knee::search::{Ended, Step, Why};

use super::again::{Left, unused};
use super::{Opened, Sending};
use crate::sweep::search::{evidence, planned};

impl Opened {
    /// Of a search: the trials that were asked for are those that were sent, so that what was disturbed is sent again.
    pub(super) fn take_up_search(&mut self) {
        if self.plan.search.is_some() {
            let sent = self.kept.trials.iter().map(|trial| trial.planned);
            self.plan.trials = sent.filter(|planned| planned.rerun_of.is_none()).collect();
        }
    }

    /// What the search asks for next; none where the rates were given.
    pub(super) fn next_step(&self) -> Option<Step> {
        Some(self.plan.search()?.next(&evidence(&self.trials)))
    }

    /// Whether the rates were given, or the search has ended.
    pub(super) fn asks_for_nothing(&self) -> bool {
        !matches!(self.next_step(), Some(Step::Trial { .. }))
    }
}

impl Sending<'_, '_> {
    /// The next trial of a search; none when it is over, or the rates were given.
    pub(super) fn searched(&mut self) -> Option<Left> {
        let step = self.run.next_step()?;
        if let Step::End(ended) = step {
            self.means.ui.note(&format!("search       over: {}", over(ended)));
            return None;
        }
        let number = unused(&self.run.plan.trials, &self.run.kept.trials);
        let (planned, why) = planned(step, number, self.run.plan.seed)?;
        self.means.ui.note(&format!("search       next {}/s: {}", planned.rate, because(why)));
        self.run.plan.trials.push(planned);
        Some(Left::new(planned))
    }
}

fn because(why: Why) -> &'static str {
    match why {
        Why::Doubling => "no rate has failed yet",
        Why::Halving => "between one that passes and one that fails",
        Why::Unclear => "its trials so far do not tell",
        Why::Confirmation => "an end of the bracket, until it is decided",
    }
}

fn over(ended: Ended) -> &'static str {
    match ended {
        Ended::Narrow => "the bracket is as narrow as was asked for",
        Ended::HighestPasses => "the highest rate passes",
        Ended::LowestFails => "the lowest rate fails",
        Ended::Budget => "another trial would end after the budget",
        Ended::Undecided => "no rate that may still be tried would narrow the bracket",
        Ended::Early => "it was ended early",
    }
}
