//! The command line and the process of the null engine.

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use common::disk::raise_open_files;
use common::ids::Nanos;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::Pacing;
use super::server::Server;

/// The name of the command.
pub const NULL_ENGINE: &str = "null-engine";

/// The longest that a request may be told to wait, in milliseconds.
const MAX_MS: f64 = 3_600_000.0;

/// An engine without a model: it answers requests for completions with made-up tokens, at once or by a clock.
///
/// To measure clients against. POST to any path that ends in /completions (/chat/completions for the chat shape) gives as
/// many tokens as max_tokens says, a server-sent event each. GET /arrivals gives a line of JSON for each answer: when its
/// request had been read, and when its first and last event were written, in ns of CLOCK_MONOTONIC. POST /reset forgets
/// them. It prints where it listens and ends with ctrl-c or SIGTERM.
#[derive(Debug, Parser)]
#[command(name = "agent null-engine", bin_name = "agent null-engine", version, about, long_about)]
struct Options {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Tokens of an answer whose request has no max_tokens
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    events: u32,

    /// From the whole request to the first token, in milliseconds
    #[arg(long, value_name = "MS", default_value = "0", value_parser = milliseconds)]
    ttft_ms: Nanos,

    /// Between two tokens, in milliseconds; 0 sends an answer in one write
    #[arg(long, value_name = "MS", default_value = "0", value_parser = milliseconds)]
    interval_ms: Nanos,

    /// Without an interval: each token in a write of its own, back to back
    #[arg(long)]
    split: bool,

    /// File for the lines of /arrivals, written at the end
    #[arg(long, value_name = "FILE")]
    arrivals: Option<PathBuf>,

    /// Stay on this core
    #[arg(long, value_name = "N")]
    core: Option<usize>,

    /// End when the process that started this one is gone
    #[arg(long, hide = true)]
    until_parent_exits: bool,
}

fn milliseconds(text: &str) -> Result<Nanos, String> {
    match text.parse::<f64>() {
        Ok(ms) if (0.0..=MAX_MS).contains(&ms) => Ok(Nanos::from_secs_f64(ms / 1000.0)),
        _ => Err(format!("expected milliseconds from 0 to {MAX_MS}, such as 10 or 0.5")),
    }
}

/// Runs the command, when the command line is its.
#[must_use]
pub fn run(arguments: &[OsString]) -> Option<ExitCode> {
    if arguments.get(1)? != NULL_ENGINE {
        return None;
    }
    // What follows is parsed as a program of its own, whose name the first argument stands for.
    let options = Options::parse_from(&arguments[1..]);
    Some(match serve(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("agent null-engine: {e:#}");
            ExitCode::FAILURE
        }
    })
}

fn serve(options: &Options) -> anyhow::Result<()> {
    let pacing = Pacing { ttft: options.ttft_ms, interval: options.interval_ms, split: options.split };
    if pacing.split && pacing.interval > Nanos::ZERO {
        bail!(
            "--split is for tokens back to back, and with --interval-ms each has a write of its own; leave one out"
        );
    }
    if options.until_parent_exits {
        set_parent_process_death_signal(Some(Signal::TERM)).context("cannot follow the parent")?;
    }
    if let Some(core) = options.core {
        if core >= CpuSet::MAX_CPU {
            bail!("--core {core}: no host has it");
        }
        let mut cores = CpuSet::new();
        cores.set(core);
        sched_setaffinity(None, &cores).with_context(|| format!("--core {core}: it cannot be had here"))?;
    }
    // As the agent's load thread has it: by default the kernel may wake a thread 50 us late to save power.
    let _ = rustix::thread::set_current_timer_slack(Some(std::num::NonZeroU64::MIN));
    let file = match &options.arrivals {
        None => None,
        Some(path) => {
            // Now: a place that cannot be written to is known before the load and not after it.
            let file = std::fs::File::create(path);
            Some((file.with_context(|| format!("--arrivals {}", path.display()))?, path))
        }
    };
    let end = eventfd(0, EventfdFlags::CLOEXEC)?;
    let server = Server::new(options.listen, pacing, options.events, raise_open_files(), &end)
        .with_context(|| format!("--listen {}: cannot listen there", options.listen))?;
    let address = server.address()?;
    end_with_a_signal(end.try_clone()?)?;
    println!("null engine on http://{address}");
    std::io::stdout().flush()?;
    let arrivals = server.run()?;
    if let Some((file, path)) = file {
        let written = arrivals.write(std::io::BufWriter::new(file));
        written.with_context(|| format!("--arrivals {}: not all of it was written", path.display()))?;
    }
    Ok(())
}

/// Makes `end` readable at SIGTERM or ctrl-c. On a thread of its own, which sleeps until then.
fn end_with_a_signal(end: OwnedFd) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut terminate, mut interrupt) = {
        let _entered = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let wait = move || {
        runtime.block_on(async {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        });
        // It fails only where the count is full, and then it is readable.
        let _ = rustix::io::write(&end, &1u64.to_ne_bytes());
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_checked() {
        let parse = |line: &str| Options::try_parse_from(line.split(' '));
        for bad in [
            "null-engine --events 0",
            "null-engine --ttft-ms -1",
            "null-engine --interval-ms nan",
            "null-engine --interval-ms 1e99",
            "null-engine --listen 8000",
            "null-engine x",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let options = parse("null-engine --ttft-ms 0.5 --interval-ms 10").unwrap();
        assert_eq!((options.ttft_ms, options.interval_ms), (Nanos(500_000), Nanos::from_millis(10)));
        let both = parse("null-engine --interval-ms 10 --split").unwrap();
        assert!(serve(&both).unwrap_err().to_string().contains("leave one out"));
        assert!(run(&["agent".into(), "spool".into()]).is_none());
    }
}
