//! Whether a run that goes on is still the same run: the same plan, asked of the same engine.
//!
//! What is compared is what is on record, so secrets take no part: they are not recorded, or blotted out on both sides.

use std::fmt;

use common::probe::EngineProbe;
use serde_json::{Value, json};

use super::{REPLICA_URLS, TOKENIZER, plan_json, tokenizer};
use crate::plan::Plan;
use crate::run::Gathered;

/// What makes a run another run.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Its name in the record.
    pub what: String,
    /// What is on record.
    pub was: Value,
    /// What it would be from now on.
    pub is: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, was, is } = self;
        write!(f, "the run was made with {what} {was}, and now it is {is}: it cannot go on as the same run")
    }
}

/// Who sends, and how long agents are waited for, may change.
const FREE: &[&str] = &["local_agents", "remote_agents"];

/// Of an engine that an agent launches: what makes it another.
const LAUNCH: &[&str] = &["/name", "/recipe/sha256", "/overlay/sha256", "/command", "/working_dir"];

/// How a plan differs from the one on record. Before agents and engine were `met`, what only they can tell is left out.
#[must_use]
pub fn of_plan(record: &Value, plan: &Plan, met: bool) -> Option<Difference> {
    // Read back like what is on record: numbers then compare as they were written.
    let now: Value = serde_json::from_str(&plan_json(plan).to_string()).ok()?;
    let was = record["plan"].as_object()?;
    let untold = [
        ("model", plan.target.model.is_none()),
        ("dialect", plan.engine.dialect.is_none()),
        ("base_url", plan.engine.base_url_is_default && plan.engine.launched),
    ];
    let compared = |name: &str| {
        !FREE.contains(&name) && (met || !untold.iter().any(|(n, untold)| *n == name && *untold))
    };
    let mut fields = was.iter().filter(|(name, _)| compared(name));
    let found = fields.find_map(|(name, was)| differs(name, was, &now[name.as_str()]));
    // Which a plan for one engine does not have.
    let found = found.or_else(|| differs(REPLICA_URLS, &record["plan"][REPLICA_URLS], &now[REPLICA_URLS]));
    found.or_else(|| differs("workload", &record["workload"]["sha256"], &json!(plan.workload_digest())))
}

/// How the engine that was met differs from the one on record.
#[must_use]
pub fn of_engine(record: &Value, gathered: &Gathered) -> Option<Difference> {
    let probed = gathered.probe.as_ref().and_then(|probe| of_probe(&record["probe"], probe));
    let none = Value::Null;
    let launch = gathered.launch.as_ref().unwrap_or(&none);
    probed.or_else(|| of_launch(&record["launch"], launch))
}

/// A run may have been made without a look at the engine: then nothing is known of it.
fn of_probe(was: &Value, probe: &EngineProbe) -> Option<Difference> {
    if !was.is_object() {
        return None;
    }
    let named = differs("engine.name", &was["engine"], &json!(probe.engine));
    named.or_else(|| differs("probe.model", &was["model"], &json!(probe.model))).or_else(|| {
        // Some engines answer to any name of a model: what they list says which one it is.
        let listed = was["models"].as_array()?;
        let asked = json!(probe.model);
        let same = listed.is_empty()
            || (listed.contains(&asked) && probe.models.iter().any(|m| json!(m) == asked))
            || was["models"] == json!(probe.models);
        (!same).then(|| Difference {
            what: "probe.models".into(),
            was: was["models"].clone(),
            is: json!(probe.models),
        })
    })
}

fn of_launch(was: &Value, is: &Value) -> Option<Difference> {
    let none = Value::Null;
    let at = |value: &'_ Value, pointer: &str| value.pointer(pointer).unwrap_or(&none).clone();
    let field = |pointer: &&str| {
        let name = format!("launch{}", pointer.replace('/', "."));
        differs(&name, &at(was, pointer), &at(is, pointer))
    };
    LAUNCH.iter().find_map(field).or_else(|| {
        let (was, is) = (&at(was, "/env/set"), &at(is, "/env/set"));
        let names = [was, is].into_iter().filter_map(Value::as_object).flat_map(|set| set.keys());
        names.into_iter().find_map(|name| {
            differs(&format!("launch.env.set.{name}"), &was[name.as_str()], &is[name.as_str()])
        })
    })
}

/// Whose tokens the record counts, where that is another's now: not refused, for kept text is counted again.
#[must_use]
pub fn of_tokenizer(record: &Value, plan: &Plan) -> Option<Difference> {
    differs(TOKENIZER, &record[TOKENIZER], &tokenizer(plan.tokenizer.as_deref()))
}

fn differs(what: &str, was: &Value, is: &Value) -> Option<Difference> {
    (was != is).then(|| Difference { what: what.to_owned(), was: was.clone(), is: is.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(engine: &str, models: &[&str]) -> EngineProbe {
        serde_json::from_value(json!({
            "version": 1, "dialect": "vllm", "recognised_by": null, "engine": engine, "engine_version": "1",
            "models": models, "model": "m", "ready": {"path": "/health", "status": 200}, "metrics": null,
            "settings": null, "capabilities": {}, "requests": 1, "output_tokens": 0, "prompt_tokens": 0,
        }))
        .unwrap()
    }

    fn launch(recipe: &str, command: &[&str], overlay: Value, env: Value) -> Value {
        json!({
            "name": "e", "command": command, "env": {"set": env, "inherits": true, "inherited": {}},
            "working_dir": null, "recipe": {"file": "r.toml", "sha256": recipe}, "overlay": overlay,
            "starts": 1, "log": {"sha256": "x"},
        })
    }

    fn met(probe: Option<EngineProbe>, launch: Option<Value>) -> Gathered {
        Gathered { agents: Vec::new(), hosts: Vec::new(), launcher: None, launch, probe }
    }

    fn what(record: &Value, gathered: &Gathered) -> Option<String> {
        of_engine(record, gathered).map(|d| d.what)
    }

    #[test]
    fn another_engine_or_model_is_named() {
        let record = json!({"probe": probe("vLLM", &["m", "lora"])});
        assert_eq!(what(&record, &met(Some(probe("vLLM", &["m"])), None)), None);
        assert_eq!(what(&record, &met(Some(probe("SGLang", &["m"])), None)).unwrap(), "engine.name");
        assert_eq!(what(&record, &met(Some(probe("vLLM", &["other"])), None)).unwrap(), "probe.models");
        // Nobody looked then, or nobody looks now.
        assert_eq!(what(&json!({}), &met(Some(probe("SGLang", &["m"])), None)), None);
        assert_eq!(what(&record, &met(None, None)), None);
        // A name that the engine does not list: the list tells.
        let alias = json!({"probe": probe("vLLM", &["real"])});
        assert_eq!(what(&alias, &met(Some(probe("vLLM", &["real"])), None)), None);
        assert_eq!(what(&alias, &met(Some(probe("vLLM", &["m"])), None)).unwrap(), "probe.models");
    }

    #[test]
    fn another_recipe_overlay_variable_or_command_is_named() {
        let before = || launch("a", &["serve", "--slots", "2"], Value::Null, json!({"KEY": "[redacted]"}));
        let record = json!({"launch": before()});
        let told = |launch: Option<Value>| what(&record, &met(None, launch));
        let mut again = before();
        // Of this start, and not of the engine.
        again["starts"] = json!(2);
        again["log"] = Value::Null;
        assert_eq!(told(Some(again)), None);
        let key = || json!({"KEY": "[redacted]"});
        let other = launch("b", &["serve", "--slots", "2"], Value::Null, key());
        assert_eq!(told(Some(other)).unwrap(), "launch.recipe.sha256");
        let other = launch("a", &["serve", "--slots", "2"], json!({"sha256": "o"}), key());
        assert_eq!(told(Some(other)).unwrap(), "launch.overlay.sha256");
        let other = launch("a", &["serve", "--slots", "4"], Value::Null, key());
        assert_eq!(told(Some(other)).unwrap(), "launch.command");
        let other =
            launch("a", &["serve", "--slots", "2"], Value::Null, json!({"KEY": "[redacted]", "N": "1"}));
        assert_eq!(told(Some(other)).unwrap(), "launch.env.set.N");
        assert_eq!(told(None).unwrap(), "launch.name", "it is launched no more");
        assert_eq!(what(&json!({}), &met(None, Some(before()))).unwrap(), "launch.name");
    }
}
