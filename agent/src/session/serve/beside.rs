//! What a session does beside trials: orders about the engine, and observations.

use std::sync::Arc;

use common::fleet::{EngineOrder, EngineStage, EngineState, Observation};
use proto::v1::agent_message::Kind as Say;

use super::{Found, Session, Step};
use crate::launch::Kept;
use crate::probe;
use crate::session::record::Observing;
use crate::telemetry::Means;

impl Session<'_> {
    /// The answer to the last order. One to an order of another coordinator means nothing to this one.
    pub(super) async fn answer(&mut self, state: EngineState) -> Step {
        let coordinator = self.link.welcome.coordinator_incarnation;
        match &mut self.agent.engine_order {
            Some((known, answer)) if *known == (coordinator, state.order) => *answer = Some(state.clone()),
            _ => return Ok(()),
        }
        self.say(Say::EngineState((&state).into())).await
    }

    /// Begins to record, instead of whatever was recorded before; or goes on, when that is the same.
    pub(super) async fn observe(&mut self, what: proto::v1::Observe) -> Step {
        let what = Observation::try_from(what).map_err(|e| e.to_string())?;
        let wire = self.link.bulk.clone();
        match self.agent.observing.take() {
            Some(observing) if observing.goes_on(&what, wire.clone()) => {
                self.agent.observing = Some(observing);
                return Ok(());
            }
            // The old one first: it holds the number of the next record.
            Some(observing) => observing.end().await,
            None => {}
        }
        let config = &self.agent.config;
        let model = self.agent.clock_model.clone();
        let launched = self.agent.engine.as_ref().map(Kept::pid);
        let root = self.agent.engine_root.clone();
        let gpus = self.agent.gpus.clone();
        if launched.is_none() {
            // Another run may be of another engine.
            root.set(None);
            gpus.iter().for_each(|gpus| gpus.forget_engine());
        }
        let means = Means {
            agent: config.introduction.name.clone(),
            incarnation: config.introduction.incarnation,
            access: config.access.clone(),
            clock: Arc::clone(&config.clock),
            offset: Box::new(move || model.estimate()),
            launched,
            root,
            first: gpus.as_ref().map(|gpus| gpus.begin()).unwrap_or_default(),
            gpus: Box::new(move || gpus.as_ref().map(|gpus| gpus.take()).unwrap_or_default()),
        };
        let next = Arc::clone(&self.agent.next_record);
        self.agent.observing = Some(Observing::begin(what, means, next, wire));
        Ok(())
    }

    pub(super) fn engine_order(&mut self, order: proto::v1::EngineOrder) -> Step {
        let (id, order) = <(u64, EngineOrder)>::try_from(order).map_err(|e| e.to_string())?;
        let found = self.found.clone();
        let this = (self.link.welcome.coordinator_incarnation, id);
        match &self.agent.engine_order {
            // Told again, because one of us lost the other meanwhile: it is carried out once, and answered again.
            Some((known, answer)) if *known == this => {
                if let Some(answer) = answer.clone() {
                    tokio::spawn(async move { found.send(Found::Engine(answer)).await });
                }
                return Ok(());
            }
            _ => self.agent.engine_order = Some((this, None)),
        }
        let tell = move |done: Result<String, String>| async move {
            let (stage, message) = match done {
                Ok(how) => (EngineStage::Done, how),
                Err(why) => (EngineStage::Failed, why),
            };
            let _ = found.send(Found::Engine(EngineState { order: id, stage, message, record: None })).await;
        };
        match (order, &self.agent.engine) {
            (EngineOrder::EmptyCache(target), _) => {
                let config = &self.agent.config;
                let (agent, access) = (config.introduction.name.clone(), config.access.clone());
                let clock = Arc::clone(&config.clock);
                tokio::spawn(
                    async move { tell(probe::empty_cache(&target, agent, access, clock).await).await },
                );
            }
            (order, Some(engine)) => {
                if let Err(why) = engine.order(id, order) {
                    tokio::spawn(tell(Err(why.into())));
                }
            }
            (_, None) => drop(tokio::spawn(tell(Err("this agent launches no engine".into())))),
        }
        Ok(())
    }
}
