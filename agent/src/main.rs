//! The `agent` binary.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match agent::cli::run(agent::cli::Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("agent: {e:#}");
            ExitCode::FAILURE
        }
    }
}
