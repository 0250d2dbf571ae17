//! Who looks at a run while it goes on: the live page, and plain progress.

use std::sync::Arc;
use std::time::Duration;

use common::clock::Clock;
use common::ids::RunId;
use tokio::task::JoinHandle;

use super::options::ShowOptions;
use super::progress::Progress;
use super::terminal::tell;
use crate::live::{Hub, Model, Observer, tap};
use crate::plan::Plan;
use crate::rpc::Shared;
use crate::trial::drive::StopLevel;
use crate::web::Web;

/// For the last event to reach the pages that are open.
const LAST_WORD: Duration = Duration::from_millis(250);

/// What is opened before anything begins, so that a wrong address ends nothing that has begun.
pub(super) struct Opened {
    web: Option<Web>,
}

impl Opened {
    /// Opens the page's socket, if a page is asked for, and says where it is.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(super) async fn open(options: &ShowOptions) -> anyhow::Result<Self> {
        let Some(listen) = &options.web else { return Ok(Self { web: None }) };
        let web = Web::open(listen).await?;
        tell!("live         {}", web.url());
        Ok(Self { web: Some(web) })
    }
}

/// The live view of a run and those who look at it.
pub(super) struct Watching {
    hub: Hub,
    tasks: Vec<JoinHandle<()>>,
    served: bool,
}

impl Watching {
    /// From now on they look.
    pub(super) fn begin(
        opened: Opened,
        run: &RunId,
        plan: &Plan,
        clock: &Arc<dyn Clock>,
        (shared, stop): (&Shared, StopLevel),
    ) -> (Self, Observer<Progress>) {
        let model = Model::new(run, plan, clock.monotonic());
        let hub = Hub::new(model, Arc::clone(clock));
        let mut watching = Self { hub: hub.clone(), tasks: Vec::new(), served: opened.web.is_some() };
        if let Some(web) = opened.web {
            let (tap, outlet) = tap();
            shared.tap(tap);
            watching.tasks.push(tokio::spawn(hub.clone().follow(outlet)));
            watching.tasks.push(tokio::spawn(hear_stop(hub.clone(), stop)));
            watching.tasks.push(tokio::spawn(web.serve(hub.clone())));
        }
        (watching, Observer::new(hub, Progress::new()))
    }

    /// The run is over.
    pub(super) async fn end(self, outcome: &str) {
        self.hub.over(outcome);
        if self.served {
            tokio::time::sleep(LAST_WORD).await;
        }
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Tells the live view how often the operator asked for an end.
async fn hear_stop(hub: Hub, mut stop: StopLevel) {
    while stop.changed().await.is_ok() {
        let level = *stop.borrow_and_update();
        hub.tell(|model, _| model.stopping(level));
    }
}
