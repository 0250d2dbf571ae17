//! What is refused: with a message that says what is wrong, the right exit code, and nothing half-written.

use std::net::TcpListener;

use plimsoll_tests::{Agent, Coordinator, Engine, Finished, Signal, free_port};
use serde_json::json;

const USAGE: i32 = 2;
const ERROR: i32 = 1;

/// Refused before anything is made, the data directory included.
#[track_caller]
fn refused(coordinator: Coordinator, says: &[&str]) {
    let finished = coordinator.finish().expect_code(USAGE).expect_said(says);
    finished.expect_no_results();
    assert!(!finished.data().exists(), "a data directory was made: {}", finished.story());
}

fn refused_line(line: &str, says: &[&str]) {
    refused(Coordinator::sweep().line(line), says);
}

#[test]
fn rates_that_are_none_are_usage_errors() {
    for rate in ["0", "-1", "NaN", "-inf", "1e-9", "fast", ""] {
        let coordinator = Coordinator::sweep().args(["--rates".to_owned(), format!("1,{rate}")]);
        refused(coordinator, &["--rates", rate]);
        refused(Coordinator::run_one().args([format!("--rate={rate}")]), &["--rate", rate]);
    }
    refused_line("--rates 1,1", &["1", "twice"]);
    refused_line("--rates inf", &["inf", "--requests"]);
}

#[test]
fn options_that_make_no_sense_are_usage_errors() {
    refused_line("", &["--rates"]);
    refused_line("--rates 1 --arrival sometimes", &["sometimes", "poisson", "constant", "burst"]);
    refused_line("--rates 1 --burst-size 4", &["--burst-size", "--arrival burst"]);
    refused_line("--rates 1 --requests 0", &["--requests"]);
    refused_line("--rates 1 --duration 0s", &["--duration"]);
    refused_line("--rates 1 --requests 5 --duration 5s", &["--requests", "--duration"]);
    refused_line("--rates 1 --repeats 0", &["--repeats"]);
    refused_line("--rates 1 --max-concurrency 0", &["--max-concurrency"]);
    refused_line("--rates 1 --max-tokens 0", &["--max-tokens"]);
    refused_line("--rates 1 --slo ttft=fast", &["--slo", "ttft=fast"]);
    refused_line("--rates 1 --slo itl=50ms", &["itl", "--logprobs"]);
    refused_line("--rates 1 --slo-target 1.5", &["--slo-target"]);
    refused_line("--rates 1 --timeout soon", &["--timeout", "soon"]);
    refused_line("--rates 1 --base-url ftp://engine", &["--base-url"]);
    refused_line("--rates 1 --local-agents 0", &["--local-agents", "--agents"]);
    refused_line("--rates 1 --listen 127.0.0.1:0", &["--listen", "--agents"]);
    refused_line("--rates 1 --no-such-option", &["--no-such-option"]);
}

#[test]
fn a_secret_on_the_command_line_is_refused_and_not_repeated() {
    let planted = "sk-planted-0b5e";
    let header = format!("Authorization: Bearer {planted}");
    let finished =
        Coordinator::sweep().args(["--rates", "1", "--header", &header]).finish().expect_code(USAGE);
    assert!(finished.ended.stderr.contains("--api-key-file"), "{}", finished.story());
    assert!(!finished.ended.stderr.contains(planted), "the secret is repeated: {}", finished.ended.stderr);
}

#[test]
fn workloads_that_cannot_be_used_are_usage_errors_with_the_line() {
    let good = "{\"prompt\": \"a\", \"max_tokens\": 4}\n";
    for (content, says) in [
        (String::new(), "has no rows"),
        ("\n\n".into(), "has no rows"),
        (format!("{good}\n{{\"prompt\": \n{good}"), "line 3: not valid JSON"),
        (format!("{good}{{\"promt\": \"a\"}}\n"), "line 2: has neither `prompt` nor `messages`"),
        (format!("{good}{good}{{\"prompt\": \"a\", \"max_tokens\": -1}}"), "line 3: "),
        (format!("{good}[1, 2]"), "line 2: expected a JSON object"),
    ] {
        let coordinator = Coordinator::sweep().line("--rates 1").file("--workload", "broken.jsonl", &content);
        refused(coordinator, &["broken.jsonl", says]);
    }
    let messages = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n";
    let coordinator = Coordinator::sweep().line("--rates 1 --api completions");
    let coordinator = coordinator.file("--workload", "chat.jsonl", &format!("{good}{messages}"));
    refused(coordinator, &["line 2", "--api chat"]);
}

#[test]
fn files_that_are_missing_or_broken_are_usage_errors_with_their_name() {
    for option in ["--workload", "--extra-body", "--metadata"] {
        let line = format!("--rates 1 {option} no/such/file");
        refused_line(&line, &[option, "no/such/file", "No such file"]);
    }
    for option in ["--extra-body", "--metadata"] {
        for broken in ["{\"a\": ", "[1]"] {
            let coordinator = Coordinator::sweep().line("--rates 1").file(option, "broken.json", broken);
            refused(coordinator, &[option, "broken.json"]);
        }
    }
    let reserved =
        Coordinator::sweep().line("--rates 1").file("--extra-body", "body.json", "{\"stream\": false}");
    refused(reserved, &["--extra-body", "stream"]);
}

/// A command line that is right, for an engine or a fleet that is not.
fn short(url: &str) -> Coordinator {
    Coordinator::sweep().relaxed().engine(url).line("--rates 5 --requests 5 --repeats 1 --connect-timeout 2s")
}

#[track_caller]
fn failed(finished: Finished, says: &[&str]) {
    finished.expect_code(ERROR).expect_said(says).expect_no_results();
}

#[test]
fn an_engine_that_is_not_there_is_an_error_that_names_who_tried_and_what() {
    let url = format!("http://{}", free_port());
    failed(short(&url).finish(), &["local-1", &url, "refused"]);
    failed(short("http://no-such-host.invalid:8000").finish(), &["local-1", "no-such-host.invalid"]);
}

#[test]
fn an_engine_that_refuses_is_quoted() {
    for (fault, status) in
        [("http-500", "500"), ("http-503", "503"), ("http-429", "429"), ("http-400", "400")]
    {
        let engine = Engine::start(&["--fault", fault]);
        let (said_status, body) = engine.ask(&json!({"model": "sim", "prompt": "a", "stream": true}));
        assert_eq!(said_status.to_string(), status);
        failed(short(engine.url()).finish(), &["local-1", engine.url(), status, &body]);
        assert_eq!(engine.log().len(), 2, "more than the question above and the probe was sent");
    }
}

#[test]
fn a_model_or_path_that_the_engine_does_not_have_is_quoted() {
    let engine = Engine::start(&[]);
    let (status, body) = engine.ask(&json!({"model": "other", "prompt": "a", "stream": true}));
    assert_eq!(status, 404);
    failed(short(engine.url()).line("--model other").finish(), &["404", &body]);
    let url = format!("{}/elsewhere", engine.url());
    failed(short(&url).finish(), &["404", "{\"detail\":\"Not Found\"}"]);
}

#[test]
fn an_engine_that_answers_nonsense_is_refused_before_the_first_trial() {
    for (fault, kind) in
        [("no-content", "no_content"), ("error-first", "error_event"), ("malformed", "malformed_stream")]
    {
        let engine = Engine::start(&["--fault", fault]);
        failed(short(engine.url()).finish(), &["local-1", kind]);
        assert_eq!(engine.log().len(), 1, "more than the probe was sent");
    }
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let finished = short("http://127.0.0.1:9").args(["--agents", "1", "--listen", &address]).finish();
    failed(finished, &[&address, "in use"]);
}

#[test]
fn a_store_in_use_is_an_error_that_says_so_and_the_first_goes_on() {
    let engine = Engine::start(&[]);
    let mut first = short(engine.url()).line("--agents 1 --listen 127.0.0.1:0").start();
    let address = first.join_address();
    let second =
        Coordinator::sweep_beside(&first).relaxed().engine(engine.url()).line("--rates 5 --requests 5");
    let second = second.finish().expect_code(ERROR).expect_said(&["in use", "--data"]);
    assert_eq!(second.ended.stdout, "");
    assert!(second.runs().is_empty());
    let _agent = Agent::start("a", address, &["--once"]);
    let first = first.finish().expect_code(0);
    assert_eq!(first.results().trials().len(), 1);
}

#[test]
fn agents_that_do_not_come_are_waited_for_and_those_that_came_are_named() {
    let engine = Engine::start(&[]);
    let mut coordinator =
        short(engine.url()).line("--agents 3 --listen 127.0.0.1:0 --join-timeout 6s").start();
    let address = coordinator.join_address();
    let _agents = ["anna", "bert"].map(|name| Agent::start(name, address, &[]));
    failed(coordinator.finish(), &["2 of 3", "anna", "bert", "6s", "--join"]);
    assert!(engine.log().is_empty(), "something was sent");
}

#[test]
fn nobody_came_and_it_was_stopped_leaves_nothing() {
    let engine = Engine::start(&[]);
    let mut coordinator = short(engine.url()).line("--agents 1 --listen 127.0.0.1:0").start();
    let _ = coordinator.join_address();
    coordinator.signal(Signal::INT);
    coordinator.finish().expect_code(130).expect_no_results();
}
