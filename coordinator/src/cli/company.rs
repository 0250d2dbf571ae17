//! A coordinator with its services and the agents that it starts: what `sweep`, `run` and `probe` have in common.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use common::clock::Clock;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::entrance::Entrance;
use super::local::{self, LocalAgents};
use super::options::{AgentOptions, TlsOptions};
use super::terminal::tell;
use crate::fleet::{EVENTS, Fleet};
use crate::plan::FleetPlan;
use crate::rpc::{self, Limits, Shared};
use crate::trial::drive::StopLevel;

/// Services and agents. [`Company::part`] ends them.
pub(super) struct Company {
    pub(super) shared: Arc<Shared>,
    /// The operator's wishes.
    pub(super) stop: StopLevel,
    agents: LocalAgents,
    end: watch::Sender<bool>,
    server: JoinHandle<()>,
}

/// What local agents are started with.
pub(super) struct Local<'a> {
    /// The data directory.
    pub(super) data: &'a Path,
    /// Of the engine.
    pub(super) api_key_file: Option<&'a Path>,
    /// To an https engine.
    pub(super) tls: &'a TlsOptions,
    /// What else was said about agents.
    pub(super) agents: &'a AgentOptions,
}

impl Company {
    /// Serves agents that come in and starts those of this host.
    pub(super) fn gather(
        plan: &FleetPlan,
        (entrance, signals): (Entrance, Signals),
        local: &Local<'_>,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<(Self, Fleet)> {
        let (events, inbox) = mpsc::channel(EVENTS);
        let incarnation = getrandom::u64().context("no randomness from the system")?;
        let secret = entrance.token.as_ref().map(|token| token.secret.as_str());
        let shared = Shared::new(Arc::clone(clock), secret, incarnation, events.clone(), Limits::default());
        let (end, ended) = watch::channel(false);
        let serving = rpc::serve(entrance.doors, Arc::clone(&shared), wait_until(ended));
        let server = tokio::spawn(async move {
            if let Err(e) = serving.await {
                tracing::error!("agents are served no more: {e}");
            }
        });
        let (stop_level, stop) = watch::channel(0u8);
        tokio::spawn(signals.count(stop_level));
        let agents = LocalAgents::start(plan, local, entrance.local, secret, &events)?;
        let fleet = Fleet::new(local::names(plan)?, plan.remote, inbox, Arc::clone(clock));
        Ok((Self { shared, stop, agents, end, server }, fleet))
    }

    /// Goodbyes are on their way; local agents end by themselves.
    pub(super) async fn part(self) {
        self.agents.finish().await;
        self.end.send_replace(true);
        // Agents on other hosts keep their connections open: do not wait for them longer than a goodbye takes.
        let _ = tokio::time::timeout(Duration::from_millis(500), self.server).await;
    }
}

async fn wait_until(mut ended: watch::Receiver<bool>) {
    // The sender is held until the end of the run.
    let _ = ended.wait_for(|end| *end).await;
}

/// Ctrl-c and SIGTERM. From when this is made they are requests, and do not end the program by themselves.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Before anybody is told to come: who reads that may press ctrl-c at once.
    ///
    /// # Errors
    /// When the system gives no handler.
    pub(super) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("no handler of ctrl-c");
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// The first of them: drain. The second: cut. The third: at once.
    async fn count(mut self, level: watch::Sender<u8>) {
        for count in 1u8..=3 {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
            match count {
                1 => tell!("\nstopping: nothing more is sent, what is in flight finishes (again: cut it)"),
                2 => tell!("\ncutting what is in flight (again: end at once, without a report)"),
                _ => {
                    super::screen::restore();
                    std::process::exit(super::exit::INTERRUPTED.into());
                }
            }
            level.send_replace(count);
        }
    }
}
