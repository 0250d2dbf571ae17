//! A host whose local ports run out.

use plimsoll_tests::{brief, by, text};

use super::{Row, Undisturbed, shown};
use crate::judge::{Log, judge};
use crate::net::Host;
use crate::world::{World, ended, expect_code};

pub(super) const SCENARIOS: &[Row] =
    &[("ports", "the local ports of an agent's host run out, in a trial", true, ports_run_out)];

/// Each request is under way for two seconds, so that an agent needs some forty ports; one has sixteen.
fn ports_run_out(_: &Undisturbed) -> String {
    let mut world = World::new("--fixed-ttft-ms 2000");
    Host::Agent(2).ports("40000 40015");
    world.start_agents();
    let ended = expect_code(ended(world.sweep_of("--rates 80 --requests 320 --repeats 1")), 4);
    let results = world.results(&ended);
    let found = judge(&results, &world.log(), Log::Whole);
    let (limited, others): (Vec<_>, Vec<_>) =
        results.traces.iter().partition(|t| t["outcome"] == "local_limit");
    assert!(limited.len() > 20, "its ports did not run out: {found:?}");
    for trace in &limited {
        assert_eq!(trace["agent"], "agent-2", "{}", brief(trace));
        let told = text(trace, "/failure_message");
        assert!(told.contains("assign requested address"), "{}", brief(trace));
        assert!(!trace["released_ns"].is_null(), "it was not tried: {}", brief(trace));
    }
    let outcomes = by(others, "/outcome");
    assert!(outcomes.keys().all(|outcome| outcome == "success"), "another is charged with it: {outcomes:?}");
    assert!(found.invalid.values().all(|reasons| reasons.contains("generator_failure")), "{found:?}");
    assert!(ended.stdout.contains("agent-2"), "the report does not name the agent: {}", ended.story());
    world.close();
    format!("exit 4; {} local_limit, all of that agent; {}", limited.len(), shown(&found))
}
