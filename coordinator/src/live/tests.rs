use std::collections::BTreeMap;
use std::sync::Arc;

use common::clock::{Clock, ManualClock};
use common::fleet::Progress;
use common::ids::{AgentName, Epoch, Incarnation, Nanos, Seq, TrialId};
use common::trace::segment::{Block, BlockOrigin};

use super::*;
use crate::plan::Plan;
use crate::report::tests::{failed, good, trial};
use crate::sweep::PlannedTrial;
use crate::trial::drive::Standing;

/// A model and its clock, told by scripts.
pub(crate) struct Bench {
    pub(crate) model: Model,
    pub(crate) plan: Plan,
    pub(crate) clock: ManualClock,
    counters: BTreeMap<AgentName, Progress>,
}

impl Bench {
    pub(crate) fn new(line: &str, agents: usize) -> Self {
        let (plan, clock) = (crate::cli::planned(line), ManualClock::at(Nanos::from_secs(1_000)));
        let model = Model::new(&"run-1".parse().unwrap(), &plan, clock.monotonic());
        let names = (0..agents).map(|n| (format!("a{n}").parse().unwrap(), Progress::default()));
        Self { model, plan, clock, counters: names.collect() }
    }

    fn now(&self) -> Nanos {
        self.clock.monotonic()
    }

    fn planned(&self, number: usize) -> PlannedTrial {
        self.plan.trials[number]
    }

    /// What a new reader gets.
    pub(crate) fn news(&self) -> News {
        self.news_since(Known::default())
    }

    pub(crate) fn news_since(&self, known: Known) -> News {
        self.model.news(known, self.now())
    }

    /// The trial of this number of the plan begins, and starts after a second.
    pub(crate) fn begin(&mut self, number: usize) {
        let planned = self.planned(number);
        self.model.trial_begins(&planned, &self.plan, 100, self.clock.monotonic());
        let bound = Standing::Ready { clock_bound: Nanos(40_000) };
        self.counters.keys().for_each(|agent| self.model.stands(agent, &bound));
        self.model.starting(Nanos::from_secs(1), self.clock.monotonic());
        self.pass(4);
    }

    /// So many quarters of a second pass.
    pub(crate) fn pass(&mut self, quarters: u64) {
        for _ in 0..quarters {
            self.clock.advance(Nanos::from_millis(250));
            self.model.tick(self.clock.monotonic());
        }
    }

    /// A second of the trial, which began `since_start` ago, in which so many requests finished at each agent.
    pub(crate) fn second(&mut self, number: usize, since_start: u64, requests: u64) {
        for counters in self.counters.values_mut() {
            counters.dispatched += requests;
            counters.succeeded += requests;
            counters.in_flight = 3;
            counters.lateness_p99 = Nanos::from_millis(2);
        }
        self.model.progress(&self.counters, self.clock.monotonic());
        let finished: Vec<Finished> = (0..requests * self.counters.len() as u64)
            .map(|i| Finished {
                at: Nanos::from_secs(since_start) + Nanos::from_millis(i % 900),
                success: true,
                good: i % 4 != 0,
                ttft: Some(Nanos::from_millis(100 + i)),
            })
            .collect();
        self.model.finished(self.planned(number).trial, &finished);
        self.pass(4);
    }

    pub(crate) fn end(&mut self, number: usize, requests: u64) {
        let planned = self.planned(number);
        let report = trial(planned.trial.0, &planned.rate.to_string(), planned.repeat, &good(requests), &[]);
        self.model.trial_ended(&report, self.clock.monotonic());
        self.counters.values_mut().for_each(|c| *c = Progress::default());
        self.pass(12);
    }
}

const SWEEP: &str = "coordinator sweep --rates 4,8 --repeats 1 --duration 10s --slo ttft=1s";

fn values_of(model: &Model, metric: Metric) -> Vec<f64> {
    model.lines().all().filter_map(|p| p.high.get(metric)).collect()
}

#[test]
fn a_trial_is_seen_from_its_order_to_its_verdict() {
    let mut bench = Bench::new(SWEEP, 2);
    assert_eq!(bench.model.state(bench.now()).stage, "gathering");
    let planned = bench.planned(0);
    bench.model.trial_begins(&planned, &bench.plan, 40, bench.clock.monotonic());
    assert_eq!(bench.model.state(bench.now()).stage, "preparing");
    bench.begin(0);
    for second in 0..10 {
        bench.second(0, second, 2);
    }
    let state = bench.model.state(bench.now());
    let now = state.trial.as_ref().unwrap();
    assert_eq!((state.stage, now.dispatched, now.in_flight, now.succeeded), ("sending", 40, 6, 40));
    assert_eq!(now.attainment_so_far, Some(0.75));
    assert_eq!(now.since_start_seconds, Some(10.0));
    let left = state.left_seconds.unwrap();
    assert!((13.0..=16.0).contains(&left), "{left} s for a trial of 10 s and what is around two");
    assert_eq!(state.agents.len(), 2);
    assert_eq!(state.agents[0].clock_bound_seconds, Some(4e-5));
    bench.pass(8);
    assert_eq!(bench.model.state(bench.now()).stage, "draining");
    let achieved = values_of(&bench.model, Metric::Achieved);
    let whole = achieved.iter().filter(|v| **v == 4.0).count();
    assert!(whole >= 9, "two a second of each of two agents: {achieved:?}");
    let offered = values_of(&bench.model, Metric::Offered);
    assert!(offered.len() >= 9 && offered.iter().all(|v| Some(*v) == planned.rate.per_second()));
    assert_eq!(values_of(&bench.model, Metric::Goodput).iter().copied().fold(0.0, f64::max), 3.0);
    let ttft = values_of(&bench.model, Metric::TtftP50);
    assert!(ttft.iter().all(|v| (0.1..0.2).contains(v)), "{ttft:?}");
    bench.end(0, 40);
    let (state, sweep) = (bench.model.state(bench.now()), bench.model.sweep());
    assert_eq!((state.stage, state.trials_done, state.trials_planned), ("closing", 1, 2));
    assert_eq!((sweep.trials[0].verdict, sweep.trials[0].successful), ("valid", Some(40)));
    assert!(sweep.knee.unwrap().text.contains("knee"));
    assert_eq!(sweep.rates[0].passes, Some(true));
}

#[test]
fn what_will_spoil_a_trial_is_said_once_while_it_runs() {
    let mut bench = Bench::new(SWEEP, 1);
    bench.begin(0);
    (0..5).for_each(|s| bench.second(0, s, 1));
    let agent = "a0".parse().unwrap();
    bench.model.lost(&agent, "its lease ran out", bench.clock.monotonic());
    bench.model.note("warning      a note that warns", bench.clock.monotonic());
    let state = bench.model.state(bench.now());
    let warnings: Vec<&str> = state.warnings.iter().map(|w| w.text.as_str()).collect();
    let [late, lost, note] = warnings[..] else { panic!("{warnings:?}") };
    assert!(late.contains("agent a0 sends late: p99 2.00 ms, above 1ms"), "{late}");
    assert_eq!((lost, note), ("agent a0 is lost: its lease ran out", "a note that warns"));
    assert_eq!(state.warnings[0].times, 5);
    assert_eq!((state.agents[0].standing, state.agents[0].in_flight), ("lost", 0));
}

#[test]
fn without_traces_the_counters_say_what_was_achieved_and_nobody_guesses_latencies() {
    let mut bench = Bench::new(&format!("{SWEEP} --upload after"), 1);
    bench.begin(0);
    (0..8).for_each(|s| bench.second(0, s, 5));
    assert!(values_of(&bench.model, Metric::TtftP50).is_empty());
    assert!(values_of(&bench.model, Metric::Goodput).is_empty());
    let achieved = values_of(&bench.model, Metric::Achieved);
    assert!(achieved.iter().filter(|v| (4.0..=6.0).contains(*v)).count() >= 4, "{achieved:?}");
    let sweep = bench.model.sweep();
    assert!(!sweep.about.live_latencies);
    assert!(bench.model.state(bench.now()).notes.iter().any(|n| n.text.contains("--upload after")));
}

#[test]
fn a_second_of_which_something_was_dropped_has_no_latencies() {
    let mut bench = Bench::new(SWEEP, 1);
    bench.begin(0);
    bench.second(0, 0, 5);
    bench.model.missed(3, bench.clock.monotonic());
    bench.pass(12);
    assert!(values_of(&bench.model, Metric::Achieved).len() < 3);
    let state = bench.model.state(bench.now());
    assert_eq!(state.missed, 3);
    assert!(state.warnings.iter().any(|w| w.text.contains("the report has all of them")));
}

#[test]
fn traces_of_another_trial_are_not_of_this_one() {
    let mut bench = Bench::new(SWEEP, 1);
    bench.begin(0);
    let other = Finished { at: Nanos(0), success: true, good: true, ttft: Some(Nanos(9)) };
    bench.model.finished(TrialId(77), &[other]);
    bench.pass(20);
    assert!(values_of(&bench.model, Metric::TtftP50).is_empty());
    assert_eq!(bench.model.state(bench.now()).trial.unwrap().attainment_so_far, None);
}

#[test]
fn two_hours_of_eight_agents_are_bounded() {
    let mut bench = Bench::new("coordinator sweep --rates 4 --repeats 1 --duration 3h --slo ttft=1s", 8);
    bench.begin(0);
    for second in 0..7_200 {
        bench.second(0, second, u64::from(second == 100) * 50 + 1);
    }
    assert!(bench.model.lines().all().len() <= MOST_POINTS);
    let spike = values_of(&bench.model, Metric::Achieved).into_iter().fold(0.0, f64::max);
    assert_eq!(spike, 408.0, "a spike of two hours ago is as high as it was");
    let news = bench.model.news(Known::default(), bench.now());
    let bytes =
        serde_json::to_vec(&news.points).unwrap().len() + serde_json::to_vec(&news.state).unwrap().len();
    assert!(bytes < 2 << 20, "{bytes} bytes for a reader that comes new");
}

#[test]
fn a_reader_that_comes_back_gets_what_it_lacks() {
    let mut bench = Bench::new(SWEEP, 1);
    bench.begin(0);
    (0..5).for_each(|s| bench.second(0, s, 5));
    let first = bench.model.news(Known::default(), bench.now());
    assert!(first.anew && !first.points.is_empty() && first.sweep.is_some());
    bench.pass(8);
    let news = bench.model.news(first.known, bench.now());
    assert!(!news.anew && news.sweep.is_none());
    assert_eq!(news.points.len() as u64, news.known.point - first.known.point);
    let nothing = bench.model.news(news.known, bench.now());
    assert!(nothing.points.is_empty() && !nothing.anew);
    // Of another run, or another process.
    let strange = bench.model.news(Known { point: 1 << 40, sweep: 9 }, bench.now());
    assert!(strange.anew && strange.points.len() as u64 == news.known.point);
    bench.end(0, 40);
    assert!(bench.model.news(news.known, bench.now()).sweep.is_some());
}

/// The whole way: a block as it is stored, through the tap, unpacked, held against the objectives.
#[tokio::test]
async fn what_is_stored_is_seen_by_the_definitions_of_the_report() {
    let mut bench = Bench::new(SWEEP, 1);
    bench.begin(0);
    let mut traces = good(20);
    traces.push(failed(20));
    let agent: AgentName = "a0".parse().unwrap();
    let planned = bench.planned(0);
    let origin = BlockOrigin {
        agent: agent.clone(),
        incarnation: Incarnation(1),
        trial: planned.trial,
        epoch: Epoch(1),
    };
    let block = Block::encode(&origin, Seq(0), &traces).unwrap();
    let (tap, outlet) = tap();
    tap.offer(Tap::prepare(&block, block.facts().unwrap()));
    let clock = Arc::new(ManualClock::at(bench.now()));
    let hub = Hub::new(bench.model.clone(), clock.clone());
    let following = tokio::spawn(hub.clone().follow(outlet));
    let mut pulses = hub.pulses();
    let seen = loop {
        pulses.changed().await.unwrap();
        clock.advance(Nanos::from_secs(1));
        if let Some(ttft) = hub.read(|model, _| values_of(model, Metric::TtftP50).first().copied()) {
            break ttft;
        }
    };
    following.abort();
    let row = trial(0, "4", 0, &traces, &[]);
    let expected = row.summary.numbers.unwrap().latency_seconds.ttft.p50.unwrap();
    assert!((seen - expected).abs() < 1e-9, "{seen} and {expected}");
    let state = hub.read(|model, now| model.state(now));
    assert_eq!(state.trial.unwrap().attainment_so_far, Some(20.0 / 21.0));
}
