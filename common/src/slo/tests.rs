use super::*;
use proptest::prelude::*;

fn slo(text: &str) -> Slo {
    text.parse().unwrap()
}

#[test]
fn objectives_read_as_they_are_documented() {
    for (text, limit, shown) in [
        ("ttft=1s", 1_000_000_000, "ttft=1s"),
        ("tpot=50ms", 50_000_000, "tpot=50ms"),
        ("e2e=10", 10_000_000_000, "e2e=10s"),
        ("itl=0.2", 200_000_000, "itl=200ms"),
        ("TTFT = .5", 500_000_000, "ttft=500ms"),
        ("ttft=1.5s", 1_500_000_000, "ttft=1.5s"),
        ("e2e=1m 30s", 90_000_000_000, "e2e=90s"),
        ("tpot=12.5 ms", 12_500_000, "tpot=12.5ms"),
        ("tpot=800us", 800_000, "tpot=800us"),
        ("p99:ttft=1s", 1_000_000_000, "p99:ttft=1s"),
        ("P99.90:e2e=2m", 120_000_000_000, "p99.9:e2e=120s"),
    ] {
        assert_eq!(slo(text).limit, Nanos(limit), "{text}");
        assert_eq!(slo(text).to_string(), shown);
    }
}

#[test]
fn objectives_that_mean_nothing_are_refused_with_a_reason() {
    for (bad, says) in [
        ("", "expected METRIC=TIME"),
        ("ttft", "expected METRIC=TIME"),
        ("ttft:1s", "expected METRIC=TIME"),
        ("latency=1s", "known are ttft, tpot, e2e and itl"),
        ("=1s", "unknown metric \"\""),
        ("ttft=", "\"\" is not a time"),
        ("ttft=fast", "\"fast\" is not a time"),
        ("ttft=-1", "\"-1\" is not a time"),
        ("ttft=nan", "is not a time"),
        ("ttft=1.2.3s", "is not a time"),
        ("ttft=99999999999999999999", "is not a time"),
        ("ttft=.", "is not a time"),
        ("ttft=0", "a limit of 0 cannot be met"),
        ("ttft=0.0ms", "a limit of 0 cannot be met"),
        ("p0:ttft=1s", "\"p0\" is not a percentile"),
        ("p101:ttft=1s", "not a percentile"),
        ("99:ttft=1s", "not a percentile"),
        ("p:ttft=1s", "not a percentile"),
    ] {
        let e = bad.parse::<Slo>().expect_err(bad).to_string();
        assert!(e.contains(says), "{bad}: {e}");
    }
}

#[test]
fn one_thing_is_limited_once() {
    let e = "ttft=1s tpot=50ms ttft=2s".parse::<SloSet>().expect_err("two limits").to_string();
    assert!(e.contains("\"ttft=1s\" and SLO \"ttft=2s\" limit the same thing"), "{e}");
    let set: SloSet = "p99:ttft=1s,ttft=2s".parse().unwrap();
    assert_eq!(set.to_string(), "ttft=2s p99:ttft=1s");
    assert_eq!(set.each_request().count(), 1);
    assert_eq!(set.over_trial().count(), 1);
    assert!(!set.needs_itl_evidence());
    assert!("itl=200ms".parse::<SloSet>().unwrap().needs_itl_evidence());
}

#[test]
fn the_serde_form_is_the_text() {
    let set: SloSet = "ttft=1s p99.9:e2e=10s".parse().unwrap();
    let json = serde_json::to_value(&set).unwrap();
    assert_eq!(json, serde_json::json!(["ttft=1s", "p99.9:e2e=10s"]));
    assert_eq!(serde_json::from_value::<SloSet>(json).unwrap(), set);
    assert!(serde_json::from_value::<SloSet>(serde_json::json!(["ttft=1", "ttft=2"])).is_err());
    assert_eq!(postcard::from_bytes::<SloSet>(&postcard::to_stdvec(&set).unwrap()).unwrap(), set);
}

#[test]
fn a_target_is_a_share() {
    assert_eq!("0.99".parse::<Target>().unwrap(), Target::default());
    assert_eq!("99%".parse::<Target>().unwrap(), Target::default());
    assert_eq!("1".parse::<Target>().unwrap().share(), 1.0);
    for bad in ["0", "99", "-0.5", "nan", "", "inf", "101%"] {
        let e = bad.parse::<Target>().expect_err(bad).to_string();
        assert!(e.contains("write 0.99 or 99%"), "{e}");
    }
    assert_eq!("0.999".parse::<Target>().unwrap().to_string(), "99.9%");
    assert!(Target::default().is_met_by(198, 200));
    assert!(!Target::default().is_met_by(197, 200));
    assert!(!Target::default().is_met_by(0, 0));
}

proptest! {
    #[test]
    fn what_is_shown_reads_back_the_same(
        metric in prop::sample::select(SloMetric::ALL),
        limit in 1u64..=u64::MAX,
        percentile in prop::option::of(1u32..=100_000),
    ) {
        let scope = percentile.map_or(SloScope::EachRequest, |thousandths| {
            SloScope::Trial(Percentile { thousandths })
        });
        let slo = Slo { scope, metric, limit: Nanos(limit) };
        prop_assert_eq!(slo.to_string().parse::<Slo>().unwrap(), slo);
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,20}") {
        let _ = text.parse::<Slo>();
        let _ = parse_time(&text);
    }
}
