//! Step 6: under a load that is known the readings move, and those of the right GPU.

use common::ids::Nanos;
use common::telemetry::{GpuSample, Window};
use serde_json::{Map, Value, json};

use super::super::probe::{Burn, Load};
use super::super::{Batch, Signal, Signals};
use super::bench::{Bench, METHODS, apart, burnt};
use super::{Outcome, values};

/// Memory that the load holds.
const HOLD_BYTES: u64 = 4 << 30;

/// A load draws this much more than an idle GPU, at least.
const RISE: f64 = 1.1;

/// Power and energy rise, utilisation and clocks do, memory and the list of processes show who it is.
pub(super) fn moves(bench: &mut Bench) -> Outcome {
    bench.ordinal()?;
    let every = Nanos::from_millis(10);
    let slow = Signals::of(&[Signal::Utilisation, Signal::SmClock, Signal::MemoryUsed]);
    let before = bench.watch(every, slow, bench.time(3.0).max(Nanos::from_millis(300)));
    let pids = processes(bench);
    let length = bench.time(9.0).max(Nanos::from_millis(1500));
    let burning =
        bench.burn(Burn { load: Load::Compute, length, hold_bytes: HOLD_BYTES, ..Burn::default() })?;
    let mut seen: Vec<u32> = Vec::new();
    let mut during = super::bench::Series::default();
    while !burning.is_finished() {
        let mut part = bench.watch(every, slow, Nanos::from_millis(100));
        during.power.append(&mut part.power);
        during.slow.append(&mut part.slow);
        seen.extend(processes(bench).unwrap_or_default());
    }
    let burnt = burnt(burning)?;
    let Some(&(from, to)) = burnt.bursts.first() else { return Err("the load did not run".to_owned()) };
    // Averages look back; the last third of the load is it alone.
    let third = Nanos((to - from).0 / 3);
    let loaded = Window { from: to - third, to };
    let window = |samples: &[common::telemetry::PowerSample]| {
        Some(Window { from: samples.first()?.at, to: samples.last()?.at })
    };

    let mut found = Map::new();
    let mut wrong = Vec::new();
    let signals = [Signal::Energy, Signal::Average, Signal::Instant];
    let parts = apart(&before.power).into_iter().zip(apart(&during.power));
    for ((name, signal), (idle, load)) in METHODS.iter().zip(signals).zip(parts) {
        if !bench.has(signal) {
            continue;
        }
        let idle = window(&idle).and_then(|window| bench.energy(&idle, window).mean_power_watts);
        let load = bench.energy(&load, loaded).mean_power_watts;
        found.insert((*name).to_owned(), json!({ "idle_watts": idle, "load_watts": load }));
        if !matches!((idle, load), (Some(idle), Some(load)) if load > idle * RISE) {
            wrong.push(format!("{name} does not rise under load"));
        }
    }

    let inside: Vec<&GpuSample> = during.slow.iter().filter(|sample| loaded.contains(sample.at)).collect();
    let before: Vec<&GpuSample> = before.slow.iter().collect();
    let mut compare =
        |signal: Signal, read: &dyn Fn(&GpuSample) -> Option<u64>, holds: &dyn Fn(u64, u64) -> bool| {
            if !bench.has(signal) {
                return;
            }
            let most = |samples: &[&GpuSample]| samples.iter().filter_map(|sample| read(sample)).max();
            let (idle, load) = (most(&before), most(&inside));
            found.insert(signal.name().to_owned(), json!({ "idle": idle, "load": load }));
            if !matches!((idle, load), (Some(idle), Some(load)) if holds(idle, load)) {
                wrong.push(format!("{signal} is {idle:?} idle and {load:?} under load"));
            }
        };
    compare(Signal::Utilisation, &|s| s.utilisation_percent.map(u64::from), &|_, load| load >= 50);
    // A GPU that is kept awake is at its clock already.
    compare(Signal::SmClock, &|s| s.sm_clock_mhz.map(u64::from), &|idle, load| {
        load > 0 && load * 20 >= idle * 19
    });
    compare(Signal::MemoryUsed, &|s| s.memory_used_bytes, &|idle, load| load >= idle + HOLD_BYTES / 10 * 9);
    if bench.has(Signal::Processes) {
        let known = pids.unwrap_or_default();
        seen.retain(|pid| !known.contains(pid));
        seen.sort_unstable();
        seen.dedup();
        if seen.is_empty() {
            wrong.push("the load is not in the list of processes".to_owned());
        }
        found.insert("new_processes".to_owned(), Value::from(seen));
    }
    found.insert("uuid".to_owned(), Value::from(bench.info.uuid.clone()));
    found.insert("held_bytes".to_owned(), Value::from(HOLD_BYTES));
    Ok((values(Value::Object(found)), wrong))
}

fn processes(bench: &mut Bench) -> Option<Vec<u32>> {
    let mut batch = Batch::default();
    bench.source.processes(bench.others(), &mut batch).ok()?;
    Some(batch.samples.first()?.processes.iter().map(|(pid, _)| *pid).collect())
}
