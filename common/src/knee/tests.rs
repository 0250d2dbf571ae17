use super::*;
use crate::knee::search::Cut;
use crate::stats::{Interval, NoInterval};
use crate::summary::fixture::{failure, success, trial};
use crate::summary::{Intervals, TrialSummary};
use crate::trace::{FailureKind, Trace};
use crate::validity::{Reason, ReasonKind, Validity};

/// A trial of 100 requests of which `good` meet `ttft=1s`.
fn with_good(rate: &str, slos: &SloSet, good: u64) -> TrialSummary {
    let traces: Vec<Trace> =
        (0..100).map(|i| success(i, i * 10, if i < good { 20 } else { 1500 }, 1600, 3)).collect();
    trial(rate, slos, &traces)
}

/// What a search ended early at half of its schedule can only fail, and only where the misses so far are too many.
#[test]
fn a_trial_that_was_cut_never_passes_its_rate() {
    let slos: SloSet = "ttft=1s".parse().unwrap();
    let target: Target = "0.9".parse().unwrap();
    let summary = |good| with_good("4", &slos, good);
    let n = summary(0).requests;
    let cut = Some(Cut { planned: 2 * n, length_seconds: 1.0 });
    let of = |good: u64, whole: Option<u64>| {
        let (cut_one, whole) = (summary(good), whole.map(summary));
        let rate = || "4".parse().unwrap();
        let refs = std::iter::once(TrialRef { rate: rate(), summary: &cut_one, cut });
        let refs = refs.chain(whole.iter().map(|summary| TrialRef { rate: rate(), summary, cut: None }));
        let mut rates = pool_rates(refs);
        let one = rates.remove(0);
        assert!(!one.passes(target), "it passes");
        (one.is_decided(target), one.slo_attainment_at_most, one.trials_used)
    };
    // All good until then: nothing is known of the rest.
    assert_eq!(of(n, None), (false, Some(1.0), 1));
    // All missed: half of the schedule, whatever the rest.
    assert_eq!(of(0, None), (true, Some(0.5), 1));
    // A whole one that passes is a selection; one that fails decides.
    assert_eq!(of(0, Some(n)), (false, None, 1));
    assert_eq!(of(0, Some(0)), (true, None, 1));
}

fn spoiled(mut summary: TrialSummary, kind: ReasonKind) -> TrialSummary {
    summary.validity = Validity::of(vec![Reason::new(kind, "spoiled")]);
    if kind == ReasonKind::Conservation {
        summary.numbers = None;
    }
    summary
}

/// A sweep written as `rate:good rate:good …`; `!` late, `~` degraded, `x` invalid, `#` broken.
fn sweep(text: &str, slos: &str) -> (Vec<RateResult>, Knee) {
    let slos: SloSet = slos.parse().unwrap();
    let trials: Vec<(String, TrialSummary)> = text
        .split_whitespace()
        .map(|word| {
            let (rate, good) = word.split_once(':').unwrap();
            let digits = good.trim_end_matches(['!', '~', 'x', '#']);
            let summary = with_good(rate, &slos, digits.parse().unwrap());
            let summary = match good.strip_prefix(digits) {
                Some("!") => spoiled(summary, ReasonKind::DispatchLateness),
                Some("~") => spoiled(summary, ReasonKind::ClientQueueGrew),
                Some("x") => spoiled(summary, ReasonKind::AgentLost),
                Some("#") => spoiled(summary, ReasonKind::Conservation),
                _ => summary,
            };
            (rate.to_owned(), summary)
        })
        .collect();
    let refs =
        trials.iter().map(|(rate, summary)| TrialRef { rate: rate.parse().unwrap(), summary, cut: None });
    let rates = pool_rates(refs);
    let knee = Knee::find(&rates, &slos, Target::default());
    (rates, knee)
}

#[test]
fn the_knee_in_every_case() {
    use KneeCase::*;
    for (trials, case, pass, fail, says) in [
        ("1:100 2:100 4:99 8:50", Bracket, Some(4.0), Some(8.0), "The knee is 4 requests/s (bracket [4, 8])"),
        (
            "8:50 4:99 1:100 2:100",
            Bracket,
            Some(4.0),
            Some(8.0),
            "4 meets ttft=1s for 99% of requests, and 8",
        ),
        ("1:100 2:99", AtOrAboveHighest, Some(2.0), None, "at or above 2 requests/s"),
        ("2:98 4:50", BelowLowest, None, Some(2.0), "below 2 requests/s, the lowest rate tested"),
        ("1:100 2:90 4:100", Bracket, Some(1.0), Some(2.0), "4 requests/s met it again although 2 did not"),
        ("1:100!", Undecided, None, None, "no rate has a valid trial"),
        ("1:0x 2:0# 4:100~", Undecided, None, None, "no rate has a valid trial"),
        ("inf:100", NoRate, None, None, "rate inf and closed loops take no part"),
        ("1:100 inf:0", AtOrAboveHighest, Some(1.0), None, "at or above 1"),
        ("1:100 2:0! 4:99 8:0", Bracket, Some(4.0), Some(8.0), "left out: 2 requests/s"),
        ("1:100 2:100 4:0x", AtOrAboveHighest, Some(2.0), None, "left out: 4 requests/s"),
        ("1:100# 2:10", BelowLowest, None, Some(2.0), "left out: 1 requests/s"),
        // Repeats: pooled 298/300 and 296/300.
        ("1:100 1:100 1:98 2:100 2:98 2:98", Bracket, Some(1.0), Some(2.0), "The knee is 1"),
        // A rate with spoiled repeats is decided by its valid ones.
        ("1:100 1:0! 2:100x 2:50", Bracket, Some(1.0), Some(2.0), "decided by their valid trials alone"),
    ] {
        let (_, knee) = sweep(trials, "ttft=1s");
        assert_eq!((knee.case, knee.bracket.pass, knee.bracket.fail), (case, pass, fail), "{trials}");
        assert!(knee.to_string().contains(says), "{trials}: {knee}");
    }
}

#[test]
fn without_an_objective_there_is_no_knee() {
    let (rates, knee) = sweep("1:100 2:50", "");
    assert_eq!(knee.case, KneeCase::NoSlo);
    assert!(knee.to_string().starts_with("No knee: no SLO was given."), "{knee}");
    assert_eq!(knee.goodput_peak, None);
    assert_eq!((rates[0].good, rates[0].slo_attainment), (None, None));
}

#[test]
fn attainment_is_pooled_and_percentiles_are_the_median_with_min_and_max() {
    let (rates, _) = sweep("4:100 4:100 4:40 4:0! inf:100", "ttft=1s");
    assert_eq!(rates.iter().map(|r| r.offered_rate.as_str()).collect::<Vec<_>>(), ["4", "inf"]);
    let four = &rates[0];
    assert_eq!((four.repeats, four.trials_used, four.decided), (4, 3, true));
    assert_eq!((four.verdicts.valid, four.verdicts.late), (3, 1));
    assert_eq!((four.good, four.requests, four.slo_attainment), (Some(240), 300, Some(0.8)));
    assert_eq!(four.slo_lost_by_cause, [("ttft".to_owned(), 60)].into());
    let p50 = four.latency_seconds.ttft.p50.unwrap();
    assert_eq!(
        (p50.median, p50.min, p50.max),
        (Value::Finite(0.02), Value::Finite(0.02), Value::Finite(1.5))
    );
    assert!(four.latency_seconds.ttft.p99_thin);
}

#[test]
fn an_undecided_rate_still_shows_its_numbers() {
    let (rates, knee) = sweep("4:100! 4:50~ 4:0#", "ttft=1s");
    assert!(!rates[0].decided);
    assert_eq!((rates[0].trials_used, rates[0].repeats, rates[0].slo_attainment), (2, 3, Some(0.75)));
    assert_eq!((knee.undecided, knee.goodput_peak), (vec![4.0], None));
    let (rates, _) = sweep("4:0#", "ttft=1s");
    assert_eq!((rates[0].trials_used, rates[0].good, rates[0].requests), (0, None, 0));
}

#[test]
fn an_objective_over_the_trial_has_to_be_met_in_the_median_of_the_repeats() {
    for (trials, case) in
        [("1:100 1:100 1:97", KneeCase::AtOrAboveHighest), ("1:100 1:97 1:97", KneeCase::BelowLowest)]
    {
        let (rates, knee) = sweep(trials, "p98:ttft=1s");
        assert_eq!(knee.case, case, "{trials}");
        assert_eq!(rates[0].objectives[0].met, case == KneeCase::AtOrAboveHighest);
    }
    // Both kinds of objective count: attainment is fine here, the percentile is not.
    let slos: SloSet = "e2e=10s p50:ttft=1ms".parse().unwrap();
    let summary = with_good("1", &slos, 100);
    let rates = pool_rates([TrialRef { rate: "1".parse().unwrap(), summary: &summary, cut: None }]);
    assert_eq!(rates[0].slo_attainment, Some(1.0));
    assert!(!rates[0].passes(Target::default()));
}

#[test]
fn failures_count_as_infinite_over_the_trial_too() {
    let slos: SloSet = "p90:ttft=1s".parse().unwrap();
    let traces = |failed: u64| -> Vec<Trace> {
        let of = |i| {
            if i < failed { failure(i, 0, 5, FailureKind::Reset) } else { success(i, 0, 20, 30, 3) }
        };
        (0..100).map(of).collect()
    };
    let target: Target = "50%".parse().unwrap();
    for (failed, passes) in [(5, true), (20, false)] {
        let summary = trial("1", &slos, &traces(failed));
        let rates = pool_rates([TrialRef { rate: "1".parse().unwrap(), summary: &summary, cut: None }]);
        assert_eq!(rates[0].passes(target), passes);
        let with = rates[0].latency_seconds.ttft.p99_with_failures_as_infinite.unwrap();
        assert_eq!(with.median, Value::Infinite);
    }
}

#[test]
fn the_goodput_peak_stands_beside_the_knee() {
    let (rates, knee) = sweep("1:100 2:90 4:20", "ttft=1s");
    let goodputs: Vec<f64> =
        rates.iter().map(|r| r.goodput_requests_per_second.unwrap().median.get()).collect();
    let peak = knee.goodput_peak.unwrap();
    assert_eq!((peak.offered_rate_per_second, peak.goodput_requests_per_second), (1.0, goodputs[0]));
    assert!(knee.to_string().contains("Goodput peaks at"), "{knee}");
    let json = serde_json::to_value(&knee).unwrap();
    assert_eq!(json["case"], "bracket");
    assert_eq!(json["bracket"], serde_json::json!({"pass": 1.0, "fail": 2.0}));
    assert_eq!(serde_json::from_value::<Knee>(json).unwrap(), knee);
}

#[test]
fn attainment_has_an_interval_over_all_batches_or_the_spread_and_no_interval() {
    let rates = |text: &str| sweep(text, "ttft=1s").0;
    // 100 requests in 100 s with an E2E of 1.6 s: ten batches would be shorter than ten times that.
    let short = &rates("1:100 1:90 1:98")[0];
    let expected = Interval::None { reason: NoInterval::TooShort, min: Some(0.9), max: Some(1.0) };
    assert_eq!(short.slo_attainment_interval, expected);

    let slos: SloSet = "ttft=1s".parse().unwrap();
    // 600 requests of which every `nth` misses, 0.1 s long, at 1/s: no correlation, and long enough.
    let trial_of = |nth: u64| {
        let ttft = |i: u64| if (i * 7).is_multiple_of(nth) { 1_500 } else { 20 };
        let traces: Vec<Trace> = (0..600).map(|i| success(i, i * 1000, ttft(i), ttft(i) + 80, 3)).collect();
        trial("1", &slos, &traces)
    };
    let pooled = |trials: &[TrialSummary]| {
        let refs = trials.iter().map(|summary| TrialRef { rate: "1".parse().unwrap(), summary, cut: None });
        pool_rates(refs)[0].slo_attainment_interval
    };
    let (some, few) = (trial_of(20), trial_of(200));
    let Interval::Known { low, high, batches, .. } = pooled(&[some.clone(), some.clone()]) else {
        panic!("no interval: {:?}", some.numbers.unwrap().intervals);
    };
    assert!(low < 0.95 && 0.95 < high && batches >= 20, "{low} {high} {batches}");
    // 3 missed in one trial are too few, and with those of another they are not.
    assert_eq!(pooled(std::slice::from_ref(&few)).reason(), Some(NoInterval::TooFewMissed));
    assert!(pooled(&[few.clone(), some.clone()]).ends().is_some());
    let mut short = few;
    short.numbers.as_mut().unwrap().intervals = Intervals::none(NoInterval::TooShort);
    assert_eq!(pooled(&[some, short]).reason(), Some(NoInterval::NotEveryRepeat));
}

#[test]
fn a_sweep_may_stop_once_nothing_that_remains_can_move_the_knee() {
    for (trials, remaining, stop) in [
        ("1:100 2:50", "4 8 inf", true),
        ("1:100 2:50", "", true),
        // A lower rate, or a repeat of the rate that failed, is still to come.
        ("1:100 4:50", "2 8", false),
        ("1:100 2:50", "2 4", false),
        // A lower rate was tested and is undecided, or the failure is not decided.
        ("1:100! 2:50", "4", false),
        ("1:100 2:50!", "4", false),
        ("1:100 2:100", "4", false),
        // A higher rate does not matter, decided or not; the lowest failure does.
        ("1:100 2:50 4:50!", "8", true),
        ("1:100 2:50 4:20", "3", true),
        ("inf:0", "4", false),
        ("1:0", "2", true),
    ] {
        let (rates, _) = sweep(trials, "ttft=1s");
        let slos: SloSet = "ttft=1s".parse().unwrap();
        let left: Vec<_> = remaining.split_whitespace().map(|r| r.parse().unwrap()).collect();
        assert_eq!(
            should_stop_after_knee(&rates, &slos, Target::default(), &left),
            stop,
            "{trials} then {remaining}"
        );
        assert!(!should_stop_after_knee(&rates, &SloSet::default(), Target::default(), &left));
    }
}

#[test]
fn too_many_failures_end_a_sweep() {
    let share = |text: &str| text.parse::<FailureShare>();
    assert_eq!(share("20%").unwrap(), share("0.2").unwrap());
    assert_eq!(share(" 20 % ").unwrap().to_string(), "20%");
    assert_eq!(share("0").unwrap().share(), 0.0);
    for bad in ["", "1", "100%", "-0.1", "nan", "x", "20%%", "inf"] {
        let e = share(bad).expect_err(bad).to_string();
        assert!(e.contains("write 20% or 0.2"), "{e}");
    }
    let of = |failed: u64| {
        let one =
            |i| if i < failed { failure(i, 0, 5, FailureKind::Reset) } else { success(i, 0, 20, 30, 3) };
        trial("1", &SloSet::default(), &(0..100).map(one).collect::<Vec<_>>())
    };
    assert!(!failures_exceed(&of(20), share("20%").unwrap()), "the limit itself is allowed");
    assert!(failures_exceed(&of(21), share("20%").unwrap()));
    assert!(failures_exceed(&of(1), share("0").unwrap()));
    assert!(!failures_exceed(&spoiled(of(50), ReasonKind::Conservation), share("20%").unwrap()));
}
