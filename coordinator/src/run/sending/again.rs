//! A trial in which an agent was lost is sent again, by the agents that are left.
//!
//! Patching a trial in mid-flight is where numbers go wrong, and trials are short. What was lost stays on record as an
//! invalid trial; the schedule of the next try is the same, whoever sends it. It must never take an agent back into a
//! run that has begun: the split is over names.
//!
//! The same holds for a run that is resumed: [`left`] says what of the plan is still to be sent.

use std::collections::{BTreeMap, VecDeque};

use anyhow::bail;
use common::ids::{AgentName, TrialId};

use super::Sending;
use crate::kept::KeptTrial;
use crate::sweep::PlannedTrial;

/// Times that a trial is sent again.
const MOST_RERUNS: u32 = 2;

impl Sending<'_, '_> {
    /// The same trial for the agents that are left. The schedule is the same for any number of them.
    pub(super) fn again(
        &mut self,
        planned: PlannedTrial,
        reruns: u32,
        lost: &BTreeMap<AgentName, String>,
        sealed: bool,
    ) -> anyhow::Result<PlannedTrial> {
        // One that failed or was late in this trial and is still there goes on.
        let members = self.means.fleet.registry().members();
        let gone = told(lost, |agent| members.contains_key(agent));
        self.agents.retain(|agent| !lost.contains_key(agent) || members.contains_key(agent));
        if self.agents.is_empty() {
            bail!("{gone}; no agent is left, and the run ends here");
        }
        if reruns >= MOST_RERUNS {
            bail!("{gone}; trial {} was sent {} times, and the run ends here", planned.trial, reruns + 1);
        }
        let left = self.agents.len();
        self.means.ui.note(&format!("{gone}; the trial is sent again by the {left} left"));
        if !sealed {
            return Ok(planned);
        }
        let number = unused(&self.plan.trials, &self.kept.trials);
        Ok(PlannedTrial { trial: number, rerun_of: Some(planned.trial), ..planned })
    }

    /// Agents that are to send and are no members any more.
    pub(super) fn gone(&self, reason: &str) -> BTreeMap<AgentName, String> {
        let members = self.means.fleet.registry().members();
        let gone = self.agents.iter().filter(|agent| !members.contains_key(*agent));
        gone.map(|agent| (agent.clone(), reason.to_owned())).collect()
    }
}

/// What became of agents, for a person.
fn told(lost: &BTreeMap<AgentName, String>, is_there: impl Fn(&AgentName) -> bool) -> String {
    let one = |(agent, why): (&AgentName, &String)| match is_there(agent) {
        true => format!("agent {agent}: {why}"),
        false => format!("agent {agent} is lost ({why})"),
    };
    lost.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The trials that are still to be sent: those that never were, and those whose last try was disturbed. Each with the
/// number of times that it was sent again, which begins anew.
pub(super) fn left(planned: &[PlannedTrial], sealed: &[KeptTrial]) -> VecDeque<(PlannedTrial, u32)> {
    let mut number = unused(planned, sealed).0;
    let mut left = VecDeque::new();
    for trial in planned {
        match last_try(trial.trial, sealed) {
            None => left.push_back((*trial, 0)),
            Some(last) if last.findings.is_empty() => {}
            Some(last) => {
                let again =
                    PlannedTrial { trial: TrialId(number), rerun_of: Some(last.planned.trial), ..*trial };
                number += 1;
                left.push_back((again, 0));
            }
        }
    }
    left
}

/// The last of the tries of a planned trial.
fn last_try(trial: TrialId, sealed: &[KeptTrial]) -> Option<&KeptTrial> {
    let mut last = sealed.iter().find(|t| t.planned.trial == trial);
    while let Some(again) =
        last.and_then(|l| sealed.iter().find(|t| t.planned.rerun_of == Some(l.planned.trial)))
    {
        last = Some(again);
    }
    last
}

/// A number that no trial of the run has.
fn unused(planned: &[PlannedTrial], sealed: &[KeptTrial]) -> TrialId {
    let numbers = planned.iter().map(|t| t.trial).chain(sealed.iter().map(|t| t.planned.trial));
    TrialId(numbers.map(|t| t.0 + 1).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use common::ids::{Digest, Epoch};
    use common::seed::Seed;
    use common::validity::{Reason, ReasonKind};

    use super::*;

    fn planned(number: u32, rerun_of: Option<u32>) -> PlannedTrial {
        PlannedTrial {
            trial: TrialId(number),
            rate: "4".parse().unwrap(),
            repeat: number % 10,
            seed: Seed(u64::from(number % 10)),
            rerun_of: rerun_of.map(TrialId),
        }
    }

    fn sealed(number: u32, rerun_of: Option<u32>, disturbed: bool) -> KeptTrial {
        let finding = Reason::new(ReasonKind::CoordinatorRestarted, "it was lost");
        KeptTrial {
            planned: planned(number, rerun_of),
            epoch: Epoch(number + 1),
            scheduled: 1,
            schedule_sha256: Digest([0; 32]),
            workload_sha256: Digest([0; 32]),
            agents: Vec::new(),
            findings: disturbed.then_some(finding).into_iter().collect(),
            start: None,
        }
    }

    fn numbers(left: &VecDeque<(PlannedTrial, u32)>) -> Vec<(u32, Option<u32>)> {
        left.iter().map(|(t, _)| (t.trial.0, t.rerun_of.map(|t| t.0))).collect()
    }

    #[test]
    fn what_was_not_sent_and_what_was_disturbed_is_left() {
        let plan = [0, 1, 2, 3].map(|n| planned(n, None));
        assert_eq!(numbers(&left(&plan, &[])), [(0, None), (1, None), (2, None), (3, None)]);
        let done = [sealed(0, None, false), sealed(1, None, true)];
        let left = left(&plan, &done);
        assert_eq!(numbers(&left), [(4, Some(1)), (2, None), (3, None)]);
        // The same schedule.
        assert_eq!((left[0].0.seed, left[0].0.rate), (plan[1].seed, plan[1].rate));
    }

    #[test]
    fn the_last_try_decides_and_its_number_is_followed() {
        let plan = [0, 1].map(|n| planned(n, None));
        let first = [sealed(0, None, true), sealed(2, Some(0), true)];
        assert_eq!(numbers(&left(&plan, &first)), [(3, Some(2)), (1, None)]);
        let then = [first.as_slice(), &[sealed(3, Some(2), false), sealed(1, None, false)]].concat();
        assert!(left(&plan, &then).is_empty());
    }

    #[test]
    fn two_that_are_sent_again_get_numbers_of_their_own() {
        let plan = [0, 1].map(|n| planned(n, None));
        let done = [sealed(0, None, true), sealed(1, None, true)];
        assert_eq!(numbers(&left(&plan, &done)), [(2, Some(0)), (3, Some(1))]);
    }
}
