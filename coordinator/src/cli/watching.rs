//! Who looks at a run while it goes on: the live page, and the live screen of the terminal or plain progress.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::clock::Clock;
use common::fleet::Progress as Counters;
use common::ids::{AgentName, Nanos, RunId};
use tokio::task::JoinHandle;

use super::options::ShowOptions;
use super::progress::Progress;
use super::screen::{self, Screen};
use super::terminal::tell;
use crate::live::{Hub, Model, Observer, tap};
use crate::plan::Plan;
use crate::report::TrialReport;
use crate::rpc::Shared;
use crate::run::{Note, Ui};
use crate::sweep::PlannedTrial;
use crate::trial::drive::{Standing, StopLevel, Watch};
use crate::web::Web;

/// For the last event to reach the pages that are open.
const LAST_WORD: Duration = Duration::from_millis(250);

/// What is opened before anything begins, so that a wrong address ends nothing that has begun.
pub(super) struct Opened {
    web: Option<Web>,
    screen: bool,
}

impl Opened {
    /// Opens the page's socket, if a page is asked for, and says where it is.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(super) async fn open(options: &ShowOptions) -> anyhow::Result<Self> {
        let screen = !options.plain && screen::is_possible();
        let Some(listen) = &options.web else { return Ok(Self { web: None, screen }) };
        let web = Web::open(listen).await?;
        tell!("live         {}", web.url());
        Ok(Self { web: Some(web), screen })
    }
}

/// The live view of a run and those who look at it.
pub(super) struct Watching {
    hub: Hub,
    tasks: Vec<JoinHandle<()>>,
    /// Where the page was.
    served: Option<String>,
}

impl Watching {
    /// From now on they look.
    pub(super) fn begin(
        opened: Opened,
        run: &RunId,
        plan: &Plan,
        clock: &Arc<dyn Clock>,
        (shared, stop): (&Shared, StopLevel),
    ) -> (Self, Observer<Terminal>) {
        let model = Model::new(run, plan, clock.monotonic());
        let hub = Hub::new(model, Arc::clone(clock));
        let mut watching =
            Self { hub: hub.clone(), tasks: Vec::new(), served: opened.web.as_ref().map(Web::url) };
        if opened.web.is_some() || opened.screen {
            let (tap, outlet) = tap();
            shared.tap(tap);
            watching.tasks.push(tokio::spawn(hub.clone().follow(outlet)));
            watching.tasks.push(tokio::spawn(hear_stop(hub.clone(), stop)));
        }
        if let Some(web) = opened.web {
            watching.tasks.push(tokio::spawn(web.serve(hub.clone())));
        }
        let screen = opened.screen.then(|| Screen::open(hub.clone())).flatten();
        (watching, Observer::new(hub, Terminal::new(screen)))
    }

    /// The run is over. Gives where the live page was, if there was one.
    pub(super) async fn end(self, outcome: &str) -> Option<String> {
        self.hub.over(outcome);
        if self.served.is_some() {
            tokio::time::sleep(LAST_WORD).await;
        }
        self.tasks.iter().for_each(JoinHandle::abort);
        self.served
    }
}

/// Tells the live view how often the operator asked for an end.
async fn hear_stop(hub: Hub, mut stop: StopLevel) {
    while stop.changed().await.is_ok() {
        let level = *stop.borrow_and_update();
        hub.tell(|model, _| model.stopping(level));
    }
}

/// The terminal: the live screen, and plain progress when that is gone or was never there.
pub(super) struct Terminal {
    progress: Progress,
    screen: Option<Screen>,
}

impl Terminal {
    fn new(screen: Option<Screen>) -> Self {
        let mut progress = Progress::new();
        progress.set_quiet(screen.is_some());
        Self { progress, screen }
    }

    /// Plain progress; it goes on by itself where the screen has given the terminal back.
    fn plain(&mut self) -> &mut Progress {
        if self.screen.as_ref().is_some_and(|screen| !screen.is_up()) {
            self.close_screen();
        }
        &mut self.progress
    }

    fn close_screen(&mut self) {
        if let Some(mut screen) = self.screen.take() {
            screen.close();
            self.progress.set_quiet(false);
        }
    }

    /// Takes away what is shown.
    pub(super) fn end(&mut self) {
        self.close_screen();
        self.progress.end();
    }
}

impl Watch for Terminal {
    fn ready(&mut self, warnings: &[String]) {
        self.plain().ready(warnings);
    }

    fn starting(&mut self, lead: Nanos) {
        self.plain().starting(lead);
    }

    fn stands(&mut self, agent: &AgentName, standing: &Standing) {
        self.plain().stands(agent, standing);
    }

    fn lost(&mut self, agent: &AgentName, reason: &str) {
        self.plain().lost(agent, reason);
    }

    fn progress(&mut self, since_start: Nanos, fleet: &BTreeMap<AgentName, Counters>) {
        self.plain().progress(since_start, fleet);
    }
}

impl Note for Terminal {
    fn note(&mut self, text: &str) {
        self.plain().note(text);
    }
}

impl Ui for Terminal {
    fn trial_begins(&mut self, trial: &PlannedTrial, of: usize, plan: &Plan, arrivals: u64) {
        self.plain().trial_begins(trial, of, plan, arrivals);
    }

    fn trial_ended(&mut self, report: &TrialReport) {
        self.plain().trial_ended(report);
    }
}
