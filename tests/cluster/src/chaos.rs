//! Chaos: a sweep in which a random process is killed or stopped at a random moment, once or twice.
//!
//! What is done is a function of the seed and the round, and can be done again; when exactly the program is where is
//! not, which is the point. Afterwards the run is carried to its end as an operator would: an agent that died is
//! started again, a coordinator that died is resumed. It must end in a report that is usable or says why it is not.

use std::time::Duration;

use common::seed::{Seed, Stream};
use plimsoll_tests::{Ended, Process, Signal};
use serde::{Deserialize, Serialize};

use crate::judge::{Log, judge, usable_or_plainly_invalid};
use crate::net::AGENTS;
use crate::scenarios::{ENGINE, Undisturbed};
use crate::world::{RUN_PATIENCE, World, ended};

/// How long an undisturbed run takes about, joining included: moments are drawn from here.
const ABOUT: Duration = Duration::from_secs(12);

/// Commands until a run must be over: the first, one for each fault, and one for a run that a fault let end early.
const COMMANDS: usize = 5;

/// Who is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Victim {
    /// Whichever coordinator runs.
    Coordinator,
    /// This agent.
    Agent(usize),
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Blow {
    /// kill -9; an agent is started again at once.
    Kill,
    /// Stopped for so many milliseconds.
    Stop(u64),
}

/// A fault.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Fault {
    /// Milliseconds after the start of the sweep, or after the fault before it.
    pub after: u64,
    /// Who.
    pub victim: Victim,
    /// What.
    pub blow: Blow,
}

/// What became of a round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Round {
    /// Its number.
    pub round: u64,
    /// What was done. One that came after the end of the run is left out.
    pub faults: Vec<Fault>,
    /// The last exit code.
    pub code: Option<i32>,
    /// Commands beyond the first.
    pub resumed: usize,
    /// Arrivals, of which each has one trace.
    pub arrivals: u64,
    /// Traces of requests that the engine finished.
    pub successes: u64,
    /// Traces that say that nobody knows.
    pub unknown: u64,
    /// Trials that are invalid.
    pub invalid: usize,
    /// Trials that were planned and are neither valid nor sent again.
    pub standing_invalid: usize,
}

fn below(random: &mut Stream, n: u64) -> u64 {
    ((random.open_unit() * n as f64) as u64).min(n - 1)
}

/// What is done in a round.
#[must_use]
pub fn faults(seed: Seed, round: u64) -> Vec<Fault> {
    let mut random = seed.derive(&round.to_string()).stream("chaos");
    let fault = |random: &mut Stream| {
        let victim = match below(random, 5) {
            0 | 1 => Victim::Coordinator,
            _ => Victim::Agent(1 + below(random, AGENTS as u64) as usize),
        };
        let blow = match below(random, 10) {
            0..=5 => Blow::Kill,
            6..=8 => Blow::Stop(200 + below(random, 6_000)),
            // Beyond the lease.
            _ => Blow::Stop(18_000 + below(random, 4_000)),
        };
        Fault { after: below(random, ABOUT.as_millis() as u64), victim, blow }
    };
    let first = fault(&mut random);
    let second = (below(&mut random, 3) == 0).then(|| fault(&mut random));
    std::iter::once(first).chain(second).collect()
}

/// A process that is to run until `after` has gone by. False when it ended before.
fn runs_on(process: &mut Process, after: Duration) -> bool {
    // The moment is what is drawn; nothing is waited for.
    std::thread::sleep(after);
    process.is_running()
}

/// Does it. False when the victim, or the run, was gone already.
fn strike(world: &mut World, running: &mut Process, fault: Fault) -> bool {
    let (victim, signal) = (fault.victim, if fault.blow == Blow::Kill { Signal::KILL } else { Signal::STOP });
    if !runs_on(running, Duration::from_millis(fault.after)) {
        return false;
    }
    let send = |world: &mut World, running: &mut Process, signal| match victim {
        Victim::Coordinator if running.is_running() => running.signal(signal),
        Victim::Coordinator => {}
        Victim::Agent(n) => world.signal_agent(n, signal),
    };
    send(world, running, signal);
    match (fault.blow, victim) {
        (Blow::Kill, Victim::Agent(n)) => world.start_agent(n),
        (Blow::Kill, Victim::Coordinator) => {}
        (Blow::Stop(ms), _) => {
            std::thread::sleep(Duration::from_millis(ms));
            send(world, running, Signal::CONT);
        }
    }
    true
}

/// The next command of an operator who wants this run.
fn next(world: &World) -> Process {
    if world.run().is_some() { world.resume() } else { world.sweep() }
}

/// A trial stands as invalid: there is a report, and it may be that nothing is left to be sent.
const INVALID: i32 = 4;

/// `resume` of a run in which nothing is left to be sent says so.
fn is_finished(ended: &Ended) -> bool {
    ended.code == Some(1) && ended.stderr.contains("is finished")
}

/// One round.
///
/// # Panics
/// When something is lost, said wrongly, or left behind.
#[must_use]
pub fn round(seed: Seed, number: u64, undisturbed: &Undisturbed) -> Round {
    let mut world = World::with_agents(ENGINE);
    let mut planned = faults(seed, number).into_iter();
    let mut done = Vec::new();
    let mut running = world.sweep();
    let mut resumed = 0;
    let mut story = Vec::new();
    let mut invalid: Option<Ended> = None;
    let last = loop {
        if let Some(fault) = planned.next()
            && strike(&mut world, &mut running, fault)
        {
            done.push(fault);
        }
        if planned.len() > 0 && running.is_running() {
            continue;
        }
        let ended: Ended = ended(running);
        story.push(ended.story());
        if ended.code == Some(0) {
            break ended;
        }
        if let Some(reported) = invalid.take_if(|_| is_finished(&ended)) {
            break reported;
        }
        invalid = (ended.code == Some(INVALID)).then_some(ended);
        resumed += 1;
        assert!(resumed < COMMANDS, "it does not come to its end in {RUN_PATIENCE:?}: {}", story.join("\n"));
        running = next(&world);
    };
    let told = || format!("{}\n{}", story.join("\n"), world.said());
    let results = world.results(&last);
    let log = world.log();
    let judged = std::panic::catch_unwind(|| {
        let found = judge(&results, &log, Log::Whole);
        usable_or_plainly_invalid(&last, &results, &found, &undisturbed.schedules);
        found
    });
    let found = judged.unwrap_or_else(|_| panic!("judged above; {}", told()));
    let only_coordinators = done.iter().all(|f| f.victim == Victim::Coordinator && f.blow == Blow::Kill);
    assert!(!only_coordinators || found.synthetic.is_empty(), "agents that live know all: {}", told());
    let outcome = |kind: &str| found.outcomes.get(kind).copied().unwrap_or(0);
    world.close();
    Round {
        round: number,
        faults: done,
        code: last.code,
        resumed,
        arrivals: found.arrivals,
        successes: outcome("success"),
        unknown: outcome("agent_lost"),
        invalid: found.invalid.len(),
        standing_invalid: found.standing_invalid.len(),
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let victim = match self.victim {
            Victim::Coordinator => "coordinator".to_owned(),
            Victim::Agent(n) => format!("agent-{n}"),
        };
        let after = self.after as f64 / 1e3;
        match self.blow {
            Blow::Kill => write!(f, "kill -9 {victim} after {after:.1} s"),
            Blow::Stop(ms) => write!(f, "stop {victim} after {after:.1} s for {:.1} s", ms as f64 / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_a_function_of_its_seed_and_everybody_is_hit_in_time() {
        let all: Vec<Fault> = (0..200).flat_map(|round| faults(Seed(1), round)).collect();
        let again: Vec<Fault> = (0..200).flat_map(|round| faults(Seed(1), round)).collect();
        assert_eq!(format!("{all:?}"), format!("{again:?}"));
        for victim in std::iter::once(Victim::Coordinator).chain((1..=AGENTS).map(Victim::Agent)) {
            let of: Vec<&Fault> = all.iter().filter(|f| f.victim == victim).collect();
            assert!(of.iter().any(|f| f.blow == Blow::Kill), "{victim:?} is never killed");
            assert!(of.iter().any(|f| matches!(f.blow, Blow::Stop(_))), "{victim:?} is never stopped");
        }
        assert!(all.iter().all(|f| Duration::from_millis(f.after) < ABOUT));
    }
}
