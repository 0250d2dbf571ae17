//! Windows of GPUs, hosts and engines against closed forms.

use super::*;
use crate::telemetry::energy::sensor::{Load, Sensor, instant, window};
use crate::telemetry::energy::{EnergyFlags, Method};
use crate::telemetry::{
    EngineHistogram, EngineSample, Event, EventKind, GpuInfo, GpuProcesses, GpuSample, HostSample,
    PowerSample,
};

fn gpu(uuid: &str, used_by_engine: Option<bool>) -> GpuInfo {
    let limit_enforced_mw = Some(700_000);
    GpuInfo {
        uuid: uuid.into(),
        name: "H200".into(),
        limit_enforced_mw,
        used_by_engine,
        ..GpuInfo::default()
    }
}

fn power(position: u8, load: Load, to: f64) -> Vec<Record> {
    let samples = Sensor::new(load).polls(0.0, to, 0.020).into_iter();
    samples.map(|s| Record::Power(PowerSample { gpu: position, ..s })).collect()
}

/// A slow sample every 200 ms.
fn slow(position: u8, to: f64, fill: impl Fn(f64) -> GpuSample) -> Vec<Record> {
    let times = (0..).map(|i| f64::from(i) * 0.2).take_while(|&t| t <= to);
    times.map(|t| Record::Gpu(GpuSample { gpu: position, at: instant(t), ..fill(t) })).collect()
}

fn seconds(s: f64) -> Option<Nanos> {
    Some(Nanos::from_secs_f64(s))
}

fn close(value: Option<f64>, to: f64, within: f64) -> bool {
    value.is_some_and(|v| (v - to).abs() <= within)
}

/// One GPU, 20 s from 2 s on.
fn one(records: &[Record], idle: &[(&str, f64)]) -> (GpuWindow, TelemetryWindow) {
    let agent = "a".parse().unwrap();
    let from = AgentRecords { agent: &agent, records, window: window(2.0, 22.0), clock_bound: None };
    let idle = idle.iter().map(|&(uuid, watts)| (uuid.to_owned(), watts)).collect();
    let all = TelemetryWindow::of(&[from], &idle);
    (all.agents[0].gpus[0].clone(), all)
}

#[test]
fn a_gpu_is_told_whole() {
    let mut records = vec![Record::Inventory(vec![gpu("GPU-a", Some(true))])];
    // 690 W for 6 s of every 10: at the limit for 12 of the 20 s, less what the average takes to get there.
    records.extend(power(
        0,
        Load::Square { low: 200.0, high: 690.0, period: 10.0, duty: 0.6, phase: 2.0 },
        24.0,
    ));
    records.extend(slow(0, 24.0, |t| GpuSample {
        memory_used_bytes: Some(if t < 12.1 { 100 } else { 140 } << 30),
        utilisation_percent: Some(if t < 3.9 { 0 } else { 100 }),
        sm_clock_mhz: Some(1_980),
        temperature_c: Some(40 + t as u32),
        throttle_reasons: Some(if t < 12.1 { 0x4 } else { 0x201 }),
        power_throttled: seconds(100.0 + 0.25 * t),
        thermal_throttled: seconds(7.0),
        ecc_corrected: Some(if t < 10.1 { 5 } else { 8 }),
        pcie_sent_bytes: Some((1e12 + 1e9 * t) as u64),
        nvlink_received_bytes: Some((2e9 * t) as u64),
        ..GpuSample::default()
    }));
    let xid = |at, code| Event {
        at: instant(at),
        gpu: Some(0),
        kind: EventKind::Xid,
        code,
        message: String::new(),
    };
    let xids = [xid(1.0, Some(79)), xid(5.0, Some(13)), xid(6.0, Some(13)), xid(7.0, None)];
    records.extend(xids.map(Record::Event));
    let foreign = Some(vec![71, 72]);
    records.push(Record::Processes(GpuProcesses {
        gpu: 0,
        at: instant(9.0),
        foreign,
        ..GpuProcesses::default()
    }));
    let (g, all) = one(&records, &[("GPU-a", 70.0)]);

    assert_eq!((g.uuid.as_str(), g.complete, g.incomplete.len()), ("GPU-a", true, 0));
    assert!(close(g.energy.joules, 12.0 * 690.0 + 8.0 * 200.0, 20.0), "{:?}", g.energy);
    assert!(close(g.energy_above_idle_joules, g.energy.joules.unwrap() - 1400.0, 1e-6));
    assert_eq!((g.energy.method, g.energy.flags), (Method::Counter, EnergyFlags::default()));
    assert_eq!((g.average_power.p95_watts, g.average_power.peak_watts), (Some(690.0), Some(690.0)));
    assert!(close(g.average_power.p50_watts, 690.0, 30.0), "{:?}", g.average_power);
    assert!(close(g.average_power.mean_watts, 494.0, 5.0) && g.instant_power_peak_watts == Some(690.0));
    assert_eq!((g.limit_watts, g.limit_changed), (Some(700.0), None));
    assert!(
        close(g.headroom_min, 1.0 - 690.0 / 700.0, 1e-9) && close(g.headroom_mean, 1.0 - 494.0 / 700.0, 0.01)
    );
    // 12 s, less the second that each rise and fall blurs on the inner side.
    assert!(close(g.at_limit_seconds, 10.0, 0.5), "{:?}", g.at_limit_seconds);
    assert!(close(g.power_throttled_seconds, 5.0, 1e-6) && g.thermal_throttled_seconds == Some(0.0));
    assert_eq!((g.memory_min_bytes, g.memory_peak_bytes), (Some(100 << 30), Some(140 << 30)));
    assert_eq!((g.utilisation_p50_percent, g.sm_clock_p5_mhz), (Some(100.0), Some(1_980.0)));
    let temperatures = (g.temperature_start_c, g.temperature_end_c, g.temperature_peak_c);
    assert!(matches!(temperatures, (Some(s), Some(e), Some(p)) if s <= 42.0 && e >= 61.0 && p == e));
    assert_eq!((g.memory_temperature_peak_c, g.ecc_corrected, g.ecc_uncorrected), (None, Some(3), None));
    assert!(close(g.pcie_sent_bytes, 2e10, 1e3) && g.pcie_received_bytes.is_none());
    assert!(close(g.nvlink_received_bytes, 4e10, 1e3) && g.nvlink_sent_bytes.is_none());
    assert_eq!((g.xid_errors, g.xid_codes), (Some(3), [(13, 2)].into()));
    assert_eq!(g.foreign_processes, Some(2));
    let names: Vec<&str> = g.reasons.keys().map(String::as_str).collect();
    assert_eq!(names, ["bit_9", "gpu_idle", "sw_power_cap"]);
    assert_eq!(g.reasons["sw_power_cap"] + g.reasons["gpu_idle"], g.reasons_samples);
    assert!((100..=101).contains(&g.samples) && (999..=1001).contains(&g.power_samples));
    assert_eq!((all.boundary.as_str(), all.totals.gpus_with_foreign_processes), (BOUNDARY, Some(1)));
    assert_eq!((all.totals.energy_joules, all.totals.complete), (g.energy.joules, true));
}

#[test]
fn a_gpu_that_tells_nothing_has_no_numbers() {
    let records = [
        Record::Inventory(vec![gpu("GPU-a", None)]),
        Record::Power(PowerSample { at: instant(5.0), ..PowerSample::default() }),
    ];
    let (g, all) = one(&records, &[("GPU-a", 70.0)]);
    assert_eq!(g.incomplete, [Incomplete::NoEnergy, Incomplete::NoSamples]);
    let json = serde_json::to_value(&g).unwrap();
    let told = [
        "uuid",
        "name",
        "limit_watts",
        "idle_watts",
        "energy",
        "average_power",
        "reasons",
        "xid_codes",
        "power_readings_per_second",
        "absent",
        "complete",
        "incomplete",
    ];
    for (name, value) in json.as_object().unwrap() {
        let counts = name.ends_with("samples");
        assert!(value.is_null() || counts || told.contains(&name.as_str()), "{name} is {value}");
    }
    assert_eq!(
        (all.totals.energy_joules, all.totals.gpus_without_energy, all.totals.complete),
        (None, 1, false)
    );
    assert_eq!(
        all.efficiency(&Counts { output_tokens: Some(5), ..Counts::default() }),
        Efficiency::default()
    );
    // And a host without any has no sum of them: not 0 J.
    let agent = "a".parse().unwrap();
    let none = AgentRecords { agent: &agent, records: &[], window: window(2.0, 22.0), clock_bound: None };
    let all = TelemetryWindow::of(&[none], &BTreeMap::new());
    assert_eq!((all.totals.energy_joules, all.totals.gpus, all.totals.complete), (None, 0, false));
    assert!(all.agents[0].host.is_none() && all.agents[0].engine.is_none());
}

#[test]
fn a_window_that_was_not_seen_whole_says_why() {
    let whole = |lost: std::ops::Range<f64>, epoch: f64| -> Vec<Record> {
        let mut records = vec![Record::Inventory(vec![gpu("GPU-a", Some(true))])];
        records.extend(power(0, Load::Constant(300.0), 24.0));
        records.extend(slow(0, 24.0, |_| GpuSample::default()));
        records.retain(|r| r.at().is_none_or(|at| at <= instant(lost.start) || at >= instant(lost.end)));
        let raise = |r: &mut Record| {
            if let Record::Power(s) = r {
                s.epoch += u16::from(s.at > instant(epoch));
            }
        };
        records.iter_mut().for_each(raise);
        records
    };
    let seen = |records: &[Record]| one(records, &[]).0;
    assert!(seen(&whole(0.0..0.0, 99.0)).complete);
    let lost = seen(&whole(9.0..11.0, 99.0));
    assert_eq!(
        (lost.complete, &lost.incomplete[..]),
        (false, &[Incomplete::EnergyGap, Incomplete::SampleGap][..])
    );
    assert!(lost.energy.flags.gap && close(lost.largest_sample_gap_seconds, 2.0, 0.3));
    // A new epoch: the counter is not used, and what was before and after cannot be proven whole.
    let epoch = seen(&whole(0.0..0.0, 12.0));
    assert_eq!(
        (epoch.energy.method, &epoch.incomplete[..]),
        (Method::AveragePower, &[Incomplete::EpochChanged][..])
    );
    let mut records = whole(0.0..0.0, 99.0);
    let event =
        |gpu| Event { at: instant(4.0), gpu, kind: EventKind::Lost, code: None, message: String::new() };
    records.push(Record::Event(event(None)));
    assert_eq!(seen(&records).incomplete, [Incomplete::Lost]);
    // Without an inventory the numbers are there, of nobody knows what.
    let unknown = seen(&whole(0.0..0.0, 99.0)[1..]);
    assert_eq!(
        (unknown.uuid.as_str(), &unknown.incomplete[..]),
        ("unknown-0", &[Incomplete::NoInventory][..])
    );
    assert!(close(unknown.energy.joules, 6000.0, 1.0) && unknown.headroom_mean.is_none());
}

/// The GPUs of a host change places when one of them is lost: a sample is of the GPU that had its place then.
#[test]
fn a_sample_is_of_the_gpu_that_had_its_position() {
    let (a, b) = (gpu("GPU-a", Some(true)), gpu("GPU-b", Some(false)));
    let mut records = vec![Record::Inventory(vec![a, b.clone()])];
    let (first, second) = (power(0, Load::Constant(300.0), 24.0), power(1, Load::Constant(100.0), 24.0));
    let cut = |at: f64| move |r: &&Record| r.at() > Some(instant(at));
    let early = |records: &[Record]| records.iter().filter(|r| !cut(12.0)(r)).cloned().collect::<Vec<_>>();
    records.extend(early(&second));
    // GPU-a is gone for good.
    records.extend(early(&first));
    records.push(Record::Inventory(vec![GpuInfo { used_by_engine: Some(true), ..b }]));
    records.extend(second.iter().filter(cut(12.0)).map(|r| {
        let Record::Power(s) = r else { unreachable!("only power was made") };
        Record::Power(PowerSample { gpu: 0, ..*s })
    }));
    let (_, all) = one(&records, &[]);
    let joules = |i: usize| all.agents[0].gpus[i].energy.joules;
    assert!(joules(0).is_none() && close(joules(1), 2000.0, 1.0), "{all:?}");
    assert_eq!((all.agents[0].gpus.len(), all.totals.gpus), (2, 2));
}

#[test]
fn only_the_engines_gpus_are_summed_and_each_once() {
    let host = |uses: [Option<bool>; 3], loads: [f64; 3]| -> Vec<Record> {
        let names = ["GPU-a", "GPU-b", "GPU-c"];
        let inventory = names.iter().zip(uses).map(|(name, used)| gpu(name, used)).collect();
        let mut records = vec![Record::Inventory(inventory)];
        for (i, watts) in (0u8..).zip(loads) {
            records.extend(power(i, Load::Constant(watts), 24.0));
            records.extend(slow(i, 24.0, |_| GpuSample::default()));
        }
        records
    };
    let (known, unknown) = (
        host([Some(true), Some(false), Some(true)], [300.0, 90.0, 400.0]),
        host([None; 3], [300.0, 90.0, 400.0]),
    );
    let idle = [("GPU-a", 70.0), ("GPU-c", 80.0)];
    let (_, all) = one(&known, &idle);
    let t = &all.totals;
    assert!(close(t.energy_joules, 14_000.0, 2.0) && close(t.energy_above_idle_joules, 11_000.0, 2.0));
    assert!(close(t.mean_power_watts, 700.0, 0.1) && t.limit_watts == Some(1_400.0) && t.complete);
    assert!(close(t.edge_error_joules, 70.0, 0.5) && t.methods == [Method::Counter]);
    assert_eq!((t.gpus, t.gpus_left_out, t.gpus_of_unknown_use), (2, 1, 0));

    let (_, all) = one(&unknown, &idle);
    assert_eq!((all.totals.gpus, all.totals.gpus_left_out, all.totals.gpus_of_unknown_use), (3, 0, 3));
    assert!(close(all.totals.energy_joules, 15_800.0, 2.0));
    assert_eq!(all.totals.energy_above_idle_joules, None, "the idle power of one is not known");

    // Two agents of one host, one of which lost a stretch: three GPUs, by who saw them whole.
    let lost: Vec<Record> = known
        .iter()
        .filter(|r| r.at().is_none_or(|at| at < instant(6.0) || at > instant(9.0)))
        .cloned()
        .collect();
    let (x, y) = ("x".parse().unwrap(), "y".parse().unwrap());
    let of = |agent, records| AgentRecords { agent, records, window: window(2.0, 22.0), clock_bound: None };
    let all = TelemetryWindow::of(&[of(&x, &lost), of(&y, &known)], &BTreeMap::new());
    assert_eq!((all.agents[0].gpus.len(), all.totals.gpus, all.totals.complete), (3, 2, true));
    assert!(close(all.totals.energy_joules, 14_000.0, 2.0));
    let text = serde_json::to_string(&all).unwrap();
    assert_eq!(serde_json::from_str::<TelemetryWindow>(&text).unwrap(), all);
}

#[test]
fn efficiency_is_energy_over_what_was_made() {
    let agent = "a".parse().unwrap();
    let none = AgentRecords { agent: &agent, records: &[], window: window(2.0, 22.0), clock_bound: None };
    let mut all = TelemetryWindow::of(&[none], &BTreeMap::new());
    all.totals.energy_joules = Some(6_000.0);
    let e = all.efficiency(&Counts {
        output_tokens: Some(12_000),
        total_tokens: Some(24_000),
        requests: Some(60),
        good_requests: Some(30),
        all_requests: 80,
        counted_requests: 60,
    });
    assert_eq!(e.requests_without_tokens_share, Some(0.25));
    assert_eq!((e.joules_per_output_token, e.joules_per_total_token), (Some(0.5), Some(0.25)));
    assert_eq!((e.joules_per_request, e.joules_per_good_request), (Some(100.0), Some(200.0)));
    // 30 good in 20 s at 300 W: 1.5 a second.
    assert!(close(e.goodput_per_watt, 1.5 / 300.0, 1e-12));
    assert_eq!(
        all.efficiency(&Counts { output_tokens: Some(0), requests: None, ..Counts::default() }),
        Efficiency::default()
    );
    all.totals.energy_joules = None;
    assert_eq!(
        all.efficiency(&Counts { output_tokens: Some(5), ..Counts::default() }),
        Efficiency::default()
    );
}

#[test]
fn a_host_is_differences_of_its_counters() {
    let sample = |t: f64| HostSample {
        at: instant(t),
        cpu_busy_seconds: Some(1e6 + 4.0 * t),
        cpu_total_seconds: Some(5e6 + 16.0 * t),
        steal_seconds: Some(3.0 + 0.16 * t),
        agent_cpu_seconds: Some(0.5 * t),
        agent_open_files: Some(if t < 9.0 { 40 } else { 30 }),
        memory_available_bytes: Some(if t < 9.0 { 9 << 30 } else { 7 << 30 }),
        network_sent_bytes: Some((1e9 + 1e6 * t) as u64),
        ..HostSample::default()
    };
    // Every second, never at an edge of the window.
    let mut samples: Vec<HostSample> = (0..30).map(|i| sample(f64::from(i) + 0.37)).collect();
    samples.reverse();
    let h = HostWindow::of(&samples, window(2.0, 22.0)).unwrap();
    assert!(close(h.cpu_share, 0.25, 1e-6) && close(h.steal_share, 0.01, 1e-6));
    assert!(close(h.agent_cpu_cores, 0.5, 1e-6) && close(h.network_sent_bytes_per_second, 1e6, 1.0));
    assert_eq!((h.agent_open_files_peak, h.memory_available_min_bytes), (Some(40), Some(7 << 30)));
    assert_eq!(
        (h.engine_cpu_cores, h.engine_processes_peak, h.network_received_bytes_per_second),
        (None, None, None)
    );
    assert_eq!(h.samples, 20);
    assert!((h.largest_gap_seconds - 1.0).abs() < 1e-6);
    // Sampling that ended long before the window did: no rate, rather than a low one.
    let h = HostWindow::of(&samples[15..], window(2.0, 22.0)).unwrap();
    assert_eq!((h.cpu_share, h.agent_cpu_cores), (None, None));
    assert_eq!(HostWindow::of(&samples, window(50.0, 60.0)), None);
}

fn histogram(sum: f64, count: f64, buckets: &[(f64, f64)]) -> EngineHistogram {
    EngineHistogram { sum, count, buckets: buckets.to_vec() }
}

#[test]
fn an_engine_is_gauges_over_time_and_differences_of_counters() {
    let sample = |t: f64| EngineSample {
        at: instant(t),
        running: Some(10.0 + t),
        waiting: Some(if t > 20.0 { 7.0 } else { 0.0 }),
        kv_cache_usage: Some(t / 100.0),
        prefix_queries: Some(1e6 + 200.0 * t),
        prefix_hits: Some(1e5 + 50.0 * t),
        preemptions: Some(3.0),
        generated_tokens: Some(1e6 + 1_000.0 * t),
        ttft: Some(histogram(80.0 + 0.5 * t, 900.0 + 5.0 * t, &[])),
        queue_time: Some(histogram(80.0, 900.0, &[])),
        ..EngineSample::default()
    };
    let samples: Vec<EngineSample> = (0..50).map(|i| sample(f64::from(i) / 2.0 + 0.123)).collect();
    let w = window(2.0, 22.0);
    let e = EngineWindow::of(&samples, w).unwrap();
    assert!(close(e.running_mean, 22.0, 1e-6) && close(e.running_peak, 31.623, 1e-6));
    assert!(close(e.waiting_peak, 7.0, 0.0) && close(e.waiting_mean, 0.7, 0.1));
    assert!(close(e.kv_cache_usage_mean, 0.12, 1e-6) && close(e.prefix_hit_rate, 0.25, 1e-6));
    assert!(close(e.generated_tokens, 20_000.0, 1e-3) && e.preemptions == Some(0.0));
    assert!(close(e.ttft_mean_seconds, 0.1, 1e-6) && !e.restarted && e.scrapes == 40);
    // Nothing waited in a queue in the window: there is no mean, and no mean of what was never told.
    assert_eq!((e.queue_time_mean_seconds, e.e2e_mean_seconds, e.prompt_tokens), (None, None, None));

    let again = |s: &EngineSample| match s.generated_tokens {
        Some(n) if s.at > instant(12.0) => {
            EngineSample { generated_tokens: Some(n - 1e6 - 11_000.0), ..s.clone() }
        }
        _ => s.clone(),
    };
    let e = EngineWindow::of(&samples.iter().map(again).collect::<Vec<_>>(), w).unwrap();
    assert!(e.restarted && e.running_mean.is_some());
    assert_eq!(
        (e.generated_tokens, e.preemptions, e.ttft_mean_seconds, e.prefix_hit_rate),
        (None, None, None, None)
    );
    // A restart before the window is none of its business.
    let e = EngineWindow::of(&samples.iter().map(again).collect::<Vec<_>>(), window(14.0, 22.0)).unwrap();
    assert!(!e.restarted && close(e.generated_tokens, 8_000.0, 1e-3));
    assert_eq!(EngineWindow::of(&samples, window(50.0, 60.0)), None);
}

/// Who uses a GPU is what the inventories of the window say: an engine that is started again after it uses none for a
/// while, and one that was there for a part of it was there.
#[test]
fn what_an_inventory_after_the_window_says_is_not_of_the_window() {
    let info = |used| GpuInfo { uuid: "GPU-a".into(), used_by_engine: used, ..GpuInfo::default() };
    let at = |second: f64, watts: u32| {
        Record::Power(PowerSample {
            at: instant(second),
            average_mw: Some(watts * 1000),
            ..PowerSample::default()
        })
    };
    let used = |inventories: [Option<bool>; 4]| {
        let [before, first, second, after] = inventories.map(|used| Record::Inventory(vec![info(used)]));
        let records = [
            before,
            at(1.0, 100),
            at(3.0, 100),
            first,
            at(5.0, 100),
            second,
            at(21.0, 100),
            at(23.0, 100),
            after,
        ];
        let (g, _) = one(&records, &[]);
        g.used_by_engine
    };
    let (yes, no) = (Some(true), Some(false));
    assert_eq!(used([yes, yes, yes, no]), yes);
    assert_eq!(used([no, no, no, yes]), no);
    assert_eq!(used([None, None, yes, None]), yes);
    assert_eq!(used([no, yes, no, no]), yes, "for a part of it");
    assert_eq!(used([yes, None, None, no]), yes, "it was known when the window began");
    assert_eq!(used([None, None, None, yes]), None);
}

/// A scrape every half second, its histograms `of` the time.
fn scrapes(of: impl Fn(f64) -> EngineSample) -> Vec<EngineSample> {
    (0..50).map(|i| f64::from(i) / 2.0 + 0.123).map(|t| EngineSample { at: instant(t), ..of(t) }).collect()
}

/// 900 before, and `per_second` times a second; of those the given shares in the buckets.
fn steady(t: f64, per_second: f64, shares: [f64; 4]) -> EngineHistogram {
    let below = |share: f64| 900.0 + share * per_second * t;
    let bounds = [0.1, 0.2, 0.5, 1.0].into_iter();
    histogram(t, below(1.0), &bounds.zip(shares.map(below)).collect::<Vec<_>>())
}

#[test]
fn percentiles_are_linear_within_a_bucket() {
    let samples = scrapes(|t| EngineSample {
        // A quarter each below 0.1, 0.2, 0.5 and 1.
        ttft: Some(steady(t, 5.0, [0.25, 0.5, 0.75, 1.0])),
        // Nine in ten below 0.1, and two in a hundred above all bounds.
        queue_time: Some(steady(t, 5.0, [0.9, 0.9, 0.95, 0.98])),
        e2e: Some(histogram(t, t, &[])),
        ..EngineSample::default()
    });
    let e = EngineWindow::of(&samples, window(2.0, 22.0)).unwrap();
    assert!(close(e.ttft_p50_seconds, 0.2, 1e-6), "{e:?}");
    assert!(close(e.ttft_p99_seconds, 0.5 + 0.5 * 0.24 / 0.25, 1e-6), "{e:?}");
    // The first bucket begins at 0, and how far above the last bound something lies nobody says.
    assert!(close(e.queue_time_p50_seconds, 0.1 * 0.5 / 0.9, 1e-6), "{e:?}");
    assert_eq!((e.queue_time_p99_seconds, e.restarted), (None, false));
    // A summary has means only.
    assert!(close(e.e2e_mean_seconds, 1.0, 1e-6));
    assert_eq!((e.e2e_p50_seconds, e.e2e_p99_seconds), (None, None));
}

#[test]
fn percentiles_are_of_whole_times_and_of_known_buckets() {
    // A tenth of a time in the window is what interpolation made of one beside it; a bucket that is empty is skipped.
    let samples = scrapes(|t| EngineSample {
        ttft: Some(steady(t, 0.1 / 20.0, [0.25, 0.5, 0.75, 1.0])),
        queue_time: Some(steady(t, 1.0 / 20.0 + 1e-9, [0.0, 0.0, 0.0, 1.0])),
        ..EngineSample::default()
    });
    let e = EngineWindow::of(&samples, window(2.0, 22.0)).unwrap();
    assert_eq!((e.ttft_p50_seconds, e.ttft_p99_seconds), (None, None));
    assert!(close(e.queue_time_p50_seconds, 0.75, 1e-6), "{e:?}");
    // A bound that is told in half of the window only: then its bucket is one with the next.
    let samples = scrapes(|t| {
        let mut ttft = steady(t, 5.0, [0.25, 0.5, 0.75, 1.0]);
        ttft.buckets.retain(|b| b.0 != 0.2 || t < 12.0);
        EngineSample { ttft: Some(ttft), ..EngineSample::default() }
    });
    let e = EngineWindow::of(&samples, window(2.0, 22.0)).unwrap();
    assert!(close(e.ttft_p50_seconds, 0.3, 1e-6) && !e.restarted, "{e:?}");
}

#[test]
fn there_are_no_percentiles_over_a_restart() {
    let of = |t: f64| if t > 12.0 { t - 12.0 } else { 1e4 + t };
    let samples = scrapes(|t| EngineSample {
        ttft: Some(steady(of(t), 5.0, [0.25, 0.5, 0.75, 1.0])),
        ..EngineSample::default()
    });
    let e = EngineWindow::of(&samples, window(2.0, 22.0)).unwrap();
    assert!(e.restarted);
    assert_eq!((e.ttft_mean_seconds, e.ttft_p50_seconds, e.ttft_p99_seconds), (None, None, None));
    let after = EngineWindow::of(&samples, window(13.0, 22.0)).unwrap();
    assert!(!after.restarted && close(after.ttft_p50_seconds, 0.2, 1e-6), "{after:?}");
    // One bucket that went back shows it.
    let samples = scrapes(|t| EngineSample {
        ttft: Some(histogram(t, t, &[(0.1, if t > 12.0 { 3.0 } else { 4.0 })])),
        ..EngineSample::default()
    });
    assert!(EngineWindow::of(&samples, window(2.0, 22.0)).unwrap().restarted);
}
