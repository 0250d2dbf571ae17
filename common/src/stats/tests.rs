use super::*;
use proptest::prelude::*;

/// The definition, word for word: sort, and interpolate at rank p/100·(N−1).
fn naive(samples: &[f64], p: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let rank = p / 100.0 * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    low + (high - low) * rank.fract()
}

proptest! {
    #[test]
    fn percentiles_are_a_naive_sorts(
        samples in prop::collection::vec(0.0f64..1e6, 1..400),
        p in 0.0f64..=100.0,
    ) {
        let s = Samples::new(samples.clone());
        prop_assert_eq!(percentile(s.sorted(), p), Some(naive(&samples, p)));
        let d = s.distribution();
        prop_assert_eq!(d.n, samples.len() as u64);
        for (value, p) in [(d.p50, 50.0), (d.p90, 90.0), (d.p95, 95.0), (d.p99, 99.0), (d.p999, 99.9)] {
            prop_assert_eq!(value, Some(naive(&samples, p)));
        }
        prop_assert_eq!(d.max, samples.iter().copied().reduce(f64::max));
        prop_assert!(d.p50 <= d.p90 && d.p90 <= d.p99 && d.p99 <= d.p999 && d.p999 <= d.max);
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        prop_assert!((d.mean.unwrap() - mean).abs() <= 1e-9 * mean.abs().max(1.0));
    }

    #[test]
    fn failures_as_infinite_are_samples_above_all_others(
        samples in prop::collection::vec(0.0f64..1e6, 0..300),
        failures in 0u64..10,
        p in 0.0f64..=100.0,
    ) {
        let s = Samples::new(samples.clone());
        let with = percentile_with_infinite(s.sorted(), failures, p);
        // A number so large that it shows in any interpolation that touches it.
        let mut all = samples;
        all.extend((0..failures).map(|_| 1e300));
        let expected = (!all.is_empty()).then(|| naive(&all, p));
        match (with, expected) {
            (Some(Value::Finite(v)), Some(e)) => prop_assert_eq!(v, e),
            (Some(Value::Infinite), Some(e)) => prop_assert!(e >= 1e280, "{} is not infinite", e),
            (with, expected) => prop_assert!(with.is_none() && expected.is_none()),
        }
    }

    #[test]
    fn a_spread_holds_its_median(values in prop::collection::vec(0.0f64..1e6, 1..9)) {
        let spread = Spread::of(values.clone()).unwrap();
        prop_assert!(spread.min.get() <= spread.median.get() && spread.median.get() <= spread.max.get());
        prop_assert_eq!(spread.median.get(), naive(&values, 50.0));
    }
}

#[test]
fn nothing_has_no_percentile() {
    let d = Distribution::of(Vec::new());
    let json = serde_json::to_value(&d).unwrap();
    let expected = serde_json::json!({
        "n": 0, "mean": null, "p50": null, "p90": null, "p95": null, "p99": null, "p999": null, "max": null,
        "p99_thin": true, "p999_thin": true,
    });
    assert_eq!(json, expected);
    assert_eq!(Samples::default().p99_with_failures_as_infinite(0), None);
    assert_eq!(Samples::default().p99_with_failures_as_infinite(3), Some(Value::Infinite));
    assert_eq!(Spread::of([]), None);
}

#[test]
fn few_samples_make_a_tail_thin() {
    let thin = |n: usize| {
        let d = Distribution::of(vec![1.0; n]);
        (d.p99_thin, d.p999_thin)
    };
    assert_eq!(thin(367), (true, true));
    assert_eq!(thin(368), (false, true));
    assert_eq!(thin(3_687), (false, true));
    assert_eq!(thin(3_688), (false, false));
}

#[test]
fn known_percentiles() {
    let s = Samples::new((1..=101).map(f64::from).collect());
    let d = s.distribution();
    assert_eq!((d.p50, d.p90, d.p99), (Some(51.0), Some(91.0), Some(100.0)));
    assert_eq!(percentile(&[1.0, 2.0], 50.0), Some(1.5));
    // One failure in 101: the p99 still stands on the 100th sample; with two it does not.
    let of_100 = Samples::new((1..=100).map(f64::from).collect());
    assert_eq!(of_100.p99_with_failures_as_infinite(1), Some(Value::Finite(100.0)));
    assert_eq!(of_100.p99_with_failures_as_infinite(2), Some(Value::Infinite));
}

#[test]
fn infinity_survives_json() {
    let spread = Spread::of([1.0, f64::INFINITY, 2.0]).unwrap();
    assert_eq!((spread.median, spread.max), (Value::Finite(2.0), Value::Infinite));
    let json = serde_json::to_value(spread).unwrap();
    assert_eq!(json, serde_json::json!({"median": 2.0, "min": 1.0, "max": "inf"}));
    assert_eq!(serde_json::from_value::<Spread>(json).unwrap(), spread);
    assert!(serde_json::from_str::<Value>("\"infinite\"").is_err());
}
