//! How fast the coordinator makes traces durable, and how much of the disk they take.
//!
//! `cargo bench -p coordinator --bench ingest`. Eight agents submit blocks of 64 traces to the writer of one run, each
//! waiting for its acknowledgement before its next submission; segments and sled index lie on the disk under cargo's
//! target folder, and every acknowledgement is behind a sync. A block at a time is a fleet that keeps up; sixteen is
//! one that catches up after the coordinator was away.

mod support;

use std::path::Path;
use std::sync::Arc;

use common::clock::{Clock, SystemClock};
use common::disk::OsDisk;
use common::trace::segment::{BLOCK_TRACES, Block};
use coordinator::ingest::start;
use coordinator::store::Store;
use support::{Agent, cpu_seconds};
use tokio::task::JoinSet;

const AGENTS: u64 = 8;

/// Blocks of each agent.
const BLOCKS: usize = 256;

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let before = cpu_seconds();
    let (blocks, payload) = make()?;
    let making = cpu_seconds() - before;
    let traces = AGENTS * (BLOCKS * BLOCK_TRACES) as u64;
    println!(
        "{AGENTS} agents, {traces} traces of {} content events, {} bytes each as postcard; making and encoding one {:.1} us of CPU",
        support::TOKENS,
        payload / traces,
        making * 1e6 / traces as f64
    );
    println!(
        "| blocks a submission | traces/s | CPU us/trace | traces a sync | disk bytes/trace | disk / payload | index share |"
    );
    println!(
        "| ------------------- | -------- | ------------ | ------------- | ---------------- | -------------- | ----------- |"
    );
    for batch in [1, 16] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let store = Store::open(folder.path(), Arc::new(OsDisk))?;
        let run = store.create_run(&"bench".parse()?, SystemClock.wall())?;
        let ingest = start(&run)?;
        let agents = blocks.clone();
        let (wall, cpu) = (SystemClock.monotonic(), cpu_seconds());
        runtime.block_on(async {
            let mut submitting = JoinSet::new();
            for blocks in agents {
                let ingest = ingest.clone();
                submitting.spawn(async move {
                    let mut blocks = blocks.into_iter();
                    loop {
                        let batch: Vec<Block> = blocks.by_ref().take(batch).collect();
                        if batch.is_empty() {
                            return anyhow::Ok(());
                        }
                        ingest.submit(batch).await?;
                    }
                });
            }
            while let Some(done) = submitting.join_next().await {
                done??;
            }
            anyhow::Ok(())
        })?;
        let seconds = (SystemClock.monotonic() - wall).as_secs_f64();
        let cpu = cpu_seconds() - cpu;
        let groups = ingest.counters().groups;
        runtime.block_on(ingest.close())?;
        drop((run, ingest, store));
        let (disk, index) = (size(folder.path())?, size(&folder.path().join("index"))?);
        println!(
            "| {batch:>19} | {:>8.0} | {:>12.2} | {:>13.0} | {:>16.0} | {:>14.2} | {:>10.1}% |",
            traces as f64 / seconds,
            cpu * 1e6 / traces as f64,
            traces as f64 / groups as f64,
            disk as f64 / traces as f64,
            disk as f64 / payload as f64,
            index as f64 * 100.0 / disk as f64
        );
    }
    Ok(())
}

/// Every agent's blocks, and the bytes of all traces as postcard.
fn make() -> anyhow::Result<(Vec<Vec<Block>>, u64)> {
    let mut payload = 0;
    let mut agents = Vec::new();
    for number in 0..AGENTS {
        let mut agent = Agent::new(number, AGENTS, support::TOKENS)?;
        let mut blocks = Vec::with_capacity(BLOCKS);
        for _ in 0..BLOCKS {
            let traces = agent.traces();
            let bytes = postcard::to_stdvec(&traces)?.len() as u64;
            let block = agent.block(&traces)?;
            blocks.push(block);
            payload += bytes;
        }
        agents.push(blocks);
    }
    Ok((agents, payload))
}

/// Bytes of the files in a folder and those below it.
fn size(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { size(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}
