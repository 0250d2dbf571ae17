//! What was done and what held: for the terminal, and between markers of docs/reliability.md.
//!
//! What is printed and what decides the exit code are the same rows. The page around the markers is written by hand and
//! must never be touched.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use common::seed::Seed;
use serde::{Deserialize, Serialize};

use crate::chaos::{Blow, Round, Victim};

const BEGIN: &str = "<!-- make cluster-test writes from here -->";
const END: &str = "<!-- to here -->";

/// What a worker says of one thing that it did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Done {
    /// A scenario: its place in the list, its name, what was done, and what held, or why it did not.
    Scenario(usize, String, String, Result<String, String>),
    /// A round of chaos, or its number and why it failed.
    Chaos(Result<Round, (u64, String)>),
}

/// Everything.
#[derive(Debug, Default)]
pub struct Page {
    scenarios: BTreeMap<usize, (String, String, Result<String, String>)>,
    rounds: Vec<Round>,
    failed_rounds: BTreeMap<u64, String>,
}

impl Page {
    /// Takes one in.
    pub fn add(&mut self, done: Done) {
        match done {
            Done::Scenario(place, name, fault, held) => {
                self.scenarios.insert(place, (name, fault, held));
            }
            Done::Chaos(Ok(round)) => self.rounds.push(round),
            Done::Chaos(Err((round, why))) => {
                self.failed_rounds.insert(round, why);
            }
        }
    }

    /// How many things were done.
    #[must_use]
    pub fn done(&self) -> usize {
        self.scenarios.len() + self.rounds.len() + self.failed_rounds.len()
    }

    /// Why it failed, where it did.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let scenarios = self
            .scenarios
            .values()
            .filter_map(|(name, _, held)| Some(format!("{name}: {}", held.as_ref().err()?)));
        let rounds = self.failed_rounds.iter().map(|(round, why)| format!("round {round} of chaos: {why}"));
        scenarios.chain(rounds).collect()
    }

    /// The tables.
    #[must_use]
    pub fn text(&self, seed: Seed) -> String {
        let mut text = String::from("| fault | what held |\n| --- | --- |\n");
        for (name, fault, held) in self.scenarios.values() {
            let held = match held {
                Ok(held) => held.clone(),
                Err(why) => format!("**failed**: {}", why.lines().next().unwrap_or_default()),
            };
            let _ = writeln!(text, "| {fault} (`{name}`) | {} |", held.replace('|', "\\|"));
        }
        if self.rounds.is_empty() && self.failed_rounds.is_empty() {
            return text;
        }
        let sum = |of: fn(&Round) -> u64| self.rounds.iter().map(of).sum::<u64>();
        let _ = write!(
            text,
            "\nChaos: {} sweeps of 3 rates by 4 agents (seed {}), {} faults, {} further commands by the operator.\n\n",
            self.rounds.len() + self.failed_rounds.len(),
            seed.0,
            sum(|r| r.faults.len() as u64),
            sum(|r| r.resumed as u64),
        );
        text += "| what | how often |\n| --- | --- |\n";
        for (what, n) in self.blows() {
            let _ = writeln!(text, "| {what} | {n} |");
        }
        let rows = [
            ("arrivals, each with exactly one trace that agrees with the engine's log", sum(|r| r.arrivals)),
            ("of them successes, which the engine finished", sum(|r| r.successes)),
            ("of them of unknown fate, said so (`agent_lost`)", sum(|r| r.unknown)),
            ("invalid trials, with the reason, sent again", sum(|r| (r.invalid - r.standing_invalid) as u64)),
            ("invalid trials that stood at the end", sum(|r| r.standing_invalid as u64)),
            (
                "sweeps with every trial of the undisturbed run at the end",
                sum(|r| u64::from(r.code == Some(0))),
            ),
            ("sweeps that did not hold: not counted above", self.failed_rounds.len() as u64),
        ];
        for (what, n) in rows {
            let _ = writeln!(text, "| {what} | {n} |");
        }
        text
    }

    fn blows(&self) -> BTreeMap<&'static str, u64> {
        let mut blows = BTreeMap::new();
        for fault in self.rounds.iter().flat_map(|r| &r.faults) {
            let what = match (fault.victim, fault.blow) {
                (Victim::Coordinator, Blow::Kill) => "kill -9 of the coordinator",
                (Victim::Coordinator, Blow::Stop(..15_000)) => "coordinator stopped, then continued",
                (Victim::Coordinator, Blow::Stop(_)) => {
                    "coordinator stopped beyond the lease, then continued"
                }
                (Victim::Agent(_), Blow::Kill) => "kill -9 of an agent, started again",
                (Victim::Agent(_), Blow::Stop(..15_000)) => "agent stopped, then continued",
                (Victim::Agent(_), Blow::Stop(_)) => "agent stopped beyond the lease, then continued",
            };
            *blows.entry(what).or_default() += 1;
        }
        blows
    }

    /// Puts the tables between the markers of a page.
    ///
    /// # Errors
    /// When it cannot be read or written, or has no markers.
    pub fn write(&self, path: &Path, seed: Seed) -> Result<(), String> {
        let fail = |e: std::io::Error| format!("{}: {e}; run from the repository's root", path.display());
        let page = std::fs::read_to_string(path).map_err(fail)?;
        let parts = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
        let (before, after) =
            parts.ok_or_else(|| format!("{}: the markers are missing: {BEGIN} and {END}", path.display()))?;
        let page = format!("{before}{BEGIN}\n\n{}\n{END}{after}", self.text(seed));
        std::fs::write(path, page).map_err(fail)
    }
}
