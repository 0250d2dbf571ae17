//! Each recipe of `deploy/engines` is started, against a stub under its program's name.

use std::sync::Arc;

use agent::launch::{Engine, Recipe};
use common::dialect::Dialect;
use serde_json::Value;

use crate::support::{Stub, engines, runs};

/// A recipe, the program that it must start, and the arguments that it must give it.
struct Case {
    recipe: &'static str,
    overlay: Option<&'static str>,
    program: &'static str,
    vars: &'static [(&'static str, &'static str)],
    arguments: &'static str,
    /// Parts of the environment.
    env: &'static [(&'static str, &'static str)],
}

const CHECKPOINT: (&str, &str) = ("checkpoint", "/models/a model");

const CASES: &[Case] = &[
    Case {
        recipe: "vllm",
        overlay: None,
        program: "vllm",
        vars: &[CHECKPOINT],
        arguments: "serve|/models/a model|--served-model-name|m|--host|127.0.0.1|--port|PORT|--dtype|float16\
            |--kv-cache-dtype|auto|--tensor-parallel-size|1|--max-model-len|4096|--max-num-seqs|16\
            |--max-num-batched-tokens|4096|--generation-config|vllm|--enable-prompt-tokens-details",
        env: &[("VLLM_SERVER_DEV_MODE", "1")],
    },
    Case {
        recipe: "vllm",
        overlay: Some("vllm-cpu"),
        program: "vllm",
        vars: &[CHECKPOINT],
        arguments: "serve|/models/a model|--served-model-name|m|--host|127.0.0.1|--port|PORT\
            |--kv-cache-dtype|auto|--tensor-parallel-size|1|--generation-config|vllm|--enable-prompt-tokens-details\
            |--dtype|float32|--max-model-len|1024|--max-num-seqs|8|--enforce-eager",
        env: &[("VLLM_SERVER_DEV_MODE", "1"), ("VLLM_CPU_KVCACHE_SPACE", "1"), ("TORCHDYNAMO_DISABLE", "1")],
    },
    Case {
        recipe: "sglang",
        overlay: None,
        program: "python3",
        vars: &[CHECKPOINT],
        arguments: "-m|sglang.launch_server|--model-path|/models/a model|--served-model-name|m|--host|127.0.0.1\
            |--port|PORT|--dtype|float16|--kv-cache-dtype|auto|--tp-size|1|--context-length|4096\
            |--max-running-requests|16|--chunked-prefill-size|4096|--enable-metrics|--enable-cache-report",
        env: &[("HF_HUB_OFFLINE", "1")],
    },
    Case {
        recipe: "sglang",
        overlay: Some("sglang-cpu"),
        program: "python3",
        vars: &[CHECKPOINT],
        arguments: "-m|sglang.launch_server|--model-path|/models/a model|--served-model-name|m|--host|127.0.0.1\
            |--port|PORT|--kv-cache-dtype|auto|--tp-size|1|--enable-metrics|--enable-cache-report\
            |--device|cpu|--dtype|float32|--context-length|1024|--max-running-requests|8|--max-total-tokens|16384\
            |--mem-fraction-static|0.3|--disable-overlap-schedule|--skip-server-warmup",
        env: &[("HF_HUB_OFFLINE", "1"), ("TORCHDYNAMO_DISABLE", "1")],
    },
    Case {
        recipe: "llamacpp",
        overlay: None,
        program: "llama-server",
        vars: &[("gguf", "/models/m-f16.gguf")],
        arguments: "--model|/models/m-f16.gguf|--alias|m|--host|127.0.0.1|--port|PORT|--n-gpu-layers|99\
            |--parallel|16|--ctx-size|65536|--no-kv-unified|--batch-size|2048|--ubatch-size|512\
            |--cache-type-k|f16|--cache-type-v|f16|--fit|off|--cache-ram|0|--metrics",
        env: &[],
    },
    Case {
        recipe: "tabbyapi",
        overlay: None,
        program: "python3",
        vars: &[CHECKPOINT, ("tabbyapi", "FOLDER")],
        arguments: "main.py|--config|ENGINES/tabbyapi.yml|--model-name|/models/a model|--port|PORT",
        env: &[],
    },
    Case {
        recipe: "tensorrt-llm",
        overlay: None,
        program: "trtllm-serve",
        vars: &[CHECKPOINT],
        arguments: "/models/a model|--backend|pytorch|--host|127.0.0.1|--port|PORT|--tp_size|1\
            |--max_batch_size|16|--max_seq_len|4096|--max_num_tokens|4096|--config|ENGINES/tensorrt-llm.yaml",
        env: &[],
    },
    Case {
        recipe: "serve-py",
        overlay: None,
        program: "python3",
        vars: &[CHECKPOINT, ("serve_py", "/opt/serve.py")],
        arguments: "/opt/serve.py|--model|/models/a model|--alias|m|--port|PORT|--slots|16|--ctx-per-slot|4096",
        env: &[],
    },
];

/// Starts a recipe whose program is a stub, by an overlay that puts the stub's folder in front of the PATH.
async fn try_recipe(case: &Case) {
    let stub = Stub::new(&[]);
    stub.install(case.program);
    let folder = stub.path("").display().to_string();
    let folder = folder.trim_end_matches('/');
    let port = stub.port.to_string();
    let fill = |text: &str| {
        let engines = engines().display().to_string();
        text.replace("PORT", &port).replace("FOLDER", folder).replace("ENGINES", &engines)
    };
    let mut vars: Vec<(String, String)> = case.vars.iter().map(|(n, v)| ((*n).to_owned(), fill(v))).collect();
    vars.push(("port".into(), port.clone()));

    // What the recipe itself says first: the stub needs a file of its own on top.
    let file = engines().join(format!("{}.toml", case.recipe));
    let shipped = case.overlay.map(|name| engines().join(format!("overlays/{name}.toml")));
    let plain = Recipe::load(&file, shipped.as_deref(), &vars).unwrap();
    let dialect: Dialect = plain.check_dialect(str::parse).unwrap();
    let ready = plain.ready_path.as_deref().unwrap_or(dialect.traits().ready);

    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let shipped = shipped.map(|path| std::fs::read_to_string(path).unwrap()).unwrap_or_default();
    let env = stub.env(ready, &[("PATH", &path), ("STUB_BUSY", "1")]);
    let overlay = match shipped.split_once("[env]\n") {
        Some((before, after)) => format!("{before}[env]\n{env}{after}"),
        None => format!("{shipped}\n[env]\n{env}"),
    };
    std::fs::write(stub.path("overlay.toml"), overlay).unwrap();
    let recipe = Recipe::load(&file, Some(&stub.path("overlay.toml")), &vars).unwrap();
    assert_eq!(recipe.command, plain.command);

    let mut engine = Engine::start(Arc::new(recipe), stub.launcher()).await.unwrap();
    stub.wait_ready(&mut engine, ready).await.unwrap();
    let pid = engine.pid().unwrap();
    engine.stop().await.unwrap();
    assert!(!runs(pid));

    let start = &stub.starts()[0];
    let arguments: Vec<&str> = start["argv"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(arguments, fill(case.arguments).split('|').collect::<Vec<_>>());
    for (name, value) in case.env {
        assert_eq!(start["env"][name], *value, "{name}");
    }
    if case.recipe == "tabbyapi" {
        assert_eq!(start["cwd"], folder, "main.py is in the checkout");
    }
    // Nothing was asked for but whether it is ready: no path of it makes an engine generate.
    assert_eq!(stub.asked(), [ready; 2]);
}

#[tokio::test]
async fn every_recipe_starts_its_program_as_it_says() {
    for case in CASES {
        println!("{} {:?}", case.recipe, case.overlay);
        try_recipe(case).await;
    }
}

#[test]
fn no_recipe_and_no_overlay_is_left_out_above() {
    let names = |folder: std::path::PathBuf| {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|e| e == "toml"))
            .map(|entry| entry.path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    let tried = |of: fn(&Case) -> Option<&'static str>| {
        let mut tried: Vec<String> = CASES.iter().filter_map(of).map(str::to_owned).collect();
        tried.sort();
        tried.dedup();
        tried
    };
    assert_eq!(names(engines()), tried(|case| Some(case.recipe)));
    assert_eq!(names(engines().join("overlays")), tried(|case| case.overlay));
}

#[test]
fn a_recipe_says_what_it_needs() {
    for (recipe, variable) in [
        ("vllm", "checkpoint"),
        ("sglang", "checkpoint"),
        ("llamacpp", "gguf"),
        ("tabbyapi", "checkpoint"),
        ("tensorrt-llm", "checkpoint"),
        ("serve-py", "serve_py"),
    ] {
        let error =
            Recipe::load(&engines().join(format!("{recipe}.toml")), None, &[]).unwrap_err().to_string();
        assert!(error.contains(&format!("--engine-var {variable}=")), "{error}");
        assert!(error.contains(&format!("{recipe}.toml: command[")), "{error}");
    }
}

#[test]
fn every_recipe_says_what_differs_from_the_others() {
    for case in CASES {
        let vars: Vec<_> = case.vars.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
        let recipe = Recipe::load(&engines().join(format!("{}.toml", case.recipe)), None, &vars).unwrap();
        assert!(recipe.notes.iter().any(|note| note.contains("prefix cache")), "{}", case.recipe);
        assert!(recipe.notes.iter().any(|note| note.contains("KV cache")), "{}", case.recipe);
        assert_eq!(recipe.base_url.port(), 8000, "{}", case.recipe);
    }
}
