//! The command line: options → plan → run → exit code.

mod browse;
mod capture;
mod company;
mod config;
mod entrance;
mod export;
mod files;
mod local;
mod options;
mod planning;
mod probe;
mod progress;
mod resume;
mod screen;
mod show;
mod terminal;
mod watchdog;
mod watching;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use common::clock::{Clock, SystemClock};
use common::ids::RunId;
use common::knee::KneeCase;
use common::validity::Verdict;

use crate::kept::{KeptCommand, KeptRun};
use crate::plan::Plan;
use crate::report::{Report, render_table};
use crate::run::{self, Means, Opened, RunOutcome, run};
use company::{Company, Local, Signals};
use entrance::{Entrance, Keys};
use options::Rates;
pub use options::{Command, Common, LogFormat, Options};
use terminal::{say, tell};
use watching::Watching;

/// Exit codes of the specification, section 6.
mod exit {
    pub(super) const ERROR: u8 = 1;
    pub(super) const USAGE: u8 = 2;
    pub(super) const GATE: u8 = 3;
    pub(super) const INVALID: u8 = 4;
    pub(super) const INTERRUPTED: u8 = 130;
}

/// Parses the command line, does what it says and gives the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let words = match config::expand(std::env::args_os().collect(), &Options::command()) {
        Ok(words) => words,
        Err(e) => return ExitCode::from(usage(&e)),
    };
    let matches = Options::command().get_matches_from(words);
    let options = match Options::from_arg_matches(&matches) {
        Ok(options) => options,
        Err(e) => e.exit(),
    };
    log(options.log);
    let result = match &options.command {
        Command::Probe(options) => probe::probe(options),
        Command::Capture(options) => capture::capture(options),
        Command::Report(options) => browse::report(options),
        Command::Export(options) => export::export(options),
        Command::Runs(options) => browse::runs(options),
        Command::Rm(options) => browse::rm(options),
        Command::Resume(options) => resume::resume(options),
        Command::Sweep { .. } | Command::Run { .. } => send(&options, &matches),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            tell!("coordinator: {e:#}");
            ExitCode::from(exit::ERROR)
        }
    }
}

/// Reads a `sweep` from a file of options alone, as far as the parser of the command line.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn parse_config(path: &std::path::Path) -> Result<(), String> {
    let words = ["coordinator".into(), "sweep".into(), "--config".into(), path.into()].to_vec();
    let words = config::expand(words, &Options::command()).map_err(|e| format!("{e:#}"))?;
    // What the parser refuses it says in the words of a command line.
    let _ = Options::command().try_get_matches_from(words);
    Ok(())
}

/// The plan of a command line.
#[cfg(test)]
pub(crate) fn planned(line: &str) -> Plan {
    let options = <Options as clap::Parser>::try_parse_from(line.split_whitespace()).expect(line);
    let (common, rates) = options.command.sending().expect("it sends");
    planning::plan(common, &rates).expect(line)
}

/// `sweep` and `run`.
fn send(options: &Options, matches: &ArgMatches) -> anyhow::Result<u8> {
    let Some((common, rates)) = options.command.sending() else { return Ok(0) };
    let (name, sub) = matches.subcommand().unwrap_or(("run", matches));
    execute(common, &rates, sub, Which::New(resume::remember(name, sub)))
}

/// Says what is wrong with what was asked for.
fn usage(e: &anyhow::Error) -> u8 {
    tell!("coordinator: {e:#}");
    exit::USAGE
}

fn log(format: LogFormat) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| terminal::Stderr)
        .log_internal_errors(false);
    match format {
        LogFormat::Json => builder.json().init(),
        LogFormat::Text => builder.with_ansi(colour()).with_target(false).init(),
    }
}

fn colour() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Which run a plan is carried out in.
enum Which {
    /// A new one, by this command.
    New(KeptCommand),
    /// One that was begun.
    Again(RunId, Box<KeptRun>),
}

/// What is carried out.
enum Work {
    New(Box<Plan>, KeptCommand),
    Again(Box<Opened>),
}

impl Work {
    fn plan(&self) -> &Plan {
        match self {
            Self::New(plan, _) => plan,
            Self::Again(opened) => opened.plan(),
        }
    }
}

/// Plans what was asked for and carries it out; what is wrong with it is said before anything is opened.
fn execute(common: &Common, rates: &Rates, matches: &ArgMatches, which: Which) -> anyhow::Result<u8> {
    let planned = planning::plan(common, rates).and_then(|plan| Ok((plan, Keys::read(&common.agents)?)));
    let (plan, keys) = match planned {
        Ok(both) => both,
        Err(e) => return Ok(usage(&e)),
    };
    if let Which::Again(run, kept) = &which {
        let sealed = match kept.trials.len() {
            1 => "1 trial is sealed".to_owned(),
            n => format!("{n} trials are sealed"),
        };
        tell!("resume       {run}: {sealed}");
    }
    crate::record::begin();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(supervise(plan, keys, common, matches, which));
    // Sessions of agents that are still connected end with the process.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    code
}

async fn supervise(
    plan: Plan,
    keys: Keys,
    common: &Common,
    matches: &ArgMatches,
    which: Which,
) -> anyhow::Result<u8> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = watchdog::open_store(&plan.data)?;
    let (run_id, work) = match which {
        Which::New(command) => (new_run_id()?, Work::New(Box::new(plan), command)),
        // What it is about and what is left of it is found out before an agent, or an engine, is started.
        Which::Again(run, kept) => {
            let opened = Opened::again(plan, store.run(&run)?, *kept)?;
            (run, Work::Again(Box::new(opened)))
        }
    };
    let plan = work.plan();
    let signals = Signals::listen()?;
    let entrance = Entrance::open(&plan.fleet, keys).await?;
    let opened = watching::Opened::open(&common.show).await?;
    terminal::err(format_args!("{}", show::plan(plan, matches, &run_id)));
    if let Some(line) = entrance.join_line(&plan.fleet) {
        let note = entrance.token_note(matches!(work, Work::Again(_))).unwrap_or_default();
        terminal::err(format_args!("{line}{note}"));
    }
    let api_key_file = common.engine.api_key_file.as_deref();
    let local = Local { data: &plan.data, api_key_file, tls: &common.engine.tls, agents: &common.agents };
    let (company, fleet) = Company::gather(&plan.fleet, (entrance, signals), &local, &clock)?;
    let (shared, stop) = (Arc::clone(&company.shared), company.stop.clone());
    let (watching, mut ui) = Watching::begin(opened, &run_id, plan, &clock, (&shared, stop.clone()));
    let means = Means { fleet, shared, store, clock, stop, ui: &mut ui };
    let command_line: Vec<String> = std::env::args().collect();
    let outcome = match work {
        Work::New(plan, command) => run(*plan, run_id, (command, &command_line), means).await,
        Work::Again(opened) => Ok(run::resume(*opened, &command_line, means).await),
    };
    ui.ui.end();
    let served = watching.end(&said(&outcome)).await;
    company.part().await;
    let code = conclude(&outcome?, common.strict, common.gate);
    if let Some(url) = served {
        tell!("served {url} while it ran");
    }
    Ok(code)
}

/// How a run ended, in a line.
fn said(outcome: &anyhow::Result<RunOutcome>) -> String {
    let first = |e: &anyhow::Error| format!("{e:#}").lines().next().unwrap_or_default().to_owned();
    match outcome {
        Err(e) => format!("The run ended: {}", first(e)),
        Ok(RunOutcome { error: Some(e), .. }) => format!("The run ended early: {}", first(e)),
        Ok(RunOutcome { interrupted: true, .. }) => "The run was ended by the operator".to_owned(),
        Ok(_) => "The run is over; its report is written".to_owned(),
    }
}

fn new_run_id() -> anyhow::Result<RunId> {
    let now = jiff::Timestamp::from_nanosecond(i128::from(SystemClock.wall().0))?;
    let random = getrandom::u32().context("no randomness from the system")?;
    Ok(format!("{}-{:04x}", now.strftime("%Y%m%d-%H%M%S"), random & 0xffff).parse()?)
}

fn conclude(outcome: &RunOutcome, strict: bool, gate: bool) -> u8 {
    if let Some(report) = &outcome.report {
        terminal::out(format_args!("{}", render_table(report)));
        for path in &outcome.files {
            say!("wrote {}", path.display());
        }
    }
    if let Some(e) = &outcome.error {
        tell!("coordinator: {e:#}");
    }
    exit_code(outcome, strict, gate)
}

fn exit_code(outcome: &RunOutcome, strict: bool, gate: bool) -> u8 {
    if outcome.interrupted {
        return exit::INTERRUPTED;
    }
    let Some(report) = &outcome.report else { return exit::ERROR };
    let worst = report.standing().map(|t| t.summary.validity.verdict).max().unwrap_or_default();
    match worst {
        Verdict::Invalid => exit::INVALID,
        _ if outcome.error.is_some() => exit::ERROR,
        Verdict::Late | Verdict::Degraded if strict => exit::INVALID,
        _ if gate && !passes_gate(report) => {
            tell!("coordinator: the gate failed: not every rate meets the objectives");
            exit::GATE
        }
        _ => 0,
    }
}

/// A gate asks that every tested rate meets the objectives: the rates are what a release has to carry.
fn passes_gate(report: &Report) -> bool {
    report.knee.case == KneeCase::AtOrAboveHighest && report.knee.undecided.is_empty()
}
