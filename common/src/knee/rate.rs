//! The repeats of one rate, pooled.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::search::Cut;
use crate::plan::OfferedRate;
use crate::slo::{Slo, Target};
use crate::stats::{Distribution, Interval, NoInterval, Spread, Value, pooled_share};
use crate::summary::{Numbers, P99WithFailures, TrialSummary};
use crate::validity::Verdict;

/// A trial of a sweep.
#[derive(Debug, Clone, Copy)]
pub struct TrialRef<'a> {
    /// Its configured rate.
    pub rate: OfferedRate,
    /// Its numbers.
    pub summary: &'a TrialSummary,
    /// What a search left away of it, where it ended it early.
    pub cut: Option<Cut>,
}

/// How many trials have each verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VerdictCounts {
    /// Valid ones.
    pub valid: u32,
    /// Late ones.
    pub late: u32,
    /// Degraded ones.
    pub degraded: u32,
    /// Invalid ones.
    pub invalid: u32,
}

impl VerdictCounts {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.valid + self.late + self.degraded + self.invalid
    }

    /// Trials with `verdict`.
    #[must_use]
    pub fn of(&self, verdict: Verdict) -> u32 {
        match verdict {
            Verdict::Valid => self.valid,
            Verdict::Late => self.late,
            Verdict::Degraded => self.degraded,
            Verdict::Invalid => self.invalid,
        }
    }

    /// The worst verdict that some trial has; valid without trials.
    #[must_use]
    pub fn worst(&self) -> Verdict {
        Verdict::ALL.iter().rev().copied().find(|&v| self.of(v) > 0).unwrap_or_default()
    }

    fn add(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Valid => &mut self.valid,
            Verdict::Late => &mut self.late,
            Verdict::Degraded => &mut self.degraded,
            Verdict::Invalid => &mut self.invalid,
        } += 1;
    }
}

/// The per-trial medians, 90th and 99th percentiles of one metric, over the repeats. Seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SpreadPair {
    /// Of the per-trial p50.
    pub p50: Option<Spread>,
    /// Of the per-trial p90.
    #[serde(default)]
    pub p90: Option<Spread>,
    /// Of the per-trial p99.
    pub p99: Option<Spread>,
    /// Of the per-trial p99 when each failure counts as infinite; none for the client queue.
    pub p99_with_failures_as_infinite: Option<Spread>,
    /// A trial had too few samples for its p99.
    pub p99_thin: bool,
}

/// The headline percentiles of a rate, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RateLatency {
    /// TTFT.
    pub ttft: SpreadPair,
    /// TPOT.
    pub tpot: SpreadPair,
    /// E2E.
    pub e2e: SpreadPair,
    /// Client queue.
    pub client_queue: SpreadPair,
}

/// An objective over the trial, over the repeats of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PooledObjective {
    /// The objective.
    pub objective: Slo,
    /// The per-trial percentiles, seconds.
    pub value: Spread,
    /// Their median is at most the limit.
    pub met: bool,
}

/// One rate of a sweep.
///
/// Its numbers are over its valid trials; where none is valid, the rate is undecided and they are over all that could
/// be summarised, for a reader to see. `trials_used` says how many that are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateResult {
    /// As configured: a number, or `inf`.
    pub offered_rate: String,
    /// Requests per second; none for `inf`.
    pub offered_rate_per_second: Option<f64>,
    /// Trials at this rate.
    pub repeats: u32,
    /// Trials that the numbers are over.
    pub trials_used: u32,
    /// At least one trial is valid.
    pub decided: bool,
    /// Trials that a search ended early. Where there are whole ones the numbers are over those; but the rate does not pass,
    /// for they would be a selection (see [`Self::is_decided`]).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut_trials: u32,
    /// Where all trials used were ended early: the attainment, had all that was left away been good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_attainment_at_most: Option<f64>,
    /// The trials' verdicts.
    pub verdicts: VerdictCounts,
    /// Scheduled requests of the trials used.
    pub requests: u64,
    /// Failed ones.
    pub failed: u64,
    /// Failures by kind.
    pub failures_by_kind: BTreeMap<String, u64>,
    /// Good requests; none without objectives.
    pub good: Option<u64>,
    /// `good` / `requests`: pooled over the repeats.
    pub slo_attainment: Option<f64>,
    /// Its 95% confidence interval, over the batches of all trials used; where one of them has none, no interval, and
    /// the smallest and largest attainment of a trial.
    #[serde(default = "no_interval")]
    pub slo_attainment_interval: Interval,
    /// Trials used in which the engine was saturated.
    #[serde(default)]
    pub saturated_trials: u32,
    /// What was lost to each cause.
    pub slo_lost_by_cause: BTreeMap<String, u64>,
    /// The objectives over the trial.
    pub objectives: Vec<PooledObjective>,
    /// Achieved rate, per second.
    pub achieved_rate_per_second: Option<Spread>,
    /// Request throughput, per second.
    pub request_throughput_per_second: Option<Spread>,
    /// Output token throughput, per second.
    pub output_token_throughput_per_second: Option<Spread>,
    /// Goodput, per second.
    pub goodput_requests_per_second: Option<Spread>,
    /// The headline percentiles.
    pub latency_seconds: RateLatency,
}

impl RateResult {
    /// Whether its trials say that it passes, or that it fails. With trials that a search ended early it can only fail: by
    /// its whole trials, or by what was missed already, however good the rest might have been.
    #[must_use]
    pub fn is_decided(&self, target: Target) -> bool {
        let fails = match self.slo_attainment_at_most {
            Some(most) => most < target.share(),
            None => !self.meets(target),
        };
        self.decided && (self.cut_trials == 0 || fails)
    }

    /// Whether the rate meets the target and every objective over the trial. An undecided rate is not asked.
    #[must_use]
    pub fn passes(&self, target: Target) -> bool {
        self.cut_trials == 0 && self.meets(target)
    }

    fn meets(&self, target: Target) -> bool {
        self.good.is_some_and(|good| target.is_met_by(good, self.requests))
            && self.objectives.iter().all(|o| o.met)
    }

    fn pool(rate: OfferedRate, trials: &[TrialRef<'_>]) -> Self {
        let mut verdicts = VerdictCounts::default();
        for trial in trials {
            verdicts.add(trial.summary.validity.verdict);
        }
        let decided = trials.iter().any(|t| counts(t.summary, true));
        // Whole ones alone, where a valid one is whole.
        let whole = trials.iter().any(|t| t.cut.is_none() && counts(t.summary, true));
        let counted = |t: &&TrialRef<'_>| counts(t.summary, decided) && (!whole || t.cut.is_none());
        let refs: Vec<&TrialRef<'_>> = trials.iter().filter(counted).collect();
        let used: Vec<&Numbers> = refs.iter().filter_map(|t| t.summary.numbers.as_ref()).collect();
        let requests = used.iter().map(|n| n.successful + n.failed).sum();
        let good = used.iter().map(|n| n.good).sum::<Option<u64>>().filter(|_| !used.is_empty());
        let spread = |of: fn(&Numbers) -> Option<f64>| Spread::of(used.iter().filter_map(|n| of(n)));
        let pair =
            |of: fn(&Numbers) -> &Distribution, all: fn(&P99WithFailures) -> Option<Value>| SpreadPair {
                p50: Spread::of(used.iter().filter_map(|n| of(n).p50)),
                p90: Spread::of(used.iter().filter_map(|n| of(n).p90)),
                p99: Spread::of(used.iter().filter_map(|n| of(n).p99)),
                p99_with_failures_as_infinite: Spread::of(
                    used.iter().filter_map(|n| all(&n.p99_with_failures_as_infinite_seconds)).map(Value::get),
                ),
                p99_thin: used.iter().any(|n| of(n).p99_thin),
            };
        Self {
            offered_rate: rate.to_string(),
            offered_rate_per_second: rate.per_second(),
            repeats: trials.len() as u32,
            trials_used: used.len() as u32,
            decided,
            cut_trials: trials.iter().filter(|t| t.cut.is_some()).count() as u32,
            slo_attainment_at_most: at_most(&refs),
            verdicts,
            requests,
            failed: used.iter().map(|n| n.failed).sum(),
            failures_by_kind: sums(used.iter().map(|n| &n.failures_by_kind)),
            good,
            slo_attainment: good.filter(|_| requests > 0).map(|good| good as f64 / requests as f64),
            slo_attainment_interval: attainment_interval(&used),
            saturated_trials: used.iter().filter(|n| n.saturated == Some(true)).count() as u32,
            slo_lost_by_cause: sums(used.iter().map(|n| &n.slo_lost_by_cause)),
            objectives: objectives(&used),
            achieved_rate_per_second: spread(|n| n.achieved_rate_per_second),
            request_throughput_per_second: spread(|n| n.request_throughput_per_second),
            output_token_throughput_per_second: spread(|n| n.output_token_throughput_per_second),
            goodput_requests_per_second: spread(|n| n.goodput_requests_per_second),
            latency_seconds: RateLatency {
                ttft: pair(|n| &n.latency_seconds.ttft, |p| p.ttft),
                tpot: pair(|n| &n.latency_seconds.tpot, |p| p.tpot),
                e2e: pair(|n| &n.latency_seconds.e2e, |p| p.e2e),
                client_queue: pair(|n| &n.latency_seconds.client_queue, |_| None),
            },
        }
    }
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The share of good requests of trials that were all ended early, had all that was left away been good.
fn at_most(trials: &[&TrialRef<'_>]) -> Option<f64> {
    let mut planned = 0;
    let mut missed = 0;
    for trial in trials {
        let numbers = trial.summary.numbers.as_ref()?;
        planned += trial.cut?.planned;
        missed += numbers.successful + numbers.failed - numbers.good?;
    }
    (planned > 0).then(|| 1.0 - missed as f64 / planned as f64)
}

fn no_interval() -> Interval {
    Interval::none(NoInterval::Undefined)
}

fn attainment_interval(used: &[&Numbers]) -> Interval {
    let values: Vec<f64> = used.iter().filter_map(|n| n.slo_attainment).collect();
    if values.is_empty() {
        return no_interval();
    }
    let batches = |n: &&Numbers| n.intervals.slo_attainment_batches.clone();
    match pooled_share(&used.iter().map(batches).collect::<Vec<_>>()) {
        Interval::None { reason, .. } => Interval::None {
            reason: common_reason(used).filter(|_| reason == NoInterval::NotEveryRepeat).unwrap_or(reason),
            min: values.iter().copied().reduce(f64::min),
            max: values.iter().copied().reduce(f64::max),
        },
        known => known,
    }
}

/// Why no trial has batches, where it is the same for all.
fn common_reason(used: &[&Numbers]) -> Option<NoInterval> {
    let mut reasons = used.iter().map(|n| n.intervals.slo_attainment.reason());
    let first = reasons.next()??;
    reasons.all(|r| r == Some(first)).then_some(first)
}

/// Whether a trial is used where only valid ones are (`decided`), or else any that has numbers.
fn counts(trial: &TrialSummary, decided: bool) -> bool {
    trial.numbers.is_some() && (!decided || trial.validity.is_valid())
}

/// Pools the trials by rate, lowest rate first and `inf` last.
pub fn pool_rates<'a>(trials: impl IntoIterator<Item = TrialRef<'a>>) -> Vec<RateResult> {
    let mut by_rate: Vec<(OfferedRate, Vec<TrialRef<'a>>)> = Vec::new();
    for trial in trials {
        match by_rate.iter_mut().find(|(rate, _)| *rate == trial.rate) {
            Some((_, same)) => same.push(trial),
            None => by_rate.push((trial.rate, vec![trial])),
        }
    }
    // Rates, then inf, then closed loops by their workers.
    let order = |rate: OfferedRate| (rate.per_second().unwrap_or(f64::INFINITY), rate.workers());
    by_rate.sort_by(|(a, _), (b, _)| {
        let ((rate_a, workers_a), (rate_b, workers_b)) = (order(*a), order(*b));
        rate_a.total_cmp(&rate_b).then(workers_a.cmp(&workers_b))
    });
    by_rate.into_iter().map(|(rate, trials)| RateResult::pool(rate, &trials)).collect()
}

fn sums<'a>(maps: impl Iterator<Item = &'a BTreeMap<String, u64>>) -> BTreeMap<String, u64> {
    let mut total: BTreeMap<String, u64> = BTreeMap::new();
    for (name, n) in maps.flatten() {
        *total.entry(name.clone()).or_default() += n;
    }
    total
}

fn objectives(used: &[&Numbers]) -> Vec<PooledObjective> {
    let Some(first) = used.first() else { return Vec::new() };
    let pooled = first.objectives.iter().map(|o| o.objective).filter_map(|objective| {
        let same = used.iter().flat_map(|n| &n.objectives).filter(|o| o.objective == objective);
        let value = Spread::of(same.filter_map(|o| o.value).map(Value::get))?;
        let met = value.median.get() <= objective.limit.as_secs_f64();
        Some(PooledObjective { objective, value, met })
    });
    pooled.collect()
}
