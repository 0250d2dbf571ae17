//! The `agent` binary.

use std::process::ExitCode;

use agent::session::AgentError;
use clap::Parser;

fn main() -> ExitCode {
    // Not a command for people: the agent starts itself again as the keeper of its engine's processes.
    if std::env::args_os().nth(1).is_some_and(|first| first == agent::launch::SUPERVISE) {
        return agent::launch::supervise();
    }
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(code) = agent::gpu::command::run(&arguments) {
        return code;
    }
    if let Some(code) = agent::spool::command::run(&arguments) {
        return code;
    }
    if let Some(code) = agent::null_engine::run(&arguments) {
        return code;
    }
    if let Some(code) = agent::calibrate::run(&arguments) {
        return code;
    }
    match agent::cli::run(agent::cli::Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("agent: {e:#}");
            // A command line that cannot work is the user's to mend.
            let usage = e
                .downcast_ref::<AgentError>()
                .is_some_and(|e| matches!(e, AgentError::Address { .. } | AgentError::Tls { .. }));
            if usage { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
