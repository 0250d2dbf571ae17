//! `agent spool ls|push|rm`: what a spool holds of agents that are gone, brought to a coordinator or removed.
//!
//! Commands of their own, as `gpu-check` is: they serve no coordinator. They must never touch a spool that a running
//! agent has: its lock is taken first, and `ls`, which only looks, says who has it. What no coordinator has sealed is
//! removed only when that is said twice.
//!
//! The tests beside it and `tests/tests/spool.rs` guard them.

mod list;
mod push;
mod remove;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use common::disk::{Disk, FolderLock, LockError};
use common::ids::{AgentName, RunId};

use super::held::{self, Segment};
use crate::cli::JoinOptions;

/// The name of the command.
const SPOOL: &str = "spool";

/// Shows, delivers or removes what a spool still holds: traces of trials that no coordinator has sealed.
#[derive(Debug, Parser)]
#[command(name = "agent spool", bin_name = "agent spool", version, about, long_about)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List what the spool holds
    Ls(ListOptions),
    /// Deliver what is not sealed to a coordinator that is up and has the run open
    Push(PushOptions),
    /// Remove segments; nothing else of the spool
    Rm(RemoveOptions),
}

#[derive(Debug, Args)]
struct Place {
    /// The spool, as given to the agent
    #[arg(long, value_name = "DIR", default_value = "plimsoll-spool")]
    spool: PathBuf,
}

#[derive(Debug, Args)]
struct ListOptions {
    #[command(flatten)]
    place: Place,
    /// As JSON (docs/schemas/spool.schema.json)
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct PushOptions {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    join: JoinOptions,
    /// Only of this run
    run: Option<RunId>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
struct RemoveOptions {
    #[command(flatten)]
    place: Place,
    /// What is held of this run
    #[arg(group = "what")]
    run: Option<RunId>,
    /// What a coordinator has sealed
    #[arg(long, group = "what")]
    sealed: bool,
    /// Everything
    #[arg(long, group = "what")]
    all: bool,
    /// Also traces that no coordinator has sealed: they are lost
    #[arg(long, visible_alias = "force")]
    yes: bool,
}

/// Runs the command, when the command line is one of its.
#[must_use]
pub fn run(arguments: &[OsString]) -> Option<ExitCode> {
    if arguments.get(1)? != SPOOL {
        return None;
    }
    // What follows is parsed as a program of its own, whose name the first argument stands for.
    let options = Options::parse_from(&arguments[1..]);
    let done = match options.command {
        Command::Ls(options) => list::run(&options),
        Command::Push(options) => push::run(&options),
        Command::Rm(options) => remove::run(&options),
    };
    Some(match done {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("agent spool: {e:#}");
            ExitCode::FAILURE
        }
    })
}

/// What one agent's folder holds.
struct Holding {
    agent: AgentName,
    dir: PathBuf,
    segments: Vec<Segment>,
    /// Held for as long as this is, unless only looked at.
    _lock: Option<FolderLock>,
    /// Who has it, when it was not locked.
    in_use: Option<String>,
}

/// What the spool holds, by agent, looked at only.
fn look(disk: &dyn Disk, place: &Place) -> anyhow::Result<Vec<Holding>> {
    holdings(disk, place, |dir| Ok((None, FolderLock::held_by(dir))))
}

/// What the spool holds, by agent, each folder locked.
fn lock(disk: &dyn Disk, place: &Place) -> anyhow::Result<Vec<Holding>> {
    holdings(disk, place, |dir| match FolderLock::take(dir) {
        Ok(lock) => Ok((Some(lock), None)),
        Err(LockError::InUse { path, holder }) => bail!(
            "{} is in use by a running agent ({holder}), which delivers what it holds by itself; end it first",
            path.display()
        ),
        Err(e) => Err(e.into()),
    })
}

fn holdings(
    disk: &dyn Disk,
    place: &Place,
    lock: impl Fn(&Path) -> anyhow::Result<(Option<FolderLock>, Option<String>)>,
) -> anyhow::Result<Vec<Holding>> {
    let spool = &place.spool;
    if !spool.is_dir() {
        // A mistyped one must not look empty.
        bail!("there is no folder {}; say with --spool what the agent was given", spool.display());
    }
    let mut holdings = Vec::new();
    for agent in held::agents(disk, spool).with_context(|| spool.display().to_string())? {
        let dir = spool.join(agent.as_str());
        let (lock, in_use) = lock(&dir)?;
        let segments = held::segments(disk, &dir, &agent).with_context(|| dir.display().to_string())?;
        holdings.push(Holding { agent, dir, segments, _lock: lock, in_use });
    }
    Ok(holdings)
}

/// A run of which nothing is held is a mistake, or done already: both are said.
fn nothing_of(run: &RunId, place: &Place) -> anyhow::Error {
    anyhow::anyhow!("{} holds nothing of run {run}; see `agent spool ls`", place.spool.display())
}

/// One trace, two traces.
fn traces(count: u64) -> String {
    format!("{count} trace{}", if count == 1 { "" } else { "s" })
}

/// Writes to standard output; whoever closed the pipe does not want it.
fn out(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

#[cfg(test)]
mod tests;
