//! The port before the start and after the stop.

use agent::launch::{LaunchError, Owner};

use crate::support::{READY, Stub, get};

#[tokio::test]
async fn a_port_that_is_held_is_an_error_that_names_its_owner() {
    let stub = Stub::new(&[]);
    let _held = std::net::TcpListener::bind(("127.0.0.1", stub.port)).unwrap();
    let error = stub.start().await.err().unwrap();
    let LaunchError::PortTaken { port, owner: Owner::Process { pid, command }, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((*port, *pid), (stub.port, std::process::id().cast_signed()));
    assert!(error.to_string().contains(&format!("process {pid} ({command})")), "{error}");
    assert!(stub.starts().is_empty(), "it was started all the same");
}

#[tokio::test]
async fn a_second_engine_on_the_port_of_the_first_is_refused_and_the_first_lives_on() {
    let stub = Stub::new(&[]);
    let mut engine = stub.ready().await;
    let error = stub.start().await.err().unwrap();
    let LaunchError::PortTaken { owner: Owner::Process { pid, .. }, .. } = error else { panic!("{error}") };
    assert_eq!(Some(pid), engine.pid());
    assert_eq!(get(stub.port, READY).await, Ok(200));
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_port_that_somebody_else_takes_meanwhile_is_an_error_of_the_stop() {
    // An engine that never opens its port, so that the port is there for another to take.
    let stub = Stub::new(&[("STUB_GATE", "1")]);
    let mut engine = stub.start().await.unwrap();
    stub.expect_pids(&["first"]);
    let held = std::net::TcpListener::bind(("127.0.0.1", stub.port)).unwrap();
    let pid = engine.pid().unwrap();
    let error = engine.stop().await.unwrap_err();
    let LaunchError::PortHeld { owner: Owner::Process { pid: by, .. }, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(by, std::process::id().cast_signed());
    assert!(!crate::support::runs(pid), "the engine itself is gone");
    drop(held);
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn an_engine_is_started_on_this_host_only() {
    let stub = Stub::new(&[]);
    // An address for documentation: no host has it.
    stub.edit("http://127.0.0.1:", "http://192.0.2.1:");
    let error = stub.start().await.err().unwrap().to_string();
    assert!(
        error.contains("toy.toml: base_url: 192.0.2.1:") && error.contains("agent's own host"),
        "{error}"
    );
    assert!(stub.starts().is_empty());
}
