//! What is left in the spool of trials that are over, or whose coordinator was lost: said, delivered, removed.

use std::path::PathBuf;
use std::sync::Arc;

use common::disk::Disk;
use common::fleet::CollectOrder;
use common::ids::{AgentName, Epoch};
use proto::v1::agent_message::Kind as Say;

use super::{Found, Session, Step};
use crate::session::collect::{self, Collection};

impl Session<'_> {
    /// Looks for what is held of a trial whose coordinator was lost. A disk may take its time; the lease must not.
    pub(super) fn collect(&mut self, wanted: proto::v1::Collect) -> Step {
        let wanted = CollectOrder::try_from(wanted).map_err(|e| e.to_string())?;
        tracing::info!("collecting trial {} of run {}, whose coordinator was lost", wanted.trial, wanted.run);
        let (agent, disk, dir) = self.spool();
        let found = self.found.clone();
        tokio::spawn(async move {
            let held = collect::find(wanted, agent, disk, dir).await;
            let _ = found.send(Found::Held(Box::new(held))).await;
        });
        Ok(())
    }

    /// Delivers what was found, and says it.
    pub(super) async fn held(&mut self, held: Collection) -> Step {
        let said = Say::Collected((&held.report).into());
        let (wire, disk) = (self.link.bulk.clone(), Arc::clone(&self.agent.config.disk));
        let delivery = held.deliver(wire, disk, self.link.welcome.coordinator_incarnation);
        self.agent.delivery = Some(delivery);
        self.say(said).await
    }

    /// The coordinator has this run: what it has sealed of it may go.
    pub(super) fn tidy(&self, what: &proto::v1::Observe) {
        let Ok(run) = what.run_id.parse() else { return };
        let (agent, disk, dir) = self.spool();
        tokio::spawn(collect::tidy(run, agent, disk, dir, self.link.bulk.clone()));
    }

    fn spool(&self) -> (AgentName, Arc<dyn Disk>, PathBuf) {
        let config = &self.agent.config;
        (config.introduction.name.clone(), Arc::clone(&config.disk), config.spool.clone())
    }

    pub(super) fn sealed(&mut self, epoch: Epoch) {
        let disk = &*self.agent.config.disk;
        if self.agent.delivery.as_ref().is_some_and(|d| d.sealed(epoch, disk)) {
            self.agent.delivery = None;
        }
        if self.current(epoch).is_some()
            && let Some(trial) = self.agent.trial.take()
        {
            self.go_on_after(trial);
        }
    }
}
