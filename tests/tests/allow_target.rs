//! `agent --allow-target`: a plan names an engine, and the agent's own host decides whether it may.

use std::io::ErrorKind;
use std::net::TcpListener;

use plimsoll_tests::{Agent, Coordinator, Engine, Running, free_port, text};

const ERROR: i32 = 1;

fn sweep(url: &str) -> Running {
    Coordinator::sweep()
        .relaxed()
        .engine(url)
        .line("--rates 40 --requests 20 --repeats 1 --agents 1 --listen 127.0.0.1:0")
        .start()
}

#[test]
fn a_plan_that_names_another_engine_is_refused_on_both_sides_before_anything_is_opened() {
    // Whoever connects is seen: nobody accepts, and the kernel keeps those who did.
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("its address");
    let mut coordinator = sweep(&format!("http://{address}"));
    let join = coordinator.join_address();
    let allowed = format!("http://{}", free_port());
    let mut agent = Agent::start("narrow", join, &["--allow-target", &allowed]);
    agent.process.expect_said("refused to try an engine");
    let finished = coordinator.finish().expect_code(ERROR);
    let target = format!("agent narrow cannot use the engine at http://{address}/v1");
    finished.expect_said(&[&target, "--allow-target", &allowed, "--base-url"]).expect_no_results();
    assert!(agent.process.stderr().contains(&address.to_string()), "{}", agent.process.stderr());
    other.set_nonblocking(true).expect("a listener that does not wait");
    let nobody = other.accept().map(|(_, from)| from).expect_err("the agent has connected");
    assert_eq!(nobody.kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_plan_that_names_an_allowed_engine_is_carried_out_and_the_environment_counts() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let mut coordinator = sweep(engine.url());
    let join = coordinator.join_address();
    let allowed = format!("other.example,{}", engine.url());
    let _agent = Agent::start_with("narrow", join, &["--once"], &[("PLIMSOLL_ALLOW_TARGET", &allowed)]);
    let results = coordinator.finish().expect_code(0).results();
    assert!(results.traces_of(0).iter().all(|trace| text(trace, "/outcome") == "success"));
}

#[test]
fn a_host_header_does_not_lead_elsewhere() {
    let engine = Engine::start(&[]);
    let mut coordinator = Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .line("--rates 40 --requests 20 --repeats 1 --agents 1 --listen 127.0.0.1:0")
        .args(["--header", "Host: other.example"])
        .start();
    let join = coordinator.join_address();
    let _agent = Agent::start("narrow", join, &["--allow-target", engine.url()]);
    coordinator.finish().expect_code(ERROR).expect_said(&["narrow", "Host header"]).expect_no_results();
    assert_eq!(engine.log().len(), 0);
}

#[test]
fn a_target_that_is_none_is_a_usage_error() {
    let ended = Agent::start("a", free_port(), &["--allow-target", "ftp://engine"]).process.wait();
    assert_eq!(ended.code, Some(2), "{}", ended.story());
    assert!(
        ended.stderr.contains("--allow-target") && ended.stderr.contains("HOST:PORT"),
        "{}",
        ended.story()
    );
}
