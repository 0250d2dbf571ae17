//! TLS between coordinator and agents: with certificates on one side or both, and with all that can be wrong.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use plimsoll_tests::{Agent, Coordinator, Engine, Issued, Lab, Running, by, free_port};

const TOKEN: &str = "tok-of-tls-51c7";
const NAME: &str = "coordinator.lab";

fn coordinator(engine: &Engine, listen: &str, own: &Issued) -> Coordinator {
    Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .line("--rates 40 --requests 40 --repeats 1 --agents 1")
        .args(["--listen", listen, "--tls-cert", &own.cert, "--tls-key", &own.key])
}

fn agent(name: &str, coordinator: &mut Running, options: &[&str], token: Option<&str>) -> Agent {
    let join = format!("https://{}", coordinator.join_address());
    let environment: Vec<_> = token.iter().map(|token| ("PLIMSOLL_TOKEN", *token)).collect();
    Agent::start_with(name, join, options, &environment)
}

#[test]
fn the_join_line_has_what_an_agent_needs_and_local_agents_serve_beside_it() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let lab = Lab::new("lab");
    let own = lab.issue("coordinator", &[NAME]);
    let mut coordinator = coordinator(&engine, "127.0.0.1:0", &own)
        .args(["--tls-client-ca", &lab.ca(), "--local-agents", "1"])
        .start();
    let _ = coordinator.join_address();
    let said = coordinator.process.stderr();
    let line = said.lines().find(|l| l.contains("agent --join ")).expect("a join line").trim().to_owned();
    assert!(line.contains("--join https://127.0.0.1:"), "{line}");
    // What stands for files of the agent's host becomes this test's.
    let mine = lab.issue("agent", &["agent.lab"]);
    let (ca, words) = (lab.ca(), line.split_whitespace().collect::<Vec<_>>());
    let token = words[0].strip_prefix("PLIMSOLL_TOKEN=").expect("a token was made");
    let options: Vec<&str> = words[4..]
        .iter()
        .map(|word| match *word {
            "CA.pem" => &ca,
            "AGENT.pem" => &mine.cert,
            "AGENT.key" => &mine.key,
            other => other,
        })
        .collect();
    let _remote = Agent::start_with("remote", words[3], &options, &[("PLIMSOLL_TOKEN", token)]);
    let results = coordinator.finish().expect_code(0).results();
    assert_eq!(by(&results.traces, "/agent").keys().collect::<Vec<_>>(), ["local-1", "remote"]);
}

#[test]
fn every_agent_that_is_turned_away_is_told_what_to_do_and_named_by_the_coordinator() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let (lab, other) = (Lab::new("lab"), Lab::new("other"));
    let own = lab.issue("coordinator", &[NAME]);
    let mut coordinator = coordinator(&engine, "127.0.0.1:0", &own)
        .args(["--tls-client-ca", &lab.ca(), "--join-timeout", "5m"])
        .secret("--token-file", TOKEN)
        .start();
    let address = coordinator.join_address();
    let (ca, other_ca) = (lab.ca(), other.ca());
    let good = lab.issue("agent", &["agent.lab"]);
    let foreign = other.issue("foreign", &["agent.lab"]);
    let expired = lab.issue_expired("expired", &["agent.lab"]);
    let with = |cert: &Issued| {
        ["--tls-ca", &ca, "--tls-name", NAME, "--tls-cert", &cert.cert, "--tls-key", &cert.key]
            .map(str::to_owned)
    };
    let trusting = ["--tls-ca", &ca, "--tls-name", NAME].map(str::to_owned);
    let ends = [
        (
            "foreign",
            with(&foreign).to_vec(),
            Some(TOKEN),
            "has not signed it",
            "not signed by --tls-client-ca",
        ),
        ("expired", with(&expired).to_vec(), Some(TOKEN), "it has expired", "certificate has expired"),
        ("no-cert", trusting.to_vec(), Some(TOKEN), "wants a certificate", "shows no certificate"),
        ("no-token", with(&good).to_vec(), None, "PLIMSOLL_TOKEN or --token-file", "no join token"),
        ("wrong-token", with(&good).to_vec(), Some("tok-other"), "token is wrong", "token is wrong"),
    ];
    for (name, options, token, told, noted) in ends {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let ended = agent(name, &mut coordinator, &options, token).process.wait();
        assert_eq!(ended.code, Some(1), "{name}: {}", ended.story());
        assert!(ended.stderr.contains(told), "{name}: {}", ended.story());
        coordinator.process.expect_said(noted);
    }
    // One that speaks plainly hears which side speaks TLS.
    let ended = Agent::start_with("plain", address, &[], &[("PLIMSOLL_TOKEN", TOKEN)]).process.wait();
    assert_eq!(ended.code, Some(1), "{}", ended.story());
    assert!(ended.stderr.contains("it speaks TLS") && ended.stderr.contains("--tls-ca"), "{}", ended.story());
    coordinator.process.expect_said("speaks without TLS, and this coordinator with TLS");
    // What the coordinator could mend is waited for.
    let waits = [
        ("other-ca", vec!["--tls-ca", &other_ca, "--tls-name", NAME], "--tls-ca has not signed"),
        ("other-name", vec!["--tls-ca", &ca], "for another name"),
    ];
    for (name, options, told) in waits {
        let mut waiting = agent(name, &mut coordinator, &options, Some(TOKEN));
        waiting.process.expect_said(told);
        assert!(waiting.process.is_running());
    }
    coordinator.process.expect_said("does not take this coordinator's certificate");
    let good = with(&good);
    let _good = agent("good", &mut coordinator, &good.each_ref().map(String::as_str), Some(TOKEN));
    let finished = coordinator.finish().expect_code(0);
    assert!(finished.ended.stderr.contains("refused 127.0.0.1:"), "{}", finished.story());
    assert_eq!(by(&finished.results().traces, "/agent").keys().collect::<Vec<_>>(), ["good"]);
}

/// The commands of docs/security.md, as they stand there, and a run with what they make.
#[test]
fn the_page_s_commands_make_certificates_that_serve() {
    let page = include_str!("../../docs/security.md");
    let blocks = page.split("\n```sh\n").skip(1).filter_map(|rest| Some(rest.split_once("\n```")?.0));
    let script = blocks.collect::<Vec<_>>().join("\n");
    assert!(script.contains("ca.pem") && script.contains("> token"), "{script}");
    let folder = tempfile::TempDir::new().expect("a folder");
    let made = Command::new("bash").args(["-euc", &script]).current_dir(folder.path()).output();
    let made = made.expect("bash is there");
    assert!(made.status.success(), "openssl is needed: {}", String::from_utf8_lossy(&made.stderr));
    let file = |name: &str| folder.path().join(name).display().to_string();
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let own = Issued { cert: file("coordinator.pem"), key: file("coordinator.key") };
    let (ca, token) = (file("ca.pem"), file("token"));
    let mut coordinator = coordinator(&engine, "127.0.0.1:0", &own)
        .args(["--tls-client-ca", &ca, "--token-file", &token])
        .start();
    let (cert, key) = (file("agent.pem"), file("agent.key"));
    let options = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key, "--token-file", &token];
    let _agent = agent("agent", &mut coordinator, &options, None);
    let finished = coordinator.finish().expect_code(0);
    assert!(!finished.ended.stderr.contains("can read it"), "{}", finished.story());
    assert_eq!(by(&finished.results().traces, "/agent").keys().collect::<Vec<_>>(), ["agent"]);
}

#[test]
fn a_secret_s_file_that_others_can_read_is_warned_of() {
    let lab = Lab::new("lab");
    let token = lab.file("token", TOKEN);
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("its mode");
    let mut agent = Agent::start("a", free_port(), &["--token-file", &token]);
    agent.process.expect_said("chmod 600");
    let mut coordinator = Coordinator::sweep()
        .line("--rates 1 --agents 1 --listen 127.0.0.1:0")
        .args(["--token-file", &token])
        .start();
    coordinator.process.expect_said("chmod 600");
    assert!(!coordinator.process.stderr().contains(TOKEN));
}

#[test]
fn an_agent_with_tls_is_told_by_a_coordinator_without() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let lab = Lab::new("lab");
    let mut coordinator = Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .line("--rates 40 --requests 40 --repeats 1 --agents 1 --listen 127.0.0.1:0")
        .start();
    let mut secure = agent("secure", &mut coordinator, &["--tls-ca", &lab.ca()], None);
    secure.process.expect_said("speaks without TLS");
    assert!(secure.process.is_running());
    coordinator.process.expect_said("it speaks TLS, and this coordinator does not");
}

/// Handshakes that hang take a place each, and nobody else's time.
#[test]
fn handshakes_that_hang_hold_up_nobody() {
    let engine = Engine::start(&["--fixed-ttft-ms", "1"]);
    let lab = Lab::new("lab");
    let own = lab.issue("coordinator", &["127.0.0.1"]);
    let mut coordinator =
        coordinator(&engine, &free_port().to_string(), &own).secret("--token-file", TOKEN).start();
    let address = coordinator.join_address();
    let hang = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).expect("the door is open");
        stream.write_all(bytes).expect("it is read or kept");
        stream
    };
    let _hanging: Vec<TcpStream> =
        (0..30).map(|n| hang(if n % 2 == 0 { b"" } else { b"\x16\x03\x01\x40\x00\x01" })).collect();
    let _agent = agent("agent", &mut coordinator, &["--tls-ca", &lab.ca()], Some(TOKEN));
    let results = coordinator.finish().expect_code(0).results();
    assert_eq!(by(&results.traces, "/agent").keys().collect::<Vec<_>>(), ["agent"]);
}

#[test]
fn files_that_cannot_be_used_are_named_and_end_with_the_code_of_a_usage_error() {
    let lab = Lab::new("lab");
    let (one, two) = (lab.issue("one", &["a.lab"]), lab.issue("two", &["b.lab"]));
    let (empty, blank) = (lab.file("empty.pem", ""), lab.file("blank.token", "two words"));
    let missing = "/nowhere/x.pem".to_owned();
    let ca = lab.ca();
    let cases: [(Vec<&str>, &str); 6] = [
        (vec!["--tls-cert", &missing, "--tls-key", &one.key], "--tls-cert /nowhere/x.pem"),
        (vec!["--tls-cert", &one.cert, "--tls-key", &missing], "--tls-key /nowhere/x.pem"),
        (vec!["--tls-cert", &one.cert, "--tls-key", &two.key], "does not belong"),
        (vec!["--tls-cert", &empty, "--tls-key", &one.key], "empty.pem: no certificate"),
        (vec!["--tls-cert", &one.cert, "--tls-key", &one.cert], "one.pem"),
        (vec!["--tls-cert", &one.cert], "--tls-key"),
    ];
    for (options, words) in &cases {
        let line = "--rates 1 --agents 1 --listen 127.0.0.1:0";
        let finished = Coordinator::sweep().line(line).args(options).finish().expect_code(2);
        assert!(finished.ended.stderr.contains(words), "{words}: {}", finished.story());
        let options = [&["--tls-ca", &ca][..], options].concat();
        let ended = Agent::start("a", "127.0.0.1:1", &options).process.wait();
        assert_eq!(ended.code, Some(2), "{}", ended.story());
        assert!(ended.stderr.contains(words), "{words}: {}", ended.story());
    }
    for (options, words) in [
        (vec!["--tls-cert", &one.cert, "--tls-key", &one.key, "--tls-client-ca", &empty], "--tls-client-ca"),
        (vec!["--token-file", &blank], "no blanks"),
        (vec!["--token-file", &missing], "--token-file /nowhere/x.pem"),
    ] {
        let line = "--rates 1 --agents 1 --listen 127.0.0.1:0";
        let finished = Coordinator::sweep().line(line).args(&options).finish().expect_code(2);
        assert!(finished.ended.stderr.contains(words), "{words}: {}", finished.story());
    }
    let ended = Agent::start("a", "https://127.0.0.1:1", &[]).process.wait();
    assert_eq!(ended.code, Some(2), "{}", ended.story());
    assert!(ended.stderr.contains("needs --tls-ca"), "{}", ended.story());
}
