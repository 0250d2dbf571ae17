//! The seconds that are not over yet: what is known of each, until it is closed and becomes a point.
//!
//! Numbers of a second come from several hosts, and late: traces are spooled and sent in blocks, heartbeats come once a
//! second. So a second is closed [`OPEN_FOR`] after its end; what comes later is counted and enters no point. It must
//! never show a second of which something was dropped as if it were whole: such a second has no number from traces.

use std::collections::{BTreeMap, VecDeque};

use common::ids::Nanos;
use common::stats::Samples;

use super::counter::Counter;
use super::point::{Metric, Values};
use super::request::Finished;

/// How long after its end a second waits for what belongs to it.
pub(super) const OPEN_FOR: Nanos = Nanos::from_millis(1_500);

/// TTFTs that are kept of one second, 512 KiB: more finish in none that a coordinator keeps up with.
const MOST_SAMPLES: usize = 65_536;

/// Seconds that can be open at once. After a longer silence of the live view's own task, what lies between is passed
/// over.
const MOST_OPEN: usize = 8;

/// A GPU: an agent's name and its position in that agent's inventory.
pub(super) type GpuKey = (String, u8);

/// A mean of what was said in one second.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mean {
    sum: f64,
    n: u32,
}

impl Mean {
    /// Another value.
    pub(super) fn add(&mut self, value: f64) {
        self.sum += value;
        self.n += 1;
    }

    /// The mean; none of nothing.
    #[must_use]
    pub(super) fn get(self) -> Option<f64> {
        (self.n > 0).then(|| self.sum / f64::from(self.n))
    }
}

/// What is known of one second.
#[derive(Debug, Clone, Default)]
pub(super) struct Second {
    /// The trial under way; where one ended and another began, the one that ended.
    pub trial: Option<u32>,
    /// Requests per second.
    pub offered: Option<f64>,
    /// Traces of it were dropped on their way here.
    pub partial: bool,
    successes: u64,
    good: u64,
    failed: u64,
    ttft: Vec<f64>,
    /// In flight, the last that was said.
    pub in_flight: Option<f64>,
    /// Of the worst agent, seconds.
    pub lateness_p99: Option<f64>,
    /// Watts.
    pub power: BTreeMap<GpuKey, Mean>,
    /// Bytes.
    pub memory: BTreeMap<GpuKey, f64>,
    /// The engine's running and waiting requests and the share of its KV cache.
    pub engine: [Mean; 3],
}

impl Second {
    fn finished(&mut self, request: &Finished) {
        if !request.success {
            self.failed += 1;
            return;
        }
        self.successes += 1;
        self.good += u64::from(request.good);
        if let Some(ttft) = request.ttft.filter(|_| self.ttft.len() < MOST_SAMPLES) {
            self.ttft.push(ttft.as_secs_f64());
        }
    }
}

/// Where the numbers of finished requests come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sources {
    /// Traces come while a trial runs: TTFT and goodput are known.
    pub traces: bool,
    /// There are objectives on a request.
    pub goodput: bool,
}

/// The open seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Seconds {
    /// Of the first of them, since the live view's start.
    first: u32,
    open: VecDeque<Second>,
    /// Requests whose traces came after their second was closed.
    pub late: u64,
}

impl Seconds {
    /// The second at this instant; none when it is closed, or far ahead.
    pub(super) fn at(&mut self, since_start: Nanos) -> Option<&mut Second> {
        let at = u32::try_from(since_start.0 / 1_000_000_000).ok()?;
        let place = at.checked_sub(self.first).map(|n| n as usize);
        match place {
            Some(place) if place < MOST_OPEN => {
                while self.open.len() <= place {
                    self.open.push_back(Second::default());
                }
                self.open.get_mut(place)
            }
            _ => None,
        }
    }

    /// A request of this trial finished at this instant. In a second of another trial it is not counted: the numbers
    /// of a second are of one trial.
    pub(super) fn finished(&mut self, trial: u32, since_start: Nanos, request: &Finished) {
        match self.at(since_start) {
            None => self.late += 1,
            Some(second) => {
                if *second.trial.get_or_insert(trial) == trial {
                    second.finished(request);
                }
            }
        }
    }

    /// Something of the seconds that are open was dropped.
    pub(super) fn are_partial(&mut self) {
        self.open.iter_mut().for_each(|second| second.partial = true);
    }

    /// The next second that is over at `since_start`, with its start in seconds.
    pub(super) fn close(&mut self, since_start: Nanos) -> Option<(u32, Second)> {
        let end = Nanos::from_secs(u64::from(self.first) + 1) + OPEN_FOR;
        if since_start < end {
            return None;
        }
        let behind = (since_start - end).0 / 1_000_000_000;
        if behind > MOST_OPEN as u64 && self.open.is_empty() {
            // Nobody looked for long: there is nothing to show of that time.
            self.first += u32::try_from(behind).unwrap_or(u32::MAX - self.first);
        }
        let at = self.first;
        self.first += 1;
        Some((at, self.open.pop_front().unwrap_or_default()))
    }
}

/// Makes a point of a second that is over. `counters` are those of the trial under way: released, ended well, failed.
#[must_use]
pub(super) fn values(at: u32, second: &Second, counters: &[Counter; 3], sources: Sources) -> Values {
    let mut values = Values::default();
    let (from, to) = (Nanos::from_secs(u64::from(at)), Nanos::from_secs(u64::from(at) + 1));
    let [sent, succeeded, failed] = counters.each_ref().map(|c| c.rise(from, to));
    values.set(Metric::Offered, second.offered);
    let whole = second.trial.is_some() && sources.traces && !second.partial;
    let known = |n: u64| whole.then_some(n as f64);
    values.set(Metric::Sent, sent.filter(|_| second.trial.is_some()));
    if second.trial.is_some() {
        values.set(Metric::Achieved, if sources.traces { known(second.successes) } else { succeeded });
        values.set(Metric::Failed, if sources.traces { known(second.failed) } else { failed });
        values.set(Metric::Goodput, known(second.good).filter(|_| sources.goodput));
        values.set(Metric::InFlight, second.in_flight);
        values.set(Metric::LatenessP99, second.lateness_p99);
    }
    if whole {
        let ttft = Samples::new(second.ttft.clone()).distribution();
        values.set(Metric::TtftP50, ttft.p50);
        values.set(Metric::TtftP99, ttft.p99);
    }
    let watts: Vec<f64> = second.power.values().filter_map(|mean| mean.get()).collect();
    values.set(Metric::GpuPower, (!watts.is_empty()).then(|| watts.iter().sum()));
    values.set(Metric::GpuMemory, (!second.memory.is_empty()).then(|| second.memory.values().sum()));
    let [running, waiting, kv] = second.engine;
    values.set(Metric::EngineRunning, running.get());
    values.set(Metric::EngineWaiting, waiting.get());
    values.set(Metric::KvCache, kv.get());
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(ttft_millis: u64, good: bool) -> Finished {
        Finished { at: Nanos(0), success: true, good, ttft: Some(Nanos::from_millis(ttft_millis)) }
    }

    const ALL: Sources = Sources { traces: true, goodput: true };

    fn one_second(partial: bool, sources: Sources) -> Values {
        let mut seconds = Seconds::default();
        let at = |millis| Nanos::from_millis(millis);
        seconds.finished(0, at(100), &request(10, true));
        seconds.finished(0, at(900), &request(30, false));
        seconds.finished(0, at(1_100), &request(500, true));
        seconds.at(at(0)).unwrap().trial = Some(0);
        if partial {
            seconds.are_partial();
        }
        assert!(seconds.close(at(2_499)).is_none(), "it waits for what comes late");
        let (start, second) = seconds.close(at(2_500)).unwrap();
        seconds.finished(0, at(500), &request(1, true));
        assert_eq!((start, seconds.late), (0, 1));
        values(start, &second, &Default::default(), sources)
    }

    #[test]
    fn a_second_has_the_percentiles_and_counts_of_what_finished_in_it() {
        let v = one_second(false, ALL);
        let of = |metric| v.get(metric);
        assert_eq!((of(Metric::Achieved), of(Metric::Goodput)), (Some(2.0), Some(1.0)));
        assert_eq!(of(Metric::Failed), Some(0.0));
        assert!((of(Metric::TtftP50).unwrap() - 0.02).abs() < 1e-9);
        assert!(of(Metric::TtftP99).unwrap() > 0.029);
        assert_eq!(of(Metric::GpuPower), None, "what nobody recorded is not 0");
    }

    #[test]
    fn what_was_dropped_or_does_not_come_is_not_shown_as_nothing() {
        for v in [one_second(true, ALL), one_second(false, Sources { traces: false, goodput: true })] {
            for metric in [Metric::Achieved, Metric::Goodput, Metric::Failed, Metric::TtftP99] {
                assert_eq!(v.get(metric), None, "{}", metric.name());
            }
        }
        assert_eq!(one_second(false, Sources { traces: true, goodput: false }).get(Metric::Goodput), None);
    }

    #[test]
    fn a_second_of_two_trials_has_the_numbers_of_one() {
        let mut seconds = Seconds::default();
        (0..3).for_each(|_| seconds.finished(4, Nanos(0), &request(10, true)));
        (0..9).for_each(|_| seconds.finished(5, Nanos(1), &request(10, true)));
        let (at, second) = seconds.close(Nanos::from_secs(9)).unwrap();
        assert_eq!(second.trial, Some(4));
        assert_eq!(values(at, &second, &Default::default(), ALL).get(Metric::Achieved), Some(3.0));
    }

    #[test]
    fn open_seconds_are_bounded() {
        let mut seconds = Seconds::default();
        (0..10_000).for_each(|s| seconds.finished(0, Nanos::from_secs(s), &request(1, true)));
        assert_eq!((seconds.open.len(), seconds.late), (MOST_OPEN, 10_000 - MOST_OPEN as u64));
        let mut samples = Seconds::default();
        (0..MOST_SAMPLES + 9).for_each(|_| samples.finished(0, Nanos(0), &request(1, true)));
        assert_eq!(samples.open[0].ttft.len(), MOST_SAMPLES);
        // The view's own task slept for an hour.
        let mut idle = Seconds::default();
        assert!(idle.close(Nanos::from_secs(3_600)).unwrap().0 > 3_580);
    }
}
