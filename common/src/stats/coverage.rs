//! Do the intervals hold the truth? Queues whose mean, percentiles and attainment are known say so.
//!
//! The fast tests here run with the others. The table behind the choices in [`super::batches`] is printed by
//! `cargo test -p common --release --lib -- --ignored --nocapture coverage_table`.

use super::queues::*;
use super::*;

/// How often an interval was given, and how often it held the truth.
#[derive(Debug, Clone, Copy, Default)]
struct Coverage {
    trials: u32,
    given: u32,
    covered: u32,
}

impl Coverage {
    fn add(&mut self, interval: Interval, truth: f64) {
        self.trials += 1;
        self.given += u32::from(interval.ends().is_some());
        self.covered += u32::from(interval.covers(truth));
    }

    fn given(self) -> f64 {
        f64::from(self.given) / f64::from(self.trials)
    }

    fn covered(self) -> f64 {
        f64::from(self.covered) / f64::from(self.given.max(1))
    }
}

const NAMES: [&str; 5] = ["mean", "p99", "attainment 90%", "attainment 99%", "naive mean"];

/// The coverage of each of [`NAMES`] over `seeds` trials of `requests`.
fn coverage(queue: Queue, requests: usize, seeds: std::ops::Range<u64>) -> [Coverage; 5] {
    let mut found = [Coverage::default(); 5];
    let limits = [0.1, 0.01].map(|beyond| queue.sojourn_exceeded_by(beyond));
    for seed in seeds {
        let samples = queue.sojourns(requests, seed);
        let median = Distribution::of(samples.iter().map(|s| s.value).collect()).p50.unwrap();
        let batching = Batching::new(queue.length(requests), median, &samples);
        let share = |limit: f64| {
            let good = |s: &Observation| Observation { value: f64::from(u8::from(s.value <= limit)), ..*s };
            batching.share(&samples.iter().map(good).collect::<Vec<_>>())
        };
        found[0].add(batching.mean(&samples), queue.mean_sojourn());
        found[1].add(batching.percentile(&samples, 99.0), limits[1]);
        found[2].add(share(limits[0]), 0.9);
        found[3].add(share(limits[1]), 0.99);
        found[4].add(naive_mean(&samples), queue.mean_sojourn());
    }
    found
}

/// What is to be avoided: the interval of a mean as if requests were independent.
fn naive_mean(samples: &[Observation]) -> Interval {
    let n = samples.len() as f64;
    let mean = samples.iter().map(|s| s.value).sum::<f64>() / n;
    let variance = samples.iter().map(|s| (s.value - mean) * (s.value - mean)).sum::<f64>() / (n - 1.0);
    let half = 1.96 * (variance / n).sqrt();
    Interval::Known { low: mean - half, high: mean + half, batches: samples.len() as u32, lag1: 0.0 }
}

#[test]
fn intervals_hold_the_truth_and_naive_ones_do_not() {
    for (queue, requests) in [(MM1_50, 4_000), (MM1_70, 8_000)] {
        let [mean, _, attainment, _, naive] = coverage(queue, requests, 0..60);
        for (name, found) in [("mean", mean), ("attainment", attainment)] {
            // 60 trials of an interval that covers 95% fall below 85% about once in 500.
            assert!(found.covered() >= 0.85, "{name} at {queue:?}: {found:?}");
            assert!(found.given() >= 0.5, "{name} at {queue:?}: {found:?}");
        }
        assert!(naive.covered() < 0.6, "independence would have been as good: {naive:?}");
    }
}

#[test]
fn the_tail_holds_the_truth() {
    let [_, p99, _, attainment, _] = coverage(MM1_50, 10_000, 0..60);
    for (name, found) in [("p99", p99), ("attainment", attainment)] {
        assert!(found.covered() >= 0.85 && found.given() >= 0.5, "{name}: {found:?}");
    }
}

#[test]
fn a_trial_that_is_too_short_for_its_queue_gets_no_interval() {
    // Three relaxation times: no method could know.
    let [mean, p99, few, fewer, _] = coverage(MM1_90, 1_000, 0..100);
    for found in [mean, p99, few, fewer] {
        assert!(found.given() <= 0.02, "{found:?}");
    }
}

#[test]
#[ignore = "prints the table of the measured coverage; minutes, with --release"]
fn coverage_table() {
    println!("| queue | requests | L in relaxation times | {} |", NAMES.join(" | "));
    println!("| --- | --- | --- |{}", " --- |".repeat(NAMES.len()));
    for queue in [MM1_50, MM1_70, MM1_90, MM4_70, MM4_90] {
        for times in [30.0, 100.0, 200.0, 400.0, 1000.0] {
            let requests = (times * queue.relaxation() * queue.arrival_rate()) as usize;
            let cells = coverage(queue, requests, 0..1000)
                .map(|found| format!("{:.1}% of {:.1}%", found.covered() * 100.0, found.given() * 100.0));
            let Queue { servers, load } = queue;
            println!("| M/M/{servers} {:.0}% | {requests} | {times} | {} |", load * 100.0, cells.join(" | "));
        }
    }
}
