//! No process of an engine is left, whatever it forked and however its agent ended.
//!
//! Each of these runs with and without a control group: where there is one, processes are killed by the group too, and
//! that would hide it if they were not found one by one.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use agent::launch::{Engine, Exit, Launcher, Recipe};
use common::clock::SystemClock;
use rustix::process::Signal;

use crate::support::{READY, Stub, expect, expect_gone, get, kill, parent, runs, signal};

const EVERY_KIND: (&str, &str) = ("STUB_CHILDREN", "session daemon stubborn");
const EVERY_NAME: &[&str] = &["first", "session", "daemon", "stubborn"];

/// One stub with and one without a control group, of an engine with a grace of a second.
fn stubs(env: &[(&str, &str)]) -> [Stub; 2] {
    [true, false].map(|cgroup| {
        let mut stub = Stub::new(env);
        stub.cgroup = cgroup;
        stub.edit("grace_seconds = 30", "grace_seconds = 1");
        stub
    })
}

#[tokio::test]
async fn a_stop_ends_new_sessions_daemons_and_those_that_ignore_it() {
    for stub in stubs(&[EVERY_KIND]) {
        let mut engine = stub.ready().await;
        let pids = stub.expect_pids(EVERY_NAME);
        assert!(pids.iter().all(|&(_, pid)| runs(pid)), "{pids:?}");
        engine.stop().await.unwrap();
        // Not in a moment: when the stop is over, they are gone.
        assert!(pids.iter().all(|&(_, pid)| !runs(pid)), "{pids:?}");
    }
}

#[tokio::test]
async fn what_a_death_leaves_behind_is_ended_too() {
    for stub in stubs(&[EVERY_KIND]) {
        let engine = stub.ready().await;
        let pids = stub.expect_pids(EVERY_NAME);
        kill(engine.pid().unwrap());
        assert_eq!(engine.exited().await.exit, Exit::Signal(9));
        expect_gone(&pids);
    }
}

#[tokio::test]
async fn a_handle_that_is_dropped_ends_its_engine() {
    for stub in stubs(&[EVERY_KIND]) {
        let engine = stub.ready().await;
        let pids = stub.expect_pids(EVERY_NAME);
        drop(engine);
        expect_gone(&pids);
    }
}

/// The agent of the test below, in a process of its own: starts the engine of a recipe and waits to be killed.
#[tokio::test]
#[ignore = "not a test: a process that another test starts and kills"]
async fn an_agent_that_will_be_killed() {
    let Some(recipe) = std::env::var_os("LAUNCH_TEST_RECIPE") else { return };
    let recipe = Recipe::load(Path::new(&recipe), None, &[]).unwrap();
    let logs = recipe.source.path.with_file_name("logs");
    let mut launcher = Launcher::new(logs, Arc::new(SystemClock));
    launcher.supervisor = env!("CARGO_BIN_EXE_agent").into();
    launcher.cgroup = std::env::var_os("LAUNCH_TEST_CGROUP").is_some();
    let _engine = Engine::start(Arc::new(recipe), launcher).await.unwrap();
    std::future::pending::<()>().await;
}

#[test]
fn kill_9_of_the_agent_leaves_no_process_of_the_engine() {
    for stub in stubs(&[EVERY_KIND]) {
        let mut agent = Command::new(std::env::current_exe().unwrap());
        agent.args(["--exact", "tree::an_agent_that_will_be_killed", "--ignored", "--nocapture"]);
        agent.env("LAUNCH_TEST_RECIPE", stub.path("toy.toml")).stdout(Stdio::null());
        if stub.cgroup {
            agent.env("LAUNCH_TEST_CGROUP", "1");
        }
        let mut agent = agent.spawn().unwrap();
        let mut pids = stub.expect_pids(EVERY_NAME);
        let supervisor = parent(pids.iter().find(|(name, _)| name == "first").unwrap().1);
        assert_eq!(parent(supervisor), agent.id().cast_signed());
        assert!(pids.iter().all(|&(_, pid)| runs(pid)), "{pids:?}");
        agent.kill().unwrap();
        agent.wait().unwrap();
        pids.push(("supervisor".into(), supervisor));
        expect_gone(&pids);
    }
}

#[tokio::test]
async fn a_terminals_signals_do_not_reach_engine_or_supervisor_and_sigterm_is_a_stop() {
    let stub = Stub::new(&[]);
    let engine = stub.ready().await;
    let pid = engine.pid().unwrap();
    let supervisor = parent(pid);
    let session = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap().to_owned()
    };
    assert_eq!(session(pid), supervisor.to_string());
    assert_ne!(session(pid), session(std::process::id().cast_signed()));
    let name = std::fs::read_to_string(format!("/proc/{supervisor}/comm")).unwrap();
    assert!(!name.contains("agent"), "`pkill agent` would take {name:?} along");
    signal(supervisor, Signal::INT);
    signal(supervisor, Signal::HUP);
    // Signals are delivered in no order; but one that killed it would close its output, and that would be a death.
    signal(supervisor, Signal::TERM);
    let died = engine.exited().await;
    assert_eq!(
        died.exit,
        Exit::Signal(15),
        "the engine was ended by the supervisor's SIGTERM, in good order"
    );
    expect_gone(&[("first".into(), pid), ("supervisor".into(), supervisor)]);
}

#[tokio::test]
async fn kill_9_of_the_supervisor_is_a_death_and_leaves_nothing_of_its_session() {
    for stub in stubs(&[("STUB_CHILDREN", "session stubborn"), ("STUB_TERM", "ignore")]) {
        let mut engine = stub.ready().await;
        let pids = stub.expect_pids(&["first", "session", "stubborn"]);
        kill(parent(engine.pid().unwrap()));
        assert_eq!(engine.exited().await.exit, Exit::Unknown);
        expect_gone(&pids);
        engine.stop().await.unwrap();
    }
}

#[tokio::test]
async fn an_engine_that_forks_while_it_is_killed_is_killed_all_the_same() {
    for stub in stubs(&[]) {
        // Two that start a successor and end, for as long as they are let.
        let racer = stub.path("racer").display().to_string();
        let script = format!(
            "#!/bin/sh\ntrap '' TERM\n[ \"$1\" = child ] && {{ \"{racer}\" child & exit; }}\n\
             echo \"first $$\" >> \"$STUB_DIR/pids\"\n\"{racer}\" child &\n\"{racer}\" child &\nexec sleep 1000\n"
        );
        std::fs::write(&racer, script).unwrap();
        std::fs::set_permissions(&racer, PermissionsExt::from_mode(0o755)).unwrap();
        stub.edit(&stub.path("toy").display().to_string(), &racer);
        let mut engine = stub.start().await.unwrap();
        stub.expect_pids(&["first"]);
        expect("racers", || (stub.processes().len() >= 3).then_some(()));
        engine.stop().await.unwrap();
        assert_eq!(stub.processes(), Vec::<i32>::new());
    }
}

#[tokio::test]
async fn control_groups_are_removed_again() {
    let stub = Stub::new(&[]);
    let mut engine = stub.ready().await;
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", engine.pid().unwrap())).unwrap();
    let supervisor = parent(engine.pid().unwrap());
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default().to_owned();
    assert_eq!(get(stub.port, READY).await, Ok(200));
    engine.stop().await.unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mount =
        mounts.lines().find(|l| l.split(' ').nth(2) == Some("cgroup2")).and_then(|l| l.split(' ').nth(1));
    let (Some(mount), true) = (mount, group.ends_with(&format!("plimsoll-engine-{supervisor}"))) else {
        println!("skipped: no control group of version 2 can be made here, and the engine ran without one");
        return;
    };
    let group = Path::new(mount).join(group);
    expect(&format!("the removal of {}", group.display()), || (!group.exists()).then_some(()));
}
