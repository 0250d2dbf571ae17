//! Before the first trial: the agents join, and each of them tries the engine. The first also finds out what it is.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use common::clock::Clock;
use common::fleet::{EngineCard, HostFacts, ProbeDepth, TargetCheck, TargetReport};
use common::ids::AgentName;
use common::plan::{BaseUrl, Target};
use common::probe::EngineProbe;
use common::slo::shown_time;
use common::trace::headed;

use super::{Note, engine};
use crate::fleet::{Change, Fleet, FromAgent, ToAgent};
use crate::plan::{EnginePlan, FleetPlan};
use crate::trial::drive::StopLevel;

/// How long trying the engine may take beyond the request's own timeouts.
const CHECK_GRACE: Duration = Duration::from_secs(10);
/// And how long finding out what it can do may take: a dozen tries, each of which has its own end.
const PROBE_GRACE: Duration = Duration::from_secs(240);

/// Numbers of the questions about replicas.
const FIRST_REPLICA: u64 = 3;

/// What agents and engine are gathered with.
pub struct Gathering<'a> {
    /// The fleet.
    pub fleet: &'a mut Fleet,
    /// Time.
    pub clock: &'a dyn Clock,
    /// The operator's wishes.
    pub stop: StopLevel,
    /// Who watches.
    pub ui: &'a mut dyn Note,
}

/// Who takes part, and what was found out about the engine.
#[derive(Debug)]
pub struct Gathered {
    /// The agents that send.
    pub agents: Vec<AgentName>,
    /// All agents with their hosts.
    pub hosts: Vec<(AgentName, HostFacts)>,
    /// The agent that launches the engine.
    pub launcher: Option<AgentName>,
    /// What is on record of that engine.
    pub launch: Option<serde_json::Value>,
    /// What was found out; none when it was not to be.
    pub probe: Option<EngineProbe>,
}

/// Waits for the agents and lets them try the engine with `row_json`. The target gets its model and its dialect where
/// they were not given. None when the operator stopped it.
///
/// # Errors
/// Who is missing, or what the engine answered.
pub async fn gather(
    plan: &FleetPlan,
    engine: &EnginePlan,
    target: &mut Target,
    row_json: &str,
    mut with: Gathering<'_>,
) -> anyhow::Result<Option<Gathered>> {
    if !join(plan, engine, &mut with).await? {
        return Ok(None);
    }
    let members = with.fleet.registry().members();
    let hosts: Vec<_> = members.iter().map(|(n, m)| (n.clone(), m.introduction.host.clone())).collect();
    let agents: Vec<AgentName> = with.fleet.registry().senders().map(|(name, _)| name.clone()).collect();
    let Some(first) = agents.first() else { bail!("no agents") };
    let launcher = with.fleet.registry().launcher().map(|(name, card)| (name.clone(), card.clone()));
    let mut launch = None;
    let mut dialect = engine.dialect;
    if let Some((name, card)) = &launcher {
        let Some(state) = engine::ready(name, with.fleet.engine(name).cloned(), &mut with).await? else {
            return Ok(None);
        };
        launch = state.record;
        // The recipe says what it is and where; what was typed wins.
        dialect = dialect.or(Some(card.dialect));
        if engine.base_url_is_default {
            target.base_url = reachable(name, card, &hosts)?;
        }
    }
    if let Some(dialect) = dialect {
        target.dialect = dialect;
    }
    let check = |id, target: &Target, depth, find_dialect| TargetCheck {
        id,
        target: target.clone(),
        row_json: row_json.to_owned(),
        probe: depth,
        find_dialect,
    };
    let look = check(1, target, engine.probe, dialect.is_none());
    let found = match ask(look, std::slice::from_ref(first), &mut with).await {
        Err(e) if launcher.is_some() => return Err(engine::cause(e, &mut with).await),
        found => found?,
    };
    let Some(mut found) = found else { return Ok(None) };
    let report = found.remove(first).unwrap_or_default();
    take_model(target, &report.models, with.ui);
    if let Some(probe) = &report.probe {
        target.dialect = probe.dialect;
        describe(probe, dialect.is_some(), with.ui);
    }
    // The others send what the trial will send, too.
    let others: Vec<AgentName> = agents.iter().skip(1).cloned().collect();
    if !others.is_empty()
        && ask(check(2, target, ProbeDepth::None, false), &others, &mut with).await?.is_none()
    {
        return Ok(None);
    }
    // And all of them to every replica. Whether it is the same engine, one of them finds out.
    let replicas = target.replicas.iter().map(|url| target.at(url));
    for (id, replica) in (FIRST_REPLICA..).step_by(2).zip(replicas) {
        let depth = if report.probe.is_some() { ProbeDepth::Brief } else { ProbeDepth::None };
        let look = check(id, &replica, depth, dialect.is_none() && depth == ProbeDepth::Brief);
        let Some(mut found) = ask(look, std::slice::from_ref(first), &mut with).await? else {
            return Ok(None);
        };
        let other = found.remove(first).and_then(|found| found.probe);
        if let Some((one, other)) = report.probe.as_ref().zip(other) {
            same_engine(&target.base_url, one, &replica.base_url, &other, with.ui)?;
        }
        let check = check(id + 1, &replica, ProbeDepth::None, false);
        if !others.is_empty() && ask(check, &others, &mut with).await?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(Gathered {
        agents,
        hosts,
        probe: report.probe,
        launcher: launcher.map(|(name, _)| name),
        launch,
    }))
}

/// Waits for the agents and closes the fleet. False when the operator stopped it.
pub(super) async fn join(
    plan: &FleetPlan,
    engine: &EnginePlan,
    with: &mut Gathering<'_>,
) -> anyhow::Result<bool> {
    let joined = wait_for_agents(plan, engine, with).await?;
    with.fleet.complete();
    Ok(joined)
}

/// Where the agents find an engine whose recipe says where it is, on its own host.
fn reachable(
    launcher: &AgentName,
    card: &EngineCard,
    hosts: &[(AgentName, HostFacts)],
) -> anyhow::Result<BaseUrl> {
    let host = card.base_url.host();
    let loopback = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    let one_host = hosts.iter().all(|(_, facts)| facts.hostname == hosts[0].1.hostname);
    if loopback && !one_host {
        bail!(
            "agent {launcher} launches the engine at {}, which other hosts cannot reach: say with --base-url where they find it",
            card.base_url
        );
    }
    Ok(card.base_url.clone())
}

/// Numbers of engines of several kinds are nobody's numbers; of several versions, they are marked.
fn same_engine(
    url: &BaseUrl,
    one: &EngineProbe,
    replica: &BaseUrl,
    other: &EngineProbe,
    ui: &mut dyn Note,
) -> anyhow::Result<()> {
    if one.dialect != other.dialect {
        bail!(
            "{url} is {} and {replica} is {}: replicas are the same engine; measure them one after the other",
            one.engine,
            other.engine
        );
    }
    let version = |probe: &EngineProbe| probe.engine_version.clone().unwrap_or_else(|| "unknown".into());
    let mut alike = format!("replica      {replica} answers");
    if one.engine_version != other.engine_version {
        alike = format!(
            "warning      {replica} has version {}, and {url} version {}: the numbers are those of both together",
            version(other),
            version(one)
        );
    }
    ui.note(&alike);
    Ok(())
}

fn take_model(target: &mut Target, models: &[String], ui: &mut dyn Note) {
    match (&target.model, models) {
        (None, [first, rest @ ..]) => {
            let note =
                if rest.is_empty() { String::new() } else { format!(" (the first of {})", models.len()) };
            ui.note(&format!("model        {first}, as the engine lists it{note}"));
            target.model = Some(first.clone());
        }
        (None, []) => ui.note("model        none: the engine lists none and --model was not given"),
        (Some(_), _) => {}
    }
}

/// A line about what it is; the rest is in the record.
fn describe(probe: &EngineProbe, told: bool, ui: &mut dyn Note) {
    let version = probe.engine_version.as_ref().map_or_else(String::new, |v| format!(" {v}"));
    let how = match (&probe.recognised_by, told) {
        (_, true) => "as it was told".to_owned(),
        (Some(sign), false) => sign.clone(),
        (None, false) => "it is none of those that are known".to_owned(),
    };
    ui.note(&format!("dialect      {}{version}, {}: {how}", probe.engine, probe.dialect));
}

/// Waits for those who send, and for one who launches the engine if that is asked for.
async fn wait_for_agents(
    plan: &FleetPlan,
    engine: &EnginePlan,
    means: &mut Gathering<'_>,
) -> anyhow::Result<bool> {
    let wanted = plan.local + plan.remote;
    let deadline = means.clock.monotonic() + plan.join_timeout;
    let mut stop = means.stop.clone();
    let launched = |fleet: &Fleet| !engine.launched || fleet.registry().launcher().is_some();
    let reads =
        |fleet: &Fleet| !plan.awaits_gpu || fleet.registry().members().values().any(|m| m.introduction.gpu);
    while !(means.fleet.registry().is_full() && launched(means.fleet) && reads(means.fleet)) {
        let change = tokio::select! {
            change = means.fleet.next() => change,
            _ = stop.wait_for(|level| *level > 0) => return Ok(false),
        };
        match change {
            Change::Joined(name) => {
                let registry = means.fleet.registry();
                let observes = registry.members().get(&name).is_some_and(|m| m.introduction.observer);
                let place = if observes {
                    "sends no load".to_owned()
                } else {
                    format!("{} of {wanted}", registry.senders().count())
                };
                means.ui.note(&format!("agent        {name} joined ({place})"));
            }
            Change::Lost(name, reason) => bail!("agent {name}: {reason}"),
            Change::Said(..) | Change::Tick => {}
        }
        if means.clock.monotonic() < deadline {
            continue;
        }
        if means.fleet.registry().is_full() && !launched(means.fleet) {
            return Err(engine::nobody_launches(plan.join_timeout));
        }
        if means.fleet.registry().is_full() && !reads(means.fleet) {
            bail!(
                "no agent with --gpu joined within {}; start one on the engine's host: agent --join … --gpu --no-load",
                shown_time(plan.join_timeout)
            );
        }
        if !means.fleet.registry().is_full() {
            let joined: Vec<&str> = means.fleet.registry().senders().map(|(name, _)| name.as_str()).collect();
            let who = if joined.is_empty() { "none".to_owned() } else { joined.join(", ") };
            bail!(
                "{} of {wanted} agents joined within {}: {who}; start the others as printed above",
                joined.len(),
                shown_time(plan.join_timeout)
            );
        }
    }
    Ok(true)
}

/// Lets each of `agents` try the engine.
async fn ask(
    check: TargetCheck,
    agents: &[AgentName],
    means: &mut Gathering<'_>,
) -> anyhow::Result<Option<BTreeMap<AgentName, TargetReport>>> {
    let (id, url) = (check.id, check.target.base_url.clone());
    let requests = check.target.connect_timeout + check.target.connect_timeout + check.target.total_timeout;
    let patience = requests.to_duration()
        + CHECK_GRACE
        + if check.probe == ProbeDepth::None { Duration::ZERO } else { PROBE_GRACE };
    agents.iter().for_each(|agent| means.fleet.tell(agent, ToAgent::Check(Box::new(check.clone()))));
    let mut reports = BTreeMap::new();
    let deadline = tokio::time::sleep(patience);
    tokio::pin!(deadline);
    let mut stop = means.stop.clone();
    while reports.len() < agents.len() {
        tokio::select! {
            change = means.fleet.next() => match change {
                Change::Said(agent, FromAgent::Target(of, report)) if of == id => {
                    if let Some(how) = means.fleet.engine_death() {
                        bail!(engine::EngineDied(how.to_owned()));
                    }
                    if let Some((kind, message)) = &report.failure {
                        bail!(refusal(&url.to_string(), &agent, kind.name(), message, &report));
                    }
                    reports.insert(agent, *report);
                }
                Change::Lost(agent, reason) => bail!("agent {agent} was lost while it tried the engine: {reason}"),
                Change::Said(_, FromAgent::Engine(_)) => {
                    if let Some(how) = means.fleet.engine_death() {
                        bail!(engine::EngineDied(how.to_owned()));
                    }
                }
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
fn refusal(url: &str, agent: &AgentName, kind: &str, message: &str, report: &TargetReport) -> String {
    let mut text = format!("agent {agent} cannot use the engine at {url}: {}", headed(kind, message));
    if !report.error_body.is_empty() {
        text.push_str(&format!("\nthe engine answered:\n{}", report.error_body));
    }
    text
}
