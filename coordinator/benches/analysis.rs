//! What computing a report from a million stored traces takes: time, CPU and memory.
//!
//! `cargo bench -p coordinator --bench analysis`. This process stores a run of one trial; a process of its own, whose
//! memory is nobody else's, opens it and analyses the trial twice, without texts and lines, as `coordinator report`
//! does with the objectives of the run and with others. The files were just written, so they come from memory and not
//! from the disk.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use common::clock::{Clock, SystemClock};
use common::disk::OsDisk;
use common::ids::Digest;
use common::plan::{Extent, Process};
use common::seed::Seed;
use common::slo::SloSet;
use common::trace::segment::BLOCK_TRACES;
use common::validity::ValidityLimits;
use coordinator::analysis::analyse;
use coordinator::ingest::start;
use coordinator::kept::{KeptAgent, KeptRun, KeptTrial, VERSION};
use coordinator::store::Store;
use coordinator::sweep::PlannedTrial;
use support::{Agent, EPOCH, RATE, TOKENS, TRIAL, cpu_seconds, name};

const AGENTS: u64 = 8;

/// A million and no part of a block.
const TRACES: u64 = 1_000_000 / (AGENTS * BLOCK_TRACES as u64) * AGENTS * BLOCK_TRACES as u64;

/// Blocks of a submission while the run is made.
const BATCH: usize = 16;

/// What the measuring process is started with, before the data directory.
const MEASURE: &str = "--measure";

const RUN: &str = "bench";

/// The objectives of the run, and others.
const OBJECTIVES: [&str; 2] = ["ttft=40ms tpot=11ms", "ttft=30ms e2e=650ms p99:ttft=60ms"];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, data] = arguments.as_slice()
        && mode == MEASURE
    {
        return measure(Path::new(data));
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    store_a_run(folder.path())?;
    println!("analysis of {TRACES} stored traces of {TOKENS} content events, in seconds per million traces");
    println!("| objectives                           | wall s | CPU s | peak memory MiB | attainment |");
    println!("| ------------------------------------ | ------ | ----- | --------------- | ---------- |");
    let status = Command::new(std::env::current_exe()?)
        .arg(MEASURE)
        .arg(folder.path())
        .stdin(Stdio::null())
        .status()?;
    ensure!(status.success(), "the measuring process failed");
    Ok(())
}

fn measure(data: &Path) -> anyhow::Result<()> {
    let store = Store::open(data, Arc::new(OsDisk))?;
    let run = store.run(&RUN.parse()?)?;
    let kept = KeptRun::read(&run)?;
    let trial = kept.trials.first().context("the run has no trial")?;
    for objectives in OBJECTIVES {
        let slos: SloSet = objectives.parse()?;
        let (wall, cpu) = (SystemClock.monotonic(), cpu_seconds());
        let report = analyse(&run, &kept, &slos, trial, None, None)?;
        let per_million = 1e6 / TRACES as f64;
        let summary = serde_json::to_value(&report.summary)?;
        let attainment = summary["slo_attainment"].as_f64().context("the trial is broken")?;
        println!(
            "| {objectives:<36} | {:>6.2} | {:>5.2} | {:>15} | {attainment:>10.4} |",
            (SystemClock.monotonic() - wall).as_secs_f64() * per_million,
            (cpu_seconds() - cpu) * per_million,
            peak_kib()? / 1024,
        );
    }
    Ok(())
}

/// The most that this process has had in memory.
fn peak_kib() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:")).context("no VmHWM in status")?;
    Ok(line.split_whitespace().next().context("VmHWM without a number")?.parse()?)
}

/// Stores one sealed trial with traces of several agents.
fn store_a_run(data: &Path) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let store = Store::open(data, Arc::new(OsDisk))?;
    let run = store.create_run(&RUN.parse()?, SystemClock.wall())?;
    let ingest = start(&run)?;
    for number in 0..AGENTS {
        let mut agent = Agent::new(number, AGENTS)?;
        let mut left = (TRACES / AGENTS) as usize / BLOCK_TRACES;
        while left > 0 {
            let blocks: anyhow::Result<Vec<_>> =
                (0..left.min(BATCH)).map(|_| agent.block().map(|(block, _)| block)).collect();
            let blocks = blocks?;
            left -= blocks.len();
            runtime.block_on(ingest.submit(blocks))?;
        }
    }
    runtime.block_on(ingest.close())?;
    let agent = |number| {
        anyhow::Ok(KeptAgent {
            name: name(number)?,
            clock: None,
            lost: false,
            health: None,
            start_skew: None,
        })
    };
    let trial = KeptTrial {
        planned: PlannedTrial {
            trial: TRIAL,
            rate: RATE.to_string().parse()?,
            repeat: 0,
            seed: Seed(7),
            rerun_of: None,
        },
        epoch: EPOCH,
        scheduled: TRACES,
        schedule_sha256: Digest([0; 32]),
        workload_sha256: Digest([0; 32]),
        agents: (0..AGENTS).map(agent).collect::<Result<_, _>>()?,
        findings: Vec::new(),
        start: None,
        boot: 0,
    };
    let kept = KeptRun {
        version: VERSION,
        experiment: serde_json::Value::Null,
        process: Process::Poisson,
        extent: Extent::Requests(TRACES),
        slos: OBJECTIVES[0].parse()?,
        slo_target: "0.99".parse()?,
        limits: ValidityLimits::default(),
        trials: vec![trial],
        idle: None,
        idle_before: Vec::new(),
        open: None,
        command: None,
        boot: None,
        require_gpu: false,
    };
    if let Err(e) = kept.write(&run) {
        bail!("{e}");
    }
    Ok(())
}
