//! Agents that are started by hand: before or after the coordinator, for one run or for many, with or without a token.

use std::net::SocketAddr;

use plimsoll_tests::{
    Agent, Coordinator, Engine, Process, Results, Running, by, command_line, descendants, files_with,
    free_port, text,
};
use serde_json::json;

const TOKEN: &str = "tok-planted-4fd1a7";
const KEY: &str = "sk-planted-9c02be";

fn short(engine: &Engine) -> Coordinator {
    Coordinator::sweep().relaxed().engine(engine.url()).line("--rates 40 --requests 40 --repeats 1")
}

fn owners(results: &Results) -> Vec<String> {
    results.traces_of(0).iter().map(|t| text(t, "/agent").to_owned()).collect()
}

fn serve(engine: &Engine, address: SocketAddr) -> Running {
    let listen = address.to_string();
    short(engine).args(["--agents", "2", "--listen", &listen]).start()
}

#[test]
fn agents_started_before_and_after_serve_one_coordinator_after_the_other() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let address = free_port();
    let mut before = Agent::start("before", address, &[]);
    before.process.expect_said("trying again");
    let mut coordinator = serve(&engine, address);
    assert_eq!(coordinator.join_address(), address);
    let mut after = Agent::start("after", address, &[]);
    let first = coordinator.finish().expect_code(0).expect_said(&["before joined", "after joined"]).results();
    let second = serve(&engine, address).finish().expect_code(0).results();
    for results in [&first, &second] {
        let seen = by(&engine.log_of(results.run(), 0), "/agent");
        assert_eq!(seen, by(&results.traces, "/agent"));
        assert_eq!(seen.keys().collect::<Vec<_>>(), ["after", "before"]);
    }
    assert_eq!(owners(&first), owners(&second), "the same names share the same seed out differently");
    assert_ne!(first.run(), second.run());
    assert!(before.process.is_running() && after.process.is_running());
    for agent in [before, after] {
        let ended = agent.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.story());
    }
}

#[test]
fn an_agent_started_for_one_run_ends_after_it() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let mut coordinator = serve(&engine, free_port());
    let address = coordinator.join_address();
    let once = Agent::start("once", address, &["--once"]);
    let mut stays = Agent::start("stays", address, &[]);
    let results = coordinator.finish().expect_code(0).results();
    assert_eq!(by(&results.traces, "/agent").keys().collect::<Vec<_>>(), ["once", "stays"]);
    let ended = once.process.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.story());
    assert!(stays.process.is_running());
}

#[test]
fn a_name_that_is_taken_is_refused_with_what_to_do_and_the_run_goes_on() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let mut coordinator = serve(&engine, free_port());
    let address = coordinator.join_address();
    let _first = Agent::start("twin", address, &[]);
    coordinator.process.expect_said("twin joined");
    let mut second = Agent::start("twin", address, &[]);
    second.process.expect_said("--name");
    let _other = Agent::start("other", address, &[]);
    let results = coordinator.finish().expect_code(0).results();
    assert_eq!(by(&results.traces, "/agent").len(), 2);
}

#[test]
fn an_address_that_is_none_ends_the_agent() {
    let ended = Agent::start("lost", "localhost", &[]).process.wait();
    assert_eq!(ended.code, Some(2), "{}", ended.story());
    assert!(ended.stderr.contains("HOST:PORT"), "{}", ended.story());
}

#[test]
fn an_agent_without_the_token_or_with_another_is_refused_and_ends() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let mut coordinator = short(&engine)
        .args(["--agents", "1", "--listen", "127.0.0.1:0"])
        .secret("--token-file", TOKEN)
        .start();
    let address = coordinator.join_address();
    for environment in [&[][..], &[("PLIMSOLL_TOKEN", "tok-another")]] {
        let ended = Agent::start_with("stranger", address, &[], environment).process.wait();
        assert_eq!(ended.code, Some(1), "{}", ended.story());
        assert!(ended.stderr.contains("refused") && ended.stderr.contains("token"), "{}", ended.story());
        assert!(!ended.stderr.contains("tok-another"), "{}", ended.story());
    }
    let _friend = Agent::start_with("friend", address, &["--once"], &[("PLIMSOLL_TOKEN", TOKEN)]);
    let finished = coordinator.finish().expect_code(0);
    assert_eq!(by(&finished.results().traces, "/agent").keys().collect::<Vec<_>>(), ["friend"]);
    assert!(!finished.ended.stderr.contains("stranger joined"), "{}", finished.story());
}

/// Says that neither secret is on a command line.
fn not_on_command_lines(pids: &[u32]) {
    for line in pids.iter().map(|pid| command_line(*pid)) {
        assert!(!line.is_empty(), "a process has ended before it was looked at");
        assert!(!line.contains(TOKEN) && !line.contains(KEY), "a secret on a command line: {line}");
    }
}

fn not_said(process: &Process) {
    for said in [process.stdout(), process.stderr()] {
        assert!(!said.contains(TOKEN) && !said.contains(KEY), "a secret was said: {said}");
    }
}

#[test]
fn token_and_key_are_used_and_show_up_nowhere() {
    // Errors carry the engine's words into messages and traces.
    let engine = Engine::start(&["--fixed-ttft-ms", "1", "--fault", "http-500:every=5"]);
    let log = ("RUST_LOG", "trace");
    let mut coordinator = Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "hold fast", "max_tokens": 4})])
        .line("--rates 40 --duration 2s --repeats 1 --local-agents 1 --agents 1 --listen 127.0.0.1:0")
        .secret("--token-file", TOKEN)
        .env("OPENAI_API_KEY", KEY)
        .env(log.0, log.1)
        .start();
    let address = coordinator.join_address();
    let environment = [("PLIMSOLL_TOKEN", TOKEN), ("OPENAI_API_KEY", KEY), log];
    let remote = Agent::start_with("remote", address, &[], &environment);
    coordinator.process.expect_said("trial 0 (1 of 1)");
    let local = descendants(coordinator.process.pid());
    assert_eq!(local.len(), 1, "one agent is started here");
    not_on_command_lines(&[&local[..], &[coordinator.process.pid(), remote.process.pid()]].concat());
    let finished = coordinator.finish().expect_code(0);
    let results = finished.results();
    assert!(results.outcomes()["http_status"] > 0);
    assert_eq!(by(&results.traces, "/agent").len(), 2, "both agents had the token");
    assert!(engine.log().iter().all(|entry| entry["authorization"] == true), "the key was not sent");
    not_said(&remote.process);
    let said = finished.story();
    assert!(!said.contains(TOKEN) && !said.contains(KEY), "a secret was said: {said}");
    for secret in [TOKEN, KEY] {
        for folder in [finished.folder(), remote.folder()] {
            let found = files_with(folder, secret);
            assert!(found.is_empty(), "a secret in {found:?}");
        }
    }
    // The search can find: a name that must be there.
    assert!(!files_with(finished.folder(), results.run()).is_empty());
}
