//! What the stored traces of a trial tell that no message did: that the engine fell silent, and that leases ran out.
//!
//! Whether a silent engine is dead is not in the traces: one that is overloaded refuses and breaks connections, too. So
//! the agents look at it, now that no request is left. It must never take an engine for dead that one agent reaches.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::fleet::{ProbeDepth, TargetCheck, TargetReport};
use common::ids::{AgentName, Epoch, TrialId};
use common::trace::{Clocks, Facts, FailureClass, FailureKind};
use common::validity::silence::{Listener, Silence};

use super::Sending;
use crate::fleet::{Change, FromAgent, ToAgent};
use crate::trial::seal::SealError;

/// Between the first look at an engine and the second: whatever restarts a socket takes less.
const SECOND_LOOK_AFTER: Duration = Duration::from_secs(1);
/// For the answer of an agent, beyond its own patience: the connect timeout, and 10 s for the engine's answer.
const LOOK_GRACE: Duration = Duration::from_secs(20);
/// Ids of looks begin here: those of the checks before a run lie below.
const FIRST_LOOK: u64 = 1000;

/// What the traces of a trial tell.
#[derive(Debug, Default)]
pub(super) struct Told {
    listener: Listener,
    /// Agents that did not send some of their requests: how many, and why not.
    unsent: BTreeMap<AgentName, (u64, String)>,
}

impl Told {
    fn hear(&mut self, agent: &AgentName, clocks: &Clocks, facts: &Facts) {
        self.listener.hear(clocks, facts);
        if let Some(failure) = facts.outcome.failure().filter(|f| f.kind == FailureKind::NotDispatched) {
            let (n, _) = self.unsent.entry(agent.clone()).or_insert_with(|| (0, failure.message.clone()));
            *n += 1;
        }
    }

    /// Whether the engine fell silent.
    pub(super) fn silence(&self) -> Option<Silence> {
        self.listener.silence()
    }

    /// Who stopped sending by itself, and why. Of a trial that nobody ended early.
    pub(super) fn gave_up(&self) -> BTreeMap<AgentName, String> {
        let told = |(n, why): &(u64, String)| {
            let requests = if *n == 1 { "request was" } else { "requests were" };
            format!("{n} {requests} not sent: {why}")
        };
        self.unsent.iter().map(|(agent, unsent)| (agent.clone(), told(unsent))).collect()
    }
}

/// What an agent saw of the engine.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    There,
    Gone(String),
    /// It could not look, or got no answer in time: an engine that hangs is there.
    Nothing,
}

fn seen(report: &TargetReport) -> Seen {
    match &report.failure {
        None => Seen::There,
        Some((FailureKind::Connect | FailureKind::Reset, why)) => Seen::Gone(why.clone()),
        Some((FailureKind::TimeoutTotal, _)) => Seen::Nothing,
        Some((kind, _)) if kind.class() == FailureClass::Generator => Seen::Nothing,
        Some(_) => Seen::There,
    }
}

/// What agents that looked say together: who did not reach it, unless one did.
fn gone(looks: &BTreeMap<AgentName, Seen>) -> Option<String> {
    if looks.values().any(|seen| *seen == Seen::There) {
        return None;
    }
    looks.iter().find_map(|(agent, seen)| match seen {
        Seen::Gone(why) => Some(format!("agent {agent} could not reach it afterwards: {why}")),
        _ => None,
    })
}

impl Sending<'_, '_> {
    /// Reads the traces of a trial.
    pub(super) fn told(&self, trial: TrialId, epoch: Epoch) -> Result<Told, SealError> {
        crate::aside::here(|| {
            let mut told = Told::default();
            for block in self.run.store.trial_blocks(trial, epoch)? {
                let block = block?;
                for (clocks, facts) in block.clocks()?.iter().zip(block.facts()?) {
                    told.hear(&block.header().agent, clocks, &facts);
                }
            }
            Ok(told)
        })
    }

    /// How the engine died that fell silent in a trial, if it is not there any more.
    pub(super) async fn engine_is_gone(&mut self, epoch: Epoch, silence: &Silence) -> Option<String> {
        let id = FIRST_LOOK + 2 * u64::from(epoch.0);
        let first: BTreeSet<AgentName> = self.agents.iter().take(1).cloned().collect();
        if self.look(id, first).await.values().any(|seen| *seen == Seen::There) {
            return None;
        }
        tokio::time::sleep(SECOND_LOOK_AFTER).await;
        let all = self.agents.iter().cloned().collect();
        let gone = gone(&self.look(id + 1, all).await)?;
        Some(format!("{}, and {gone}", silence.told()))
    }

    /// Has these agents look at the engine. Who is lost meanwhile sends no more; the operator need not wait.
    async fn look(&mut self, id: u64, agents: BTreeSet<AgentName>) -> BTreeMap<AgentName, Seen> {
        let target = self.run.plan.target.clone();
        let patience = target.connect_timeout.to_duration() + LOOK_GRACE;
        let (row_json, probe) = (self.run.plan.workload.first_row(), ProbeDepth::Look);
        let check = TargetCheck { id, target, row_json, probe, find_dialect: false };
        let members = self.means.fleet.registry().members();
        let mut waiting: BTreeSet<AgentName> =
            agents.into_iter().filter(|agent| members.contains_key(agent)).collect();
        waiting.iter().for_each(|a| self.means.fleet.tell(a, ToAgent::Check(Box::new(check.clone()))));
        let mut looks: BTreeMap<AgentName, Seen> = BTreeMap::new();
        let deadline = tokio::time::sleep(patience);
        tokio::pin!(deadline);
        let mut stop = self.means.stop.clone();
        while !waiting.is_empty() {
            let change = tokio::select! {
                change = self.means.fleet.next() => change,
                () = &mut deadline => break,
                _ = stop.wait_for(|level| *level > 1) => break,
            };
            match change {
                Change::Said(agent, FromAgent::Target(of, report)) if of == id => {
                    waiting.remove(&agent);
                    looks.insert(agent, seen(&report));
                }
                Change::Lost(agent, reason) => {
                    waiting.remove(&agent);
                    self.agents.retain(|a| *a != agent);
                    self.means.ui.note(&format!("agent {agent} is lost ({reason})"));
                }
                _ => {}
            }
        }
        looks.extend(waiting.into_iter().map(|agent| (agent, Seen::Nothing)));
        looks
    }
}

#[cfg(test)]
mod tests {
    use common::ids::Nanos;
    use common::trace::{Failure, Trace, Unsent};

    use super::*;

    fn name(text: &str) -> AgentName {
        text.parse().unwrap()
    }

    fn report(failure: Option<FailureKind>) -> TargetReport {
        TargetReport { failure: failure.map(|kind| (kind, "why".into())), ..TargetReport::default() }
    }

    #[test]
    fn only_an_engine_that_nobody_reaches_is_gone() {
        let looks = |kinds: &[Option<FailureKind>]| {
            let names = ["a", "b", "c"].map(name);
            names.into_iter().zip(kinds.iter().map(|kind| seen(&report(*kind)))).collect::<BTreeMap<_, _>>()
        };
        let (refused, hung) = (Some(FailureKind::Connect), Some(FailureKind::TimeoutTotal));
        let by_all = gone(&looks(&[refused, refused, Some(FailureKind::Reset)]));
        assert_eq!(by_all.as_deref(), Some("agent a could not reach it afterwards: why"));
        assert_eq!(gone(&looks(&[refused, None, refused])), None, "one reaches it");
        assert_eq!(gone(&looks(&[refused, Some(FailureKind::HttpStatus)])), None, "an answer is an answer");
        assert!(gone(&looks(&[Some(FailureKind::LocalLimit), refused])).is_some(), "one could not look");
        for nothing in [hung, Some(FailureKind::LocalLimit), Some(FailureKind::NotDispatched)] {
            assert_eq!(gone(&looks(&[nothing])), None, "{nothing:?} proves nothing");
        }
    }

    #[test]
    fn who_stopped_sending_is_named_with_the_reason() {
        let mut told = Told::default();
        let trace = |kind, why: &str| Trace::unsent(Unsent::default(), Failure::new(kind, why), Nanos(1));
        for (agent, kind, why) in [
            ("a", FailureKind::NotDispatched, "the lease ran out"),
            ("a", FailureKind::NotDispatched, "another"),
            ("b", FailureKind::LocalLimit, "no ports"),
            ("c", FailureKind::NotDispatched, "the lease ran out"),
        ] {
            let trace = trace(kind, why);
            told.hear(&name(agent), &trace.clocks, &trace.facts);
        }
        let expected = [
            (name("a"), "2 requests were not sent: the lease ran out".to_owned()),
            (name("c"), "1 request was not sent: the lease ran out".to_owned()),
        ];
        assert_eq!(told.gave_up(), expected.into());
        assert_eq!(told.silence(), None);
    }
}
