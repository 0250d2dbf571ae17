//! The experiment record: what somebody else needs to know to check a result, and what is missing of it.
//!
//! Never a secret: header values are not recorded, and keys and tokens never reach the coordinator's plan.

pub mod same;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::LazyLock;

use common::fleet::HostFacts;
use common::ids::{AgentName, Digest};
use common::plan::{BaseUrl, Extent};
use common::seed::GENERATOR;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::plan::Plan;
use crate::retokenize::Retokenizer;
use crate::run::Gathered;
use crate::sweep::PlannedTrial;

/// What the record should say of hardware, engine and model, and only the user can know (SPEC, section 9).
const WANTED: &[(&str, &[&str])] = &[
    ("hardware", &["gpu", "gpu_count", "power_limit_watts", "driver", "cuda"]),
    ("engine", &["name", "revision", "launch_command"]),
    ("model", &["name", "revision", "tokenizer_revision"]),
    (
        "serving",
        &["precision", "quantisation", "cache_dtype", "context_limit", "parallelism", "prefix_reuse"],
    ),
];

/// Fields of the record that are Plimsoll's own: metadata must not overwrite the evidence.
pub const OWN_FIELDS: &[&str] = &[
    "plimsoll",
    "command_line",
    "plan",
    "workload",
    TOKENIZER,
    "agents",
    "probe",
    "launch",
    "trials",
    "skipped_trials",
    "resumed",
    "missing",
];

/// The field that says which tokenizer counted kept text; null when none did.
pub const TOKENIZER: &str = "tokenizer";

/// What stands there.
#[must_use]
pub fn tokenizer(tokenizer: Option<&Retokenizer>) -> Value {
    tokenizer.map_or(Value::Null, Retokenizer::record)
}

/// The record of a run before its first trial.
#[must_use]
pub fn record(plan: &Plan, gathered: &Gathered, command_line: &[String]) -> Value {
    let Gathered { probe, launch, .. } = gathered;
    let mut record = Map::new();
    record.insert("plimsoll".into(), plimsoll());
    record.insert("command_line".into(), json!(redacted(command_line)));
    record.insert("plan".into(), plan_json(plan));
    record.insert("workload".into(), workload(plan));
    record.insert(TOKENIZER.into(), tokenizer(plan.tokenizer.as_deref()));
    record.insert("agents".into(), agents(gathered));
    let mut engine = Map::new();
    if let Some(probe) = probe {
        engine.insert("name".into(), json!(probe.engine));
        engine.insert("revision".into(), json!(probe.engine_version));
        record.insert("model".into(), json!({"name": probe.model}));
        record.insert("probe".into(), json!(probe));
    }
    if let Some(launch) = launch {
        engine.insert("launch_command".into(), launch["command"].clone());
        record.insert("launch".into(), launch.clone());
    }
    record.insert("engine".into(), Value::Object(engine));
    merge(&mut record, &plan.metadata);
    let missing = missing(&record);
    record.insert("missing".into(), json!(missing));
    Value::Object(record)
}

fn agents(gathered: &Gathered) -> Value {
    let agent = |(name, host): &(AgentName, HostFacts)| {
        json!({
            "name": name, "hostname": host.hostname, "kernel": host.kernel, "cpu_model": host.cpu_model,
            "cpus": host.cpus, "memory_bytes": host.memory_bytes, "open_files_limit": host.open_files_limit,
        })
    };
    gathered.hosts.iter().map(agent).collect()
}

/// What the record says of a run that goes on: with whom, and what the engine is now.
#[must_use]
pub fn resumption(gathered: &Gathered, command_line: &[String], at: &str) -> Value {
    let engine = gathered.probe.as_ref();
    let mut entry = json!({
        "at": at, "command_line": redacted(command_line), "agents": agents(gathered),
        "engine": {"name": engine.map(|p| &p.engine), "revision": engine.map(|p| &p.engine_version)},
    });
    if let Some(launch) = &gathered.launch {
        entry["launch"] = launch.clone();
    }
    entry
}

/// Brings what is on record of an engine that was launched up to date. Of a run that went on the last launch stands with
/// the resumption: the first trials were sent to the first.
pub fn set_launch(record: &mut Value, launch: Value) {
    let last = record.get_mut("resumed").and_then(Value::as_array_mut).and_then(|list| list.last_mut());
    match last {
        Some(last) => last["launch"] = launch,
        None => record["launch"] = launch,
    }
}

/// Which boot of this host it is: instants of the monotonic clock of another boot mean nothing. None where the system
/// does not say.
#[must_use]
pub fn boot() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// Of this program. Read once: it is large.
static BINARY: LazyLock<Option<Digest>> = LazyLock::new(|| digest_of(&std::env::current_exe().ok()?).ok());

/// Begins to hash this program where that holds up nobody: it takes a tenth of a second, which would be waited for between
/// the engine's answer and the first request. Where no thread is to be had, it is hashed when it is needed.
pub fn begin() {
    let _ = std::thread::Builder::new().name("record".into()).spawn(|| LazyLock::force(&BINARY).is_some());
}

/// Of a file, a piece at a time: whole in memory, this program's would be most of what a run takes.
fn digest_of(path: &Path) -> io::Result<Digest> {
    let (mut file, mut hash, mut piece) = (File::open(path)?, Sha256::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(Digest(hash.finalize().into())),
            n => hash.update(&piece[..n]),
        }
    }
}

fn plimsoll() -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": option_env!("PLIMSOLL_COMMIT").filter(|commit| !commit.is_empty()),
        "binary_sha256": *BINARY,
        "generator": GENERATOR,
    })
}

/// Of a plan: the engines beside the one at the base URL.
const REPLICA_URLS: &str = "replica_urls";

fn plan_json(plan: &Plan) -> Value {
    let target = &plan.target;
    let (requests, duration_seconds) = match plan.extent {
        Extent::Requests(n) => (Some(n), None),
        Extent::Duration(d) => (None, Some(d.as_secs_f64())),
    };
    let names: Vec<&String> = target.headers.iter().map(|(name, _)| name).collect();
    let mut plan_json = json!({
        "base_url": target.base_url, "model": target.model, "api": target.api,
        "dialect": target.dialect, "ignore_eos": target.ignore_eos, "logprobs": target.logprobs,
        "token_counts": target.token_counts, "extra_body": target.extra_body,
        "header_names": names, "default_max_tokens": target.default_max_tokens,
        "sampling": {"temperature": target.extra_body.get("temperature").cloned().unwrap_or(json!(0)), "n": 1},
        "connect_timeout_seconds": target.connect_timeout.as_secs_f64(),
        "timeout_seconds": target.total_timeout.as_secs_f64(),
        "idle_timeout_seconds": target.idle_timeout.as_secs_f64(),
        "keep_text": target.keep_text,
        "arrival": arrival(plan), "requests": requests, "duration_seconds": duration_seconds,
        "seed": plan.seed, "trial_order": trial_order(plan), "search": plan.search,
        "slos": plan.slos, "slo_target": plan.slo_target.share(),
        "stop_after_knee": plan.stop_after_knee, "max_failures": plan.max_failures,
        "max_concurrency": plan.max_concurrency, "warmup": plan.warmup,
        "warm_connections": plan.warm_connections, "upload": plan.upload.name(),
        "late_budget_seconds": plan.limits.lateness_budget.as_secs_f64(),
        "clock_bound_limit_seconds": plan.limits.clock_bound.as_secs_f64(),
        "between_trials": plan.engine.between.name(), "require_gpu": plan.require_gpu,
        "engine_metrics": plan.engine.scrape,
        "local_agents": plan.fleet.local, "remote_agents": plan.fleet.remote,
    });
    // Only where there are several engines, so that a plan for one is what it always was.
    if !target.replicas.is_empty() {
        plan_json[REPLICA_URLS] = json!(target.replicas);
    }
    plan_json
}

/// The engines of a run's record: the base URL, then the replicas.
#[must_use]
pub fn engines(record: &Value) -> Vec<BaseUrl> {
    let plan = &record["plan"];
    let replicas = plan[REPLICA_URLS].as_array().map(Vec::as_slice).unwrap_or_default();
    let urls = std::iter::once(&plan["base_url"]).chain(replicas);
    urls.filter_map(|url| url.as_str()?.parse().ok()).collect()
}

/// A search has none: its trials follow from one another.
fn trial_order(plan: &Plan) -> &[PlannedTrial] {
    if plan.search.is_some() { &[] } else { &plan.trials }
}

/// The arrival process. A closed loop has none, and says so.
fn arrival(plan: &Plan) -> Value {
    match plan.trials.iter().any(|t| t.rate.workers().is_some()) {
        true => json!({"process": "closed"}),
        false => json!(plan.process),
    }
}

fn workload(plan: &Plan) -> Value {
    json!({
        "source": plan.workload.source, "sha256": plan.workload_digest(), "bytes": plan.workload.bytes.len(),
        "rows": plan.workload.rows.rows.len(), "ignored_fields": plan.workload.rows.ignored_fields,
    })
}

/// Options whose value is not recorded.
pub const VALUE_HIDDEN: &[&str] = &["--header", "--engine-var"];

/// The command line with the values of headers and of an engine's variables hidden.
fn redacted(command_line: &[String]) -> Vec<String> {
    let mut hide = false;
    let mut shown = Vec::with_capacity(command_line.len());
    for word in command_line {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        if std::mem::take(&mut hide) {
            shown.push(name_only(word));
        } else if VALUE_HIDDEN.contains(&name) && name.len() < word.len() {
            shown.push(format!("{name}={}", name_only(&word[name.len() + 1..])));
        } else {
            hide = VALUE_HIDDEN.contains(&word.as_str());
            shown.push(word.clone());
        }
    }
    shown
}

/// `Name: …` or `NAME=…`.
#[must_use]
pub fn name_only(word: &str) -> String {
    match word.find([':', '=']) {
        Some(at) if word[at..].starts_with('=') => format!("{}=…", &word[..at]),
        Some(at) => format!("{}: …", &word[..at]),
        None => "…".to_owned(),
    }
}

/// What the user says wins over what was found out, object by object.
fn merge(into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            _ => _ = into.insert(key.clone(), value.clone()),
        }
    }
}

/// Fills in what telemetry found out about the hardware, below what the user said; what is missing is found anew.
pub fn add_hardware(record: &mut Map<String, Value>, hardware: Map<String, Value>) {
    let said = record.get("hardware").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut both = hardware;
    merge(&mut both, &said);
    record.insert("hardware".into(), Value::Object(both));
    let missing = missing(record);
    record.insert("missing".into(), json!(missing));
}

fn missing(record: &Map<String, Value>) -> Vec<String> {
    let known = |group: &str, field: &str| {
        record.get(group).and_then(|g| g.get(field)).is_some_and(|v| !v.is_null() && v != "")
    };
    let wanted = WANTED.iter().flat_map(|(group, fields)| fields.iter().map(move |field| (*group, *field)));
    let mut missing: Vec<String> =
        wanted.filter(|(group, field)| !known(group, field)).map(|(g, f)| format!("{g}.{f}")).collect();
    if !known("plimsoll", "commit") {
        missing.push("plimsoll.commit".into());
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_file_is_hashed_in_pieces_as_it_would_be_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        assert_eq!(digest_of(file.path()).unwrap(), Digest::of(&bytes));
        assert!(digest_of(Path::new("/not/there")).is_err());
    }

    #[test]
    fn header_values_never_reach_the_record() {
        let shown = redacted(&words(
            "coordinator run --header x-a:secret1 --rate 4 --header=x-b:secret2 --engine-var key=secret3 --engine-var=port=secret4 --seed 7",
        ));
        let text = shown.join(" ");
        assert!(!text.contains("secret"), "{text}");
        assert!(text.contains("x-a: …") && text.contains("--header=x-b: …") && text.ends_with("--seed 7"));
        assert!(text.contains("--engine-var key=…") && text.contains("--engine-var=port=…"), "{text}");
    }

    #[test]
    fn a_later_launch_does_not_take_the_place_of_the_first() {
        let mut record = json!({"launch": {"starts": 1}});
        set_launch(&mut record, json!({"starts": 2}));
        assert_eq!(record, json!({"launch": {"starts": 2}}));
        record["resumed"] = json!([{"at": "then"}]);
        set_launch(&mut record, json!({"starts": 1}));
        assert_eq!(
            record,
            json!({"launch": {"starts": 2}, "resumed": [{"at": "then", "launch": {"starts": 1}}]})
        );
    }

    #[test]
    fn what_is_unknown_is_listed_and_what_the_user_says_is_not() {
        let mut record = Map::new();
        record.insert("engine".into(), json!({"name": "found"}));
        let said = json!({"engine": {"revision": "1.2"}, "hardware": {"gpu": "H200", "driver": ""}});
        merge(&mut record, said.as_object().unwrap());
        assert_eq!(record["engine"], json!({"name": "found", "revision": "1.2"}));
        let missing = missing(&record);
        assert!(
            missing.contains(&"hardware.driver".into()) && missing.contains(&"engine.launch_command".into())
        );
        assert!(!missing.contains(&"hardware.gpu".into()) && !missing.contains(&"engine.name".into()));
    }
}
