//! The schedule is a function of the seed, and of nothing else: not of the number of agents, not of the run.

use plimsoll_tests::{Coordinator, Engine, Results, by, count, text};

/// What the schedule fixes for each arrival.
fn schedule(results: &Results) -> Vec<(u64, u64)> {
    results.traces_of(0).iter().map(|t| (count(t, "/scheduled_ns"), count(t, "/row"))).collect()
}

fn digest(results: &Results) -> &str {
    let digest = text(&results.trials()[0], "/schedule_sha256");
    assert!(digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()), "no SHA-256: {digest}");
    assert_eq!(text(&results.report, "/experiment/trials/0/schedule_sha256"), digest);
    digest
}

#[test]
fn one_seed_is_one_schedule_for_any_number_of_agents_and_every_run() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let start = |agents: usize, seed: u32| {
        let line = format!("--rates 100 --requests 60 --repeats 1 --local-agents {agents} --seed {seed}");
        Coordinator::sweep().relaxed().engine(engine.url()).line(&line).start()
    };
    // At the same time: what is compared does not depend on how busy the machine is.
    let running =
        [(1, 7), (2, 7), (5, 7), (2, 7), (2, 8)].map(|(agents, seed)| (agents, start(agents, seed)));
    let [one, two, five, again, other] = running.map(|(agents, coordinator)| {
        let results = coordinator.finish().expect_code(0).results();
        assert_eq!(by(&results.traces, "/agent").len(), agents, "not every agent sent something");
        results
    });
    for same in [&two, &five, &again] {
        assert_eq!(digest(same), digest(&one));
        assert_eq!(schedule(same), schedule(&one));
    }
    assert_ne!(digest(&other), digest(&one), "another seed is the same schedule");
    assert_ne!(schedule(&other), schedule(&one));
    // The same fleet shares the same schedule out in the same way.
    let owners = |results: &Results| -> Vec<String> {
        results.traces_of(0).iter().map(|t| text(t, "/agent").to_owned()).collect()
    };
    assert_eq!(owners(&two), owners(&again));
    assert_ne!(text(&two.report, "/run_id"), text(&again.report, "/run_id"));
}
