//! What happens to links, and clocks that are far apart.

use std::time::Duration;

use common::clock::{Clock, SystemClock};
use plimsoll_tests::{list, number, text};

use super::{ENGINE, Row, Undisturbed, judged, shown, whole};
use crate::net::AGENTS;
use crate::world::{World, ended, expect_said};

pub(super) const SCENARIOS: &[Row] = &[
    ("distant", "slow control links with jitter, and host clocks apart by minutes", true, distant),
    ("cut-short", "cable of an agent pulled for 4 s, in a trial", false, cut_short),
    ("cut-long", "cable of an agent pulled for longer than the lease", false, cut_long),
    ("reset", "control connections of an agent broken, in a trial", true, reset),
    ("held-short", "control link of an agent carries nothing for 6 s, then goes on", false, held_short),
    (
        "held-long",
        "control link of an agent carries nothing for longer than the lease, then goes on",
        false,
        held_long,
    ),
    ("swallowed", "control link of an agent swallows every byte and closes nothing", false, swallowed),
    ("all-held", "control links of all agents carry nothing for 6 s", false, all_held),
];

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Each way takes another time, so that half the round trip is not the truth; the clocks differ by more than that.
fn distant(undisturbed: &Undisturbed) -> String {
    let mut world = World::new(ENGINE);
    // A clock cannot show less than nothing.
    let back = if SystemClock.monotonic().as_secs_f64() > 200.0 { -100 } else { -5 };
    for (member, ahead) in world.members.iter_mut().zip([100, back, 86_400, 0]) {
        member.ahead = ahead;
        member.link.delay(ms(5), ms(25), ms(10));
    }
    world.members[1].link.delay(ms(30), ms(2), ms(15));
    world.start_agents();
    let (results, found) = whole(&world, ended(world.sweep()), undisturbed);
    assert!(found.invalid.is_empty(), "{found:?}");
    let mut widest: f64 = 0.0;
    for trial in results.trials() {
        let agents = list(&trial["summary"], "/agents");
        assert_eq!(agents.len(), AGENTS);
        for (agent, member) in agents.iter().zip(&world.members) {
            assert_eq!(text(agent, "/name"), member.host.name());
            let (offset, bound) =
                (number(agent, "/clock_offset_seconds"), number(agent, "/clock_bound_seconds"));
            let truth = member.ahead as f64;
            // A double carries a day in nanoseconds to some 10 picoseconds.
            assert!((offset - truth).abs() <= bound + 1e-9, "{truth} is not {offset} ± {bound}: {agent:#}");
            widest = widest.max(bound);
        }
    }
    world.close();
    format!(
        "{}; every stated clock bound holds the true offset, the widest ±{:.0} ms",
        shown(&found),
        widest * 1e3
    )
}

fn cut_short(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents(ENGINE);
    let running = world.sweep();
    world.under_way(20);
    let host = world.members[1].host;
    host.cut();
    std::thread::sleep(ms(4000));
    host.mend();
    let ended = ended(running);
    let (_, found) = judged(&world, &ended, undisturbed);
    world.close();
    shown(&found)
}

fn cut_long(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents(ENGINE);
    let mut running = world.sweep();
    world.under_way(20);
    let host = world.members[1].host;
    host.cut();
    running.expect_said("sent again by the 3 left");
    host.mend();
    let ended = ended(running);
    expect_said(&ended, &["agent-2", "silent for"]);
    let (_, found) = whole(&world, ended, undisturbed);
    assert!(found.invalid.values().all(|reasons| reasons.contains("agent_lost")), "{found:?}");
    assert_eq!(found.invalid.len(), 1, "{found:?}");
    world.close();
    shown(&found)
}

fn reset(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents(ENGINE);
    let running = world.sweep();
    world.under_way(20);
    world.members[1].link.disconnect();
    let (_, found) = whole(&world, ended(running), undisturbed);
    assert!(found.invalid.is_empty(), "{found:?}");
    world.close();
    shown(&found)
}

fn held_short(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents(ENGINE);
    let running = world.sweep();
    world.under_way(20);
    world.members[1].link.hold();
    std::thread::sleep(ms(6000));
    world.members[1].link.pass();
    let (_, found) = whole(&world, ended(running), undisturbed);
    assert!(found.invalid.is_empty(), "{found:?}");
    world.close();
    shown(&found)
}

fn held_long(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents(ENGINE);
    let mut running = world.sweep();
    world.under_way(20);
    world.members[1].link.hold();
    running.expect_said("sent again by the 3 left");
    world.members[1].link.pass();
    let (_, found) = whole(&world, ended(running), undisturbed);
    assert_eq!(found.invalid.len(), 1, "{found:?}");
    world.close();
    shown(&found)
}

fn swallowed(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents(ENGINE);
    let mut running = world.sweep();
    world.under_way(20);
    world.members[1].link.swallow();
    running.expect_said("sent again by the 3 left");
    world.members[1].link.pass();
    let (_, found) = whole(&world, ended(running), undisturbed);
    assert_eq!(found.invalid.len(), 1, "{found:?}");
    world.close();
    shown(&found)
}

fn all_held(undisturbed: &Undisturbed) -> String {
    let world = World::with_agents(ENGINE);
    let running = world.sweep();
    world.under_way(20);
    world.members.iter().for_each(|m| m.link.hold());
    std::thread::sleep(ms(6000));
    world.members.iter().for_each(|m| m.link.pass());
    let (_, found) = whole(&world, ended(running), undisturbed);
    assert!(found.invalid.is_empty(), "{found:?}");
    world.close();
    shown(&found)
}
