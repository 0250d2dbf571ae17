//! Runs every proof and writes what came out.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use proofs::page::Page;

/// Holds Plimsoll's analysis against queues whose truth is known, in virtual time.
///
/// The page that it prints is a function of the seeds alone. Ends with 3 when a proof fails, or when a sabotage passes.
#[derive(Debug, Parser)]
#[command(name = "proofs")]
struct Options {
    /// Seeds 1 to N.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,

    /// Write the page there instead of printing it.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let page = Page::measure(options.seeds, |proof| eprintln!("{proof}"))?;
    match &options.write {
        Some(path) => std::fs::write(path, page.text())
            .with_context(|| format!("cannot write {}; run from the repository's root", path.display()))?,
        None => print!("{}", page.text()),
    }
    let failed = page.failed();
    for claim in &failed {
        eprintln!("failed: {claim}");
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) })
}
