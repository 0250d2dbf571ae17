//! A host that runs out of files in the middle of a trial: sending goes on, what failed by it is the generator's, and
//! everything ends with a reason.

use plimsoll_tests::{Agent, Coordinator, Engine, brief, count, eventually, limit_files, list, text};
use serde_json::{Value, json};

const INVALID: i32 = 4;

/// The first request is still under way when the last one is due.
fn slow_engine() -> Engine {
    Engine::start(&["--fixed-ttft-ms", "5000"])
}

fn sweep(engine: &Engine) -> Coordinator {
    Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "one of many", "max_tokens": 2})])
        .line("--repeats 1 --rates 40 --requests 160 --agents 1 --listen 127.0.0.1:0")
}

fn agent(address: std::net::SocketAddr) -> Agent {
    Agent::start("thin", address, &["--once"])
}

fn under_way(engine: &Engine, requests: usize) {
    eventually("requests at the engine", || (engine.log().len() > requests).then_some(()));
}

#[test]
fn an_agent_without_files_goes_on_and_its_failures_are_its_own() {
    let engine = slow_engine();
    let mut running = sweep(&engine).line("--join-timeout 20s").start();
    let agent = agent(running.join_address());
    under_way(&engine, 20);
    limit_files(agent.process.pid(), 5);
    let finished = running.finish().expect_code(INVALID);
    let results = finished.results();
    let outcomes = results.outcomes();
    assert!(outcomes["local_limit"] > 20 && outcomes["success"] > 20, "{outcomes:?}");
    assert_eq!(outcomes.len(), 2, "something else is charged with it: {outcomes:?}");
    for trace in results.traces.iter().filter(|t| t["outcome"] == "local_limit") {
        assert_eq!(trace["failure_class"], "generator");
        assert!(text(trace, "/failure_message").contains("too many open files"), "{}", brief(trace));
        assert!(trace["written_ns"].is_null() && !trace["released_ns"].is_null(), "{}", brief(trace));
    }
    let summary = results.summary();
    assert_eq!(text(summary, "/validity/verdict"), "invalid");
    let reasons = list(summary, "/validity/reasons");
    let own: Vec<&Value> = reasons.iter().filter(|r| r["kind"] == "generator_failure").collect();
    let [own] = own.as_slice() else { panic!("{reasons:#?}") };
    assert!(text(own, "/agent") == "thin" && text(own, "/message").contains("local_limit"), "{own:#}");
    // What failed here never reached the engine.
    let log = engine.log_of(results.run(), 0);
    assert_eq!(log.len() as u64, outcomes["success"]);
    assert_eq!(count(summary, "/conservation/recorded"), 160);
    let _ = agent.process.wait();
}

/// It cannot even make its spool.
#[test]
fn an_agent_that_can_open_nothing_ends_the_run_with_the_reason() {
    let engine = slow_engine();
    let mut running = sweep(&engine).line("--join-timeout 20s").start();
    let agent = agent(running.join_address());
    running.process.expect_said("thin joined");
    limit_files(agent.process.pid(), 0);
    let finished = running.finish().expect_code(1);
    let said = finished.ended.stderr.to_lowercase();
    assert!(said.contains("agent thin") && said.contains("too many open files"), "{}", finished.story());
    assert!(engine.log().len() <= 1, "it went on all the same");
    let _ = agent.process.wait();
}

/// Nobody can join: that is not silence, and not a line for every attempt.
#[test]
fn a_coordinator_that_cannot_let_agents_in_says_why_and_stops_waiting() {
    let engine = slow_engine();
    let mut running = sweep(&engine).line("--join-timeout 8s").start();
    let address = running.join_address();
    limit_files(running.process.pid(), 0);
    let agent = agent(address);
    let finished = running.finish().expect_code(1);
    let said = finished.ended.stderr.to_lowercase();
    let lines = said.lines().filter(|line| line.contains("too many open files")).count();
    assert!((1..=3).contains(&lines), "{}", finished.story());
    assert!(said.contains("0 of 1 agents joined"), "{}", finished.story());
    let _ = agent.stop();
}
