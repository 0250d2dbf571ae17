//! How late arrivals are sent while the same thread reads 256 streams, beside a pacer with nothing else to do.
//!
//! `cargo bench -p agent --bench pacing`. What sends is the agent's own load thread in a process of its own: pacer,
//! dispatcher and client, one runtime. The null server of the `stream` bench has another core: over 256 connections it
//! streams an event every 10 ms, evenly spread (25,600 a second), and answers the paced arrivals in one write each. The bare
//! pacer takes turns with it. *Read* is how late the thread that reads comes to a timer of 1 ms, with the streams alone
//! (idle of arrivals) and beside them. `--rt`: both with real-time priority.

#[path = "../stream/cpu.rs"]
mod cpu;
#[path = "../support/quick.rs"]
mod quick;
#[path = "../stream/server.rs"]
mod server;
#[path = "../support/mod.rs"]
mod support;
#[path = "../stream/wire.rs"]
mod wire;

mod loaded;
mod stats;

use agent::load::scheduling::Scheduling;
use anyhow::Context;

use loaded::Streams;

const TURNS: usize = 3;
/// Connections that stream beside the arrivals.
const STREAMS: usize = 256;
/// Of one turn.
const SECONDS: f64 = 4.0;

fn main() -> anyhow::Result<()> {
    let scheduling =
        if std::env::args().any(|a| a == "--rt") { Scheduling::RealTime } else { Scheduling::Usual };
    scheduling.check()?;
    let (ours, theirs) = cpu::cores();
    // The pacer may be wherever there is room; the thread that reads and sends stays where it is.
    let turns = quick::turns(TURNS);
    println!(
        "lateness in us, {SECONDS} s of Poisson arrivals beside {STREAMS} streams of an event each 10 ms; {scheduling:?}; medians of {turns} turns"
    );
    println!(
        "| arrivals/s | what                      | n a turn |    p50 |    p99 |      max | p99 / bare (min-max) |"
    );
    println!(
        "| ---------- | ------------------------- | -------- | ------ | ------ | -------- | -------------------- |"
    );
    let streams = Streams {
        streaming: server::start(server::Pace::Spread(STREAMS), theirs)?,
        answering: server::start(server::Pace::OneWrite, theirs)?,
        connections: STREAMS,
        core: ours,
        scheduling,
    };
    let mut alone = Vec::new();
    for _ in 0..turns {
        alone.push(streams.beside(None)?.read);
    }
    for rate in [100, 1_000, 10_000] {
        let (mut bare, mut dispatch, mut written, mut read, mut cpu) =
            (vec![], vec![], vec![], vec![], vec![]);
        for _ in 0..turns {
            let instants = stats::poisson(rate, SECONDS)?;
            bare.push(loaded::bare_pacer(&instants, scheduling)?);
            let run = streams.beside(Some(instants))?;
            dispatch.push(run.dispatch.context("no arrivals")?);
            written.push(run.written.context("no arrivals")?);
            read.push(run.read);
            cpu.push(run.cpu);
        }
        stats::row(rate, "bare pacer", &bare, &bare);
        stats::row(rate, "dispatch", &dispatch, &bare);
        stats::row(rate, "first byte written", &written, &bare);
        stats::row(rate, "read, streams alone", &alone, &alone);
        stats::row(rate, "read, beside arrivals", &read, &alone);
        cpu.sort_unstable_by(f64::total_cmp);
        println!("| {rate:>10} | the load thread used {:.0}% of a core", 100.0 * cpu[cpu.len() / 2]);
    }
    Ok(())
}
