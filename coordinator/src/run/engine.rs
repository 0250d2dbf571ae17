//! The engine that an agent launches: waiting until it is ready, and having it restarted or its cache emptied.
//!
//! What is done to it and how is the agent's to know; nothing but the wish travels.

use anyhow::{anyhow, bail};
use common::fleet::{EngineOrder, EngineStage, EngineState};
use common::ids::{AgentName, Nanos};
use common::slo::shown_time;

use super::prepare::Gathering;
use crate::fleet::{Change, FromAgent, ToAgent};

/// For an engine to be ready: the agent has the recipe's own patience and says so when that ends, so this one only
/// ends the wait for an agent that says nothing.
const START_WITHIN: Nanos = Nanos::from_secs(3600);
/// For a prefix cache to be emptied, or a record to be told.
const ANSWER_WITHIN: Nanos = Nanos::from_secs(60);
/// Characters of a line about an engine that starts: with its heading, a line of 100.
const SHOWN: usize = 87;
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
            Some(s) if matches!(s.stage, EngineStage::Failed | EngineStage::Died) => {
                bail!("the engine that agent {agent} launches: {}", s.message)
            }
            Some(s) if with.clock.monotonic() - said > SAY_EVERY => {
                said = with.clock.monotonic();
                with.ui.note(&format!("engine       {}", cut(&s.message)));
            }
            _ => {}
        }
        state = match next(agent, begun + START_WITHIN, with).await? {
            Some(state) => Some(state),
            None => return Ok(None),
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
    let patience = if order == EngineOrder::Restart { START_WITHIN } else { ANSWER_WITHIN };
    let deadline = with.clock.monotonic() + patience;
    with.fleet.tell(agent, ToAgent::Engine(id, order));
    loop {
        let Some(state) = next(agent, deadline, with).await? else { return Ok(None) };
        match state.stage {
            EngineStage::Done if state.order == id => return Ok(Some(state)),
            EngineStage::Failed if state.order == id => bail!("agent {agent}: {}", state.message),
            EngineStage::Died => bail!(EngineDied(state.message)),
            _ => {}
        }
    }
}

/// What is said next of the engine.
async fn next(
    agent: &AgentName,
    deadline: Nanos,
    with: &mut Gathering<'_>,
) -> anyhow::Result<Option<EngineState>> {
    let mut stop = with.stop.clone();
    loop {
        let left = deadline - with.clock.monotonic();
        if left == Nanos::ZERO {
            return Err(anyhow!("agent {agent} said nothing more about the engine; see its log"));
        }
        let change = tokio::select! {
            change = with.fleet.next() => change,
            () = tokio::time::sleep(left.to_duration()) => continue,
            _ = stop.wait_for(|level| *level > 0) => return Ok(None),
        };
        match change {
            Change::Said(from, FromAgent::Engine(state)) if from == *agent => return Ok(Some(*state)),
            Change::Lost(lost, reason) if lost == *agent => {
                bail!("agent {agent} was lost while something was done to the engine: {reason}")
            }
            Change::Lost(lost, reason) => bail!("agent {lost}: {reason}"),
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
