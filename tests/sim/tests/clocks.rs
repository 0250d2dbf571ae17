//! Hosts whose clocks disagree measure what one host does.

// Clippy allows it in tests; to it a helper beside them is none.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use sim::clock::SimClock;
use sim::world::run_on;

const SECOND: u64 = 1_000_000_000;

/// An undisturbed run by agents with these clocks: seconds ahead of the coordinator's at the beginning, parts in a million
/// by which they run fast.
fn report(clocks: &[(u64, i64)]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let out: &Path = folder.path();
    let clock = |ahead: u64, ppm| Arc::new(SimClock::new((10_000 + ahead) * SECOND, ppm));
    let agents = clocks.iter().map(|&(ahead, ppm)| clock(ahead, ppm)).collect();
    let found = run_on(5, Vec::new(), out, clock(0, 0), agents);
    assert_eq!(found.broken, Vec::<String>::new());
    serde_json::from_str(&std::fs::read_to_string(out.join("report.json")).unwrap()).unwrap()
}

/// Timers of the simulation go by the millisecond, and a request may be due in the middle of one.
const TIMER_S: f64 = 0.002;
/// And clocks run fast or slow by at most so much.
const PPM: f64 = 200e-6;

#[test]
fn two_hosts_apart_give_the_same_percentiles_as_one() {
    let (one, two) = (report(&[(0, 0)]), report(&[(0, -100), (180, 100)]));
    let trials = |report: &Value| report["trials"].as_array().unwrap().clone();
    let (one, two) = (trials(&one), trials(&two));
    assert_eq!((one.len(), two.len()), (2, 2));
    for (one, two) in one.iter().zip(&two) {
        assert_eq!(one["schedule_sha256"], two["schedule_sha256"]);
        for metric in ["ttft", "e2e", "tpot"] {
            for percentile in ["p50", "p90", "p99", "max"] {
                let of = |t: &Value| t["summary"]["latency_seconds"][metric][percentile].as_f64().unwrap();
                let (a, b) = (of(one), of(two));
                assert!((a - b).abs() <= TIMER_S + a * PPM, "{metric} {percentile}: {a} by one, {b} by two");
            }
        }
        let agents = two["summary"]["agents"].as_array().unwrap();
        let offsets: Vec<f64> = agents.iter().map(|a| a["clock_offset_seconds"].as_f64().unwrap()).collect();
        assert!(offsets[0].abs() < 1.0 && (offsets[1] - 180.0).abs() < 1.0, "{offsets:?}");
        // That the bound holds the true offset is judged in every run.
        let bounds = agents.iter().map(|a| a["clock_bound_seconds"].as_f64().unwrap());
        assert!(bounds.into_iter().all(|b| b < 0.1), "{agents:?}");
    }
}
