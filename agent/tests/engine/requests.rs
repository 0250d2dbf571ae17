//! What is sent: head and body, byte for byte where it matters.

use agent::engine::{Client, ClientConfig, ConfigError, Requests, Secret, TrialClock};
use common::clock::SystemClock;
use common::ids::Nanos;
use common::plan::{Api, Target};
use common::workload::{Row, RowBody};
use serde_json::{Value, json};
use std::sync::Arc;

use super::support::{Rig, good_response, listen, read_request, target, write};

fn row(body: RowBody, max_tokens: Option<u32>) -> Row {
    Row { body, max_tokens, line: 1 }
}

fn prompt() -> Row {
    row(RowBody::Prompt("say \"hi\"\n".into()), Some(5))
}

fn body(target: &Target, row: &Row) -> Value {
    serde_json::from_slice(&Requests::new(target).body(row)).unwrap()
}

#[test]
fn a_completion_has_these_fields_and_no_others() {
    let expected = json!({
        "model": "m", "prompt": "say \"hi\"\n", "max_tokens": 5, "stream": true,
        "stream_options": {"include_usage": true}, "temperature": 0, "n": 1,
    });
    assert_eq!(body(&target(1), &prompt()), expected);
    let bare = Target { model: None, ..target(1) };
    assert_eq!(body(&bare, &prompt()).get("model"), None);
    assert_eq!(body(&bare, &row(RowBody::Prompt("a".into()), None))["max_tokens"], 16);
    assert_eq!(Requests::new(&bare).max_tokens(&row(RowBody::Prompt("a".into()), None)), 16);
    let asked = Target { ignore_eos: true, logprobs: true, ..target(1) };
    assert_eq!(
        (&body(&asked, &prompt())["ignore_eos"], &body(&asked, &prompt())["logprobs"]),
        (&json!(true), &json!(1))
    );
}

#[test]
fn chat_gets_messages_as_they_stood_in_the_file() {
    let chat = Target { api: Api::Chat, logprobs: true, ..target(1) };
    let user = body(&chat, &prompt());
    assert_eq!(user["messages"], json!([{"role": "user", "content": "say \"hi\"\n"}]));
    assert_eq!((user.get("prompt"), &user["logprobs"]), (None, &json!(true)));
    let raw = r#"[{"role":"user","content":"a","weight":1.50}]"#;
    let bytes = Requests::new(&chat).body(&row(RowBody::Messages(raw.into()), None));
    assert!(std::str::from_utf8(&bytes).unwrap().starts_with(&format!("{{\"messages\":{raw},")));
    assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap()["stream"], true);
}

#[test]
fn extra_fields_go_on_top_but_not_over_what_a_trace_depends_on() {
    let extra = json!({
        "temperature": 0.7, "min_tokens": 3, "stream": false, "n": 4, "max_tokens": 9, "prompt": "x", "best_of": 2,
        "stream_options": null, "stop": null,
    });
    let extra_body = extra.as_object().unwrap().clone();
    let sent = body(&Target { extra_body, ..target(1) }, &prompt());
    assert_eq!((&sent["temperature"], &sent["min_tokens"]), (&json!(0.7), &json!(3)));
    assert_eq!((&sent["stream"], &sent["n"], &sent["max_tokens"]), (&json!(true), &json!(1), &json!(5)));
    assert_eq!((&sent["prompt"], sent.get("best_of")), (&json!("say \"hi\"\n"), None));
    // null takes away what we would send; of what we would not send it is a value like any other.
    assert_eq!((sent.get("stream_options"), &sent["stop"]), (None, &Value::Null));
}

#[tokio::test]
async fn the_head_says_who_asks_and_for_what() {
    let (listener, port) = listen().await;
    let engine = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let request = read_request(&mut socket).await.unwrap();
        write(&mut socket, &good_response()).await;
        request
    });
    let headers = vec![("X-Team".to_owned(), "blue".to_owned())];
    let base_url = format!("http://127.0.0.1:{port}/prefix/v1").parse().unwrap();
    let rig = Rig::new(Target { headers, base_url, api: Api::Chat, ..target(port) });
    let trace = rig.send().await;
    let request = engine.await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("post /prefix/v1/chat/completions http/1.1\r\n"), "{head}");
    for line in [
        &format!("host: 127.0.0.1:{port}"),
        "content-type: application/json",
        "accept: text/event-stream",
        "authorization: bearer sk-secret",
        "x-request-id: run-1/2/3",
        "x-plimsoll-agent: a1",
        "x-team: blue",
        &format!("content-length: {}", body.len()),
    ] {
        assert!(head.lines().any(|l| l == line), "{line} is missing in {head}");
    }
    assert_eq!(trace.facts.request_bytes as usize, body.len());
}

#[test]
fn heads_that_cannot_be_sent_are_refused_before_anything_is() {
    let new = |target: Target, key: &str, trial: &str| {
        let config = ClientConfig {
            target,
            access: Secret::new(key).into(),
            agent: "a".parse().unwrap(),
            run: "r".parse().unwrap(),
            trial: trial.into(),
        };
        Client::new(config, TrialClock::new(Arc::new(SystemClock), Nanos::ZERO)).map(|_| ())
    };
    let header = |name: &str, value: &str| Target { headers: vec![(name.into(), value.into())], ..target(1) };
    assert_eq!(new(header("a b", "c"), "", "0"), Err(ConfigError::Header("a b".into())));
    assert_eq!(new(header("a", "b\n"), "", "0"), Err(ConfigError::Header("a".into())));
    assert_eq!(
        new(header("Content-Length", "1"), "", "0"),
        Err(ConfigError::ReservedHeader("Content-Length".into()))
    );
    assert_eq!(
        new(header("x-request-id", "1"), "", "0"),
        Err(ConfigError::ReservedHeader("x-request-id".into()))
    );
    assert_eq!(new(target(1), "", "0\n"), Err(ConfigError::Value("trial label")));
    let bad_key = new(target(1), "sk\n1", "0").unwrap_err();
    assert_eq!(bad_key, ConfigError::ApiKey);
    assert!(!bad_key.to_string().contains("sk"));
    assert_eq!(new(header("x-ok", "1"), "sk", "0"), Ok(()));
}
