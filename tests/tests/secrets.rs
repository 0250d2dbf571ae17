//! Secrets that are planted in a run, and looked for everywhere that it leaves something.

use plimsoll_tests::{Agent, Coordinator, Engine, Lab, Recorder, by, command_line, descendants, files_with};
use serde_json::json;

const TOKEN: &str = "tok-planted-7be1c4";
const KEY: &str = "sk-planted-03d9aa";
const HEADER: &str = "hdr-planted-c84f20";
/// Not a secret: what must be seen where the network can be read, and must not be where it cannot.
const PROMPT: &str = "hold fast to the planted prompt";

/// With two agents, telemetry, errors that repeat what was sent, and every log as loud as it gets.
#[test]
fn no_secret_is_left_anywhere_nor_seen_on_the_network() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1", "--fault", "http-500:every=5"]);
    let lab = Lab::new("lab");
    let (own, mine) = (lab.issue("coordinator", &["coordinator.lab"]), lab.issue("agent", &["agent.lab"]));
    let key_of = |path: &str| {
        let pem = std::fs::read_to_string(path).expect("a key");
        pem.lines().nth(1).expect("a line of it").to_owned()
    };
    let (token, api_key) = (lab.file("token", TOKEN), lab.file("api-key", KEY));
    let header = format!("x-planted: {HEADER}");
    let mut coordinator = Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": PROMPT, "max_tokens": 4})])
        .line("--rates 40 --duration 2s --repeats 1 --local-agents 1 --agents 1 --listen 127.0.0.1:0")
        .args(["--tls-cert", &own.cert, "--tls-key", &own.key, "--tls-client-ca", &lab.ca()])
        .args(["--token-file", &token, "--header", &header, "--api-key-file", &api_key])
        .env("RUST_LOG", "trace")
        .start();
    let wire = Recorder::start(coordinator.join_address());
    let remote = Agent::start_with(
        "remote",
        format!("https://{}", wire.address()),
        &[
            "--tls-ca",
            &lab.ca(),
            "--tls-name",
            "coordinator.lab",
            "--tls-cert",
            &mine.cert,
            "--tls-key",
            &mine.key,
        ],
        &[("PLIMSOLL_TOKEN", TOKEN), ("OPENAI_API_KEY", KEY), ("RUST_LOG", "trace")],
    );
    coordinator.process.expect_said("trial 0 (1 of 1)");
    let secrets = [TOKEN.to_owned(), KEY.to_owned(), HEADER.to_owned(), key_of(&own.key), key_of(&mine.key)];
    let agents = [descendants(coordinator.process.pid()), vec![remote.process.pid()]].concat();
    assert_eq!(agents.len(), 2);
    for pid in agents {
        let line = command_line(pid);
        assert!(
            !line.is_empty() && !secrets.iter().any(|s| line.contains(s)),
            "a secret on a command line: {line}"
        );
    }
    // The header stands where the operator typed it; nothing else may.
    let line = command_line(coordinator.process.pid());
    assert!(!secrets.iter().any(|s| s != HEADER && line.contains(s)), "a secret on a command line: {line}");

    let finished = coordinator.finish().expect_code(0);
    let results = finished.results();
    assert_eq!(by(&results.traces, "/agent").len(), 2);
    assert!(results.outcomes()["http_status"] > 0, "the engine repeated nothing");
    assert!(!finished.telemetry().is_empty(), "no telemetry was kept");
    assert!(engine.log().iter().all(|entry| entry["authorization"] == true), "the key was not sent");
    // The command line that a failure would show is the test's, and holds the header.
    let said = [finished.story().replacen(&header, "", 1), remote.process.stdout(), remote.process.stderr()];
    for secret in &secrets {
        assert!(!said.iter().any(|said| said.contains(secret)), "{secret} was said: {said:?}");
        for folder in [finished.folder(), remote.folder()] {
            let found = files_with(folder, secret);
            assert!(found.is_empty(), "{secret} is in {found:?}");
        }
        assert!(!wire.saw(secret), "{secret} was on the network");
    }
    assert!(!finished.reported_again("").contains(HEADER));
    // The searches can find.
    assert!(!files_with(finished.folder(), PROMPT).is_empty());
    assert!(wire.bytes() > 10_000 && !wire.saw(PROMPT) && !wire.saw("remote"), "the network could read it");
}

/// The recorder sees what there is to see: the same without TLS.
#[test]
fn without_tls_the_network_sees_what_is_sent() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let mut coordinator = Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": PROMPT, "max_tokens": 4})])
        .line("--rates 40 --requests 20 --repeats 1 --agents 1 --listen 127.0.0.1:0")
        .args(["--header", &format!("x-planted: {HEADER}")])
        .start();
    let wire = Recorder::start(coordinator.join_address());
    let _remote = Agent::start("remote", wire.address(), &[]);
    let results = coordinator.finish().expect_code(0).results();
    assert_eq!(by(&results.traces, "/agent").len(), 1);
    assert!(wire.saw(HEADER) && wire.saw(PROMPT) && wire.saw("remote"));
}
