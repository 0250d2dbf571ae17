//! What the benches share: a client as the agent makes one, with a request that is ready to be sent.

use std::sync::Arc;

use agent::engine::{Client, ClientConfig, Outgoing, Requests, TrialClock};
use common::clock::{Clock, SystemClock};
use common::ids::ArrivalIndex;
use common::plan::Target;
use common::trace::{Trace, Unsent};
use common::workload::{Row, RowBody};
use tokio::sync::watch;

/// A prompt of some 200 tokens.
const PROMPT: &str = "What does the mark on the side of a ship say about how much it may carry? ";

/// A client and what it sends. Clones share the client's connections.
#[derive(Clone)]
pub(crate) struct Rig {
    /// The measured path.
    pub(crate) client: Client,
    pub(crate) clock: TrialClock,
    /// Of each request.
    pub(crate) body: bytes::Bytes,
    cancel: watch::Receiver<bool>,
    /// Kept, because a channel without a sender is another state of the same wait.
    _operator: Arc<watch::Sender<bool>>,
}

impl Rig {
    /// A client of whoever listens on `port` of the loopback.
    pub(crate) fn new(port: u16) -> anyhow::Result<Self> {
        let target = target(port)?;
        let system = Arc::new(SystemClock);
        let clock = TrialClock::new(system.clone(), system.monotonic());
        let row = Row { body: RowBody::Prompt(PROMPT.repeat(10)), max_tokens: Some(128), line: 1 };
        let body = Requests::new(&target).body(&row);
        let config = ClientConfig {
            target,
            access: None.into(),
            agent: "bench".parse()?,
            run: "bench".parse()?,
            trial: "0".to_owned(),
        };
        let client = Client::new(config, clock.clone())?;
        let (operator, cancel) = watch::channel(false);
        Ok(Self { client, clock, body, cancel, _operator: Arc::new(operator) })
    }

    /// Sends a request that is due now.
    pub(crate) async fn send(&self) -> Trace {
        let released = self.clock.now();
        let unsent = Unsent {
            index: ArrivalIndex(0),
            scheduled: released,
            row: 0,
            requested_tokens: 128,
            prompt_tokens: None,
        };
        let request = Outgoing { unsent, released, waited_for_permit: false, body: self.body.clone() };
        self.client.send(request, &mut self.cancel.clone()).await
    }
}

/// The plan's part about the engine, with the timeouts of the command line.
pub(crate) fn target(port: u16) -> anyhow::Result<Target> {
    Ok(Target {
        model: Some("sim".to_owned()),
        default_max_tokens: 128,
        ..Target::plain(format!("http://127.0.0.1:{port}").parse()?)
    })
}
