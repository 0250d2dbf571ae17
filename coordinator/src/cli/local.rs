//! Agents that the coordinator starts beside itself, and ends.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use tokio::process::{Child, Command};

use crate::plan::Plan;

/// How long an agent may take to end after the goodbye.
const END_WITHIN: Duration = Duration::from_secs(5);

struct LocalAgent {
    name: String,
    log: PathBuf,
    process: Child,
}

/// The agents started here. They are killed when this is dropped.
pub(super) struct LocalAgents(Vec<LocalAgent>);

impl LocalAgents {
    /// Starts as many as the plan says, each with a log file of its own in the data directory.
    pub(super) fn start(
        plan: &Plan,
        join: SocketAddr,
        token: Option<&str>,
        api_key_file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        if plan.fleet.local == 0 {
            return Ok(Self(Vec::new()));
        }
        let binary = binary()?;
        let folder = plan.data.join("agents");
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        // A coordinator that listens everywhere is reached by its local agents over loopback.
        let join =
            if join.ip().is_unspecified() { SocketAddr::from(([127, 0, 0, 1], join.port())) } else { join };
        let mut agents = Vec::new();
        for number in 1..=plan.fleet.local {
            let name = format!("local-{number}");
            let log = folder.join(format!("{name}.log"));
            let file = std::fs::File::create(&log).with_context(|| log.display().to_string())?;
            let mut command = Command::new(&binary);
            command.arg("--join").arg(join.to_string()).arg("--name").arg(&name).arg("--spool").arg(&folder);
            command.args(["--once", "--until-parent-exits"]);
            if let Some(path) = api_key_file {
                command.arg("--api-key-file").arg(path);
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
            agents.push(LocalAgent { name, log, process });
        }
        Ok(Self(agents))
    }

    /// Completes with an error when one of them ends by itself.
    pub(super) async fn died(&mut self) -> anyhow::Error {
        loop {
            for agent in &mut self.0 {
                if let Ok(Some(status)) = agent.process.try_wait()
                    // After the goodbye they end well, and that is for `finish`.
                    && !status.success()
                {
                    let log = std::fs::read_to_string(&agent.log).unwrap_or_default();
                    let said = log.lines().last().unwrap_or("nothing");
                    return anyhow!("agent {} ended ({status}); it said: {said}", agent.name);
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until they have ended; kills those that do not.
    pub(super) async fn finish(&mut self) {
        for agent in &mut self.0 {
            if tokio::time::timeout(END_WITHIN, agent.process.wait()).await.is_err() {
                tracing::warn!(agent = agent.name, "does not end, and is killed");
                let _ = agent.process.kill().await;
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
