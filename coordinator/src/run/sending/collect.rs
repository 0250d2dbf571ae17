//! Collecting what agents hold of a trial whose coordinator was lost.
//!
//! Each agent of the trial that is there says which processes of it left what, and delivers it. An agent is believed as
//! little as anywhere: what cannot be is refused, and one that cannot tell what it holds is not taken for one that holds
//! nothing. All of it has one deadline; what was delivered before it stays.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use common::fleet::{CollectOrder, CollectReport, Held};
use common::ids::{AgentName, Nanos, RunId};

use super::Sending;
use super::close::COLLECT_WITHIN;
use crate::fleet::{Change, FromAgent, ToAgent};
use crate::ingest::{IngestError, IngestHandle};
use crate::kept::KeptTrial;
use crate::trial::assignment::Assigned;
use crate::trial::seal::SYNTHETIC;

/// For agents to end what they have of a trial under way and to say what they hold. What is in flight is cut, so that
/// takes no longer than a disk does.
const SAY_WITHIN: Nanos = Nanos::from_secs(60);

/// What agents hold of a trial.
type AllHeld = BTreeMap<AgentName, Vec<Held>>;

/// What was heard while something was waited for.
enum Heard {
    Said(AgentName, CollectReport),
    Nothing,
    /// One of the agents that are asked is lost.
    Lost(AgentName, String),
    /// The operator wants an end.
    Stopped,
}

impl Sending<'_, '_> {
    /// Has the agents of a trial say what they hold of it, and waits until all of that is stored. Gives those that are
    /// there; none when the operator wants an end.
    pub(super) async fn collect(
        &mut self,
        open: &KeptTrial,
        assigned: &Assigned,
    ) -> anyhow::Result<Option<BTreeSet<AgentName>>> {
        let Some(held) = self.ask_what_is_held(open, assigned).await? else { return Ok(None) };
        let there = held.keys().cloned().collect();
        Ok(self.fetch(open, held).await?.then_some(there))
    }

    async fn ask_what_is_held(
        &mut self,
        open: &KeptTrial,
        assigned: &Assigned,
    ) -> anyhow::Result<Option<AllHeld>> {
        let order = self.order_to_collect(open);
        let means = &mut *self.means;
        let members = means.fleet.registry().members();
        let (here, absent): (Vec<_>, Vec<_>) =
            assigned.agents.keys().cloned().partition(|name| members.contains_key(name));
        for absent in absent {
            means.ui.note(&format!(
                "recover      agent {absent} is not there; what it holds cannot be collected"
            ));
        }
        here.iter().for_each(|agent| means.fleet.tell(agent, ToAgent::Collect(order.clone())));
        let mut waiting = BTreeSet::from_iter(here);
        let mut held = AllHeld::new();
        let deadline = means.clock.monotonic() + SAY_WITHIN;
        while !waiting.is_empty() {
            match self.hear(&order, &waiting).await? {
                Heard::Stopped => return Ok(None),
                Heard::Lost(agent, reason) => bail!(away(&agent, &reason)),
                Heard::Said(agent, report) if waiting.remove(&agent) => {
                    let slice = assigned.agents.get(&agent).map_or(0, |part| part.slice.len() as u64);
                    check(&report, slice).with_context(|| format!("agent {agent}"))?;
                    held.insert(agent, report.held);
                }
                _ => {}
            }
            if self.means.clock.monotonic() >= deadline && !waiting.is_empty() {
                bail!("{} did not say what they hold of the trial; see their logs", listed(&waiting));
            }
        }
        Ok(Some(held))
    }

    /// Waits until all that is held is stored. False when the operator wants an end.
    async fn fetch(&mut self, open: &KeptTrial, held: AllHeld) -> anyhow::Result<bool> {
        let order = self.order_to_collect(open);
        let (agents, ingest) = (held.keys().cloned().collect(), self.run.ingest.clone());
        let behind = {
            let ingest = ingest.clone();
            move |agent: &AgentName, h: &Held| ingest.mark(agent, h.incarnation) < h.next_seq
        };
        let arrived = arrived(ingest, held.clone());
        tokio::pin!(arrived);
        let deadline = self.means.clock.monotonic() + Nanos(COLLECT_WITHIN.as_nanos() as u64);
        loop {
            tokio::select! {
                stored = &mut arrived => return Ok(stored.map(|()| true)?),
                heard = self.hear(&order, &agents) => match heard? {
                    Heard::Stopped => return Ok(false),
                    // All that it holds may be here already.
                    Heard::Lost(agent, reason) if held[&agent].iter().any(|h| behind(&agent, h)) => {
                        bail!(away(&agent, &reason))
                    }
                    _ => {}
                },
            }
            if self.means.clock.monotonic() >= deadline {
                let missing = held.iter().filter(|(agent, held)| held.iter().any(|h| behind(agent, h)));
                bail!(
                    "traces of trial {} did not all arrive within {COLLECT_WITHIN:?} from {}; see their logs, and resume again: what came stays",
                    open.planned.trial,
                    listed(&missing.map(|(agent, _)| agent.clone()).collect())
                );
            }
        }
    }

    /// What is said next. One of the `agents` that is back over a new connection is told again: the order may have been
    /// lost with the old one, and the new one has to be delivered over.
    async fn hear(&mut self, order: &CollectOrder, agents: &BTreeSet<AgentName>) -> anyhow::Result<Heard> {
        let means = &mut *self.means;
        let mut stop = means.stop.clone();
        let change = tokio::select! {
            change = means.fleet.next() => change,
            _ = stop.wait_for(|level| *level > 0) => return Ok(Heard::Stopped),
        };
        match change {
            Change::Said(agent, FromAgent::Collected(report)) if is_of(&report, &order.run, order) => {
                return Ok(Heard::Said(agent, *report));
            }
            Change::Joined(agent) if agents.contains(&agent) => {
                means.fleet.tell(&agent, ToAgent::Collect(order.clone()));
            }
            Change::Lost(agent, reason) if agents.contains(&agent) => return Ok(Heard::Lost(agent, reason)),
            _ => {}
        }
        Ok(Heard::Nothing)
    }

    fn order_to_collect(&self, open: &KeptTrial) -> CollectOrder {
        CollectOrder { run: self.run.store.id().clone(), trial: open.planned.trial, epoch: open.epoch }
    }
}

fn away(agent: &AgentName, reason: &str) -> String {
    format!("agent {agent}: {reason}; resume again when it is back")
}

fn is_of(report: &CollectReport, run: &RunId, order: &CollectOrder) -> bool {
    report.run == *run && report.epoch == order.epoch
}

async fn arrived(ingest: IngestHandle, held: AllHeld) -> Result<(), IngestError> {
    for (agent, held) in &held {
        for Held { incarnation, first_seq, next_seq } in held.iter().copied() {
            ingest.skip_to(agent, incarnation, first_seq).await?;
            ingest.wait_for(agent, incarnation, next_seq).await?;
        }
    }
    Ok(())
}

/// Refuses what an agent cannot hold of its `slice` arrivals, and what does not say what it holds.
fn check(report: &CollectReport, slice: u64) -> anyhow::Result<()> {
    if !report.problems.is_empty() {
        bail!(
            "{}: what it holds of the trial is not known; mend that and resume again, or end the agent and resume without what it holds",
            report.problems.join("; ")
        );
    }
    let mut processes = BTreeSet::new();
    for Held { incarnation, first_seq, next_seq } in &report.held {
        let wrong = if *incarnation == SYNTHETIC {
            "traces of the coordinator's own".to_owned()
        } else if !processes.insert(*incarnation) {
            "one process twice".to_owned()
        } else if first_seq > next_seq {
            format!("traces {first_seq} to {next_seq}")
        } else if next_seq.0 - first_seq.0 > slice {
            format!("{} traces of {slice} arrivals", next_seq.0 - first_seq.0)
        } else {
            continue;
        };
        bail!("it says that it holds {wrong}, which cannot be; end it, and resume without what it holds");
    }
    Ok(())
}

fn listed(agents: &BTreeSet<AgentName>) -> String {
    agents.iter().map(AgentName::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use common::ids::{Epoch, Incarnation, Seq};

    use super::*;

    fn said(held: &[(u64, u64, u64)], problems: &[&str]) -> Result<(), String> {
        let held = held.iter().map(|&(incarnation, first, next)| Held {
            incarnation: Incarnation(incarnation),
            first_seq: Seq(first),
            next_seq: Seq(next),
        });
        let problems = problems.iter().map(ToString::to_string).collect();
        let report =
            CollectReport { run: "r".parse().unwrap(), epoch: Epoch(1), held: held.collect(), problems };
        check(&report, 10).map_err(|e| e.to_string())
    }

    #[test]
    fn what_an_agent_cannot_hold_is_refused() {
        assert_eq!(said(&[], &[]), Ok(()));
        assert_eq!(said(&[(7, 30, 40), (8, 5, 5)], &[]), Ok(()));
        for (held, why) in [
            (vec![(0, 0, 3)], "the coordinator's own"),
            (vec![(7, 4, 3)], "traces 4 to 3"),
            (vec![(7, 0, 11)], "11 traces of 10 arrivals"),
            (vec![(7, 0, u64::MAX)], "of 10 arrivals"),
            (vec![(7, 0, 1), (7, 0, 1)], "one process twice"),
        ] {
            let error = said(&held, &[]).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_spool_that_cannot_be_read_is_not_an_empty_one() {
        let error = said(&[], &["its spool cannot be read: no permission"]).unwrap_err();
        assert!(error.contains("no permission") && error.contains("resume again"), "{error}");
    }
}
