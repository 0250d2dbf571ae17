//! A trial in which an agent was lost is sent again, by the agents that are left.
//!
//! Patching a trial in mid-flight is where numbers go wrong, and trials are short. What was lost stays on record as an
//! invalid trial; the schedule of the next try is the same, whoever sends it. It must never take an agent back into a
//! run that has begun: the split is over names.

use std::collections::BTreeMap;

use anyhow::bail;
use common::ids::{AgentName, TrialId};

use super::Sending;
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
        let gone: Vec<String> =
            lost.iter().map(|(agent, why)| format!("agent {agent} is lost ({why})")).collect();
        let gone = gone.join("; ");
        self.agents.retain(|agent| !lost.contains_key(agent));
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
        self.numbers_used += 1;
        let number = TrialId(self.plan.trials.len() as u32 + self.numbers_used - 1);
        Ok(PlannedTrial { trial: number, rerun_of: Some(planned.trial), ..planned })
    }

    /// Agents that are to send and are no members any more.
    pub(super) fn gone(&self, reason: &str) -> BTreeMap<AgentName, String> {
        let members = self.means.fleet.registry().members();
        let gone = self.agents.iter().filter(|agent| !members.contains_key(*agent));
        gone.map(|agent| (agent.clone(), reason.to_owned())).collect()
    }
}
