//! What reading GPUs costs the agent: the CPU time of the telemetry threads, with eight scripted GPUs.
//!
//! `cargo bench -p agent --bench telemetry`. The library is the fake one, whose calls take some microseconds of CPU where
//! the driver's take up to a millisecond of waiting: so this is the cost of the agent's own threads, and `agent
//! gpu-check` (step 8) is for the rest. The aim is below 2 % of a core.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent::gpu::nvml::NvmlSource;
use agent::gpu::{Config, Sampler};
use anyhow::{Context, ensure};
use common::clock::{Clock, SystemClock};
use common::telemetry::Record;
use fake_nvml::{Control, library};

const GPUS: usize = 8;
const LENGTH: Duration = Duration::from_secs(10);

fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = library::place(folder.path(), &[])?;
    let control = Control::open(&path)?;
    let process = format!(r#"{{"processes": [{{"pid": {}, "used_mib": 1000}}]}}"#, std::process::id());
    let gpus = [process.as_str(); GPUS].join(",");
    ensure!(control.load(&format!(r#"{{"gpus": [{gpus}]}}"#)), "the scenario is refused");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let source = NvmlSource::new(Some(path.as_os_str()), Arc::clone(&clock));
    let own = std::process::id();
    let sampler =
        Sampler::start(Config::new(Box::new(source), Arc::new(move || Some(vec![own]))), Arc::clone(&clock));
    ensure!(sampler.settled(Duration::from_secs(60)), "the sampler does not run");
    let _ = sampler.records.take(Duration::ZERO);

    let (before, counts, start) = (cpu_seconds()?, sampler.counts(), clock.monotonic());
    let mut records = 0;
    let mut power = 0;
    while (clock.monotonic() - start).to_duration() < LENGTH {
        std::thread::sleep(Duration::from_millis(250));
        let taken = sampler.records.take(Duration::ZERO).context("the sampler has ended")?;
        records += taken.len();
        power += taken.iter().filter(|record| matches!(record, Record::Power(_))).count();
    }
    let (after, seconds) = (cpu_seconds()?, (clock.monotonic() - start).as_secs_f64());
    let now = sampler.counts();

    println!(
        "telemetry of {GPUS} GPUs, {seconds:.0} s, power every {:?}",
        now.interval.unwrap_or_default().to_duration()
    );
    println!("| thread           | CPU, share of a core |");
    println!("| ---------------- | -------------------- |");
    let mut all = 0.0;
    for (name, used) in &after {
        let share = (used - before.get(name).copied().unwrap_or(0.0)) / seconds;
        all += share;
        println!("| {name:<16} | {:>18.2} % |", share * 100.0);
    }
    println!("| all              | {:>18.2} % |", all * 100.0);
    println!(
        "{} passes, {} left out as late, {power} samples of power, {records} records, {} dropped",
        now.passes - counts.passes,
        now.late - counts.late,
        now.dropped
    );
    ensure!(sampler.stop(Duration::from_secs(10)).is_empty(), "a thread is stuck");
    Ok(())
}

/// CPU time of each telemetry thread of this process, seconds.
fn cpu_seconds() -> anyhow::Result<BTreeMap<String, f64>> {
    let mut all = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        let name = std::fs::read_to_string(task.join("comm"))?.trim().to_owned();
        if name.starts_with("gpu-") {
            let times = std::fs::read_to_string(task.join("schedstat"))?;
            let ran: f64 = times.split_whitespace().next().context("schedstat is empty")?.parse()?;
            all.insert(name, ran / 1e9);
        }
    }
    Ok(all)
}
