//! What was done in how many seeds, and what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::ledger::{AgentDoing, Doing};
use crate::world::Found;

/// Counts over seeds.
#[derive(Debug, Default)]
pub struct Table {
    seeds: u64,
    /// Of them, those in which every fault came too late.
    undisturbed: u64,
    failed: Vec<u64>,
    arrivals: u64,
    unknown: u64,
    seconds: u64,
    /// Seeds, by fault and what the coordinator was doing.
    by_doing: BTreeMap<(String, Doing), u64>,
    /// Seeds, by fault and what the agent that it happened to was doing.
    by_agent: BTreeMap<(String, AgentDoing), u64>,
}

const DOINGS: [Doing; 7] = [
    Doing::Joining,
    Doing::Preparing,
    Doing::Armed,
    Doing::Running,
    Doing::Closing,
    Doing::Collecting,
    Doing::Down,
];

// To one that is down nothing more happens.
const AGENT_DOINGS: [AgentDoing; 5] =
    [AgentDoing::Idle, AgentDoing::Preparing, AgentDoing::Ready, AgentDoing::Sending, AgentDoing::Drained];

impl Table {
    /// Adds what came of a seed.
    pub fn add(&mut self, seed: u64, found: Found) {
        self.seeds += 1;
        if !found.broken.is_empty() {
            self.failed.push(seed);
        }
        self.undisturbed += u64::from(found.done.is_empty());
        self.arrivals += found.arrivals;
        self.unknown += found.unknown;
        self.seconds += found.seconds;
        let doings: BTreeSet<_> = found.done.iter().map(|(what, doing, _)| (what.clone(), *doing)).collect();
        doings.into_iter().for_each(|key| *self.by_doing.entry(key).or_default() += 1);
        let agents: BTreeSet<_> =
            found.done.iter().filter_map(|(what, _, of)| Some((what.clone(), (*of)?))).collect();
        agents.into_iter().for_each(|key| *self.by_agent.entry(key).or_default() += 1);
    }

    /// Seeds so far.
    pub fn seeds(&self) -> u64 {
        self.seeds
    }

    /// Seeds in which something did not hold.
    pub fn failed(&self) -> &[u64] {
        &self.failed
    }

    /// As Markdown.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let of = |what: &str| what.to_lowercase();
        let _ = writeln!(text, "Seeds in which a fault happened, by what the coordinator was doing:\n");
        header(&mut text, DOINGS.iter().map(|d| of(&format!("{d:?}"))));
        rows(&mut text, &self.by_doing, &DOINGS);
        let _ = writeln!(text, "\nAnd by what the agent was doing to which it happened:\n");
        header(&mut text, AGENT_DOINGS.iter().map(|d| of(&format!("{d:?}"))));
        rows(&mut text, &self.by_agent, &AGENT_DOINGS);
        let hours = self.seconds as f64 / 3600.0;
        let _ = writeln!(
            text,
            "\n{} seeds ({} of them without a fault), {hours:.1} hours of virtual time, {} arrivals, each with one trace; \
             {} of unknown fate, said so. Seeds that failed: {}.",
            self.seeds,
            self.undisturbed,
            self.arrivals,
            self.unknown,
            self.failed.len()
        );
        text
    }
}

fn header(text: &mut String, columns: impl Iterator<Item = String>) {
    let columns: Vec<String> = columns.collect();
    let _ = writeln!(text, "| fault | {} |", columns.join(" | "));
    let _ = writeln!(text, "| --- |{}", " ---: |".repeat(columns.len()));
}

fn rows<T: Ord + Copy>(text: &mut String, counts: &BTreeMap<(String, T), u64>, columns: &[T]) {
    let faults: BTreeSet<&str> = counts.keys().map(|(what, _)| what.as_str()).collect();
    for fault in faults {
        let cells: Vec<String> = columns
            .iter()
            .map(|c| counts.get(&(fault.to_owned(), *c)).map_or_else(|| "–".to_owned(), u64::to_string))
            .collect();
        let _ = writeln!(text, "| {fault} | {} |", cells.join(" | "));
    }
}
