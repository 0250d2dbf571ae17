//! Agents that the coordinator starts beside itself, and ends.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use common::ids::AgentName;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::company::Local;
use super::options::TlsOptions;
use crate::fleet::FleetEvent;
use crate::plan::FleetPlan;

/// How long an agent may take to end after the goodbye.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Variables of the recipe, one a line: the agent reads them as its --engine-var.
const ENGINE_VARS: &str = "PLIMSOLL_ENGINE_VARS";

/// How long one that launches an engine may take: the recipe says how long that may take to stop, and an engine that is
/// cut off keeps its port.
const END_WITH_ENGINE: Duration = Duration::from_secs(300);

/// Their names.
pub(super) fn names(plan: &FleetPlan) -> anyhow::Result<BTreeSet<AgentName>> {
    let name = |number| Ok(format!("local-{number}").parse()?);
    (1..=plan.local).map(name).collect()
}

/// The agents started here. They are killed when this is dropped.
pub(super) struct LocalAgents {
    /// Raised when the run is over: an agent's end is no loss any more.
    over: watch::Sender<bool>,
    watchers: JoinSet<()>,
}

impl LocalAgents {
    /// Starts as many as the plan says, each with a log file of its own in the data directory. One that ends before
    /// the run does is reported to the fleet as gone.
    pub(super) fn start(
        plan: &FleetPlan,
        with: &Local<'_>,
        join: SocketAddr,
        token: Option<&str>,
        events: &mpsc::Sender<FleetEvent>,
    ) -> anyhow::Result<Self> {
        let (over, run_over) = watch::channel(false);
        let mut agents = Self { over, watchers: JoinSet::new() };
        if plan.local == 0 {
            return Ok(agents);
        }
        let binary = binary()?;
        let folder = with.data.join("agents");
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        for name in names(plan)? {
            let log = folder.join(format!("{name}.log"));
            let file = std::fs::File::create(&log).with_context(|| log.display().to_string())?;
            let mut command = Command::new(&binary);
            command.arg("--join").arg(join.to_string()).arg("--name").arg(name.as_str());
            command.arg("--spool").arg(&folder).args(["--once", "--until-parent-exits"]);
            if let Some(path) = with.api_key_file {
                command.arg("--api-key-file").arg(path);
            }
            let TlsOptions { engine_ca, engine_cert, engine_key } = with.tls;
            let files =
                [("--engine-ca", engine_ca), ("--engine-cert", engine_cert), ("--engine-key", engine_key)];
            for (option, path) in files {
                // What is not said here may be in the environment, which the agent inherits.
                command.args(path.iter().flat_map(|path| [OsStr::new(option), path.as_os_str()]));
            }
            // One engine, one agent that launches it.
            if let Some(recipe) = with.agents.engine.as_ref().filter(|_| agents.watchers.is_empty()) {
                command.arg("--engine").arg(recipe);
                if let Some(overlay) = &with.agents.engine_overlay {
                    command.arg("--engine-overlay").arg(overlay);
                }
                // By the environment: a variable may hold a secret, and a command line is seen by everybody.
                command.env(ENGINE_VARS, with.agents.engine_var.join("\n"));
            }
            if with.agents.rt {
                command.arg("--rt");
            }
            // One host, one agent that reads its GPUs.
            if with.agents.gpu && agents.watchers.is_empty() {
                command.arg("--gpu");
            }
            match token {
                // By the environment: a command line is seen by everybody on the host.
                Some(token) => command.env("PLIMSOLL_TOKEN", token),
                None => command.env_remove("PLIMSOLL_TOKEN"),
            };
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).kill_on_drop(true);
            // A group of its own: ctrl-c is for the coordinator, which lets the agents drain.
            command.process_group(0);
            let process = command.spawn().with_context(|| format!("cannot start {}", binary.display()))?;
            let launches = with.agents.engine.is_some() && agents.watchers.is_empty();
            let end_within = if launches { END_WITH_ENGINE } else { END_WITHIN };
            let (over, events) = (run_over.clone(), events.clone());
            agents.watchers.spawn(watch_over(process, name, log, over, events, end_within));
        }
        Ok(agents)
    }

    /// Waits until they have ended; kills those that do not.
    pub(super) async fn finish(mut self) {
        self.over.send_replace(true);
        while self.watchers.join_next().await.is_some() {}
    }
}

/// Waits for the end of one agent's process, before or after the run's.
async fn watch_over(
    mut process: Child,
    name: AgentName,
    log: PathBuf,
    mut over: watch::Receiver<bool>,
    events: mpsc::Sender<FleetEvent>,
    end_within: Duration,
) {
    let ended = async {
        // The value is a guard, which must not be held over the wait below.
        _ = over.wait_for(|over| *over).await;
    };
    tokio::select! {
        status = process.wait() => {
            let status = status.map_or_else(|e| e.to_string(), |s| s.to_string());
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            let said = log.lines().last().unwrap_or("nothing").to_owned();
            let reason = format!("its process ended ({status}); it said last: {said}");
            // An agent ends well after the goodbye, which may be heard before the run is over here: nobody listens
            // to the fleet then.
            let _ = events.send(FleetEvent::Gone { agent: name, reason }).await;
        }
        () = ended => {
            if tokio::time::timeout(end_within, process.wait()).await.is_err() {
                tracing::warn!(agent = %name, "does not end, and is killed");
                let _ = process.kill().await;
            }
        }
    }
}

/// `agent` from beside this program: the two belong together.
fn binary() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let agent = own.with_file_name("agent");
    if !agent.is_file() {
        bail!("{} is missing; it belongs beside coordinator (make install puts both there)", agent.display());
    }
    Ok(agent)
}
