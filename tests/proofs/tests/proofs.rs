//! The judgements of `docs/credibility.md` with 100 seeds: few enough for CI. `make proofs` takes 1,000.

#![allow(clippy::unwrap_used, reason = "a test says what it expected")]

use proofs::arrivals::{self, Split};
use proofs::coverage::{self, CASES, SHORT_CASES};
use proofs::{knee, latency, losses};

const SEEDS: u64 = 100;

fn intervals_hold(place: usize) {
    let found = coverage::measure(&CASES[place], SEEDS).unwrap();
    for (metric, _, tally) in found.tallies() {
        assert!(tally.holds(), "{}, {metric}: {tally:?}", found.case.name());
        assert!(tally.is_given_often(), "{}, {metric}: {tally:?}", found.case.name());
    }
}

#[test]
fn intervals_hold_the_truth_at_50_percent() {
    intervals_hold(0);
}

#[test]
fn intervals_hold_the_truth_at_70_percent() {
    intervals_hold(1);
}

#[test]
fn intervals_hold_the_truth_at_90_percent() {
    intervals_hold(2);
}

#[test]
fn intervals_hold_the_truth_with_four_servers() {
    intervals_hold(3);
}

#[test]
fn short_trials_rarely_get_a_wrong_interval() {
    for case in &SHORT_CASES {
        let found = coverage::measure(case, SEEDS).unwrap();
        for (metric, _, tally) in found.tallies() {
            assert!(tally.is_rarely_wrong(), "{}, {metric}: {tally:?}", case.name());
        }
    }
}

/// The sabotage of intervals.
#[test]
fn an_interval_as_if_requests_were_independent_is_rejected() {
    let found = coverage::measure(&CASES[1], SEEDS).unwrap();
    assert!(!found.independent_mean.holds(), "{:?}", found.independent_mean);
    assert!(!found.independent_attainment.holds(), "{:?}", found.independent_attainment);
}

/// The sabotage of latency: coordinated omission.
#[test]
fn latency_from_dispatch_is_rejected() {
    let found = latency::limited(SEEDS).unwrap();
    assert!(found.mean.holds() && found.p99.holds(), "{found:?}");
    assert!(!found.mean_from_dispatch.holds() && !found.p99_from_dispatch.holds(), "{found:?}");
}

#[test]
fn an_open_loop_shows_what_a_closed_one_hides() {
    let found = latency::loops(SEEDS).unwrap();
    assert!(found.holds(), "{:?}", found.ratios);
    let nothing = latency::loops_that_are_both_closed(SEEDS).unwrap();
    assert!(!nothing.holds(), "{:?}", nothing.ratios);
}

/// The sabotage of attainment.
#[test]
fn failures_left_out_are_rejected() {
    let found = losses::failures(SEEDS).unwrap();
    assert!(found.attainment.holds(), "{found:?}");
    assert!(!found.without_failures.holds(), "{found:?}");
}

/// The sabotage of throughput.
#[test]
fn the_drain_left_out_is_rejected() {
    let found = losses::drain(SEEDS).unwrap();
    assert!(found.holds(found.throughput), "{found:?}");
    assert!(!found.holds(found.without_drain), "{found:?}");
}

#[test]
fn arrivals_are_the_process_that_they_say_they_are() {
    for tests in [
        arrivals::poisson(SEEDS).unwrap(),
        arrivals::gamma(SEEDS, 0.5, 0.5).unwrap(),
        arrivals::gamma(SEEDS, 2.0, 2.0).unwrap(),
        arrivals::ramp(SEEDS, 300.0, false).unwrap(),
        arrivals::ramp(SEEDS, 20.0, false).unwrap(),
    ] {
        assert!(tests.holds(), "{tests:?}");
    }
    assert!(arrivals::exact().unwrap());
}

#[test]
fn arrivals_of_another_process_are_rejected() {
    assert!(!arrivals::gamma(SEEDS, 2.0, 1.0).unwrap().holds());
    assert!(!arrivals::gamma(SEEDS, 1.1, 1.0).unwrap().holds());
    assert!(!arrivals::ramp(SEEDS, 300.0, true).unwrap().holds());
}

/// The sabotage of the split: with index modulo agents the sum is smoother than Poisson.
#[test]
fn five_agents_with_wrong_clocks_are_still_poisson() {
    let merged = arrivals::merged(SEEDS, Split::Rendezvous).unwrap();
    assert!(merged.holds(), "{merged:?}");
    let modulo = arrivals::merged(SEEDS, Split::Modulo).unwrap();
    assert!(!modulo.holds() && modulo.dispersion < 0.8, "{modulo:?}");
}

/// Of these as many as CI has time for: a search is a million requests.
const SEARCHES: u64 = 12;

fn bracket_holds_the_knee(place: usize) -> knee::Knees {
    let found = knee::measure(&knee::CASES[place], SEARCHES).unwrap();
    let widths: Vec<_> = found.found.iter().map(|f| f.result.width).collect();
    assert!(found.holds_often(found.holding()), "{} of {SEARCHES}: {widths:?}", found.holding());
    assert!(found.median_width() <= knee::WIDEST_MEDIAN, "{widths:?}");
    found
}

#[test]
fn a_bracket_holds_the_knee_of_99_percent() {
    bracket_holds_the_knee(0);
}

/// And the sabotage of searches: one trial a rate, by its attainment.
#[test]
fn a_bracket_holds_the_knee_of_95_percent_and_one_trial_a_rate_is_rejected() {
    let found = bracket_holds_the_knee(1);
    assert!(!found.holds_often(found.holding_naive()), "{} of {SEARCHES}", found.holding_naive());
}
