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
use common::knee::{FailureShare, failures_exceed};
use common::summary::TrialSummary;
use common::validity::ReasonKind;

use super::Sending;
use crate::kept::KeptTrial;
use crate::sweep::PlannedTrial;

/// Times that a trial is sent again.
const MOST_RERUNS: u32 = 2;

/// A trial of the plan that is still to be sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Left {
    /// As the plan has it.
    pub(super) planned: PlannedTrial,
    /// The last try, where one was sealed: what is sent gets a number of its own.
    last: Option<TrialId>,
    /// Times that it was sent again, counted from when the program was started.
    reruns: u32,
}

impl Left {
    /// One that was never sent.
    pub(super) fn new(planned: PlannedTrial) -> Self {
        Self { planned, last: None, reruns: 0 }
    }

    /// What is sent now. The number is chosen no earlier: another trial may have been sent again meanwhile.
    pub(super) fn numbered(&self, planned: &[PlannedTrial], sealed: &[KeptTrial]) -> PlannedTrial {
        match self.last {
            None => self.planned,
            Some(last) => {
                PlannedTrial { trial: unused(planned, sealed), rerun_of: Some(last), ..self.planned }
            }
        }
    }
}

impl Sending<'_, '_> {
    /// The same trial, sent last as `sent`, for the agents that are left. The schedule is the same for any number of
    /// them.
    pub(super) fn again(
        &mut self,
        left: Left,
        sent: TrialId,
        lost: &BTreeMap<AgentName, String>,
        sealed: bool,
    ) -> anyhow::Result<Left> {
        // One that failed or was late in this trial and is still there goes on.
        let members = self.means.fleet.registry().members();
        let gone = told(lost, |agent| members.contains_key(agent));
        self.agents.retain(|agent| !lost.contains_key(agent) || members.contains_key(agent));
        let by = self.count_those_left(&gone)?;
        // One that was called off has been sent by nobody, and every time at least one agent fewer is left.
        let reruns = left.reruns + u32::from(sealed);
        if reruns > MOST_RERUNS {
            bail!("{gone}; trial {sent} was sent {reruns} times, and the run ends here");
        }
        self.means.ui.note(&format!("{gone}; the trial is sent again by the {by} left"));
        Ok(Left { last: if sealed { Some(sent) } else { left.last }, reruns, ..left })
    }

    fn count_those_left(&self, gone: &str) -> anyhow::Result<usize> {
        match self.agents.len() {
            0 => bail!("{gone}; no agent is left, and the run ends here"),
            left => Ok(left),
        }
    }

    /// Agents may be lost between two trials, too: the next one is for those that are there.
    ///
    /// # Errors
    /// When nobody is.
    pub(super) fn leave_out_who_is_gone(&mut self) -> anyhow::Result<()> {
        let gone = told(&self.gone("it is not heard of any more"), |_| false);
        if !gone.is_empty() {
            let members = self.means.fleet.registry().members();
            self.agents.retain(|agent| members.contains_key(agent));
            let left = self.count_those_left(&gone)?;
            self.means.ui.note(&format!("{gone}; the {left} left go on"));
        }
        Ok(())
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

/// The trials that are still to be sent: those that never were, and those whose last try was disturbed. How often one is
/// sent again begins anew.
pub(super) fn left(planned: &[PlannedTrial], sealed: &[KeptTrial]) -> VecDeque<Left> {
    let left = planned.iter().filter_map(|trial| {
        let last = last_try(trial.trial, sealed);
        let stands = last.is_some_and(|last| !is_disturbed(last));
        let last = last.map(|last| last.planned.trial);
        (!stands).then_some(Left { planned: *trial, last, reruns: 0 })
    });
    left.collect()
}

/// The first trial, of those that count, of which more than this share of the requests failed.
pub(super) fn failed_too_much<'t>(
    share: FailureShare,
    tries: impl IntoIterator<Item = (&'t KeptTrial, &'t TrialSummary)>,
) -> Option<TrialId> {
    let mut stand = tries.into_iter().filter(|(trial, _)| !is_disturbed(trial));
    stand.find(|(_, summary)| failures_exceed(summary, share)).map(|(trial, _)| trial.planned.trial)
}

/// Whether a trial is to be sent again: an agent, the coordinator or the engine was lost in it, or it was ended early.
/// What else is wrong with it would be so again.
fn is_disturbed(trial: &KeptTrial) -> bool {
    use ReasonKind::{CoordinatorRestarted, EngineDied, GeneratorFailure, Interrupted};
    let of_all = |kind| matches!(kind, CoordinatorRestarted | EngineDied | GeneratorFailure | Interrupted);
    trial.agents.iter().any(|agent| agent.lost) || trial.findings.iter().any(|f| of_all(f.kind))
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
pub(super) fn unused(planned: &[PlannedTrial], sealed: &[KeptTrial]) -> TrialId {
    let numbers = planned.iter().map(|t| t.trial).chain(sealed.iter().map(|t| t.planned.trial));
    TrialId(numbers.map(|t| t.0 + 1).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use common::ids::{Digest, Epoch};
    use common::seed::Seed;
    use common::validity::Reason;

    use super::*;
    use crate::kept::KeptAgent;

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
            cut: None,
            start: None,
            boot: 0,
            gaps: None,
        }
    }

    /// What is sent of a queue, where each trial is sealed undisturbed, but the `lost` ones, of which an agent is lost
    /// once.
    fn numbers(mut queue: VecDeque<Left>, done: &[KeptTrial], lost: &[u32]) -> Vec<(u32, Option<u32>)> {
        let plan = [0, 1, 2, 3].map(|n| planned(n, None));
        let (mut done, mut sent, mut lost) = (done.to_vec(), Vec::new(), lost.to_vec());
        while let Some(left) = queue.pop_front() {
            let trial = left.numbered(&plan, &done);
            let number = trial.trial.0;
            sent.push((number, trial.rerun_of.map(|t| t.0)));
            let disturbed = lost.iter().position(|n| *n == number).map(|at| lost.remove(at)).is_some();
            done.push(sealed(number, trial.rerun_of.map(|t| t.0), disturbed));
            if disturbed {
                queue.push_front(Left { last: Some(trial.trial), ..left });
            }
        }
        sent
    }

    #[test]
    fn what_was_not_sent_and_what_was_disturbed_is_left() {
        let plan = [0, 1, 2, 3].map(|n| planned(n, None));
        assert_eq!(numbers(left(&plan, &[]), &[], &[]), [(0, None), (1, None), (2, None), (3, None)]);
        let done = [sealed(0, None, false), sealed(1, None, true)];
        let left = left(&plan, &done);
        // The same schedule.
        let again = left[0].numbered(&plan, &done);
        assert_eq!((again.seed, again.rate), (plan[1].seed, plan[1].rate));
        assert_eq!(numbers(left, &done, &[]), [(4, Some(1)), (2, None), (3, None)]);
    }

    #[test]
    fn the_last_try_decides_and_its_number_is_followed() {
        let plan = [0, 1, 2, 3].map(|n| planned(n, None));
        let first = [sealed(0, None, true), sealed(4, Some(0), true), sealed(2, None, false)];
        assert_eq!(numbers(left(&plan, &first), &first, &[]), [(5, Some(4)), (1, None), (3, None)]);
        let more = [sealed(5, Some(4), false), sealed(1, None, false), sealed(3, None, false)];
        assert!(left(&plan, &[first.as_slice(), &more].concat()).is_empty());
    }

    #[test]
    fn two_that_are_sent_again_get_numbers_of_their_own() {
        let plan = [0, 1, 2, 3].map(|n| planned(n, None));
        let done = [0, 1, 2, 3].map(|n| sealed(n, None, n < 2));
        assert_eq!(numbers(left(&plan, &done), &done, &[]), [(4, Some(0)), (5, Some(1))]);
    }

    #[test]
    fn an_agent_lost_while_others_wait_to_be_sent_again_takes_no_number_of_theirs() {
        let plan = [0, 1, 2, 3].map(|n| planned(n, None));
        let done = [0, 1, 2, 3].map(|n| sealed(n, None, n < 2));
        let sent = numbers(left(&plan, &done), &done, &[4]);
        assert_eq!(sent, [(4, Some(0)), (5, Some(4)), (6, Some(1))]);
    }

    #[test]
    fn what_only_lacks_traces_is_not_sent_again_and_who_lost_an_agent_is() {
        let plan = [0, 1, 2, 3].map(|n| planned(n, None));
        let mut done = [0, 1, 2, 3].map(|n| sealed(n, None, false));
        let lacking =
            Reason::of_agent(ReasonKind::AgentLost, &"a".parse().unwrap(), "its spool lost 3 traces");
        done.iter_mut().take(2).for_each(|t| t.findings = vec![lacking.clone()]);
        done[1].agents = vec![KeptAgent { lost: true, ..KeptAgent::unknown("a".parse().unwrap()) }];
        assert_eq!(numbers(left(&plan, &done), &done, &[]), [(4, Some(1))]);
    }

    #[test]
    fn too_many_failures_are_remembered_but_not_those_of_a_disturbed_trial() {
        let failing = [crate::report::tests::failed(0), crate::report::tests::failed(1)];
        let report = crate::report::tests::trial(0, "4", 0, &failing, &[]);
        let share: FailureShare = 0.5.try_into().unwrap();
        let of = |disturbed| {
            let trials = [sealed(0, None, disturbed)];
            failed_too_much(share, trials.iter().map(|t| (t, &report.summary)))
        };
        assert_eq!((of(false), of(true)), (Some(TrialId(0)), None));
    }
}
