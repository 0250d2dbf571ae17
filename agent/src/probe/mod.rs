//! Trying the engine before anything is measured: one request as the trial will send them, and, where that is asked
//! for, what the engine is, what it says of itself and what it can do.
//!
//! It exists because a run against an engine that is not understood gives numbers that are not understood. Requests
//! take the measured path, so that what fails there fails here first. A handful is sent, one after the other, each
//! marked as a check by its request id.
//!
//! - `ask` is how anything is asked here: the client, with a count of what was spent.
//! - `looks` reads what the engine says of itself; `settings` blots out the secrets in it.
//! - `tries` finds out by trying.
//!
//! Must never: run while a trial does, or take a no for what is merely unknown.
//!
//! Guarded by `tests/tests/probe.rs`: every scripted engine, and a real one, is recognised and described rightly.

mod ask;
mod looks;
mod settings;
mod tries;

use std::sync::Arc;

use common::clock::Clock;
use common::dialect::{Answer, Dialect};
use common::fleet::{ProbeDepth, TargetCheck, TargetReport};
use common::ids::AgentName;
use common::metrics::RequestMetrics;
use common::plan::{BaseUrl, Target};
use common::probe::{self, EngineProbe};
use common::trace::{FailureKind, Trace};
use common::workload::{Row, Workload};
use proto::convert::harmless;

use self::ask::Asking;
use crate::engine::Access;

/// Of an error body, this much is shown.
const SHOWN: usize = 4096;

/// Tries the engine.
pub async fn check(
    check: TargetCheck,
    agent: AgentName,
    access: Access,
    clock: Arc<dyn Clock>,
) -> TargetReport {
    if let Err(e) = access.allowed.check(&check.target) {
        tracing::warn!("refused to try an engine: {e}");
        let failure = Some((FailureKind::NotDispatched, e.to_string()));
        return TargetReport { failure, ..TargetReport::default() };
    }
    let mut asking = Asking::new(agent, access, clock);
    match try_target(check, &mut asking).await {
        Ok(report) => report,
        Err(message) => {
            let failure = Some((FailureKind::LocalLimit, message));
            TargetReport { failure, ..TargetReport::default() }
        }
    }
}

/// The status of a GET beside `/v1`, for an engine that may not be there yet.
///
/// # Errors
/// Why there is none, for a person.
pub async fn status(
    base_url: &BaseUrl,
    path: &str,
    agent: AgentName,
    access: Access,
    clock: Arc<dyn Clock>,
) -> Result<u16, String> {
    get(&Target::plain(base_url.clone()), path, agent, access, clock).await.map(|answer| answer.status)
}

/// The answer to a GET beside `/v1`.
///
/// # Errors
/// Why there is none, for a person.
pub async fn get(
    target: &Target,
    path: &str,
    agent: AgentName,
    access: Access,
    clock: Arc<dyn Clock>,
) -> Result<Answer, String> {
    let answer = Asking::new(agent, access, clock).get(target, &target.base_url.beside_v1(path)).await?;
    answer.map_err(|f| f.told())
}

/// Which dialect the engine speaks, by what it says when it is looked at: nothing is sent to be answered with text.
///
/// # Errors
/// Why it cannot be asked, for a person.
pub async fn dialect(
    target: &Target,
    agent: AgentName,
    access: Access,
    clock: Arc<dyn Clock>,
) -> Result<Dialect, String> {
    let asking = Asking::new(agent, access, clock);
    let listed = asking.get(target, &target.base_url.v1("/models")).await?;
    let listed = listed.map_err(|f| f.told())?;
    Ok(looks::dialect(&asking, target, listed).await?.0)
}

/// Empties the prefix cache of every engine of the target.
///
/// # Errors
/// Why it could not be, for a person; with several engines, of which one.
pub async fn empty_cache(
    target: &Target,
    agent: AgentName,
    access: Access,
    clock: Arc<dyn Clock>,
) -> Result<String, String> {
    let asking = Asking::new(agent, access, clock);
    let mut told = String::new();
    for url in target.engines() {
        let done = looks::reset_cache(&asking, &target.at(url)).await?;
        told = if target.replicas.is_empty() { done? } else { done.map_err(|why| format!("{url}: {why}"))? };
    }
    Ok(told)
}

/// Whether any engine of the target answers when it is looked at: how the last did not, where none does.
async fn look(target: &Target, asking: &Asking) -> Result<TargetReport, String> {
    let mut report = TargetReport::default();
    for url in target.engines() {
        match asking.get(&target.at(url), &url.v1("/models")).await? {
            Ok(answer) => {
                return Ok(TargetReport { http_status: Some(answer.status), ..TargetReport::default() });
            }
            Err(f) => report.failure = Some((f.kind, f.message)),
        }
    }
    Ok(report)
}

async fn try_target(check: TargetCheck, asking: &mut Asking) -> Result<TargetReport, String> {
    let TargetCheck { mut target, row_json, probe: depth, find_dialect, .. } = check;
    // What the engine says is shown once, to whoever started the run, and kept nowhere: also with --no-text.
    target.keep_text = true;
    if depth == ProbeDepth::Look {
        return look(&target, asking).await;
    }
    // The models are worth an attempt, not a wait: an engine need not list any. One that cannot be reached is no use.
    let listed = match asking.get(&target, &target.base_url.v1("/models")).await? {
        Ok(answer) => answer,
        Err(f) => return Ok(TargetReport { failure: Some((f.kind, f.message)), ..TargetReport::default() }),
    };
    let models = if listed.status == 200 { looks::models(&listed.body) } else { Vec::new() };
    if target.model.is_none() {
        target.model = models.first().cloned();
    }
    let mut recognised_by = None;
    if find_dialect {
        (target.dialect, recognised_by) = looks::dialect(asking, &target, listed).await?;
    }
    let row = Workload::parse(row_json.as_bytes()).map_err(|e| e.to_string())?.rows.swap_remove(0);
    let trace = asking.send(&target, &row).await?;
    let mut report = told(&trace, models);
    if report.failure.is_none() && depth != ProbeDepth::None {
        report.probe =
            Some(probed(asking, &target, &row, &trace, depth, &report.models, recognised_by).await?);
    }
    Ok(report)
}

/// What became of the one request.
fn told(trace: &Trace, models: Vec<String>) -> TargetReport {
    let mut error_body = harmless(trace.text.error_body.as_deref().unwrap_or_default()).into_owned();
    let cut = (0..=SHOWN.min(error_body.len())).rev().find(|&at| error_body.is_char_boundary(at));
    error_body.truncate(cut.unwrap_or(0));
    TargetReport {
        models,
        failure: trace.facts.outcome.failure().map(|f| (f.kind, f.message.clone())),
        error_body,
        http_status: trace.facts.http_status,
        ttft: RequestMetrics::of_trace(trace).service_ttft,
        output_tokens: trace.facts.output_tokens.count,
        probe: None,
    }
}

async fn probed(
    asking: &mut Asking,
    target: &Target,
    row: &Row,
    trace: &Trace,
    depth: ProbeDepth,
    models: &[String],
    recognised_by: Option<String>,
) -> Result<EngineProbe, String> {
    let traits = target.dialect.traits();
    let said = looks::said(asking, target).await?;
    let capabilities = match depth {
        ProbeDepth::Full => tries::all(asking, target, row, trace).await?,
        _ => [tries::usage(trace)].into(),
    };
    Ok(EngineProbe {
        version: probe::VERSION,
        dialect: target.dialect,
        recognised_by,
        engine: traits.title.to_owned(),
        engine_version: said.version,
        models: models.to_vec(),
        model: target.model.clone(),
        ready: said.ready,
        metrics: said.metrics,
        settings: said.settings,
        capabilities,
        requests: asking.requests,
        output_tokens: asking.output_tokens,
        prompt_tokens: asking.prompt_tokens,
    })
}
