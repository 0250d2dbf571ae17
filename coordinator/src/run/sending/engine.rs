//! What a run does to the engine between its trials, and how it hears of the engine's death.

use anyhow::{Context, bail};
use common::fleet::{EngineOrder, EngineState};
use common::ids::AgentName;
use tokio::sync::watch;

use super::Sending;
use crate::plan::BetweenTrials;
use crate::record;
use crate::run::Gathering;
use crate::run::engine::{self, EngineDied};
use crate::sweep::PlannedTrial;

impl Sending<'_, '_> {
    /// Does to the engine what the plan asks for before a trial. False when the operator ended it meanwhile.
    pub(super) async fn cold(&mut self, planned: &PlannedTrial) -> anyhow::Result<bool> {
        if let Some(how) = self.means.fleet.engine_death() {
            bail!(EngineDied(how.to_owned()));
        }
        // Before the first one, too: the probe, or a run before this one, has been there.
        let (agent, order) = match (self.run.plan.engine.between, &self.launcher) {
            (BetweenTrials::Nothing, _) => return Ok(true),
            (BetweenTrials::Restart, Some(launcher)) => (launcher.clone(), EngineOrder::Restart),
            (BetweenTrials::Restart, None) => bail!("no agent launches the engine"),
            (BetweenTrials::Flush, _) => {
                let agent = self.agents.first().context("no agents")?.clone();
                (agent, EngineOrder::EmptyCache(Box::new(self.run.plan.target.clone())))
            }
        };
        let between = self.run.plan.engine.between.name();
        if self.run.plan.engine.between == BetweenTrials::Restart {
            self.means.ui.note(&format!("engine       restarted before trial {}", planned.trial));
        }
        let done = self.order(&agent, order).await;
        Ok(done
            .with_context(|| format!("--between-trials {between} before trial {}", planned.trial))?
            .is_some())
    }

    async fn order(&mut self, agent: &AgentName, order: EngineOrder) -> anyhow::Result<Option<EngineState>> {
        self.engine_orders += 1;
        let id = self.engine_orders;
        engine::order(agent, id, order, &mut self.gathering()).await
    }

    pub(super) fn gathering(&mut self) -> Gathering<'_> {
        Gathering {
            fleet: &mut self.means.fleet,
            clock: &*self.means.clock,
            stop: self.means.stop.clone(),
            ui: &mut *self.means.ui,
        }
    }

    /// How the engine that was launched has ended, if it has. An error: nobody can tell any more.
    pub(super) async fn engine_is_dead(&mut self) -> anyhow::Result<Option<String>> {
        if self.launcher.is_none() {
            return Ok(None);
        }
        if let Some(how) = self.means.fleet.engine_death() {
            return Ok(Some(how.to_owned()));
        }
        match self.describe().await {
            Ok(_) => Ok(None),
            Err(e) => match e.downcast::<EngineDied>() {
                Ok(EngineDied(how)) => Ok(Some(how)),
                Err(e) => Err(e),
            },
        }
    }

    /// What is on record of the engine that was launched, its log to now included. Asked for whatever the operator
    /// wishes: it is short, and a death must not be missed.
    async fn describe(&mut self) -> anyhow::Result<Option<EngineState>> {
        let Some(launcher) = self.launcher.clone() else { return Ok(None) };
        self.engine_orders += 1;
        let id = self.engine_orders;
        let (_keep, never) = watch::channel(0);
        let mut with = Gathering { stop: never, ..self.gathering() };
        engine::order(&launcher, id, EngineOrder::Describe, &mut with).await
    }

    /// Brings what is on record of the engine up to date.
    pub(super) async fn describe_engine(&mut self) {
        match self.describe().await {
            Ok(Some(EngineState { record: Some(launch), .. })) => {
                record::set_launch(&mut self.run.kept.experiment, launch);
            }
            Ok(_) => {}
            Err(e) => tracing::warn!("the record has the engine's log as it was at its start: {e:#}"),
        }
    }
}
