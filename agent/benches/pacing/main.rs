//! How late arrivals are sent while the same thread reads 256 streams, beside a pacer with nothing else to do.
//!
//! `cargo bench -p agent --bench pacing`. What sends is the agent's own load thread in a process of its own: pacer,
//! dispatcher and client, one runtime. The null server of the `stream` bench has another core: over 256 connections it
//! streams an event every 10 ms (25,600 a second), evenly spread or all at once, and answers the paced arrivals with one
//! event each. The bare pacer takes turns with it. *Read* is how late the thread that reads comes to a timer of 1 ms, with
//! the streams alone and beside arrivals. `-- --rt`: with real-time priority.

#[path = "../support/bare.rs"]
mod bare;
#[path = "../stream/cpu.rs"]
mod cpu;
#[path = "../support/quick.rs"]
mod quick;
#[expect(dead_code, reason = "the stream bench uses the rest of it")]
#[path = "../stream/server.rs"]
mod server;
#[path = "../support/mod.rs"]
mod support;
#[expect(dead_code, reason = "the stream bench uses the rest of it")]
#[path = "../stream/wire.rs"]
mod wire;

mod loaded;
mod stats;

use agent::load::scheduling::Scheduling;
use anyhow::Context;

use loaded::Streams;
use stats::Lateness;

const TURNS: usize = 3;
/// Connections that stream beside the arrivals.
const STREAMS: usize = 256;
/// Of one turn.
const SECONDS: f64 = 3.0;

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
    let answering = server::start(server::Pace::OneWrite, 1, theirs)?;
    for (name, pace, rates) in [
        ("spread", server::Pace::Spread(STREAMS), &[100, 1_000, 10_000][..]),
        ("in step", server::Pace::InStep, &[1_000]),
    ] {
        let streaming = server::start(pace, wire::EVENTS, theirs)?;
        let streams = Streams { streaming, answering, connections: STREAMS, core: ours, scheduling };
        let alone = (0..turns).map(|_| Ok(streams.beside(None)?.read)).collect::<anyhow::Result<Vec<_>>>()?;
        for &rate in rates {
            beside(&streams, name, rate, turns, &alone)?;
        }
    }
    Ok(())
}

/// One rate beside the streams, and its lines.
fn beside(streams: &Streams, name: &str, rate: u32, turns: usize, alone: &[Lateness]) -> anyhow::Result<()> {
    let (mut bare, mut dispatch, mut written, mut read, mut cpu) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..turns {
        let instants = stats::poisson(rate, SECONDS)?;
        bare.push(loaded::bare_pacer(&instants, streams.scheduling)?);
        let run = streams.beside(Some(instants))?;
        dispatch.push(run.dispatch.context("no arrivals")?);
        written.push(run.written.context("no arrivals")?);
        read.push(run.read);
        cpu.push(run.cpu);
    }
    cpu.sort_unstable_by(f64::total_cmp);
    println!(
        "| {rate:>10} | events {name}; the load thread used {:.0}% of a core |",
        100.0 * cpu[cpu.len() / 2]
    );
    stats::row(rate, "bare pacer", &bare, &bare);
    stats::row(rate, "dispatch", &dispatch, &bare);
    stats::row(rate, "first byte written", &written, &bare);
    stats::row(rate, "read, streams alone", alone, alone);
    stats::row(rate, "read, beside arrivals", &read, alone);
    Ok(())
}
