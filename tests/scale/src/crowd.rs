//! What a coordinator costs for the agents that are connected to it, whatever they send.
//!
//! `cargo bench -p scale --bench fleet -- crowd`. So many real agent sessions join a coordinator in another process over loopback,
//! beat once a second, probe its clock every five, and carry a trial of 20 requests a second in all. Measured is the
//! coordinator in the middle of that trial: CPU as a share of one core, and memory. `FLEET_AGENTS=10,100` says how many,
//! `FLEET_SECONDS=20` how long each is looked at.

use std::time::Duration;

use crate::agents::Stage;
use crate::child::Coordinator;
use crate::coordinator::Job;
use crate::figures::{load, this_process};
use common::clock::{Clock, SystemClock};

/// Requests a second of all agents together.
const RATE: u64 = 20;

/// Content events of a trace.
const EVENTS: usize = 16;

/// From the start of the trial until what the start takes is over.
const SETTLED: Duration = Duration::from_secs(2);

/// Sockets of an agent at each end, and some.
const FILES_AN_AGENT: u64 = 8;

/// Measures it, and prints a line for each case.
///
/// # Errors
/// When coordinator or agents do not do their part.
pub fn measure() -> anyhow::Result<()> {
    let counts = std::env::var("FLEET_AGENTS").unwrap_or_else(|_| "10,100,300,1000".into());
    let seconds: u64 = std::env::var("FLEET_SECONDS").map_or(Ok(12), |n| n.parse())?;
    let files = common::disk::raise_open_files();
    println!("agents that beat and are probed, in a trial of {RATE} requests/s together; {seconds} s each");
    println!(
        "| agents | to join, s | to start, s | coordinator CPU | ms a second and agent | resident MiB | peak MiB | agents' CPU | load |"
    );
    println!(
        "| -----: | ---------: | ----------: | --------------: | --------------------: | -----------: | -------: | ----------: | ---: |"
    );
    for count in counts.split(',') {
        let agents: usize = count.trim().parse()?;
        if agents as u64 * FILES_AN_AGENT > files {
            println!(
                "| {agents} | left out: {files} files may be open, and {} are wanted: ulimit -n |",
                agents as u64 * FILES_AN_AGENT
            );
            continue;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(line(agents, seconds))?;
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
    Ok(())
}

async fn line(agents: usize, seconds: u64) -> anyhow::Result<()> {
    let folder = crate::child::folder()?;
    let memory = std::path::Path::new("/dev/shm");
    let spools = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    let job = Job {
        agents,
        rate: RATE.to_string(),
        requests: None,
        seconds: seconds + 2 * SETTLED.as_secs(),
        upload_after: false,
        slow_sync_ms: 0,
        folder: folder.path().to_owned(),
    };
    let mut coordinator = Coordinator::start(&job)?;
    let address = coordinator.says("listening").await?;
    let stage = Stage::new(EVENTS);
    stage.go();
    let begun = SystemClock.monotonic();
    let mut sessions = stage.join(agents, &address, spools.path());
    coordinator.says("begins").await?;
    let joined = (SystemClock.monotonic() - begun).as_secs_f64();
    let lead = Duration::from_nanos(coordinator.says("starting").await?.parse()?);
    tokio::time::sleep(lead).await;
    let started = (SystemClock.monotonic() - begun).as_secs_f64() - joined;
    tokio::time::sleep(SETTLED).await;
    let load = load();
    let process = coordinator.process.clone();
    let (cpu, own, wall) = (process.cpu_seconds()?, this_process().cpu_seconds()?, SystemClock.monotonic());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let seconds = (SystemClock.monotonic() - wall).as_secs_f64();
    let (cpu, own) = (process.cpu_seconds()? - cpu, this_process().cpu_seconds()? - own);
    let (resident, peak) = process.memory_mib()?;
    println!(
        "| {agents} | {joined:.1} | {started:.1} | {:.1}% | {:.3} | {resident:.0} | {peak:.0} | {:.0}% | {load} |",
        cpu * 100.0 / seconds,
        cpu * 1e3 / seconds / agents as f64,
        own * 100.0 / seconds,
    );
    let ended = coordinator.says("ended").await?;
    let mut books = ended.split(' ');
    anyhow::ensure!(books.next() == books.next(), "scheduled and recorded: {ended}");
    while let Some(session) = sessions.join_next().await {
        session??;
    }
    coordinator.finish()
}
