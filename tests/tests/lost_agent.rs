//! An agent that dies in the middle of a trial: every arrival still has its trace, the engine is not charged, and the
//! trial is sent again by those that are left.

use plimsoll_tests::{
    Agent, Coordinator, Engine, Finished, Results, Signal, brief, by, count, counts, descendants, eventually,
    free_port, list, pids_with_argument, signal, text,
};
use serde_json::json;

const INVALID: i32 = 4;

fn trial(engine: &Engine) -> Coordinator {
    Coordinator::run_one().relaxed().engine(engine.url()).line("--rate 20 --duration 6s --max-tokens 4")
}

/// The engine has seen something of the victim's.
fn under_way(engine: &Engine, victim: &str) {
    eventually("requests of the victim at the engine", || {
        let seen = by(engine.log().iter().filter(|e| e["request_id"] != "check/0/0"), "/agent");
        (seen.get(victim).copied().unwrap_or(0) > 5).then_some(())
    });
}

/// What holds once `victim` was killed, of the trial that it was lost in.
fn accounted_for(finished: Finished, engine: &Engine, victim: &str, survivor: &str) {
    let finished = finished.expect_code(0).expect_said(&[victim, "sent again by the 1 left"]);
    let results = finished.results();
    let summary = &results.trials()[0]["summary"];
    assert_eq!(text(summary, "/validity/verdict"), "invalid");
    let lost: Vec<_> =
        list(summary, "/validity/reasons").iter().filter(|r| r["kind"] == "agent_lost").collect();
    assert!(!lost.is_empty() && lost.iter().all(|reason| text(reason, "/agent") == victim), "{lost:?}");
    assert!(finished.ended.stdout.contains(victim), "the report does not name it: {}", finished.ended.stdout);
    for agent in list(summary, "/agents") {
        assert_eq!(agent["lost"], text(agent, "/name") == victim, "{agent:#}");
    }
    // Its open arrivals are lost; whatever else failed is the generator's too, and nothing is the engine's.
    let failures = counts(summary, "/failures_by_kind");
    assert!(failures["agent_lost"] > 0, "{failures:?}");
    let first: Vec<_> = results.traces.iter().filter(|t| t["trial"] == 0).collect();
    for trace in first.iter().filter(|t| t["outcome"] == "agent_lost") {
        assert_eq!(trace["agent"], victim);
        assert!(trace["synthetic"] == true && trace["written_ns"].is_null(), "{}", brief(trace));
    }
    assert_eq!(count(summary, "/synthetic_traces"), failures["agent_lost"]);
    let classes = by(first.iter().copied(), "/failure_class");
    assert!(classes.keys().all(|class| ["null", "generator"].contains(&class.as_str())), "{classes:?}");
    // What a trace says was sent, the engine has seen; of the victim it may have seen more.
    let seen = by(&engine.log_of(results.run(), 0), "/agent");
    let sent = by(first.iter().copied().filter(|t| !t["written_ns"].is_null()), "/agent");
    assert_eq!(sent[survivor], seen[survivor]);
    assert!(sent.get(victim).copied().unwrap_or(0) <= seen[victim]);
    sent_again(&results, survivor);
}

/// The same schedule once more, whole, by who was left: that decides.
fn sent_again(results: &Results, survivor: &str) {
    let [first, again] = results.trials() else { panic!("{:#?}", results.trials()) };
    assert_eq!((&first["rerun_of"], &again["rerun_of"]), (&json!(null), &json!(0)));
    assert_eq!(again["trial"], 1);
    for field in ["seed", "schedule_sha256", "workload_sha256", "repeat", "offered_rate"] {
        assert_eq!(first[field], again[field], "{field}");
    }
    let summary = &again["summary"];
    assert_eq!(text(summary, "/validity/verdict"), "valid", "{:#}", summary["validity"]);
    assert_eq!(count(summary, "/successful"), count(summary, "/requests"));
    let agents: Vec<&str> = list(summary, "/agents").iter().map(|a| text(a, "/name")).collect();
    assert_eq!(agents, [survivor]);
    assert_ne!(text(&results.report, "/knee/case"), "undecided");
}

#[test]
fn a_local_agent_that_is_killed_is_noticed_by_its_end() {
    let engine = Engine::start(&["--fixed-ttft-ms", "5"]);
    let running = trial(&engine).line("--local-agents 2").start();
    under_way(&engine, "local-2");
    let victims = pids_with_argument(&descendants(running.process.pid()), "local-2");
    assert_eq!(victims.len(), 1);
    signal(victims[0], Signal::KILL);
    accounted_for(running.finish(), &engine, "local-2", "local-1");
}

#[test]
fn a_distant_agent_that_is_killed_is_lost_when_its_lease_has_run_out() {
    let engine = Engine::start(&["--fixed-ttft-ms", "5"]);
    let address = free_port().to_string();
    let running = trial(&engine).args(["--agents", "2", "--listen", &address]).start();
    let mut victim = Agent::start("victim", &address, &[]);
    let mut survivor = Agent::start("survivor", &address, &[]);
    under_way(&engine, "victim");
    victim.process.signal(Signal::KILL);
    accounted_for(running.finish(), &engine, "victim", "survivor");
    assert!(survivor.process.is_running(), "the survivor waits for the next coordinator");
}

#[test]
fn a_run_whose_last_agent_is_lost_ends_and_says_so() {
    let engine = Engine::start(&["--fixed-ttft-ms", "5"]);
    let running = trial(&engine).line("--local-agents 1").start();
    under_way(&engine, "local-1");
    let victims = pids_with_argument(&descendants(running.process.pid()), "local-1");
    signal(victims[0], Signal::KILL);
    let finished = running.finish().expect_code(INVALID).expect_said(&["no agent is left"]);
    assert_eq!(finished.results().trials().len(), 1);
    assert_eq!(text(&finished.results().report, "/knee/case"), "undecided");
}
