//! `agent spool`: what a killed agent left is listed, delivered to the coordinator that waits for it, and removed.

use plimsoll_tests::schema::{SPOOL, keeps_to, parsed, validator};
use plimsoll_tests::{
    Agent, Coordinator, Ended, Engine, Signal, by, count, eventually, free_port, list, text,
};

#[track_caller]
fn expect(ended: Ended, code: i32, said: &str) -> Ended {
    assert_eq!(ended.code, Some(code), "{}", ended.story());
    assert!(ended.stdout.contains(said) || ended.stderr.contains(said), "no {said:?}: {}", ended.story());
    ended
}

#[test]
fn what_a_killed_agent_left_is_delivered_and_removed() {
    let engine = Engine::start(&["--fixed-ttft-ms", "5"]);
    let address = free_port().to_string();
    // The trial stays open until the victim's lease has run out.
    let running = Coordinator::run_one()
        .relaxed()
        .engine(engine.url())
        .line("--rate 20 --duration 6s --max-tokens 4")
        .args(["--agents", "2", "--listen", &address])
        .start();
    let mut victim = Agent::start("victim", &address, &[]);
    let survivor = Agent::start("survivor", &address, &[]);
    eventually("requests of the victim at the engine", || {
        let seen = by(engine.log().iter().filter(|e| e["request_id"] != "check/0/0"), "/agent");
        (seen.get("victim").copied().unwrap_or(0) > 10).then_some(())
    });
    // A running agent has its spool: it may be looked at.
    expect(victim.spool("ls"), 0, "in use by a running agent");
    expect(victim.spool("rm --all --yes"), 1, "in use by a running agent (process ");
    expect(victim.spool(&format!("push --join {address}")), 1, "in use by a running agent");
    victim.process.signal(Signal::KILL);
    eventually("the victim to be gone", || (!victim.process.is_running()).then_some(()));

    let listed = parsed(&expect(victim.spool("ls --json"), 0, "").stdout);
    keeps_to(&validator(SPOOL), &listed, "agent spool ls --json");
    let held: u64 = list(&listed, "/segments").iter().map(|s| count(s, "/traces")).sum();
    assert!(held > 0, "{listed:#}");
    assert!(list(&listed, "/segments").iter().all(|s| s["sealed"] == false && text(s, "/agent") == "victim"));
    assert_eq!(listed["agents"][0]["in_use"], false);
    let table = expect(victim.spool("ls"), 0, "  unsealed  ").stdout;
    assert!(table.lines().all(|line| line.len() <= 100), "{table}");
    expect(
        victim.spool(&format!("push --join {address} no-such-run")),
        1,
        "holds nothing of run no-such-run",
    );
    expect(victim.spool(&format!("push --join {address}")), 0, " delivered");
    expect(
        victim.spool(&format!("push --join {address}")),
        0,
        &format!("0 traces delivered, {held} were there"),
    );

    // The survivor sends the trial again, whole.
    let finished = running.finish().expect_code(0);
    let results = finished.results();
    let real = |t: &&serde_json::Value| t["agent"] == "victim" && t["synthetic"] == false;
    assert_eq!(results.traces.iter().filter(real).count() as u64, held, "what was held is in the results");
    // The coordinator is gone; nothing is lost by that, nor by mistake.
    expect(victim.spool(&format!("push --join {address}")), 1, "cannot reach a coordinator");
    expect(victim.spool("rm --all"), 1, &format!("{held} traces that no coordinator has sealed"));
    expect(victim.spool("rm --sealed"), 0, "removed 0 segments");
    expect(victim.spool(&format!("rm {} --yes", results.run())), 0, &format!("with {held} traces"));
    expect(victim.spool("ls"), 0, "holds no traces");
    expect(survivor.spool("ls"), 0, "holds no traces");
}
