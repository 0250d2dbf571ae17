//! What charts are drawn from: requests over time, distributions, failures, and what was recorded beside them.
//!
//! Of a trial with many requests not each is kept. What is kept are the slowest and the fastest of every stretch of time,
//! a failure of each kind in it, and every so many-th request, so that the cloud keeps its shape; the counts stand in the
//! page. Every value is a request's own, from [`RequestMetrics`]: nothing is averaged.

use std::collections::{BTreeMap, BTreeSet};

use common::ids::{AgentName, Nanos, TrialId};
use common::metrics::{RequestMetrics, Tpot};
use common::stats::percentile;
use common::trace::Facts;
use serde::Serialize;

use super::lines::Line;
use super::thin::stretch;

/// Requests that a page shows at most, over all trials: some 200 bytes each.
const MOST_REQUESTS: usize = 16_000;
/// Of one trial at most.
const MOST_OF_A_TRIAL: usize = 8_000;
/// And at least, so that many trials do not leave each with nothing.
const LEAST_OF_A_TRIAL: usize = 40;
/// Trials that are shown in time: a page of thousands of them would be too large for any.
const MOST_TRIALS: usize = 200;
/// Stretches over which failures are counted.
const FAILURE_STRETCHES: usize = 120;
/// Kinds of failures of which a stretch keeps one request each.
const KINDS_OF_A_STRETCH: usize = 4;
/// What a stretch keeps at most: two of each of three metrics, and failures.
const OF_A_STRETCH: usize = 6 + KINDS_OF_A_STRETCH;

/// The data of a page beside the report.
#[derive(Debug, Default, Serialize)]
pub struct Points {
    /// Limits of the objectives on each request by their metric, seconds.
    pub(super) limits_seconds: BTreeMap<&'static str, f64>,
    /// Percentiles that distributions are given at.
    pub(super) percentiles: Vec<f64>,
    /// Trials, in the order of the report.
    pub(super) trials: Vec<TrialPoints>,
    /// Requests that the trials have in all.
    pub(super) requests: u64,
    /// Requests that are among the points.
    pub(super) shown: u64,
    /// Trials of which there are no points, because there are too many.
    pub(super) trials_left_out: u64,
}

/// The percentiles at which a distribution is given: closer together where it matters.
pub(super) fn percentiles() -> Vec<f64> {
    let whole = (0..=98).map(f64::from);
    whole.chain([98.5, 99.0, 99.25, 99.5, 99.75, 99.9, 99.95, 99.99, 100.0]).collect()
}

/// The points of a trial: columns of one length.
#[derive(Debug, Default, Serialize)]
pub(super) struct TrialPoints {
    pub(super) trial: TrialId,
    /// Requests of the trial.
    pub(super) requests: u64,
    /// Stretches of which extremes were kept; null where every request is shown.
    pub(super) stretches: Option<usize>,
    /// Every so many-th request was kept beside them.
    pub(super) every: Option<u64>,
    pub(super) agents: Vec<AgentName>,
    pub(super) outcomes: Vec<&'static str>,
    pub(super) columns: Columns,
    /// Of each metric its values at the percentiles, over the successes; empty without any.
    pub(super) distributions_seconds: BTreeMap<&'static str, Vec<f64>>,
    pub(super) samples: BTreeMap<&'static str, u64>,
    pub(super) failures: Failures,
    pub(super) lines: Vec<Line>,
}

/// Clocks are as in traces.jsonl.
#[derive(Debug, Default, Serialize)]
pub(super) struct Columns {
    pub(super) index: Vec<u64>,
    agent: Vec<usize>,
    outcome: Vec<usize>,
    scheduled_ns: Vec<Nanos>,
    released_ns: Vec<Option<Nanos>>,
    written_ns: Vec<Option<Nanos>>,
    first_content_ns: Vec<Option<Nanos>>,
    last_content_ns: Vec<Option<Nanos>>,
    finished_ns: Vec<Nanos>,
    ttft_seconds: Vec<Option<f64>>,
    tpot_seconds: Vec<Option<f64>>,
    e2e_seconds: Vec<f64>,
    client_queue_seconds: Vec<Option<f64>>,
    output_tokens: Vec<Option<u64>>,
}

/// Failures by when they ended.
#[derive(Debug, Default, Serialize)]
pub(super) struct Failures {
    stretch_seconds: f64,
    pub(super) by_kind: BTreeMap<&'static str, Vec<u64>>,
}

/// A request, as far as a chart needs it.
#[derive(Debug, Clone, Copy)]
struct Point {
    index: u64,
    agent: usize,
    outcome: usize,
    scheduled: Nanos,
    released: Option<Nanos>,
    written: Option<Nanos>,
    first: Option<Nanos>,
    last: Option<Nanos>,
    finished: Nanos,
    ttft: Option<f64>,
    tpot: Option<f64>,
    e2e: f64,
    queue: Option<f64>,
    tokens: Option<u64>,
}

/// What a stretch of time keeps.
#[derive(Debug, Clone, Default)]
struct Kept {
    /// The smallest and the largest of TTFT, TPOT and E2E.
    extremes: [Option<[Point; 2]>; 3],
    /// The first of each kind.
    failures: Vec<Point>,
}

/// Room for the requests and series of each of so many trials; none for those beyond the last that is shown.
pub(super) fn room(trials: usize, number: usize) -> Option<usize> {
    let each = MOST_REQUESTS / trials.clamp(1, MOST_TRIALS);
    (number < MOST_TRIALS).then(|| each.clamp(LEAST_OF_A_TRIAL, MOST_OF_A_TRIAL))
}

/// Takes the requests of a trial one by one. It keeps no more than `room` of them, and every latency, for the percentiles.
pub(super) struct Collector {
    points: TrialPoints,
    window: f64,
    every: u64,
    seen: u64,
    whole: bool,
    kept: Vec<Kept>,
    every_nth: Vec<Point>,
    samples: [Vec<f64>; 3],
}

const METRICS: [&str; 3] = ["ttft", "tpot", "e2e"];

impl Collector {
    /// For a trial of so many requests, whose window is so long.
    pub(super) fn new(trial: TrialId, requests: u64, window_seconds: f64, room: usize) -> Self {
        let whole = requests <= room as u64;
        let stretches = (room / 2 / OF_A_STRETCH).max(1);
        let every = if whole { 1 } else { requests.div_ceil((room / 2).max(1) as u64) };
        let points = TrialPoints {
            trial,
            requests,
            stretches: (!whole).then_some(stretches),
            every: (!whole).then_some(every),
            failures: Failures {
                stretch_seconds: window_seconds / FAILURE_STRETCHES as f64,
                by_kind: BTreeMap::new(),
            },
            ..TrialPoints::default()
        };
        let kept = if whole { Vec::new() } else { vec![Kept::default(); stretches] };
        let (every_nth, samples) = (Vec::new(), Default::default());
        Self { points, window: window_seconds, every, seen: 0, whole, kept, every_nth, samples }
    }

    /// A request that `agent` carried.
    pub(super) fn take(&mut self, agent: &AgentName, metrics: &RequestMetrics, facts: &Facts) {
        let failure = facts.outcome.failure().map(|f| f.kind.name());
        let outline = metrics.outline();
        let point = Point {
            index: facts.index.0,
            agent: position(&mut self.points.agents, agent.clone()),
            outcome: position(&mut self.points.outcomes, failure.unwrap_or("success")),
            scheduled: outline.scheduled,
            released: outline.released,
            written: outline.written,
            first: outline.first_content,
            last: outline.last_content,
            finished: outline.finished,
            ttft: metrics.ttft.map(Nanos::as_secs_f64),
            tpot: metrics.tpot.map(Tpot::as_secs_f64),
            e2e: metrics.e2e.as_secs_f64(),
            queue: metrics.client_queue.map(Nanos::as_secs_f64),
            tokens: facts.output_tokens.count,
        };
        match failure {
            Some(kind) => {
                let at = stretch(point.finished.as_secs_f64(), self.window, FAILURE_STRETCHES);
                let counts = self.points.failures.by_kind.entry(kind);
                counts.or_insert_with(|| vec![0; FAILURE_STRETCHES])[at] += 1;
            }
            None => {
                let values = [point.ttft, point.tpot, Some(point.e2e)];
                self.samples.iter_mut().zip(values).for_each(|(samples, value)| samples.extend(value));
            }
        }
        // Blocks come agent by agent, so the n-th that comes is any: the schedule's own order keeps the shape.
        if self.whole || point.index.is_multiple_of(self.every) {
            self.every_nth.push(point);
        }
        if !self.whole {
            let at = stretch(point.scheduled.as_secs_f64(), self.window, self.kept.len());
            self.kept[at].take(point, failure.is_some());
        }
        self.seen += 1;
    }

    /// What is shown of them.
    pub(super) fn finish(mut self) -> TrialPoints {
        let of_stretches = self
            .kept
            .iter()
            .flat_map(|kept| kept.extremes.iter().flatten().flatten().chain(&kept.failures).copied());
        let mut shown: Vec<Point> = self.every_nth.iter().copied().chain(of_stretches).collect();
        shown.sort_by_key(|p| (p.scheduled, p.index, p.agent));
        // Two traces of one arrival make a trial invalid; both are to be seen.
        let mut met = BTreeSet::new();
        shown.retain(|p| met.insert((p.index, p.agent, p.finished)));
        self.points.columns = Columns::of(&shown);
        let at = percentiles();
        for (metric, mut samples) in METRICS.into_iter().zip(self.samples) {
            samples.sort_unstable_by(f64::total_cmp);
            self.points.samples.insert(metric, samples.len() as u64);
            let values = at.iter().filter_map(|p| percentile(&samples, *p)).collect();
            self.points.distributions_seconds.insert(metric, values);
        }
        self.points
    }
}

impl Kept {
    fn take(&mut self, point: Point, failed: bool) {
        let values: [fn(&Point) -> Option<f64>; 3] = [|p| p.ttft, |p| p.tpot, |p| Some(p.e2e)];
        for (kept, value) in self.extremes.iter_mut().zip(values) {
            let Some(v) = value(&point) else { continue };
            let [low, high] = kept.get_or_insert([point; 2]);
            if value(low).is_some_and(|low| v < low) {
                *low = point;
            }
            if value(high).is_some_and(|high| v > high) {
                *high = point;
            }
        }
        let known = || self.failures.iter().any(|p| p.outcome == point.outcome);
        if failed && self.failures.len() < KINDS_OF_A_STRETCH && !known() {
            self.failures.push(point);
        }
    }
}

fn position<T: PartialEq>(list: &mut Vec<T>, value: T) -> usize {
    list.iter().position(|v| *v == value).unwrap_or_else(|| {
        list.push(value);
        list.len() - 1
    })
}

impl Columns {
    fn of(points: &[Point]) -> Self {
        fn column<T>(points: &[Point], of: impl Fn(&Point) -> T) -> Vec<T> {
            points.iter().map(of).collect()
        }
        Self {
            index: column(points, |p| p.index),
            agent: column(points, |p| p.agent),
            outcome: column(points, |p| p.outcome),
            scheduled_ns: column(points, |p| p.scheduled),
            released_ns: column(points, |p| p.released),
            written_ns: column(points, |p| p.written),
            first_content_ns: column(points, |p| p.first),
            last_content_ns: column(points, |p| p.last),
            finished_ns: column(points, |p| p.finished),
            ttft_seconds: column(points, |p| p.ttft),
            tpot_seconds: column(points, |p| p.tpot),
            e2e_seconds: column(points, |p| p.e2e),
            client_queue_seconds: column(points, |p| p.queue),
            output_tokens: column(points, |p| p.tokens),
        }
    }
}
