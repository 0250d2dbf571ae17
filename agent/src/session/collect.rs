//! Giving back what is held of a trial whose coordinator was lost, to the one that resumes its run.
//!
//! The trial under way is ended first: what is in flight is cut and spooled, so that what is said is all that there is.
//! Then this agent's segments of the trial are listed, its own and those of earlier processes, said, and delivered
//! under the processes that wrote them, as often as it takes. They stay on disk until the coordinator says that the
//! trial is sealed.
//!
//! It must never say that it holds less than is on disk, and never remove what is not sealed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::disk::Disk;
use common::fleet::{CollectOrder, CollectReport, Held, TrialFate};
use common::ids::{AgentName, Epoch, RunId};
use tokio::task::JoinHandle;

use super::backlog::{Courier, deliver};
use super::join::Wire;
use crate::spool::held::{Backlog, Segment, backlogs};

/// Between two tries of a delivery that failed.
const RETRY: Duration = Duration::from_millis(500);

/// What is held of a trial, found.
pub(super) struct Collection {
    pub(super) report: CollectReport,
    backlogs: Vec<Backlog>,
}

/// Its delivery. It ends when this is dropped.
pub(super) struct Delivery {
    /// The coordinator's, by its incarnation.
    pub(super) coordinator: u64,
    epoch: Epoch,
    backlogs: Arc<Vec<Backlog>>,
    disk: Arc<dyn Disk>,
    task: JoinHandle<()>,
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Looks for it on disk. A disk that cannot be read is said, not taken for empty.
pub(super) async fn find(
    wanted: CollectOrder,
    agent: AgentName,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
) -> Collection {
    let (run, epoch) = (wanted.run.clone(), wanted.epoch);
    let look = move || found(&*disk, &dir, &agent, &wanted);
    let found = crate::aside::run(look).await;
    let (backlogs, problems) = match found {
        Ok(Ok(backlogs)) => (backlogs, Vec::new()),
        Ok(Err(e)) => (Vec::new(), vec![format!("its spool cannot be read: {e}")]),
        Err(e) => (Vec::new(), vec![format!("its spool cannot be read: {e}")]),
    };
    let held = backlogs.iter().filter_map(|b| {
        let first_seq = b.segments.first()?.first()?;
        Some(Held { incarnation: b.incarnation, first_seq, next_seq: b.next() })
    });
    let report = CollectReport { run, epoch, held: held.collect(), problems };
    Collection { report, backlogs }
}

fn found(
    disk: &dyn Disk,
    dir: &std::path::Path,
    agent: &AgentName,
    wanted: &CollectOrder,
) -> std::io::Result<Vec<Backlog>> {
    let mut backlogs = backlogs(disk, dir, agent, &wanted.run)?;
    for backlog in &mut backlogs {
        backlog.segments.retain(|s| (s.origin.trial, s.origin.epoch) == (wanted.trial, wanted.epoch));
    }
    backlogs.retain(|backlog| !backlog.segments.is_empty());
    Ok(backlogs)
}

impl Collection {
    /// Begins to deliver it.
    pub(super) fn deliver(self, wire: Wire, disk: Arc<dyn Disk>, coordinator: u64) -> Delivery {
        let (epoch, backlogs) = (self.report.epoch, Arc::new(self.backlogs));
        let task = carry(Arc::clone(&backlogs), Arc::clone(&disk), wire);
        Delivery { coordinator, epoch, backlogs, disk, task }
    }
}

fn carry(backlogs: Arc<Vec<Backlog>>, disk: Arc<dyn Disk>, wire: Wire) -> JoinHandle<()> {
    let courier = Courier::over(wire);
    tokio::spawn(async move {
        for backlog in &*backlogs {
            let mut told = String::new();
            // The coordinator may not have heard yet what is held: until then it wants what came before, too.
            while let Err(e) = deliver(backlog, Arc::clone(&disk), &courier).await {
                let reason = e.to_string();
                if reason != told {
                    tracing::warn!("what was left of an earlier trial stays here for now: {reason}");
                    told = reason;
                }
                tokio::time::sleep(RETRY).await;
            }
        }
    })
}

impl Delivery {
    /// Goes on over a new connection; what was taken over the old one is not sent again.
    pub(super) fn over(&mut self, wire: Wire) {
        self.task.abort();
        self.task = carry(Arc::clone(&self.backlogs), Arc::clone(&self.disk), wire);
    }

    /// The trial of this epoch is sealed: if it is this one, its segments go.
    pub(super) fn sealed(&self, epoch: Epoch, disk: &dyn Disk) -> bool {
        if self.epoch != epoch {
            return false;
        }
        self.backlogs.iter().flat_map(|b| &b.segments).for_each(|segment| remove(segment, disk));
        true
    }
}

fn remove(segment: &Segment, disk: &dyn Disk) {
    if let Err(e) = segment.remove(disk) {
        tracing::warn!("a sealed segment stays in the spool: {e}");
    }
}

/// Removes what is held of trials that the coordinator has sealed: that it has may not have been heard.
pub(super) async fn tidy(run: RunId, agent: AgentName, disk: Arc<dyn Disk>, dir: PathBuf, wire: Wire) {
    let (spool, of) = (Arc::clone(&disk), run.clone());
    let held = crate::aside::run(move || backlogs(&*spool, &dir, &agent, &of)).await;
    // A spool that cannot be read is said where it matters.
    let Ok(Ok(held)) = held else { return };
    let segments: Vec<Segment> = held.into_iter().flat_map(|backlog| backlog.segments).collect();
    let trials: Vec<_> = segments.iter().map(|s| (s.origin.trial, s.origin.epoch)).collect();
    if trials.is_empty() {
        return;
    }
    let Ok(fates) = Courier::over(wire).fates(&run, &trials).await else { return };
    let sealed = segments.into_iter().zip(fates).filter(|(_, fate)| *fate == TrialFate::Sealed);
    let gone: Vec<Segment> = sealed.map(|(segment, _)| segment).collect();
    let _ = crate::aside::run(move || gone.iter().for_each(|segment| remove(segment, &*disk))).await;
}

#[cfg(test)]
mod tests;
