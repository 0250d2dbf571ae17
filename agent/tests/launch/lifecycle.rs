//! Start, ready, death, stop and restart of one process.

use std::time::Duration;

use agent::launch::{Exit, LaunchError, Waiting};
use common::ids::Nanos;
use rustix::process::Signal;
use tokio::time::timeout;

use crate::support::{READY, Stub, expect_gone, get, runs, signal};

#[tokio::test]
async fn it_is_ready_when_it_answers_200_and_not_before() {
    let stub = Stub::new(&[("STUB_GATE", "1"), ("STUB_BUSY", "2"), ("STUB_SAY", "loading")]);
    let mut engine = stub.start().await.unwrap();
    let mut seen: Vec<Waiting> = Vec::new();
    let watch = |waiting: &Waiting| {
        // The first answer is there, so the port may be opened.
        std::fs::write(stub.path("open"), "").unwrap();
        seen.push(waiting.clone());
    };
    let after = engine.wait_ready(READY, || get(stub.port, READY), watch).await.unwrap();
    assert_eq!(engine.ready_after(), Some(after));
    let answers: Vec<&str> = seen.iter().map(|w| w.answer.as_str()).collect();
    assert!(answers[0].contains("refused"), "the port was closed at first: {answers:?}");
    assert_eq!(answers.iter().filter(|a| **a == "HTTP 503").count(), 2, "{answers:?}");
    assert!(seen.is_sorted_by_key(|w| w.waited) && seen.last().unwrap().waited <= after);
    assert_eq!(seen.last().unwrap().log_line.as_deref(), Some("loading"));
    assert_eq!(stub.asked(), [READY; 3]);
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_crash_before_it_is_ready_is_told_at_once_with_status_and_log() {
    let stub = Stub::new(&[("STUB_CRASH", "7"), ("STUB_SAY", "no kernel image\nfor this device")]);
    let mut engine = stub.start().await.unwrap();
    // The recipe would allow twenty minutes; the test runner ends this test after five.
    let error = stub.wait_ready(&mut engine, READY).await.unwrap_err();
    let LaunchError::Exited { exit, log, .. } = &error else { panic!("{error}") };
    assert_eq!(*exit, Exit::Status(7));
    assert_eq!(log.tail, ["the stub starts", "no kernel image", "for this device"]);
    let shown = error.to_string();
    assert!(shown.contains("toy ended with exit status 7") && shown.contains("for this device"), "{shown}");
    assert_eq!(engine.ready_after(), None);
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_not_ready_in_time_is_told_with_its_last_answer() {
    let stub = Stub::with_fields(
        &[("STUB_BUSY", "100000"), ("STUB_SAY", "still loading")],
        "[ready]\ntimeout_seconds = 2",
    );
    let mut engine = stub.start().await.unwrap();
    // However slow the host is, at the end it has answered at least once.
    while get(stub.port, READY).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let error = stub.wait_ready(&mut engine, READY).await.unwrap_err();
    let LaunchError::NotReady { answer, log, waited, .. } = &error else { panic!("{error}") };
    assert_eq!(answer, "HTTP 503");
    assert!(*waited >= Nanos::from_secs(2));
    assert_eq!(log.tail.last().unwrap(), "still loading");
    // It was not ended by that: what to do is the caller's to say.
    assert!(runs(engine.pid().unwrap()));
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_stop_lets_it_end_by_itself_and_frees_the_port() {
    let stub = Stub::new(&[]);
    let mut engine = stub.ready().await;
    let pids = stub.expect_pids(&["first"]);
    let exited = engine.exited();
    engine.stop().await.unwrap();
    expect_gone(&pids);
    std::net::TcpListener::bind(("127.0.0.1", stub.port)).unwrap();
    // It was asked for, so it is no death; and stopping what is stopped is fine.
    assert!(timeout(Duration::from_millis(100), exited).await.is_err());
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn what_ignores_sigterm_is_killed_after_its_grace() {
    let stub = Stub::new(&[("STUB_TERM", "ignore")]);
    stub.edit("grace_seconds = 30", "grace_seconds = 1");
    let mut engine = stub.ready().await;
    let pid = engine.pid().unwrap();
    signal(pid, Signal::TERM);
    assert_eq!(get(stub.port, READY).await, Ok(200), "it does ignore SIGTERM");
    engine.stop().await.unwrap();
    assert!(!runs(pid));
}

#[tokio::test]
async fn a_kill_gives_no_grace() {
    // With its grace of 30 minutes, which is longer than any test may take.
    let stub = Stub::new(&[("STUB_TERM", "ignore")]);
    stub.edit("grace_seconds = 30", "grace_seconds = 1800");
    let mut engine = stub.ready().await;
    let pid = engine.pid().unwrap();
    engine.kill().await.unwrap();
    assert!(!runs(pid));
}

#[tokio::test]
async fn a_death_is_told_to_whoever_waits_for_it() {
    let stub = Stub::new(&[("STUB_DIE", "3")]);
    let mut engine = stub.start().await.unwrap();
    let exited = engine.exited();
    stub.wait_ready(&mut engine, READY).await.unwrap();
    let died = exited.await;
    assert_eq!(died.exit, Exit::Status(3));
    assert_eq!(died.log.tail.last().unwrap(), "the stub dies");
    // Late is not too late.
    assert_eq!(engine.exited().await.exit, Exit::Status(3));

    let stub = Stub::new(&[]);
    let engine = stub.ready().await;
    signal(engine.pid().unwrap(), Signal::KILL);
    let died = engine.exited().await;
    assert_eq!(died.exit, Exit::Signal(9));
    assert!(died.exit.to_string().contains("SIGKILL"));
}

#[tokio::test]
async fn a_restart_is_a_new_process_with_a_new_log() {
    let stub = Stub::new(&[]);
    let mut engine = stub.ready().await;
    let (first, first_log) = (engine.pid().unwrap(), engine.log_facts().await.unwrap());
    let old_exited = engine.exited();
    engine.restart().await.unwrap();
    assert_eq!(engine.ready_after(), None);
    stub.wait_ready(&mut engine, READY).await.unwrap();
    let second_log = engine.log_facts().await.unwrap();
    assert!(!runs(first) && runs(engine.pid().unwrap()));
    assert_ne!(first_log.path, second_log.path);
    assert_eq!(first_log.tail, second_log.tail);
    assert_eq!(stub.starts().len(), 2);
    assert!(
        timeout(Duration::from_millis(100), old_exited).await.is_err(),
        "the old one was stopped, not dead"
    );
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_started_is_named_with_the_recipes_file() {
    let stub = Stub::new(&[]);
    let program = stub.path("toy").display().to_string();
    stub.edit(&program, "no-such-engine");
    let error = stub.start().await.err().unwrap().to_string();
    assert!(error.contains("toy.toml: command: the program \"no-such-engine\" was not found"), "{error}");

    stub.edit("no-such-engine", "./toy.toml");
    let error = stub.start().await.err().unwrap();
    assert!(
        matches!(error, LaunchError::Program { .. }) && error.to_string().contains("cannot be run"),
        "{error}"
    );

    stub.edit("name = ", "working_dir = \"nowhere\"\nname = ");
    let error = stub.start().await.err().unwrap().to_string();
    assert!(error.contains("toy.toml: working_dir: ") && error.contains("nowhere is no folder"), "{error}");

    stub.edit("working_dir = \"nowhere\"", "log = \"toy.toml\"");
    let error = stub.start().await.err().unwrap().to_string();
    assert!(error.contains("no log can be written at"), "{error}");
    assert!(stub.starts().is_empty());
}

#[tokio::test]
async fn a_supervisor_that_is_none_is_told_and_nothing_runs() {
    let stub = Stub::new(&[]);
    for supervisor in ["/no/such/agent", "/bin/false"] {
        let mut launcher = stub.launcher();
        launcher.supervisor = supervisor.into();
        let error =
            agent::launch::Engine::start(std::sync::Arc::new(stub.recipe()), launcher).await.err().unwrap();
        assert!(matches!(error, LaunchError::Supervisor(_)), "{error}");
    }
    assert!(stub.starts().is_empty());
}
