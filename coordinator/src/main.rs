//! The `coordinator` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    coordinator::cli::main()
}
