use super::*;
use crate::ids::Nanos;
use crate::plan::{Extent, Process, Rate};
use proptest::prelude::*;

fn plan(process: Process, rate: &str, extent: Extent) -> ArrivalPlan {
    ArrivalPlan { process, rate: rate.parse().unwrap(), extent }
}

fn at(s: &Schedule) -> Vec<u64> {
    s.arrivals.iter().map(|a| a.at.0).collect()
}

/// Golden values, computed by a second implementation (ChaCha8 by its definition, in another language): a recorded
/// seed must mean the same schedule for ever and on every platform.
#[test]
fn schedules_are_pinned() {
    let poisson = plan(Process::Poisson, "4", Extent::Requests(6));
    let s = Schedule::generate(&poisson, Seed(7), 5).unwrap();
    let rows: Vec<u32> = s.arrivals.iter().map(|a| a.row).collect();
    assert_eq!((at(&s), rows), golden_poisson());
    assert_eq!(s.digest.to_string(), GOLDEN_DIGEST);
    for (process, rate, expected) in golden_shapes() {
        let n = expected.len() as u64;
        let s = Schedule::generate(&plan(process, rate, Extent::Requests(n)), Seed(7), 5).unwrap();
        assert_eq!(at(&s), expected, "{process}");
    }
}

/// By the same second implementation; it finds the instants of a ramp by bisection of the integral of its rate. The
/// last ones of the ramp lie beyond its length of 2.4 s.
fn golden_shapes() -> [(Process, &'static str, Vec<u64>); 3] {
    let ramp = vec![
        0, 475346502, 1211955654, 1657496311, 1800820742, 1856482260, 2121556046, 2390482297, 2471827982,
        2713112838, 3319247003, 3352791728,
    ];
    [
        (Process::Gamma { cv: 2.0 }, "4", vec![0, 22916508, 131059915, 133452644, 133518678, 872957863]),
        (Process::Gamma { cv: 0.5 }, "4", vec![0, 221989033, 366956339, 489385354, 633979185, 797930712]),
        (Process::Ramp { to: rate(8.0) }, "2", ramp),
    ]
}

fn rate(per_second: f64) -> Rate {
    per_second.try_into().unwrap()
}

fn golden_poisson() -> (Vec<u64>, Vec<u32>) {
    (vec![0, 308283969, 1064989235, 1687277536, 1913833917, 2005280624], vec![3, 2, 0, 4, 1, 0])
}

const GOLDEN_DIGEST: &str = "460539d6fac4fa73b7ac25346610882ef7966452b852f889443be58db70c64c3";

#[test]
fn constant_and_burst_are_what_they_say() {
    let three = Extent::Requests(5);
    let constant = Schedule::generate(&plan(Process::Constant, "4", three), Seed(1), 1).unwrap();
    assert_eq!(at(&constant), [0, 250_000_000, 500_000_000, 750_000_000, 1_000_000_000]);
    let burst = Schedule::generate(&plan(Process::Burst { size: 2 }, "4", three), Seed(1), 1).unwrap();
    assert_eq!(at(&burst), [0, 0, 500_000_000, 500_000_000, 1_000_000_000]);
    let all = Schedule::generate(&plan(Process::Poisson, "inf", three), Seed(1), 1).unwrap();
    assert_eq!(at(&all), [0; 5]);
    let second = Extent::Duration(Nanos::from_secs(1));
    assert_eq!(
        Schedule::generate(&plan(Process::Constant, "4", second), Seed(1), 1).unwrap().arrivals.len(),
        4
    );
}

/// Gaps at rate 1 of 200,001 arrivals: those of a ramp after its integral has taken the rate out.
fn unit_gaps(process: Process) -> Vec<f64> {
    const N: u64 = 200_001;
    let p = plan(process, "100", Extent::Requests(N));
    let length = p.length().unwrap().as_secs_f64();
    let position = |t: f64| match process {
        Process::Ramp { to } => {
            let (from, to, until) = (100.0, to.per_second(), t.min(length));
            from * until + (to - from) * until * until / (2.0 * length) + to * (t - until)
        }
        _ => 100.0 * t,
    };
    let s = Schedule::generate(&p, Seed(3), 9).unwrap();
    let positions: Vec<f64> = s.arrivals.iter().map(|a| position(a.at.as_secs_f64())).collect();
    positions.windows(2).map(|w| w[1] - w[0]).collect()
}

/// P(gap < x) of a gamma distribution of mean 1, by the series of the incomplete gamma function (Abramowitz and
/// Stegun, 6.5.29).
fn gamma_cdf(cv: f64, x: f64) -> f64 {
    let shape = 1.0 / (cv * cv);
    let x = x * shape;
    let (mut term, mut sum, mut k) = (1.0 / shape, 1.0 / shape, shape);
    while term > sum * 1e-15 {
        k += 1.0;
        term *= x / k;
        sum += term;
    }
    if x > 0.0 { sum * (shape * x.ln() - x).exp() / libm::tgamma(shape) } else { 0.0 }
}

/// Every random process: the mean and the variation of its gaps, their distribution (Kolmogorov–Smirnov), that a gap
/// says nothing of the next one (lag-1 correlation), and how counts vary (index of dispersion).
#[test]
fn gaps_are_those_of_their_process() {
    for (process, cv) in [
        (Process::Poisson, 1.0),
        (Process::Gamma { cv: 0.5 }, 0.5),
        (Process::Gamma { cv: 1.0 }, 1.0),
        (Process::Gamma { cv: 2.0 }, 2.0),
        (Process::Ramp { to: rate(400.0) }, 1.0),
        (Process::Ramp { to: rate(1.0) }, 1.0),
    ] {
        let gaps = unit_gaps(process);
        let n = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / n;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n;
        // 5 standard errors: cv/√n for the mean; for the cv of a gamma distribution below cv·√((1 + 2cv²)/2n) + 1%.
        assert!((mean - 1.0).abs() < 5.0 * cv / n.sqrt(), "{process}: mean {mean}");
        let found = variance.sqrt() / mean;
        assert!((found - cv).abs() < 5.0 * cv * ((1.0 + 2.0 * cv * cv) / n).sqrt(), "{process}: cv {found}");

        let lag1 = gaps.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum::<f64>() / n / variance;
        assert!(lag1.abs() < 5.0 / n.sqrt(), "{process}: lag-1 correlation {lag1}");

        let dispersion = dispersion(&gaps, 200.0);
        // Counts of a renewal process vary by cv² times their mean; 1,000 windows know that to about 4.5%.
        assert!((dispersion / (cv * cv) - 1.0).abs() < 0.25, "{process}: dispersion {dispersion}");

        let mut sorted = gaps;
        sorted.sort_unstable_by(f64::total_cmp);
        // A step of 40 moves the distance by at most 40/n = 0.0002, a twentieth of the critical value.
        let distance = sorted.iter().enumerate().step_by(40);
        let distance = distance.map(|(i, &g)| ((i as f64 + 0.5) / n - gamma_cdf(cv, g)).abs());
        // The critical value for α = 0.001. Whole nanoseconds move a gap at 100/s by 1e-7 of its mean, which is less
        // than the smallest gaps of cv = 2, 1% of which are below that: they are let off.
        let rounding = gamma_cdf(cv, 2e-7);
        assert!(distance.fold(0.0, f64::max) < 1.95 / n.sqrt() + rounding, "{process}");
    }
}

/// Variance over mean of the counts in windows of `width`.
fn dispersion(gaps: &[f64], width: f64) -> f64 {
    let (mut counts, mut at) = (vec![0.0], 0.0);
    for gap in gaps {
        at += gap;
        counts.resize((at / width) as usize + 1, 0.0);
        *counts.last_mut().unwrap() += 1.0;
    }
    counts.pop();
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / counts.len() as f64 / mean
}

#[test]
fn a_ramp_moves_its_rate_linearly() {
    let ten = Extent::Duration(Nanos::from_secs(10));
    for (from, to) in [(100.0, 900.0), (900.0, 100.0)] {
        let p = plan(Process::Ramp { to: rate(to) }, &format!("{from}"), ten);
        let arrivals = at(&Schedule::generate(&p, Seed(5), 1).unwrap());
        assert!(arrivals.iter().all(|&t| t < 10_000_000_000));
        for second in 0..10 {
            let expected = from + (to - from) * (f64::from(second) + 0.5) / 10.0;
            let found = arrivals.iter().filter(|&&t| t / 1_000_000_000 == second as u64).count() as f64;
            assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{second}: {found}, not {expected}");
        }
    }
    // A ramp to the same rate is a Poisson process.
    let flat = plan(Process::Ramp { to: rate(4.0) }, "4", Extent::Requests(50));
    let poisson = plan(Process::Poisson, "4", Extent::Requests(50));
    let pairs = [flat, poisson].map(|p| at(&Schedule::generate(&p, Seed(7), 1).unwrap()));
    assert!(pairs[0].iter().zip(&pairs[1]).all(|(a, b)| a.abs_diff(*b) <= 2));
}

/// One of each; a ramp ends at `end` requests per second.
fn processes(end: f64) -> [Process; 6] {
    [
        Process::Poisson,
        Process::Constant,
        Process::Burst { size: 7 },
        Process::Gamma { cv: 0.3 },
        Process::Gamma { cv: 3.0 },
        Process::Ramp { to: rate(end) },
    ]
}

proptest! {
    #[test]
    fn every_schedule_is_ordered_counted_and_repeatable(
        seed: u64, n in 1u64..500, rows in 1u32..40, per_second in 0.1f64..1000.0, kind in 0usize..6,
    ) {
        let process = processes(2.0 * per_second)[kind];
        let p = plan(process, &per_second.to_string(), Extent::Requests(n));
        let s = Schedule::generate(&p, Seed(seed), rows).unwrap();
        prop_assert_eq!(&s, &Schedule::generate(&p, Seed(seed), rows).unwrap());
        prop_assert_eq!(s.arrivals.len() as u64, n);
        prop_assert_eq!(s.arrivals[0].at, Nanos::ZERO);
        prop_assert!(s.arrivals.windows(2).all(|w| w[0].at <= w[1].at && w[0].index < w[1].index));
        // Each row is used as often as any other, to within one.
        let mut uses = vec![0u64; rows as usize];
        s.arrivals.iter().for_each(|a| uses[a.row as usize] += 1);
        prop_assert!(uses.iter().max().unwrap() - uses.iter().min().unwrap() <= 1);
    }

    /// The same seed at another rate is the same shape: instants scale, rows stay. (The end of a ramp scales with it.)
    #[test]
    fn the_shape_does_not_depend_on_the_rate(seed: u64, n in 2u64..300, kind in 0usize..6) {
        let of = |per_second: f64, end: f64| {
            let p = plan(processes(end)[kind], &per_second.to_string(), Extent::Requests(n));
            Schedule::generate(&p, Seed(seed), 9).unwrap()
        };
        let (slow, fast) = (of(2.0, 3.0), of(8.0, 12.0));
        for (s, f) in slow.arrivals.iter().zip(&fast.arrivals) {
            // Half a nanosecond of rounding here is two there; L of a ramp is a whole number of nanoseconds too.
            prop_assert!(s.at.0.abs_diff(f.at.0 * 4) <= 8);
            prop_assert_eq!(s.row, f.row);
        }
    }

    #[test]
    fn warm_up_takes_unused_rows_first(n in 1u64..60, rows in 1u32..40, wanted in 0u32..50) {
        let s = Schedule::generate(&plan(Process::Constant, "2", Extent::Requests(n)), Seed(1), rows).unwrap();
        let warm = warmup_rows(&s, rows, wanted);
        prop_assert_eq!(warm.len(), wanted as usize);
        for (row, taken) in warm {
            prop_assert!(taken || s.arrivals.iter().all(|a| a.row != row));
        }
    }
}
