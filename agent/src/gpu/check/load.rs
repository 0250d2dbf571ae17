//! The steps under load: records of what the readings make of it.

use std::sync::Arc;

use common::ids::Nanos;
use common::telemetry::{PowerSample, Window};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

use super::super::probe::{Burn, Burnt, Load};
use super::super::{Config, Sampler, Signal, Signals};
use super::bench::{Bench, METHODS, Series, apart, burnt};
use super::{Outcome, values};

/// Step 3: whether a steady load's energy depends on how often the counter is read. Each distance is used twice, the
/// second time in the opposite order, so that a GPU that warms up does the same to all. The edges are found by quick
/// readings in every case.
pub(super) fn poll_rates(bench: &mut Bench) -> Outcome {
    const EVERY_MS: [u64; 5] = [0, 1000, 100, 20, 5];
    let part = bench.time(6.0);
    // At each edge the counter must be seen to move.
    let edge = Nanos(bench.period.unwrap_or(Nanos::from_millis(100)).0 * 5 / 2);
    let parts = EVERY_MS.len() as u64 * 2;
    let length = Nanos((part.0 + 2 * edge.0) * parts) + bench.time(4.0) + Nanos::from_secs(1);
    let burning = bench.burn(Burn { length, ..Burn::default() })?;
    let started = wait_for_load(bench);
    let mut watts: Vec<Vec<f64>> = vec![Vec::new(); EVERY_MS.len()];
    if started {
        let order = (0..EVERY_MS.len()).chain((0..EVERY_MS.len()).rev());
        for place in order {
            let first = bench.watch(Nanos::from_millis(3), Signals::NONE, edge);
            let middle = match EVERY_MS[place] {
                0 => {
                    std::thread::sleep(part.to_duration());
                    Series::default()
                }
                every => bench.watch(Nanos::from_millis(every), Signals::NONE, part),
            };
            let last = bench.watch(Nanos::from_millis(3), Signals::NONE, edge);
            let (Some(from), Some(to)) = (moved(&first.power), moved(&last.power)) else { continue };
            // The readings between only disturb, or not: the counter's difference is what is compared.
            let _ = middle;
            let seconds = (to.0 - from.0).as_secs_f64();
            watts[place].push(to.1.saturating_sub(from.1) as f64 / 1e3 / seconds.max(1e-9));
        }
    }
    burnt(burning)?;
    if !started {
        return Err("the load was not seen to start".to_owned());
    }
    let means: Vec<Option<f64>> =
        watts.iter().map(|w| (!w.is_empty()).then(|| w.iter().sum::<f64>() / w.len() as f64)).collect();
    let known: Vec<f64> = means.iter().copied().flatten().collect();
    let (Some(most), Some(least)) =
        (known.iter().copied().reduce(f64::max), known.iter().copied().reduce(f64::min))
    else {
        return Err("the energy counter does not move".to_owned());
    };
    let spread = (most - least) / least.max(1e-9);
    let rates: Vec<Value> = EVERY_MS
        .iter()
        .zip(means)
        .zip(watts)
        .map(|((every, mean), each)| json!({ "every_ms": every, "watts": mean, "each": each }))
        .collect();
    Ok((
        values(json!({ "rates": rates, "spread": spread, "independent_of_rate": spread < 0.01 })),
        Vec::new(),
    ))
}

/// The last reading at which the counter had moved.
fn moved(samples: &[PowerSample]) -> Option<(Nanos, u64)> {
    let readings: Vec<(Nanos, u64)> = samples.iter().filter_map(|s| Some((s.at, s.energy_mj?))).collect();
    readings.windows(2).rev().find(|pair| pair[1].1 > pair[0].1).map(|pair| pair[1])
}

/// Waits until power has risen, some seconds at most: the child has to start and to open the GPU.
fn wait_for_load(bench: &mut Bench) -> bool {
    let idle = bench.idle_watts.unwrap_or(0.0);
    let until = bench.clock.monotonic() + bench.time(20.0).max(Nanos::from_secs(3));
    while bench.clock.monotonic() < until {
        let series = bench.watch(Nanos::from_millis(10), Signals::NONE, Nanos::from_millis(50));
        let draws =
            |sample: &PowerSample| sample.instant_mw.or(sample.average_mw).map(|mw| f64::from(mw) / 1e3);
        if series.power.iter().filter_map(draws).any(|watts| watts > idle * 1.2) {
            // The slow average is not looked at, but clocks and power settle.
            std::thread::sleep(bench.time(2.0).to_duration());
            return true;
        }
    }
    false
}

/// Step 4: what each method makes of a load that switches, in step with the sensor's period and out of it.
pub(super) fn squares(bench: &mut Bench) -> Outcome {
    let mut loads = Vec::new();
    for (on, off) in [(50, 50), (57, 73), (30, 70)] {
        let (on, off) = (Nanos::from_millis(on), Nanos::from_millis(off));
        let length = bench.time(10.0).max(Nanos::from_millis(800));
        let (series, burnt) =
            bench.watched(Burn { length, on: Some(on), off, ..Burn::default() }, Signals::NONE)?;
        let (Some(&(first, _)), Some(&(_, last))) = (burnt.bursts.first(), burnt.bursts.last()) else {
            return Err("the load did not run".to_owned());
        };
        // Without the first second, which the average still remembers as idle, where that leaves something.
        let lead = Nanos((last - first).0 / 4).min(Nanos::from_millis(1100));
        let window = Window { from: first + lead, to: last };
        let mut watts = Map::new();
        for (name, samples) in METHODS.iter().zip(apart(&series.power)) {
            watts.insert((*name).to_owned(), json!(bench.energy(&samples, window).mean_power_watts));
        }
        loads.push(json!({
            "on_ms": on.as_secs_f64() * 1e3, "off_ms": off.as_secs_f64() * 1e3,
            "share_on": share(&burnt, window), "seconds": window.seconds(), "watts": watts,
        }));
    }
    Ok((values(json!({ "loads": loads, "idle_watts": bench.idle_watts })), Vec::new()))
}

/// The share of a window in which kernels ran.
fn share(burnt: &Burnt, window: Window) -> f64 {
    let inside = |&(from, to): &(Nanos, Nanos)| (to.min(window.to) - from.max(window.from)).as_secs_f64();
    burnt.bursts.iter().map(inside).sum::<f64>() / window.seconds().max(1e-9)
}

/// Step 5: how long after the load each signal is half way from what it was to what it becomes.
pub(super) fn lags(bench: &mut Bench) -> Outcome {
    let half = bench.time(5.0).max(Nanos::from_millis(500));
    let burn = Burn { length: Nanos(half.0 * 6), on: Some(half), off: half, ..Burn::default() };
    let (series, burnt) = bench.watched(burn, Signals::of(&[Signal::Utilisation, Signal::SmClock]))?;
    type Points = Vec<(Nanos, f64)>;
    let power = |read: fn(&PowerSample) -> Option<u32>| -> Points {
        series.power.iter().filter_map(|s| Some((s.at, f64::from(read(s)?)))).collect()
    };
    let slow = |read: fn(&common::telemetry::GpuSample) -> Option<u32>| -> Points {
        series.slow.iter().filter_map(|s| Some((s.at, f64::from(read(s)?)))).collect()
    };
    let signals: [(&str, Points); 5] = [
        ("counter", rates(&series.power)),
        ("instant_power", power(|s| s.instant_mw)),
        ("average_power", power(|s| s.average_mw)),
        ("utilisation", slow(|s| s.utilisation_percent)),
        ("sm_clock", slow(|s| s.sm_clock_mhz)),
    ];
    let mut found = Map::new();
    for (name, points) in signals {
        let rises: Vec<f64> =
            burnt.bursts.iter().filter_map(|&(at, _)| crossing(&points, at, half)).collect();
        let falls: Vec<f64> =
            burnt.bursts.iter().filter_map(|&(_, at)| crossing(&points, at, half)).collect();
        found.insert(name.to_owned(), json!({ "rise_seconds": rises, "fall_seconds": falls }));
    }
    Ok((values(json!({ "signals": found, "half_period_seconds": half.as_secs_f64() })), Vec::new()))
}

/// Mean power between two steps of the counter, at the later one.
fn rates(samples: &[PowerSample]) -> Vec<(Nanos, f64)> {
    let mut moves: Vec<(Nanos, u64)> = Vec::new();
    for (at, energy) in samples.iter().filter_map(|s| Some((s.at, s.energy_mj?))) {
        if moves.last().is_none_or(|last| energy > last.1) {
            moves.push((at, energy));
        }
    }
    let rate = |pair: &[(Nanos, u64)]| {
        let seconds = (pair[1].0 - pair[0].0).as_secs_f64().max(1e-9);
        (pair[1].0, (pair[1].1 - pair[0].1) as f64 / seconds)
    };
    moves.windows(2).map(rate).collect()
}

/// From an instant at which the load changed to the crossing of the middle between the values before and after.
fn crossing(points: &[(Nanos, f64)], at: Nanos, within: Nanos) -> Option<f64> {
    let before = points.iter().rev().find(|point| point.0 <= at)?.1;
    let end = at + within;
    let after = points.iter().rev().find(|point| point.0 <= end && point.0 > at)?.1;
    // It did not move, or hardly.
    if (after - before).abs() < before.abs().max(after.abs()) * 0.1 {
        return None;
    }
    let middle = before.midpoint(after);
    let crossed = |point: &&(Nanos, f64)| point.0 > at && (point.1 >= middle) == (after >= middle);
    Some((points.iter().find(crossed)?.0 - at).as_secs_f64())
}

/// Step 7: what the GPU can do, for the record.
pub(super) fn ceilings(bench: &mut Bench) -> Outcome {
    let length = bench.time(6.0).max(Nanos::from_millis(200));
    let of = |load: Load| -> Result<f64, String> {
        let burning = bench.burn(Burn { load, length, ..Burn::default() })?;
        Ok(burnt(burning)?.per_second)
    };
    let (compute, read) = (of(Load::Compute)?, of(Load::Read)?);
    Ok((values(json!({ "fp32_tflops": compute / 1e12, "read_gb_per_second": read / 1e9 })), Vec::new()))
}

/// Step 8: whether a load is slower while it is looked at, and what looking costs this host.
pub(super) fn observer(bench: &mut Bench) -> Outcome {
    const EVERY_MS: [Option<u64>; 3] = [None, Some(20), Some(5)];
    let length = bench.time(5.0).max(Nanos::from_millis(200));
    let mut speeds: Vec<Vec<f64>> = vec![Vec::new(); EVERY_MS.len()];
    let mut cpu: Vec<Vec<f64>> = vec![Vec::new(); EVERY_MS.len()];
    for place in (0..EVERY_MS.len()).chain((0..EVERY_MS.len()).rev()) {
        let sampler = EVERY_MS[place].map(|every| {
            let mut config = Config::new(bench.source.another(), Arc::new(|| None));
            config.interval = Some(Nanos::from_millis(every));
            Sampler::start(config, Arc::clone(&bench.clock))
        });
        let (began, used) = (bench.clock.monotonic(), cpu_time());
        let burning = bench.burn(Burn { length, ..Burn::default() })?;
        while !burning.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let _ = sampler.as_ref().and_then(|sampler| sampler.records.take(std::time::Duration::ZERO));
        }
        cpu[place].push((cpu_time() - used) / (bench.clock.monotonic() - began).as_secs_f64().max(1e-9));
        if let Some(sampler) = sampler {
            sampler.stop(std::time::Duration::from_secs(2));
        }
        speeds[place].push(burnt(burning)?.per_second);
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let alone = mean(&speeds[0]);
    let each: Vec<Value> = (0..EVERY_MS.len())
        .map(|place| {
            json!({
                "every_ms": EVERY_MS[place],
                "slower": 1.0 - mean(&speeds[place]) / alone,
                "agent_cpu_share_of_a_core": mean(&cpu[place]),
            })
        })
        .collect();
    Ok((values(json!({ "readings": each })), Vec::new()))
}

/// CPU time of this process, seconds.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
