//! How fast a coordinator takes traces from agents over their connections, and what memory that takes.
//!
//! `cargo bench -p scale --bench fleet -- wire`. Eight agents fill their spools, and then, with `--upload after`, all deliver at
//! once: what is timed is the agents' uploader, gRPC over loopback, and the coordinator up to its acknowledgement, which is
//! behind a sync; making traces is not. The coordinator is a process of its own: its CPU and memory are its own. Where both
//! share two cores, traces a second are what the two together allow; `1 s of CPU` is what the coordinator alone takes in
//! for each second of processor time.
//!
//! Lines differ in how many traces there are (memory must not grow with them) and in how long the coordinator's disk takes
//! for a sync. `WIRE_TRACES=1000000` says how many the first has.

use std::time::Duration;

use crate::agents::Stage;
use crate::child::Coordinator;
use crate::coordinator::Job;
use crate::figures::{load, this_process};
use common::clock::{Clock, SystemClock};

const AGENTS: usize = 8;

/// Content events of a trace: with so many it is about 1 KB.
const EVENTS: usize = 80;

/// Workers of the closed loop that fills the spools.
const WORKERS: u32 = 512;

/// Measures it, and prints a line for each case.
///
/// # Errors
/// When coordinator or agents do not do their part.
pub fn measure() -> anyhow::Result<()> {
    let traces: u64 = std::env::var("WIRE_TRACES").map_or(Ok(200_000), |n| n.parse())?;
    println!(
        "{AGENTS} agents deliver traces of {EVENTS} content events, about 1 KB each as postcard, over loopback"
    );
    println!(
        "| traces | a sync takes | traces/s | coordinator CPU us/trace | agents CPU us/trace | 1 s of CPU | before MiB | peak MiB | load |"
    );
    println!(
        "| -----: | -----------: | -------: | -----------------------: | ------------------: | ---------: | ---------: | -------: | ---: |"
    );
    for (traces, slow_sync_ms) in
        [(traces, 0), (traces, 0), (traces, 0), (2 * traces, 0), (traces, 50), (traces, 200)]
    {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(line(traces, slow_sync_ms))?;
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
    Ok(())
}

async fn line(traces: u64, slow_sync_ms: u64) -> anyhow::Result<()> {
    let folder = crate::child::folder()?;
    // The agents' own disks are no part of this: memory, where the system has some for that.
    let memory = std::path::Path::new("/dev/shm");
    let spools = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    let job = Job {
        agents: AGENTS,
        rate: format!("closed {WORKERS}"),
        requests: Some(traces),
        seconds: 0,
        upload_after: true,
        slow_sync_ms,
        folder: folder.path().to_owned(),
    };
    let mut coordinator = Coordinator::start(&job)?;
    let address = coordinator.says("listening").await?;
    let stage = Stage::new(EVENTS);
    let mut agents = stage.join(AGENTS, &address, spools.path());
    stage.are_filled(AGENTS).await?;
    let load = load();
    let process = coordinator.process.clone();
    let (before, _) = process.memory_mib()?;
    process.forget_peak()?;
    let (cpu, own, wall) = (process.cpu_seconds()?, this_process().cpu_seconds()?, SystemClock.monotonic());
    stage.go();
    while stage.delivered() < traces {
        anyhow::ensure!(!agents.is_empty(), "the agents ended");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let seconds = (SystemClock.monotonic() - wall).as_secs_f64();
    let (cpu, own) = (process.cpu_seconds()? - cpu, this_process().cpu_seconds()? - own);
    let (_, peak) = process.memory_mib()?;
    let n = traces as f64;
    println!(
        "| {traces} | {slow_sync_ms} ms more | {:.0} | {:.2} | {:.2} | {:.0} | {before:.0} | {peak:.0} | {load} |",
        n / seconds,
        cpu * 1e6 / n,
        own * 1e6 / n,
        n / cpu,
    );
    let ended = coordinator.says("ended").await?;
    anyhow::ensure!(ended.starts_with(&format!("{traces} {traces} ")), "scheduled and recorded: {ended}");
    while let Some(agent) = agents.join_next().await {
        agent??;
    }
    coordinator.finish()
}
