//! The engine that an agent launches: waiting until it is ready, and having it restarted or its cache emptied.
//!
//! What is done to it and how is the agent's to know; nothing but the wish travels.

use anyhow::{anyhow, bail};
use common::fleet::{EngineOrder, EngineStage, EngineState};
use common::ids::{AgentName, Nanos};
use common::slo::shown_time;

use super::prepare::Gathering;
use crate::fleet::{Change, FromAgent, ToAgent};

/// An agent that launches an engine says something every second, and has the recipe's own patience. One that is silent
/// for so long is stuck; stopping an engine may take a few minutes of silence.
const SILENCE: Nanos = Nanos::from_secs(600);
/// For a prefix cache to be emptied, or a record to be told.
const ANSWER_WITHIN: Nanos = Nanos::from_secs(60);
/// Characters of a line about an engine that starts: with its heading, a line of 100.
const SHOWN: usize = 87;
/// Within this an agent tells that its engine has died.
const NEWS_WITHIN: Nanos = Nanos::from_secs(1);
/// Between two lines about an engine that starts.
const SAY_EVERY: Nanos = Nanos::from_secs(10);

/// The engine ended by itself.
#[derive(Debug, thiserror::Error)]
#[error("the engine died: {0}")]
pub(super) struct EngineDied(pub(super) String);

/// Waits until the engine that `agent` launches is ready. `last` is what was heard of it so far. None when the
/// operator stopped it.
pub(super) async fn ready(
    agent: &AgentName,
    last: Option<EngineState>,
    with: &mut Gathering<'_>,
) -> anyhow::Result<Option<EngineState>> {
    with.ui.note(&format!("engine       agent {agent} launches it; waiting until it is ready"));
    let mut state = last;
    let begun = with.clock.monotonic();
    let mut said = begun;
    loop {
        match state.take() {
            Some(s) if s.stage == EngineStage::Ready => {
                let took = (with.clock.monotonic() - begun).as_secs_f64();
                with.ui.note(&format!("engine       ready after {took:.0} s here; {}", s.message));
                return Ok(Some(s));
            }
            Some(s) if matches!(s.stage, EngineStage::Failed | EngineStage::Died) && s.order == 0 => {
                bail!("the engine that agent {agent} launches: {}", s.message)
            }
            Some(s) if with.clock.monotonic() - said > SAY_EVERY => {
                said = with.clock.monotonic();
                with.ui.note(&format!("engine       {}", cut(&s.message)));
            }
            _ => {}
        }
        state = match next(agent, SILENCE, with).await? {
            News::Said(state) => Some(state),
            // Where it stands is told again to whoever is back.
            News::Back => None,
            News::Stopped => return Ok(None),
        };
    }
}

/// The first of a message that may hold a line of a log.
fn cut(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    if line.chars().count() <= SHOWN {
        line.to_owned()
    } else {
        line.chars().take(SHOWN - 1).chain(['…']).collect()
    }
}

/// Has `agent` carry out `order` and waits for its answer. None when the operator stopped it.
pub(super) async fn order(
    agent: &AgentName,
    id: u64,
    order: EngineOrder,
    with: &mut Gathering<'_>,
) -> anyhow::Result<Option<EngineState>> {
    let silence = if order == EngineOrder::Restart { SILENCE } else { ANSWER_WITHIN };
    let tell = |with: &Gathering<'_>| with.fleet.tell(agent, ToAgent::Engine(id, order.clone()));
    tell(with);
    loop {
        let state = match next(agent, silence, with).await? {
            News::Stopped => return Ok(None),
            // Over a new connection: the order may have been lost with the old one. An agent carries one out once.
            News::Back => {
                tell(with);
                continue;
            }
            News::Said(state) => state,
        };
        match state.stage {
            EngineStage::Done if state.order == id => return Ok(Some(state)),
            EngineStage::Failed if state.order == id => bail!("agent {agent}: {}", state.message),
            _ => {}
        }
    }
}

/// Why something failed, once it is known whether the engine has died: a request that it cut is told a moment before
/// its death.
pub(super) async fn cause(error: anyhow::Error, with: &mut Gathering<'_>) -> anyhow::Error {
    let deadline = with.clock.monotonic() + NEWS_WITHIN;
    while with.fleet.engine_death().is_none() && with.clock.monotonic() < deadline {
        let left = (deadline - with.clock.monotonic()).to_duration();
        let _ = tokio::time::timeout(left, with.fleet.next()).await;
    }
    match with.fleet.engine_death() {
        Some(how) => EngineDied(how.to_owned()).into(),
        None => error,
    }
}

/// What is heard next.
enum News {
    Said(EngineState),
    Back,
    Stopped,
}

/// What `agent` says next of the engine, or that it is back. An engine that has died ends the wait, whoever tells.
async fn next(agent: &AgentName, silence: Nanos, with: &mut Gathering<'_>) -> anyhow::Result<News> {
    let mut stop = with.stop.clone();
    let deadline = with.clock.monotonic() + silence;
    loop {
        if let Some(how) = with.fleet.engine_death() {
            bail!(EngineDied(how.to_owned()));
        }
        if !with.fleet.registry().members().contains_key(agent) {
            bail!("agent {agent} is gone");
        }
        let left = deadline - with.clock.monotonic();
        if left == Nanos::ZERO {
            return Err(anyhow!("agent {agent} said nothing more about the engine; see its log"));
        }
        let change = tokio::select! {
            change = with.fleet.next() => change,
            () = tokio::time::sleep(left.to_duration()) => continue,
            _ = stop.wait_for(|level| *level > 0) => return Ok(News::Stopped),
        };
        match change {
            Change::Said(from, FromAgent::Engine(state))
                if from == *agent && state.stage != EngineStage::Died =>
            {
                return Ok(News::Said(*state));
            }
            Change::Joined(back) if back == *agent => return Ok(News::Back),
            Change::Lost(lost, reason) if with.fleet.engine_death().is_none() => {
                bail!("agent {lost}: {reason}")
            }
            _ => {}
        }
    }
}

/// How long agents that launch an engine are waited for, in words.
pub(super) fn nobody_launches(within: Nanos) -> anyhow::Error {
    anyhow!(
        "no agent with an engine joined within {}; start one on the engine's host: agent --join … --engine recipe.toml",
        shown_time(within)
    )
}
