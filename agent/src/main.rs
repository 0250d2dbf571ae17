//! The `agent` binary.

use std::process::ExitCode;

use agent::session::AgentError;
use clap::Parser;

fn main() -> ExitCode {
    match agent::cli::run(agent::cli::Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("agent: {e:#}");
            // A command line that cannot work is the user's to mend.
            let usage =
                e.downcast_ref::<AgentError>().is_some_and(|e| matches!(e, AgentError::Address { .. }));
            if usage { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
