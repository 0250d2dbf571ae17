use super::*;
use crate::slo::SloSet;
use crate::stats::{NoInterval, ShareBatch};

/// An engine that misses nothing up to its knee, and half of all requests above it; twice above it nearly all.
struct Engine {
    knee: f64,
    requests: u64,
    /// From this rate on trials are late.
    late_from: f64,
}

impl Engine {
    fn at(knee: f64) -> Self {
        Self { knee, requests: 600, late_from: f64::INFINITY }
    }

    fn trial(&self, rate: f64) -> TrialEvidence {
        let above = rate > self.knee;
        let batch = ShareBatch { scheduled: self.requests / 10, good: self.requests / 10 };
        TrialEvidence {
            rate,
            valid: rate < self.late_from,
            scheduled: self.requests,
            missed: if above { self.requests / 2 } else { 0 },
            // An engine that cannot keep up shows one long queue.
            batches: if above { Err(NoInterval::Correlated) } else { Ok(vec![batch; 10]) },
            parts: if above { 0 } else { 160 },
            cut: false,
            seconds: 60.0,
        }
    }
}

fn search() -> Search {
    let settings = SearchSettings {
        min_rate_per_second: 1.0,
        max_rate_per_second: 500.0,
        relative_width: 0.1,
        confidence: 0.95,
        trials_a_rate: 6,
        budget_seconds: 36_000.0,
    };
    let extent = Extent::Duration(crate::ids::Nanos::from_secs(60));
    Search { settings, target: Target::default(), process: Process::Poisson, extent }
}

fn with(change: impl FnOnce(&mut SearchSettings)) -> Search {
    let mut search = search();
    change(&mut search.settings);
    search
}

/// Every trial that the search asks for, until it ends.
fn sent(search: &Search, engine: &Engine) -> (Vec<TrialEvidence>, Ended) {
    let mut trials = Vec::new();
    loop {
        match search.next(&trials) {
            Step::End(ended) => return (trials, ended),
            Step::Trial { rate, repeat, .. } => {
                let rate = rate.per_second().unwrap();
                let before = trials.iter().filter(|t: &&TrialEvidence| t.rate == rate).count();
                assert_eq!(before, repeat as usize, "trials at {rate} are not counted");
                trials.push(engine.trial(rate));
            }
        }
        assert!(trials.len() as u32 <= search.at_most().trials, "more than it may send: {trials:?}");
    }
}

fn found(search: &Search, engine: &Engine) -> SearchResult {
    let slos: SloSet = "ttft=1s".parse().unwrap();
    search.result(&sent(search, engine).0, &slos)
}

#[test]
fn the_bracket_holds_the_knee_wherever_it_lies_and_is_as_narrow_as_was_asked_for() {
    for knee in [1.0, 1.01, 3.9, 4.0, 4.1, 37.0, 100.0, 255.0, 256.0, 499.0] {
        let result = found(&search(), &Engine::at(knee));
        let (pass, fail) = (result.bracket.pass.unwrap(), result.bracket.fail.unwrap());
        assert!(pass <= knee && knee < fail, "{knee}: {}", result.text);
        assert!(result.width.unwrap() <= 0.1, "{knee}: {}", result.text);
        assert_eq!((result.ended, result.would_narrow), (Ended::Narrow, None), "{knee}");
        assert_eq!(result.bracket, result.leaning);
    }
}

#[test]
fn rates_double_then_halve_and_then_the_ends_are_decided() {
    let (trials, _) = sent(&search(), &Engine::at(10.0));
    let rates: Vec<f64> = trials.iter().map(|t| t.rate).collect();
    assert_eq!(rates[..8], [1.0, 2.0, 4.0, 8.0, 16.0, 11.3, 9.51, 10.4]);
    // Overload fails by many that missed, in a few trials; what misses nothing takes as many parts as show 99%.
    let result = found(&search(), &Engine::at(10.0));
    let of = |rate: f64| result.rates.iter().find(|r| r.rate_per_second == rate).unwrap();
    assert_eq!((of(10.4).standing, of(10.4).by), (Standing::Fail, Some(By::ManyMissed)));
    assert_eq!((of(9.51).standing, of(9.51).by), (Standing::Pass, Some(By::FewMissed)));
    // A rate of the doubling that did not come to be an end is not decided, and is not claimed.
    assert_eq!((of(16.0).standing, of(16.0).trials), (Standing::LeansFail, 1));
}

#[test]
fn an_end_of_the_range_is_an_answer() {
    let high = found(&search(), &Engine::at(1e6));
    assert_eq!(
        (high.case, high.bracket.pass, high.ended),
        (SearchCase::AtOrAbove, Some(500.0), Ended::HighestPasses)
    );
    assert!(high.would_narrow.unwrap().contains("--max-rate above 500"), "{}", high.text);
    let low = found(&search(), &Engine::at(0.5));
    assert_eq!((low.case, low.bracket.fail, low.ended), (SearchCase::Below, Some(1.0), Ended::LowestFails));
    assert!(low.would_narrow.unwrap().contains("--min-rate below 1"), "{}", low.text);
}

#[test]
fn nothing_is_claimed_before_it_is_decided() {
    let engine = Engine::at(10.0);
    let cut = with(|s| s.budget_seconds = 8.0 * 63.0);
    let result = found(&cut, &engine);
    assert_eq!((result.case, result.ended), (SearchCase::Undecided, Ended::Budget));
    assert_eq!((result.leaning.pass, result.leaning.fail), (Some(9.51), Some(10.4)));
    assert!(result.text.contains("lean to [9.51, 10.4], which is not decided"), "{}", result.text);
    assert!(result.would_narrow.unwrap().contains("A longer --budget"));
    // The same trials with more budget go on where they stopped.
    let (more, _) = sent(&search(), &engine);
    let (some, _) = sent(&cut, &engine);
    assert_eq!(more[..some.len()], some[..]);
}

#[test]
fn late_trials_decide_nothing_and_are_a_wall() {
    let engine = Engine { late_from: 12.0, ..Engine::at(40.0) };
    let result = found(&search(), &engine);
    let spoiled: Vec<f64> =
        result.rates.iter().filter(|r| r.standing == Standing::Spoiled).map(|r| r.rate_per_second).collect();
    assert!(spoiled.contains(&16.0) && spoiled.iter().all(|rate| *rate >= 12.0), "{spoiled:?}");
    assert!(result.rates.iter().all(|r| r.rate_per_second <= 16.0), "it went on above what can be measured");
    assert_eq!((result.case, result.bracket.fail), (SearchCase::AtOrAbove, None));
    assert!(result.bracket.pass.unwrap() >= 8.0 && result.bracket.pass.unwrap() < 12.0, "{}", result.text);
    assert!(result.text.contains("No valid trial at"), "{}", result.text);
    // Those that failed above a late one would be as little.
    let all_late = Engine { late_from: 0.0, ..Engine::at(40.0) };
    let none = found(&search(), &all_late);
    assert_eq!((none.case, none.rates.len()), (SearchCase::Undecided, 1));
}

#[test]
fn a_trial_that_was_cut_counts_against_its_rate_alone() {
    let search = search();
    let engine = Engine::at(100.0);
    let cut =
        TrialEvidence { cut: true, missed: 90, batches: Err(NoInterval::TooShort), ..engine.trial(32.0) };
    let whole: Vec<TrialEvidence> = (0..5).map(|_| engine.trial(32.0)).collect();
    let judged = |trials: &[TrialEvidence]| search.judged(trials)[0].standing;
    assert_eq!(judged(&whole), Standing::Pass);
    // One that was cut among those that pass: never a pass.
    assert_ne!(judged(&[std::slice::from_ref(&cut), &whole].concat()), Standing::Pass);
    // 15% of the whole schedule missed in each: 8 times 8 times 8 times 8 is unlikely enough.
    assert_eq!(judged(std::slice::from_ref(&cut)), Standing::LeansFail);
    assert_eq!(judged(&vec![cut; 4]), Standing::Fail);
}

#[test]
fn hopeless_is_what_cannot_pass_and_by_far() {
    let search = search();
    // (½ + ½·x/1%)³ has to be 1/(0.2 · 5%/12): 20.25% of all.
    assert!(!search.is_hopeless(121, 600) && search.is_hopeless(122, 600));
    assert!(!search.is_hopeless(4, 10), "so few say nothing");
    // Where much may be missed a few trials do not decide, and all of it is sent.
    let low = Search { target: "80%".parse().unwrap(), ..search };
    assert!(!low.is_hopeless(600, 600));
    // Three that were cut decide.
    let cut = TrialEvidence { cut: true, missed: 122, ..Engine::at(1.0).trial(33.0) };
    assert_eq!(search.judged(&vec![cut.clone(); 2])[0].standing, Standing::LeansFail);
    assert_eq!(search.judged(&vec![cut; 3])[0].standing, Standing::Fail);
}

#[test]
fn the_error_of_all_rates_and_looks_is_what_was_asked_for() {
    let search = search();
    let rates = search.halvings() + DOUBLED_ENDS;
    let all = search.error_of_a_rate() * f64::from(rates);
    assert!((all - 0.05).abs() < 1e-12, "{all}");
    // However a search goes, no more rates are decided.
    for knee in [1.3, 8.0, 10.0, 33.0, 450.0] {
        let decided =
            found(&search, &Engine::at(knee)).rates.iter().filter(|r| r.decided_at_look.is_some()).count();
        assert!(decided as u32 <= rates, "{knee}: {decided}");
    }
}

#[test]
fn what_it_may_take_is_known_before() {
    let most = search().at_most();
    assert!((most.trials, most.seconds) == ((10 + 9) * 8, 152.0 * 63.0), "{most:?}");
    let little = with(|s| s.budget_seconds = 126.0);
    assert_eq!(little.at_most().trials, 2);
    let (trials, ended) = sent(&little, &Engine::at(50.0));
    assert_eq!((trials.len(), ended), (2, Ended::Budget));
}

#[test]
fn a_result_is_read_back_as_it_was_written() {
    let result = found(&search(), &Engine::at(10.0));
    let json = serde_json::to_value(&result).unwrap();
    assert_eq!(
        (&json["case"], &json["confidence"]),
        (&serde_json::json!("bracket"), &serde_json::json!(0.95))
    );
    assert_eq!(serde_json::from_value::<SearchResult>(json).unwrap(), result);
}
