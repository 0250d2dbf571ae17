//! One trial: its books, and what its traces say against what really happened.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use common::ids::AgentName;
use coordinator::kept::KeptTrial;
use coordinator::store::RunStore;
use serde_json::Value;

use super::{EFFECT_NS, Judged};
use crate::ledger::{Cause, Excuse, Facts, Sent};

/// A line of traces.jsonl.
pub(super) struct Line {
    agent: String,
    outcome: String,
    synthetic: bool,
    message: String,
}

/// By trial and position.
pub(super) fn lines(out: &Path) -> anyhow::Result<BTreeMap<(u32, u64), Vec<Line>>> {
    let path = out.join("traces.jsonl");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut all: BTreeMap<(u32, u64), Vec<Line>> = BTreeMap::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line)?;
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let key =
            (value["trial"].as_u64().unwrap_or(u64::MAX) as u32, value["index"].as_u64().unwrap_or(u64::MAX));
        all.entry(key).or_default().push(Line {
            agent: text("agent"),
            outcome: text("outcome"),
            synthetic: value["synthetic"] == true,
            message: text("failure_message"),
        });
    }
    Ok(all)
}

/// A trial on record, with all that is known of it.
pub(super) struct Case<'a> {
    pub(super) trial: &'a KeptTrial,
    pub(super) lines: &'a BTreeMap<(u32, u64), Vec<Line>>,
    pub(super) facts: &'a Facts,
}

impl Case<'_> {
    fn number(&self) -> u32 {
        self.trial.planned.trial.0
    }

    /// One trace each, in the store and in the report.
    pub(super) fn books(&self, run: &RunStore, judged: &mut Judged) -> anyhow::Result<()> {
        // Real ones, and those that were made up: a real one replaces the other when it comes before the seal.
        let mut stored: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for block in run.trial_blocks(self.trial.planned.trial, self.trial.epoch)? {
            for facts in block?.facts()? {
                let (real, made_up) = stored.entry(facts.index.0).or_default();
                *if facts.synthetic { made_up } else { real } += 1;
            }
        }
        for index in 0..self.trial.scheduled {
            let (real, made_up) = stored.get(&index).copied().unwrap_or_default();
            let lines = self.lines.get(&(self.number(), index)).map_or(&[][..], Vec::as_slice);
            let reported = lines.len();
            if real > 0 && lines.iter().any(|line| line.synthetic) {
                let number = self.number();
                judged
                    .broken
                    .push(format!("trial {number} arrival {index}: a trace was taken after the seal"));
            }
            if real > 1 || real + made_up == 0 || reported != 1 {
                judged.broken.push(format!(
                    "trial {} arrival {index}: {real} traces and {made_up} made up are stored, {reported} reported",
                    self.number()
                ));
            }
        }
        if stored.len() as u64 > self.trial.scheduled {
            judged.broken.push(format!("trial {}: traces of arrivals that nobody scheduled", self.number()));
        }
        judged.arrivals += self.trial.scheduled;
        Ok(())
    }

    fn sent(&self, index: u64) -> Option<&Sent> {
        let of =
            |s: &&Sent| (s.trial, s.epoch, s.index) == (self.trial.planned.trial, self.trial.epoch, index);
        self.facts.sent.iter().find(of)
    }

    /// What they say is what happened.
    pub(super) fn traces(&self, report: &Value, judged: &mut Judged) {
        let number = self.number();
        let mut made_up = 0;
        for index in 0..self.trial.scheduled {
            let Some(line) = self.lines.get(&(number, index)).and_then(|l| l.first()) else { continue };
            let sent = self.sent(index);
            let wrong = match (line.synthetic, sent) {
                (true, sent) => {
                    made_up += 1;
                    judged.unknown += 1;
                    self.made_up_wrongly(line, index, sent)
                }
                (false, None) => (line.outcome != "not_dispatched")
                    .then(|| format!("it is reported as {}, and was never sent", line.outcome)),
                (false, Some(sent)) => (Some(&line.outcome) != sent.outcome.as_ref()
                    || sent.agent.as_str() != line.agent)
                    .then(|| {
                        format!(
                            "it is reported as {} by {}, and was {:?} of {}",
                            line.outcome, line.agent, sent.outcome, sent.agent
                        )
                    }),
            };
            if let Some(wrong) = wrong {
                judged.broken.push(format!("trial {number} arrival {index}: {wrong}"));
            }
        }
        let of = |t: &&Value| t["trial"] == number;
        let reported = report["trials"].as_array().and_then(|all| all.iter().find(of));
        let Some(reported) = reported else {
            judged.broken.push(format!("trial {number} is on record, and not in the report"));
            return;
        };
        let verdict = reported["summary"]["validity"]["verdict"].as_str().unwrap_or_default();
        let again = |t: &Value| t["rerun_of"] == number;
        if report["trials"].as_array().is_some_and(|all| all.iter().any(again)) {
            judged.broken.extend(self.disturbed_for_nothing());
        } else if verdict != "valid" {
            let reasons = reported["summary"]["validity"]["reasons"].as_array().cloned().unwrap_or_default();
            let unsaid = reasons.iter().filter(|reason| !self.is_excused(reason));
            judged
                .broken
                .extend(unsaid.map(|r| format!("trial {number} is {verdict}, and was not sent again: {r}")));
        }
        if made_up > 0 && verdict != "invalid" {
            judged
                .broken
                .push(format!("trial {number} is {verdict}, and {made_up} of its traces are made up"));
        }
    }

    /// From its first request to its seal, in true time.
    fn span(&self) -> (u64, u64) {
        let at = self.facts.sent.iter().filter(|s| s.epoch == self.trial.epoch).map(|s| s.at_ns);
        let sealed = self.facts.sealed.get(&self.trial.planned.trial).copied().unwrap_or(u64::MAX);
        (at.min().unwrap_or(sealed), sealed)
    }

    /// Whether a trial may stand although it is not valid: it says what is wrong, and that would be so again.
    fn is_excused(&self, reason: &Value) -> bool {
        let message = reason["message"].as_str().unwrap_or_default();
        let Some(agent) = reason["agent"].as_str().and_then(|a| a.parse::<AgentName>().ok()) else {
            return false;
        };
        let excuse = |excuse| self.facts.is_excused(excuse, &agent, self.span());
        (message.contains("its spool lost") && excuse(Excuse::Lossy))
            || (message.contains("did not arrive within") && excuse(Excuse::Late))
            || ((reason["kind"] == "generator_failure" || message.contains("their fate unknown"))
                && (excuse(Excuse::Lossy) || excuse(Excuse::Late)))
    }

    /// A trial that was sent again, although nothing had happened.
    fn disturbed_for_nothing(&self) -> Option<String> {
        let (from, to) = self.span();
        let before = from.saturating_sub(EFFECT_NS);
        // A coordinator that is lost before it has kept the seal has to seal again.
        let until = |c: &Cause| if c.agent.is_none() { to.saturating_add(EFFECT_NS) } else { to };
        let is = |c: &Cause| c.from_ns <= until(c) && c.to_ns >= before;
        (!self.facts.causes.iter().any(is))
            .then(|| format!("trial {} was sent again, and nothing had happened", self.number()))
    }

    /// Why a trace should not have been made up, if it should not.
    fn made_up_wrongly(&self, line: &Line, index: u64, sent: Option<&Sent>) -> Option<String> {
        let agent: AgentName = line.agent.parse().ok()?;
        let lossy = self.facts.is_excused(Excuse::Lossy, &agent, self.span());
        if !lossy && (line.message.contains("which is not so") || line.message.contains("are not complete")) {
            return Some(format!("its trace is made up ({}), and the agent was there", line.message));
        }
        if !line.message.contains("it holds no trace of this arrival") {
            return None;
        }
        let key = (agent.clone(), self.trial.planned.trial, self.trial.epoch);
        if self.facts.survived.get(&key).is_some_and(|held| held.contains(&index)) {
            return Some("its trace is made up, and the agent's disk holds it".to_owned());
        }
        // A process that lives knows the fate of all that it sent.
        let (began, sealed) = self.span();
        let crashed =
            self.facts.crashes.iter().any(|(who, at)| *who == agent && (began..=sealed).contains(at));
        (sent.is_some() && !crashed && !lossy)
            .then(|| "its trace is made up, and the agent that sent it lived on".to_owned())
    }
}
