//! What goes into the experiment's record of an engine: enough to start it again, and nothing that is secret.

use std::path::Path;

use common::ids::Nanos;
use serde_json::{Map, Value, json};

use super::log::LogFacts;
use super::recipe::{Recipe, Source};
use super::scrub::{REDACTED, Scrub, is_secret};

/// Variables of an inherited environment that change what an engine does.
const TELLING: &[&str] = &[
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "ROCR_",
    "HIP_",
    "TORCH",
    "PYTORCH_",
    "TRITON_",
    "OMP_",
    "MKL_",
    "HF_",
    "VLLM_",
    "SGLANG_",
    "SGL_",
    "TRTLLM_",
    "TLLM_",
    "LLAMA_",
    "GGML_",
    "EXLLAMA_",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
];

/// One engine's part of the record.
pub(super) fn record(
    recipe: &Recipe,
    scrub: &Scrub,
    starts: u32,
    ready_after: Option<Nanos>,
    log: Option<&LogFacts>,
) -> Value {
    json!({
        "name": recipe.name,
        "dialect": recipe.dialect,
        "command": scrub.command(&recipe.command),
        "env": environment(recipe, scrub),
        "working_dir": recipe.working_dir.as_ref().map(|p| p.display().to_string()),
        "base_url": recipe.base_url,
        "recipe": source(&recipe.source),
        "overlay": recipe.overlay.as_ref().map(source),
        "notes": recipe.notes,
        "starts": starts,
        "ready_after_seconds": ready_after.map(|after| after.0 as f64 / 1e9),
        "log": log.map(|facts| json!({
            "file": file_name(&facts.path),
            "bytes": facts.bytes,
            "sha256": facts.sha256,
            "tail": facts.tail,
        })),
    })
}

/// Variables that the recipe sets, and those of the inherited environment that engines heed. A secret keeps its name.
fn environment(recipe: &Recipe, scrub: &Scrub) -> Value {
    let shown = |name: &str, value: &str| {
        let secret = is_secret(name, value) || recipe.env_secret.iter().any(|s| s == name);
        Value::from(if secret { REDACTED.to_owned() } else { scrub.text(value) })
    };
    let set: Map<String, Value> = recipe.env.iter().map(|(n, v)| (n.clone(), shown(n, v))).collect();
    let mut inherited = Map::new();
    if recipe.env_inherit {
        for (name, value) in std::env::vars_os() {
            let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
            if TELLING.iter().any(|start| name.starts_with(start)) && !recipe.env.contains_key(&*name) {
                inherited.insert(name.clone().into_owned(), shown(&name, &value));
            }
        }
    }
    json!({ "set": set, "inherits": recipe.env_inherit, "inherited": inherited })
}

fn source(source: &Source) -> Value {
    json!({ "file": file_name(&source.path), "sha256": source.sha256 })
}

/// Without its folder: that is the host's business.
fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
