//! What is done to the fleet, and what must hold: one function each, which panics where it does not hold and else says
//! what was seen.

mod disks;
mod links;
mod ports;
mod processes;
mod store;

use std::collections::BTreeSet;

use plimsoll_tests::{Ended, Results};

use crate::judge::{Found, Log, judge, schedules, usable_or_plainly_invalid};
use crate::world::{World, ended, expect_code};

/// An engine that answers after 150 ms.
pub const ENGINE: &str = "--fixed-ttft-ms 150";

/// What an undisturbed run is.
#[derive(Debug, Clone)]
pub struct Undisturbed {
    /// Its trials.
    pub schedules: BTreeSet<String>,
}

/// A scenario.
pub struct Scenario {
    /// For `--only`.
    pub name: &'static str,
    /// What is done, for people.
    pub fault: &'static str,
    /// Part of `--short`.
    pub short: bool,
    /// Does it. Says what was seen.
    pub play: fn(&Undisturbed) -> String,
}

/// Every scenario, the longest first.
#[must_use]
pub fn all() -> Vec<Scenario> {
    [processes::SCENARIOS, links::SCENARIOS, disks::SCENARIOS, ports::SCENARIOS, store::SCENARIOS]
        .into_iter()
        .flatten()
        .map(|(name, fault, short, play)| Scenario { name, fault, short: *short, play: *play })
        .collect()
}

type Row = (&'static str, &'static str, bool, fn(&Undisturbed) -> String);

/// A run that nothing happens to.
#[must_use]
pub fn undisturbed() -> Undisturbed {
    let world = World::with_agents(ENGINE);
    let ended = expect_code(ended(world.sweep()), 0);
    let results = world.results(&ended);
    let found = judge(&results, &world.log(), Log::Whole);
    assert!(found.invalid.is_empty() && found.trials == 3, "{}", ended.story());
    world.close();
    Undisturbed { schedules: schedules(&results) }
}

/// Judges a run that has ended, however it ended.
#[track_caller]
fn judged(world: &World, ended: &Ended, undisturbed: &Undisturbed) -> (Results, Found) {
    let results = world.results(ended);
    let found = judge(&results, &world.log(), Log::Whole);
    usable_or_plainly_invalid(ended, &results, &found, &undisturbed.schedules);
    (results, found)
}

/// The same of one that must have ended with 0: every trial of the undisturbed run counts.
#[track_caller]
fn whole(world: &World, ended: Ended, undisturbed: &Undisturbed) -> (Results, Found) {
    let ended = expect_code(ended, 0);
    judged(world, &ended, undisturbed)
}

/// What was found, for the table.
fn shown(found: &Found) -> String {
    let mut text = format!("{} arrivals, {} traces", found.arrivals, found.outcomes.values().sum::<u64>());
    for (trial, reasons) in &found.invalid {
        let reasons: Vec<&str> = reasons.iter().map(String::as_str).collect();
        let again = if found.standing_invalid.contains(trial) { "" } else { ", sent again" };
        text += &format!("; trial {trial} invalid ({}){again}", reasons.join(", "));
    }
    if found.invalid.is_empty() {
        text += "; every trial counts";
    }
    text
}
