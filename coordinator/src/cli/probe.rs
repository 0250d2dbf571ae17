//! `coordinator probe`: what the engine is and what it can do, for a person or as JSON.

use std::sync::Arc;

use anyhow::Context;
use comfy_table::{ContentArrangement, Table, TableStyle};
use common::clock::{Clock, SystemClock};
use common::fleet::ProbeDepth;
use common::plan::{Api, Target};
use common::probe::EngineProbe;

use super::company::{Company, Local, Signals};
use super::entrance::{Entrance, Keys};
use super::options::{ProbeFormat, ProbeOptions};
use super::progress::Progress;
use super::terminal::{self, say};
use super::{exit, planning, usage};
use crate::fleet::ToAgent;
use crate::plan::{BetweenTrials, EnginePlan, FleetPlan};
use crate::run::{Gathering, gather};

/// What the one request asks that is sent as a trial would send it.
const ROW: &str =
    r#"{"prompt": "Count from one to twenty in words, then tell a story about a ship.", "max_tokens": 16}"#;
/// Of a table, as everywhere.
const WIDTH: u16 = 100;

/// Probes, and gives the exit code.
pub(super) fn probe(options: &ProbeOptions) -> anyhow::Result<u8> {
    let api = planning::api(&options.engine).unwrap_or(Api::Completions);
    let planned = planning::engine(&options.engine, api)
        .and_then(|target| Ok((target, planning::fleet(&options.agents)?, Keys::read(&options.agents)?)));
    let (target, fleet, keys) = match planned {
        Ok(planned) => planned,
        Err(e) => return Ok(usage(&e)),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let found = runtime.block_on(ask(options, target, fleet, keys));
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    let Some(probe) = found? else { return Ok(exit::INTERRUPTED) };
    match options.format {
        ProbeFormat::Json => say!("{}", serde_json::to_string_pretty(&probe)?),
        ProbeFormat::Text => terminal::out(format_args!("{}", shown(&probe))),
    }
    Ok(0)
}

async fn ask(
    options: &ProbeOptions,
    mut target: Target,
    plan: FleetPlan,
    keys: Keys,
) -> anyhow::Result<Option<EngineProbe>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let signals = Signals::listen()?;
    let entrance = Entrance::open(&plan, keys).await?;
    if let Some(line) = entrance.join_line(&plan) {
        terminal::err(format_args!("{line}"));
    }
    let api_key_file = options.engine.api_key_file.as_deref();
    let local =
        Local { data: &options.data, api_key_file, tls: &options.engine.tls, agents: &options.agents };
    let (company, mut fleet) = Company::gather(&plan, (entrance, signals), &local, &clock)?;
    let depth = if options.brief { ProbeDepth::Brief } else { ProbeDepth::Full };
    let engine = EnginePlan {
        dialect: options.engine.dialect,
        probe: depth,
        base_url_is_default: options.engine.base_url.is_empty(),
        launched: options.agents.await_engine || options.agents.engine.is_some(),
        between: BetweenTrials::Nothing,
        scrape: true,
    };
    let mut ui = Progress::new();
    let with = Gathering { fleet: &mut fleet, clock: &*clock, stop: company.stop.clone(), ui: &mut ui };
    let gathered = gather(&plan, &engine, &mut target, ROW, with).await;
    fleet.tell_all(&ToAgent::Goodbye("the engine was probed".into()));
    ui.end();
    company.part().await;
    match gathered? {
        Some(gathered) => gathered.probe.context("the agent said nothing about the engine").map(Some),
        None => Ok(None),
    }
}

/// The probe as a table.
fn shown(probe: &EngineProbe) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    let unknown = || "not said".to_owned();
    let recognised = probe.recognised_by.clone().unwrap_or_else(|| "not recognised; taken as told".into());
    table.add_row(["engine", &probe.engine, ""]);
    table.add_row(["version", &probe.engine_version.clone().unwrap_or_else(unknown), ""]);
    table.add_row(["dialect", probe.dialect.name(), &recognised]);
    table.add_row(["model", &probe.model.clone().unwrap_or_else(unknown), &listed(&probe.models)]);
    table.add_row(["ready", &probe.ready.to_string(), "answers without generating a token"]);
    let metrics = probe.metrics.as_ref().map_or_else(|| "none known".to_owned(), ToString::to_string);
    table.add_row(["metrics", &metrics, ""]);
    let settings = if probe.settings.is_some() { "told" } else { "not told" };
    table.add_row(["settings", settings, "in full with --format json"]);
    for (capability, finding) in &probe.capabilities {
        table.add_row([capability.name(), &finding.verdict.to_string(), &finding.how]);
    }
    let lines: Vec<String> = table.to_string().lines().map(|l| l.trim_end().to_owned()).collect();
    format!("{}\n{} requests were sent for it\n", lines.join("\n"), probe.requests)
}

fn listed(models: &[String]) -> String {
    match models {
        [] => "the engine lists none".to_owned(),
        [only] => format!("lists {only}"),
        [first, rest @ ..] => format!("lists {first} and {} more", rest.len()),
    }
}
