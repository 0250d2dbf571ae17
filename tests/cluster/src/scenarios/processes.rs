//! What happens to processes: killed, and stopped for a while.

use std::time::Duration;

use plimsoll_tests::{Ended, Process, Signal, by, count, text};

use super::{ENGINE, Row, Undisturbed, judged, shown, whole};
use crate::judge::{Found, Log, judge, usable_or_plainly_invalid};
use crate::world::{World, ended, expect_code, expect_said, killed};

pub(super) const SCENARIOS: &[Row] = &[
    ("agent-killed", "kill -9 of an agent, in a trial", true, agent_killed),
    ("agent-killed-early", "kill -9 of an agent while it prepares", false, agent_killed_early),
    (
        "agent-restarted",
        "kill -9 of an agent in a trial; it is started again at once",
        false,
        agent_restarted,
    ),
    ("agent-stopped", "an agent stopped for 5 s, in a trial", false, agent_stopped),
    ("zombie", "an agent stopped for longer than the lease, then continued", false, zombie),
    ("coordinator-gathering", "kill -9 of the coordinator while agents join", false, killed_gathering),
    (
        "coordinator-preparing",
        "kill -9 of the coordinator before any agent is armed",
        false,
        killed_preparing,
    ),
    ("coordinator-trial", "kill -9 of the coordinator, in a trial", true, killed_in_trial),
    (
        "coordinator-draining",
        "kill -9 of the coordinator when all is sent and nothing answered",
        false,
        killed_draining,
    ),
    ("coordinator-between", "kill -9 of the coordinator between two trials", false, killed_between),
    (
        "coordinator-resuming",
        "kill -9 of the coordinator, and of the one that resumes, three times",
        false,
        killed_again,
    ),
    ("both-killed", "kill -9 of the coordinator and of an agent, whose host stays off", false, both_killed),
    (
        "agents-restarted",
        "kill -9 of the coordinator and of every agent; all are started again",
        false,
        all_killed,
    ),
    ("coordinator-stopped", "the coordinator stopped for 5 s, in a trial", false, stopped_short),
    (
        "coordinator-suspended",
        "the coordinator stopped for longer than the lease, then continued",
        false,
        stopped_long,
    ),
    (
        "engine-killed",
        "kill -9 of the engine, in a trial; it is started again, and `resume`",
        false,
        engine_killed,
    ),
];

/// Longer than lease and margin.
const BEYOND_LEASE: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_secs(5);

fn one_lost(found: &Found, reason: &str) {
    assert_eq!(found.invalid.len(), 1, "{found:?}");
    assert!(found.invalid.values().all(|reasons| reasons.contains(reason)), "{found:?}");
}

fn agent_killed(undisturbed: &Undisturbed) -> String {
    let mut world = World::with_agents(ENGINE);
    let running = world.sweep();
    world.under_way(20);
    world.signal_agent(2, Signal::KILL);
    let (_, found) = whole(&world, ended(running), undisturbed);
    one_lost(&found, "agent_lost");
    assert!(found.synthetic.keys().all(|agent| agent == "agent-2"), "{found:?}");
    world.close();
    shown(&found)
}

fn agent_killed_early(undisturbed: &Undisturbed) -> String {
    let mut world = World::with_agents(ENGINE);
    let mut running = world.sweep();
    running.expect_said("trial 2 (");
    world.signal_agent(2, Signal::KILL);
    let (_, found) = whole(&world, ended(running), undisturbed);
    assert!(found.invalid.len() <= 1, "{found:?}");
    world.close();
    shown(&found)
}

fn agent_restarted(undisturbed: &Undisturbed) -> String {
    let mut world = World::with_agents(ENGINE);
    let running = world.sweep();
    world.under_way(20);
    world.signal_agent(2, Signal::KILL);
    world.start_agent(2);
    let (_, found) = whole(&world, ended(running), undisturbed);
    one_lost(&found, "agent_lost");
    world.close();
    shown(&found)
}

fn agent_stopped(undisturbed: &Undisturbed) -> String {
    let mut world = World::with_agents(ENGINE);
    let running = world.sweep();
    world.under_way(20);
    world.signal_agent(2, Signal::STOP);
    std::thread::sleep(SHORT);
    world.signal_agent(2, Signal::CONT);
    let ended = ended(running);
    let (results, found) = judged(&world, &ended, undisturbed);
    let verdicts: Vec<&str> =
        results.trials().iter().map(|t| text(&t["summary"], "/validity/verdict")).collect();
    // It sent late, and that must not go unsaid.
    assert!(verdicts.iter().any(|v| *v != "valid"), "{verdicts:?}");
    world.close();
    format!("{}; verdicts: {}", shown(&found), verdicts.join(", "))
}

fn zombie(undisturbed: &Undisturbed) -> String {
    let mut world = World::with_agents(ENGINE);
    let mut running = world.sweep();
    world.under_way(20);
    world.signal_agent(2, Signal::STOP);
    running.expect_said("sent again by the 3 left");
    let sent = |world: &World| by(&world.log(), "/agent").get("agent-2").copied().unwrap_or(0);
    let before = sent(&world);
    world.signal_agent(2, Signal::CONT);
    let ended = ended(running);
    // What it had begun to send when it was stopped may still come; it begins nothing.
    let after = sent(&world);
    assert!(after <= before + 1, "a zombie sent {} requests", after - before);
    let (_, found) = whole(&world, ended, undisturbed);
    one_lost(&found, "agent_lost");
    world.close();
    format!("{}; the zombie sent {} more", shown(&found), after - before)
}

/// What a coordinator said last.
fn last_line(ended: &Ended) -> String {
    ended.stderr.lines().last().unwrap_or_default().to_owned()
}

/// Goes on with the run until it ends by itself.
#[track_caller]
fn resumed(world: &World, undisturbed: &Undisturbed) -> Found {
    let (results, found) = whole(world, ended(world.resume()), undisturbed);
    assert!(found.invalid.values().all(|reasons| reasons.contains("coordinator_restarted")), "{found:?}");
    assert!(results.report.pointer("/experiment/resumed/0").is_some(), "the record does not say it");
    found
}

fn killed_gathering(undisturbed: &Undisturbed) -> String {
    let mut world = World::new(ENGINE);
    let mut running = world.sweep();
    (1..=3).for_each(|n| world.start_agent(n));
    running.expect_said("agent-1 joined");
    let _ = killed(running);
    // There is no run yet: nothing to go on with, and nothing in the way of the same command.
    let ended_at_once = ended(world.resume());
    assert!(
        ended_at_once.code != Some(0) && ended_at_once.stderr.contains("run"),
        "{}",
        ended_at_once.story()
    );
    world.start_agent(4);
    let (_, found) = whole(&world, ended(world.sweep()), undisturbed);
    assert!(found.invalid.is_empty(), "{found:?}");
    world.close();
    format!("no run yet, and `resume` says so; the same command again: {}", shown(&found))
}

fn killed_preparing(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents(ENGINE);
    let mut running = world.sweep();
    running.expect_said("trial 0 (");
    let _ = killed(running);
    let found = resumed(&world, undisturbed);
    // Nothing was sent, or it is known.
    assert!(found.synthetic.is_empty(), "{found:?}");
    world.close();
    shown(&found)
}

fn killed_in_trial(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents(ENGINE);
    let running = world.sweep();
    world.under_way(30);
    let _ = killed(running);
    let found = resumed(&world, undisturbed);
    one_lost(&found, "coordinator_restarted");
    assert!(found.synthetic.is_empty(), "agents that live know all: {found:?}");
    world.close();
    shown(&found)
}

fn killed_draining(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents("--fixed-ttft-ms 5000");
    let running = world.sweep();
    world.under_way(80);
    let _ = killed(running);
    let found = resumed(&world, undisturbed);
    one_lost(&found, "coordinator_restarted");
    assert!(found.synthetic.is_empty(), "{found:?}");
    world.close();
    shown(&found)
}

/// A line of a trial's end.
fn trial_ended(running: &mut Process) {
    running.expect("the end of a trial", |p| p.stderr().contains(", failed ").then_some(()));
}

fn killed_between(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents(ENGINE);
    let mut running = world.sweep();
    trial_ended(&mut running);
    let _ = killed(running);
    let found = resumed(&world, undisturbed);
    assert!(found.invalid.len() <= 1 && found.synthetic.is_empty(), "{found:?}");
    world.close();
    shown(&found)
}

fn killed_again(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents(ENGINE);
    let running = world.sweep();
    world.under_way(30);
    let _ = killed(running);
    for _ in 0..2 {
        let sent = world.log().len();
        let running = world.resume();
        world.under_way(sent + 30);
        let _ = killed(running);
    }
    let mut running = world.resume();
    running.expect_said("recover");
    let _ = killed(running);
    let found = resumed(&world, undisturbed);
    assert!(found.synthetic.is_empty(), "{found:?}");
    world.close();
    shown(&found)
}

fn both_killed(undisturbed: &Undisturbed) -> String {
    let mut world = World::with_agents(ENGINE);
    let running = world.sweep();
    world.under_way(30);
    world.signal_agent(2, Signal::KILL);
    let _ = killed(running);
    // It waits for four: the operator says how many there are.
    let ended = ended(world.resume_with("--agents 3"));
    let (_, found) = whole(&world, ended, undisturbed);
    one_lost(&found, "coordinator_restarted");
    assert!(found.synthetic.keys().all(|agent| agent == "agent-2"), "{found:?}");
    world.close();
    shown(&found)
}

fn all_killed(undisturbed: &Undisturbed) -> String {
    let mut world = World::with_agents(ENGINE);
    let running = world.sweep();
    world.under_way(40);
    let _ = killed(running);
    for n in 1..=4 {
        world.signal_agent(n, Signal::KILL);
        world.start_agent(n);
    }
    let found = resumed(&world, undisturbed);
    one_lost(&found, "coordinator_restarted");
    let of_nobody: u64 = found.synthetic.values().sum();
    assert!(found.outcomes["success"] > 3 * 80, "nothing of the killed trial was kept: {found:?}");
    world.close();
    format!("{}; {of_nobody} arrivals of unknown fate", shown(&found))
}

fn stopped_short(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents(ENGINE);
    let mut running = world.sweep();
    world.under_way(20);
    running.signal(Signal::STOP);
    std::thread::sleep(SHORT);
    running.signal(Signal::CONT);
    let (_, found) = whole(&world, ended(running), undisturbed);
    assert!(found.invalid.is_empty(), "{found:?}");
    world.close();
    shown(&found)
}

/// Leases run out in its trial: it is invalid, and sent again by the same agents.
fn stopped_long(_: &Undisturbed) -> String {
    let world = World::with_agents(ENGINE);
    // A trial that goes on for longer than the stop: leases run out in it.
    let mut running = world.sweep_of("--rates 4 --requests 120 --repeats 1");
    world.under_way(12);
    running.signal(Signal::STOP);
    std::thread::sleep(BEYOND_LEASE);
    running.signal(Signal::CONT);
    let ended = expect_code(ended(running), 0);
    let results = world.results(&ended);
    let found = judge(&results, &world.log(), Log::Whole);
    one_lost(&found, "generator_failure");
    assert_eq!(found.trials, 2, "{found:?}: {}", ended.story());
    expect_said(&ended, &["not sent: the agent's lease ran out", "sent again by the 4 left"]);
    assert!(
        !ended.stderr.contains("no agent is left"),
        "its own silence is taken for theirs: {}",
        ended.story()
    );
    world.close();
    shown(&found)
}

/// Its trial does not count, the engine's failures are not the generator's, and what is left can be sent later.
fn engine_killed(undisturbed: &Undisturbed) -> String {
    const SLOW: &str = "--fixed-ttft-ms 400";
    let mut world = World::with_agents(SLOW);
    let running = world.sweep();
    world.under_way(30);
    let log = world.log();
    world.kill_engine();
    let ended = ended(running);
    let results = world.results(&ended);
    let found = judge(&results, &log, Log::UntilDeath);
    let failed: u64 = results.trials().iter().map(|t| count(&t["summary"], "/failed")).sum();
    assert!(failed > 0, "{found:?}");
    let kinds = by(&results.traces, "/failure_class");
    assert!(!kinds.contains_key("generator"), "the generator is charged with it: {kinds:?}");
    one_lost(&found, "engine_died");
    let ended = expect_code(ended, 4);
    let said = last_line(&ended);
    assert!(
        said.starts_with("coordinator: ") && said.contains("10.77.0.3"),
        "it does not name the engine: {said}"
    );
    let kinds: Vec<String> = found.outcomes.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    let killed = format!("exit 4; {}; it said: {said}", kinds.join(", "));
    world.start_engine(SLOW);
    let ended = expect_code(self::ended(world.resume()), 0);
    let results = world.results(&ended);
    let found = judge(&results, &[log, world.log()].concat(), Log::UntilDeath);
    usable_or_plainly_invalid(&ended, &results, &found, &undisturbed.schedules);
    one_lost(&found, "engine_died");
    world.close();
    format!("{killed}; started again, and `resume`: {}", shown(&found))
}
