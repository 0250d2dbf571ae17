//! Before the first trial: the agents join, and each of them tries the engine.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use common::fleet::{HostFacts, TargetReport};
use common::ids::AgentName;
use common::slo::shown_time;

use super::Means;
use crate::fleet::{Change, FromAgent, ToAgent};
use crate::plan::Plan;

/// How long trying the engine may take beyond the request's own timeouts.
const CHECK_GRACE: Duration = Duration::from_secs(10);

/// Agents and engine. None when the operator stopped it.
pub(super) async fn prepare(
    plan: &mut Plan,
    means: &mut Means<'_>,
) -> anyhow::Result<Option<Vec<(AgentName, HostFacts)>>> {
    let wanted = plan.fleet.local + plan.fleet.remote;
    if !wait_for_agents(plan, wanted, means).await? {
        return Ok(None);
    }
    means.fleet.complete();
    let members = means.fleet.registry().members();
    let agents: Vec<_> = members.iter().map(|(n, m)| (n.clone(), m.introduction.host.clone())).collect();
    let names: Vec<AgentName> = agents.iter().map(|(name, _)| name.clone()).collect();
    let Some(reports) = check_target(plan, &names, means).await? else { return Ok(None) };
    let models =
        reports.values().find(|r| !r.models.is_empty()).map(|r| r.models.as_slice()).unwrap_or_default();
    match (&plan.target.model, models) {
        (None, [first, rest @ ..]) => {
            let note =
                if rest.is_empty() { String::new() } else { format!(" (the first of {})", models.len()) };
            means.ui.note(&format!("model        {first}, as the engine lists it{note}"));
            plan.target.model = Some(first.clone());
        }
        (None, []) => means.ui.note("model        none: the engine lists none and --model was not given"),
        (Some(_), _) => {}
    }
    Ok(Some(agents))
}

async fn wait_for_agents(plan: &Plan, wanted: usize, means: &mut Means<'_>) -> anyhow::Result<bool> {
    let deadline = means.clock.monotonic() + plan.fleet.join_timeout;
    let mut stop = means.stop.clone();
    while !means.fleet.registry().is_full() {
        let change = tokio::select! {
            change = means.fleet.next() => change,
            _ = stop.wait_for(|level| *level > 0) => return Ok(false),
        };
        match change {
            Change::Joined(name) => {
                let so_far = means.fleet.registry().members().len();
                means.ui.note(&format!("agent        {name} joined ({so_far} of {wanted})"));
            }
            Change::Lost(name, reason) => bail!("agent {name}: {reason}"),
            Change::Said(..) | Change::Tick => {}
        }
        if means.clock.monotonic() >= deadline && !means.fleet.registry().is_full() {
            let joined: Vec<&str> = means.fleet.registry().members().keys().map(AgentName::as_str).collect();
            let who = if joined.is_empty() { "none".to_owned() } else { joined.join(", ") };
            bail!(
                "{} of {wanted} agents joined within {}: {who}; start the others as printed above",
                joined.len(),
                shown_time(plan.fleet.join_timeout)
            );
        }
    }
    Ok(true)
}

/// One probing request by every agent: each of them must reach the engine.
async fn check_target(
    plan: &Plan,
    agents: &[AgentName],
    means: &mut Means<'_>,
) -> anyhow::Result<Option<BTreeMap<AgentName, TargetReport>>> {
    let row = plan.workload.rows.rows.first().map(|r| r.line).unwrap_or(1);
    let line = plan.workload.bytes.split(|&b| b == b'\n').nth(row as usize - 1).unwrap_or_default();
    let row_json = String::from_utf8_lossy(line).trim_start_matches('\u{feff}').to_owned();
    let target = Box::new(plan.target.clone());
    means.fleet.tell_all(&ToAgent::Check { id: 1, target, row_json });
    let mut reports = BTreeMap::new();
    let patience =
        (plan.target.connect_timeout + plan.target.connect_timeout + plan.target.total_timeout).to_duration();
    let deadline = tokio::time::sleep(patience + CHECK_GRACE);
    tokio::pin!(deadline);
    let mut stop = means.stop.clone();
    while reports.len() < agents.len() {
        tokio::select! {
            change = means.fleet.next() => match change {
                Change::Said(agent, FromAgent::Target(_, report)) => {
                    if let Some((kind, message)) = &report.failure {
                        bail!(refusal(plan, &agent, kind.name(), message, &report));
                    }
                    reports.insert(agent, *report);
                }
                Change::Lost(agent, reason) => bail!("agent {agent} was lost while it tried the engine: {reason}"),
                _ => {}
            },
            () = &mut deadline => {
                let missing: Vec<&str> =
                    agents.iter().filter(|a| !reports.contains_key(*a)).map(AgentName::as_str).collect();
                bail!("no answer in time about the engine from {}", missing.join(", "));
            }
            _ = stop.wait_for(|level| *level > 0) => return Ok(None),
        }
    }
    Ok(Some(reports))
}

/// The engine's own words, verbatim.
fn refusal(plan: &Plan, agent: &AgentName, kind: &str, message: &str, report: &TargetReport) -> String {
    let mut text =
        format!("agent {agent} cannot use the engine at {}: {kind}: {message}", plan.target.base_url);
    if !report.error_body.is_empty() {
        text.push_str(&format!("\nthe engine answered:\n{}", report.error_body));
    }
    text
}
