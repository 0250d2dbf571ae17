//! What computing a report from stored traces takes: time, CPU and memory, and the disk that the traces take.
//!
//! `cargo bench -p coordinator --bench analysis`. This process stores a run of one trial; for each line of the table a
//! process of its own, whose memory is nobody else's, opens it and analyses the trial: as `coordinator report` does with
//! other objectives than the run's, and as a run does for its first report, with a line of `traces.jsonl` for each trace
//! and without. The files were just written, so they come from memory and not from the disk; lines are made and counted,
//! not written. The environment says how much:
//!
//! - `ANALYSIS_TRACES`: numbers of traces, with commas; 10000,1000000 where it is not set.
//! - `ANALYSIS_EVENTS`: content events of a trace, 64 where it is not set.
//! - `ANALYSIS_DATA`: a folder that keeps the runs, for a comparison of two programs over the same traces.

mod support;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail, ensure};
use common::clock::{Clock, SystemClock};
use common::disk::OsDisk;
use common::ids::Digest;
use common::plan::{Extent, Process};
use common::seed::Seed;
use common::slo::SloSet;
use common::summary::KnownGaps;
use common::trace::segment::BLOCK_TRACES;
use common::validity::ValidityLimits;
use coordinator::analysis::{Lines, analyse};
use coordinator::ingest::start;
use coordinator::kept::{KeptAgent, KeptRun, KeptTrial, VERSION};
use coordinator::store::Store;
use coordinator::sweep::PlannedTrial;
use sha2::{Digest as _, Sha256};
use support::{Agent, EPOCH, RATE, TOKENS, TRIAL, cpu_seconds, name};

const AGENTS: u64 = 8;

/// Blocks of a submission while the run is made.
const BATCH: usize = 16;

/// What the measuring process is started with, before the data directory and what is measured.
const MEASURE: &str = "--measure";

const RUN: &str = "bench";

/// The objectives of the run.
const OWN: &str = "ttft=40ms tpot=11ms";

/// What is measured: its name, its objectives and whether there are lines.
const MEASURED: [(&str, &str, bool); 3] = [
    ("first report", OWN, false),
    ("first report and traces.jsonl", OWN, true),
    ("report with other objectives", "ttft=30ms e2e=650ms p99:ttft=60ms", false),
];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, data, which] = arguments.as_slice()
        && mode == MEASURE
    {
        return measure(Path::new(data), which.parse()?);
    }
    let tokens = asked("ANALYSIS_EVENTS", &TOKENS.to_string()).parse()?;
    for traces in asked("ANALYSIS_TRACES", "10000,1000000").split(',') {
        // No part of a block.
        let round = AGENTS * BLOCK_TRACES as u64;
        table((traces.parse::<u64>()? / round).max(1) * round, tokens)?;
    }
    Ok(())
}

fn asked(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}

fn table(traces: u64, tokens: usize) -> anyhow::Result<()> {
    let temporary = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let kept = std::env::var("ANALYSIS_DATA").ok().map(PathBuf::from);
    let data =
        kept.map_or_else(|| temporary.path().to_owned(), |kept| kept.join(format!("{traces}-{tokens}")));
    if !data.exists() || data == temporary.path() {
        store_a_run(&data, traces, tokens)?;
    }
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    println!("{traces} traces of {tokens} content events; load over the last minute {load}");
    println!("| what                          | wall s | CPU s | peak memory MiB | attainment | summary  |");
    println!("| ----------------------------- | ------ | ----- | --------------- | ---------- | -------- |");
    for which in 0..MEASURED.len() {
        let status = Command::new(std::env::current_exe()?)
            .arg(MEASURE)
            .arg(&data)
            .arg(which.to_string())
            .stdin(Stdio::null())
            .status()?;
        ensure!(status.success(), "the measuring process failed");
    }
    let (disk, columns) = (size_of(&data)?, columns(&data)?);
    println!(
        "on disk {} bytes a trace, {:.3} of its compressed columns\n",
        disk / traces,
        disk as f64 / columns as f64
    );
    Ok(())
}

fn measure(data: &Path, which: usize) -> anyhow::Result<()> {
    let (what, objectives, has_lines) = MEASURED[which];
    let (wall, cpu) = (SystemClock.monotonic(), cpu_seconds());
    let store = Store::open(data, Arc::new(OsDisk))?;
    let run = store.run(&RUN.parse()?)?;
    let mut kept = KeptRun::read(&run)?;
    if objectives == OWN {
        kept.trials.iter_mut().for_each(|trial| trial.gaps = None);
    }
    let trial = kept.trials.first().context("the run has no trial")?;
    let slos: SloSet = objectives.parse()?;
    let mut out = Counted(0);
    let lines = has_lines.then_some(Lines { out: &mut out, path: Path::new("nowhere") });
    let report = analyse(&run, &kept, &slos, trial, lines, None)?;
    let summary = serde_json::to_vec(&report.summary)?;
    let value: serde_json::Value = serde_json::from_slice(&summary)?;
    let digest = Sha256::digest(&summary);
    println!(
        "| {what:<29} | {:>6.2} | {:>5.2} | {:>15} | {:>10.4} | {:02x}{:02x}{:02x}{:02x} |",
        (SystemClock.monotonic() - wall).as_secs_f64(),
        cpu_seconds() - cpu,
        peak_kib()? / 1024,
        value["slo_attainment"].as_f64().context("the trial is broken")?,
        digest[0],
        digest[1],
        digest[2],
        digest[3],
    );
    // As a run does with its first report: the other objectives find it.
    let latency = report.summary.numbers.as_ref().map(|n| KnownGaps::of(&n.latency_seconds));
    if let Some(trial) = kept.trials.first_mut().filter(|t| t.gaps.is_none()) {
        trial.gaps = latency;
        kept.write(&run).map_err(|e| anyhow!("{e}"))?;
    }
    if has_lines {
        println!("its lines are {} MiB", out.0 >> 20);
    }
    Ok(())
}

/// Takes lines, and says how many bytes they are.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The most that this process has had in memory.
fn peak_kib() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:")).context("no VmHWM in status")?;
    Ok(line.split_whitespace().next().context("VmHWM without a number")?.parse()?)
}

/// Bytes of all files below a folder.
fn size_of(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += if meta.is_dir() { size_of(&entry.path())? } else { meta.len() };
    }
    Ok(bytes)
}

/// Bytes of the compressed columns of all traces.
fn columns(data: &Path) -> anyhow::Result<u64> {
    let run = Store::open(data, Arc::new(OsDisk))?.run(&RUN.parse()?)?;
    let mut bytes = 0;
    for block in run.trial_blocks(TRIAL, EPOCH)? {
        bytes += block?.header().columns.iter().map(|&c| u64::from(c)).sum::<u64>();
    }
    Ok(bytes)
}

/// Stores one sealed trial with traces of several agents.
fn store_a_run(data: &Path, traces: u64, tokens: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let store = Store::open(data, Arc::new(OsDisk))?;
    let run = store.create_run(&RUN.parse()?, SystemClock.wall())?;
    let ingest = start(&run)?;
    for number in 0..AGENTS {
        let mut agent = Agent::new(number, AGENTS, tokens)?;
        let mut left = (traces / AGENTS) as usize / BLOCK_TRACES;
        while left > 0 {
            let mut block = |_| {
                let traces = agent.traces();
                agent.block(&traces)
            };
            let blocks = (0..left.min(BATCH)).map(&mut block).collect::<anyhow::Result<Vec<_>>>()?;
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
        scheduled: traces,
        schedule_sha256: Digest([0; 32]),
        workload_sha256: Digest([0; 32]),
        agents: (0..AGENTS).map(agent).collect::<Result<_, _>>()?,
        findings: Vec::new(),
        cut: None,
        start: None,
        boot: 0,
        gaps: None,
    };
    let kept = KeptRun {
        version: VERSION,
        experiment: serde_json::Value::Null,
        process: Process::Poisson,
        extent: Extent::Requests(traces),
        slos: OWN.parse()?,
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
