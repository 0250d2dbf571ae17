//! What is recorded of an engine, and what is not shown.

use agent::launch::LaunchError;
use common::ids::Digest;

use crate::support::{READY, Stub};

#[tokio::test]
async fn the_record_says_how_it_was_started_and_no_secret() {
    let secrets = ["hf-s3cret", "lic-s3cret", "sk-s3cret"];
    let env = [
        ("HF_TOKEN", secrets[0]),
        ("LICENCE", secrets[1]),
        ("MODE", "fast"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("STUB_SAY", "hello sk-s3cret and hf-s3cret and lic-s3cret"),
    ];
    let stub = Stub::with_fields(&env, "env_secret = [\"LICENCE\"]\nnotes = [\"prefix cache on\"]");
    let recipe = std::fs::read_to_string(stub.path("toy.toml")).unwrap();
    let recipe = recipe.replace("\"${port}\"]", "\"${port}\", \"--api-key\", \"sk-s3cret\"]");
    std::fs::write(stub.path("toy.toml"), &recipe).unwrap();
    let mut engine = stub.ready().await;
    let record = engine.record().await;
    engine.stop().await.unwrap();

    let text = record.to_string();
    assert!(secrets.iter().all(|secret| !text.contains(secret)), "{text}");
    assert_eq!((&record["name"], &record["dialect"]), (&"toy".into(), &"openai".into()));
    assert_eq!(record["command"][1], "--port");
    assert_eq!(record["command"][4], "[redacted]");
    assert_eq!(record["env"]["set"]["HF_TOKEN"], "[redacted]");
    assert_eq!(record["env"]["set"]["LICENCE"], "[redacted]");
    assert_eq!(record["env"]["set"]["MODE"], "fast");
    assert_eq!(record["env"]["set"]["TOKENIZERS_PARALLELISM"], "false");
    assert_eq!(record["recipe"]["file"], "toy.toml");
    assert_eq!(record["recipe"]["sha256"], Digest::of(recipe.as_bytes()).to_string());
    assert_eq!(record["overlay"], serde_json::Value::Null);
    assert_eq!(record["notes"][0], "prefix cache on");
    assert_eq!(record["starts"], 1);
    assert!(record["ready_after_seconds"].as_f64().unwrap() > 0.0);
    let log = std::fs::read(stub.path("logs").join(record["log"]["file"].as_str().unwrap())).unwrap();
    assert_eq!(record["log"]["bytes"], log.len());
    assert_eq!(record["log"]["sha256"], Digest::of(&log).to_string());
    assert_eq!(record["log"]["tail"][1], "hello [redacted] and [redacted] and [redacted]");
    // They did reach the engine.
    let starts = stub.starts();
    assert_eq!(starts[0]["env"]["HF_TOKEN"], secrets[0]);
    assert_eq!(starts[0]["argv"][3], secrets[2]);
}

#[tokio::test]
async fn an_error_shows_no_secret_and_a_log_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let env = [("VLLM_API_KEY", "k-s3cret"), ("STUB_SAY", "bad key k-s3cret"), ("STUB_CRASH", "1")];
    let stub = Stub::new(&env);
    let mut engine = stub.start().await.unwrap();
    let error = stub.wait_ready(&mut engine, READY).await.unwrap_err();
    let LaunchError::Exited { log, .. } = &error else { panic!("{error}") };
    assert_eq!(log.tail.last().unwrap(), "bad key [redacted]");
    assert!(!error.to_string().contains("s3cret") && !format!("{error:?}").contains("s3cret"));
    let mode = std::fs::metadata(&log.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_inherited_is_the_recipes_to_say() {
    let stub = Stub::new(&[]);
    let mut engine = stub.ready().await;
    engine.stop().await.unwrap();
    let stub = Stub::with_fields(&[], "env_inherit = false");
    let mut engine = stub.ready().await;
    assert_eq!(engine.record().await["env"]["inherits"], false);
    engine.stop().await.unwrap();
    let starts = stub.starts();
    // Cargo gives it to tests, so this process has it and the one that inherits nothing has not.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert_eq!(starts[0]["env"]["CARGO_MANIFEST_DIR"], serde_json::Value::Null);
}
