//! A real engine through a recipe that is shipped, where one is set up (`make real-engine`).

use std::path::PathBuf;
use std::sync::Arc;

use agent::launch::{Engine, Recipe};

use crate::support::{Stub, engines, get, runs};

#[tokio::test]
async fn a_real_llama_cpp_is_started_ready_and_gone() {
    let Some(folder) = std::env::var_os("PLIMSOLL_REAL_ENGINE").filter(|f| !f.is_empty()).map(PathBuf::from)
    else {
        println!("skipped: PLIMSOLL_REAL_ENGINE is not set; `make test` sets up a real llama.cpp");
        return;
    };
    // Only for its free port and its folder for logs.
    let stub = Stub::new(&[]);
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/real_engine/serve.py");
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let vars = [
        ("python".to_owned(), text(folder.join("venv/bin/python"))),
        ("serve_py".to_owned(), text(script)),
        ("checkpoint".to_owned(), text(folder.join("ascii.gguf"))),
        ("port".to_owned(), stub.port.to_string()),
    ];
    let recipe = Recipe::load(&engines().join("serve-py.toml"), None, &vars).unwrap();
    let mut engine = Engine::start(Arc::new(recipe), stub.launcher()).await.unwrap();
    let port = stub.port;
    stub.wait_ready(&mut engine, "/v1/models").await.unwrap();
    let pid = engine.pid().unwrap();
    engine.restart().await.unwrap();
    assert!(!runs(pid));
    stub.wait_ready(&mut engine, "/v1/models").await.unwrap();
    let record = engine.record().await;
    assert_eq!(record["starts"], 2);
    let tail: Vec<_> = record["log"]["tail"].as_array().unwrap().iter().filter_map(|l| l.as_str()).collect();
    assert!(tail.iter().any(|line| line.contains(&port.to_string())), "{tail:#?}");
    engine.stop().await.unwrap();
    assert!(get(port, "/v1/models").await.is_err());
}
