//! What must hold, whatever was done.
//!
//! - Every arrival of every trial on record has exactly one trace, in the report and in the store.
//! - No arrival was sent twice, and none after its trial was sealed.
//! - A trace that is real says what the engine saw; a trial with one that is made up is invalid.
//! - What was acknowledged is stored, and what was spooled is on the disk, after any crash.
//! - What an agent that is there holds of an arrival is what is reported of it.
//! - The printed bound of each agent's clock holds the true offset.
//! - Every planned trial was sent to its end, with the schedule that it always has.

mod case;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use agent::spool::held;
use anyhow::Context;
use common::disk::Disk;
use common::ids::{Digest, Epoch, Seq, TrialId};
use common::trace::segment::{Block, scan};
use common::validity::ReasonKind;
use coordinator::kept::{KeptRun, KeptTrial};
use coordinator::store::{RunStore, Store};
use serde_json::Value;

use crate::hosts::{AgentHost, CoordinatorHost, SPOOL};
use crate::ledger::{Excuse, Facts, Ledger, Sent};
use case::{Case, lines};

/// What was found at the end of a run.
#[derive(Debug, Default)]
pub struct Judged {
    /// What does not hold.
    pub broken: Vec<String>,
    /// Arrivals.
    pub arrivals: u64,
    /// Of them, those of unknown fate.
    pub unknown: u64,
}

/// Positions that an agent holds of each try of a trial.
pub type Held = BTreeMap<(TrialId, Epoch), (Seq, Vec<u64>)>;

/// What an agent's disk holds.
pub fn spooled(host: &AgentHost, ledger: &Ledger) -> Held {
    let mut all = Held::new();
    let dir = Path::new(SPOOL);
    let Some(run) = ledger.facts().run.clone() else { return all };
    for backlog in held::backlogs(&host.disk, dir, &host.name, &run).unwrap_or_default() {
        let Some(first) = backlog.segments.iter().find_map(held::Segment::first) else { continue };
        let mut from = first;
        while from < backlog.next() {
            let Ok((blocks, next)) = backlog.read_from(&host.disk, from, usize::MAX) else { break };
            for block in blocks.iter().filter_map(|bytes| Block::decode(bytes).ok()) {
                let header = block.header();
                let entry = all.entry((header.trial, header.epoch)).or_default();
                entry.0 = entry.0.max(block.next_seq());
                let facts = block.facts().unwrap_or_default();
                entry.1.extend(facts.iter().map(|f| f.index.0));
            }
            if next <= from {
                break;
            }
            from = next;
        }
    }
    all
}

/// After a crash: what was synced is still there.
pub fn survived(host: &AgentHost, before: &Held, ledger: &Ledger, at_ns: u64) {
    let after = spooled(host, ledger);
    let mut facts = ledger.facts();
    let mut broken = Vec::new();
    for spooling in facts.spools.iter().filter(|s| s.agent == host.name) {
        let key = (spooling.trial, spooling.epoch);
        // Sealed, and removed: nobody wants it any more.
        let Some(_) = before.get(&key) else { continue };
        let durable = *spooling.spool.durable().borrow();
        let held = after.get(&key).map_or(Seq(0), |(next, _)| *next);
        if held < durable && durable > spooling.spool.first() {
            broken.push(format!(
                "agent {}: trial {} epoch {}: {durable} traces were synced, {held} are there after the crash",
                host.name, spooling.trial, spooling.epoch
            ));
        }
    }
    facts.broken.extend(broken);
    facts.crashes.push((host.name.clone(), at_ns));
    for ((trial, epoch), (_, indexes)) in after {
        facts.survived.insert((host.name.clone(), trial, epoch), indexes);
    }
}

/// After a restart of the coordinator: what it had acknowledged is stored.
pub fn acknowledged(run: &RunStore, kept: &KeptRun, ledger: &Ledger) -> anyhow::Result<Vec<String>> {
    let marks = run.marks()?;
    let mut broken = Vec::new();
    for spooling in &ledger.facts().spools {
        let delivered = spooling.spool.delivered();
        let mark = marks.get(&(spooling.agent.clone(), spooling.incarnation)).copied().unwrap_or_default();
        if delivered > mark && delivered > spooling.spool.first() {
            broken.push(format!(
                "agent {} was told that {delivered} traces are stored, and {mark} are (trial {})",
                spooling.agent, spooling.trial
            ));
        }
    }
    for trial in kept.trials.iter().chain(&kept.open) {
        for block in run.trial_blocks(trial.planned.trial, trial.epoch)? {
            if let Err(e) = block {
                broken.push(format!("trial {}: a stored block: {e}", trial.planned.trial));
            }
        }
    }
    Ok(broken)
}

/// Judges a run that has come to its end.
pub fn judge(
    host: &CoordinatorHost,
    agents: &[Arc<AgentHost>],
    ledger: &Ledger,
    out: &Path,
) -> anyhow::Result<Judged> {
    let store = Store::with_index(
        Path::new(crate::hosts::DATA),
        Arc::new(host.disk.clone()),
        Arc::new(host.index.clone()),
    )?;
    let (run, kept) = host.begun(&store).context("there is no run")?;
    let lines = lines(out)?;
    let report: Value = serde_json::from_str(&std::fs::read_to_string(out.join("report.json"))?)?;
    let facts = ledger.facts();
    let mut judged = Judged::default();
    for trial in &kept.trials {
        judged.broken.extend(clocks(trial, &report, &facts, host, agents));
        let of_trial = Case { trial, lines: &lines, facts: &facts };
        of_trial.books(&run, &mut judged)?;
        of_trial.traces(&report, &mut judged);
    }
    let known: BTreeSet<u32> = kept.trials.iter().map(|t| t.planned.trial.0).collect();
    for (trial, index) in lines.keys().filter(|(trial, _)| !known.contains(trial)) {
        judged
            .broken
            .push(format!("a trace of trial {trial} arrival {index}, a trial that is not on record"));
    }
    judged.broken.extend(lost_for_nothing(&facts));
    judged.broken.extend(stored_twice(host, &run));
    judged.broken.extend(sends(&facts));
    judged.broken.extend(whole(host, &kept));
    Ok(judged)
}

/// The bound of each agent's clock holds the true offset, at some time between its last request and the seal.
fn clocks(
    trial: &KeptTrial,
    report: &Value,
    facts: &Facts,
    host: &CoordinatorHost,
    agents: &[Arc<AgentHost>],
) -> Vec<String> {
    let number = trial.planned.trial;
    let of = |t: &&Value| t["trial"] == number.0;
    let Some(reported) = report["trials"].as_array().and_then(|all| all.iter().find(of)) else {
        return Vec::new();
    };
    let mut broken = Vec::new();
    for said in reported["summary"]["agents"].as_array().into_iter().flatten() {
        let (Some(offset), Some(bound)) =
            (said["clock_offset_seconds"].as_f64(), said["clock_bound_seconds"].as_f64())
        else {
            continue;
        };
        let Some(agent) = agents.iter().find(|a| said["name"] == a.name.as_str()) else { continue };
        let Some(drained) = facts.drained.get(&(agent.name.clone(), trial.epoch)) else { continue };
        let sealed = facts.sealed.get(&number).unwrap_or(drained);
        let truth = |at: u64| (agent.clock.shown(at) as f64 - host.clock.shown(at) as f64) / 1e9;
        let (a, b) = (truth(*drained), truth(*sealed));
        // Of what is printed, microseconds are left out.
        let (low, high) = (a.min(b) - bound - 2e-6, a.max(b) + bound + 2e-6);
        if !(low..=high).contains(&offset) {
            broken.push(format!(
                "trial {number}: the clock of {} is {offset} s ± {bound} off, and was {a} to {b}",
                agent.name
            ));
        }
    }
    broken
}

/// So long after something was done an agent may be taken for lost: lease and margin, and to come back again.
const EFFECT_NS: u64 = 45_000_000_000;

/// Nobody is taken for lost unless something was done.
fn lost_for_nothing(facts: &Facts) -> Vec<String> {
    let mut broken = Vec::new();
    for (agent, epoch, at) in &facts.lost {
        if !facts.is_excused(Excuse::Lost, agent, (at.saturating_sub(EFFECT_NS), *at)) {
            broken
                .push(format!("agent {agent} was taken for lost in epoch {epoch}, and nothing had happened"));
        }
    }
    broken
}

/// What was delivered twice is stored once: whoever makes the index anew must not find it twice.
fn stored_twice(host: &CoordinatorHost, run: &RunStore) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut broken = Vec::new();
    for path in host.disk.list(&run.dir().join("segments")).unwrap_or_default() {
        let bytes = host.disk.read(&path).unwrap_or_default();
        for (_, block) in scan(&bytes).map(|scan| scan.blocks).unwrap_or_default() {
            let header = block.header();
            if !seen.insert((header.agent.clone(), header.incarnation, header.first_seq)) {
                broken.push(format!(
                    "{}: traces from {} on of agent {} are stored twice",
                    path.display(),
                    header.first_seq,
                    header.agent
                ));
            }
        }
    }
    broken
}

/// No arrival is sent twice, none after its trial was sealed, and none by who was taken for lost.
fn sends(facts: &Facts) -> Vec<String> {
    let mut seen: BTreeMap<(TrialId, u64), &Sent> = BTreeMap::new();
    let mut broken = Vec::new();
    for sent in &facts.sent {
        if let Some(before) = seen.insert((sent.trial, sent.index), sent) {
            broken.push(format!(
                "trial {} arrival {} was sent by {} and again by {}",
                sent.trial, sent.index, before.agent, sent.agent
            ));
        }
        let lost = facts
            .lost
            .iter()
            .find(|(who, of, at)| *who == sent.agent && *of == sent.epoch && *at < sent.at_ns);
        if let Some((_, _, at)) = lost {
            let late = (sent.at_ns - at) as f64 / 1e9;
            broken.push(format!(
                "trial {} arrival {} was sent by {} {late:.2} s after that was taken for lost",
                sent.trial, sent.index, sent.agent
            ));
        }
        if let Some(sealed) = facts.sealed.get(&sent.trial).filter(|sealed| **sealed < sent.at_ns) {
            let late = (sent.at_ns - sealed) as f64 / 1e9;
            broken.push(format!(
                "trial {} arrival {} was sent by {} {late:.2} s after the trial was sealed",
                sent.trial, sent.index, sent.agent
            ));
        }
    }
    broken
}

/// Every planned trial was sent to its end, with the schedule that it always has.
fn whole(host: &CoordinatorHost, kept: &KeptRun) -> Vec<String> {
    let mut broken = Vec::new();
    for planned in &host.plan.trials {
        let mut tries: Vec<&KeptTrial> =
            kept.trials.iter().filter(|t| t.planned.trial == planned.trial).collect();
        while let Some(again) = tries
            .last()
            .and_then(|l| kept.trials.iter().find(|t| t.planned.rerun_of == Some(l.planned.trial)))
        {
            tries.push(again);
        }
        match tries.last() {
            None => broken.push(format!("trial {} was never sent", planned.trial)),
            // Plainly invalid, and why is judged with the trial.
            Some(last) if !last.agents.iter().any(|agent| agent.lost) && stands(last) => {}
            Some(last) => {
                broken.push(format!(
                    "the last try of trial {} is disturbed: {:?}",
                    planned.trial, last.findings
                ));
            }
        }
        let digests: BTreeSet<Digest> = tries.iter().map(|t| t.schedule_sha256).collect();
        if digests.len() > 1 {
            broken.push(format!("trial {}: its tries have different schedules", planned.trial));
        }
        let arrivals = host.plan.arrivals(planned.rate);
        let schedule = common::schedule::Schedule::generate(
            &arrivals,
            planned.seed,
            host.plan.workload.rows.rows.len() as u32,
        );
        let Ok(schedule) = schedule.map(|s| common::schedule::digest(&s.arrivals)) else { continue };
        if digests.iter().any(|digest| *digest != schedule) {
            broken.push(format!("trial {}: its schedule is not the undisturbed one", planned.trial));
        }
    }
    broken
}

/// All that is wrong with it is that agents which were there could not keep or bring traces: that would be so again.
fn stands(trial: &KeptTrial) -> bool {
    trial.findings.iter().all(|finding| finding.kind == ReasonKind::AgentLost)
}

/// A digest of all that happened.
pub fn digest(facts: &Facts) -> String {
    let mut text = String::new();
    for sent in &facts.sent {
        text.push_str(&format!("{sent:?}\n"));
    }
    for (at, told) in &facts.told {
        text.push_str(&format!("{at} {told}\n"));
    }
    Digest::of(text.as_bytes()).to_string()
}
