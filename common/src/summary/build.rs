//! From traces to a summary, one trace at a time.

use std::collections::BTreeMap;

use super::books::{Books, Rows};
use super::counts::Counts;
use super::gaps::Gaps;
use super::in_flight::Spans;
use super::latency::LatencySamples;
use super::queue::QueueTrend;
use super::replicas::ReplicaCounts;
use super::requests::Requests;
use super::tokens::TokenTally;
use super::{
    AgentSummary, InFlight, Intervals, Numbers, ObjectiveResult, Sample, Saturation, TrialInput, TrialSummary,
};
use crate::ids::{Digest, Nanos};
use crate::metrics::{LossCause, RequestMetrics};
use crate::offset::{Drift, Estimate};
use crate::plan::BaseUrl;
use crate::slo::{Slo, SloScope};
use crate::stats::{Distribution, NoInterval, Samples, percentile_with_infinite};
use crate::trace::{Facts, FailureKind, Outcome};
use crate::validity::{AgentEvidence, Evidence, judge};

/// Takes a trial's traces one at a time, in any order, and keeps samples only.
#[derive(Debug)]
pub struct Summariser<'a> {
    input: TrialInput<'a>,
    books: Books,
    agents: Vec<AgentCount>,
    replicas: ReplicaCounts,
    queue: QueueTrend,
    in_flight: Spans,
    stationary: bool,
    per_request: Requests,
    gaps: Gaps,
    threads: bool,
    window: Nanos,
    ended_within_length: u64,
    rows: Rows,
    failures: BTreeMap<FailureKind, u64>,
    lost: BTreeMap<LossCause, u64>,
    finish_reasons: BTreeMap<String, u64>,
    objectives: Vec<(Slo, Vec<f64>)>,
    counts: Counts,
    latency: LatencySamples,
    tokens: TokenTally,
}

#[derive(Debug, Default)]
struct AgentCount {
    requests: u64,
    failures: BTreeMap<FailureKind, u64>,
    lateness: Vec<f64>,
}

impl<'a> Summariser<'a> {
    /// Nothing recorded yet.
    #[must_use]
    pub fn new(input: TrialInput<'a>) -> Self {
        Self {
            books: Books::new(input.scheduled),
            agents: input.agents.iter().map(|_| AgentCount::default()).collect(),
            replicas: ReplicaCounts::default(),
            queue: QueueTrend::new(input.length),
            in_flight: Spans::default(),
            stationary: true,
            per_request: Requests::default(),
            gaps: Gaps::default(),
            threads: false,
            window: Nanos::ZERO,
            ended_within_length: 0,
            rows: Rows::default(),
            failures: BTreeMap::new(),
            lost: BTreeMap::new(),
            finish_reasons: BTreeMap::new(),
            objectives: input.slos.over_trial().map(|slo| (slo, Vec::new())).collect(),
            counts: Counts::default(),
            latency: LatencySamples::default(),
            tokens: TokenTally::default(),
            input,
        }
    }

    /// The load changes over the trial, as in a ramp (see [`crate::plan::ArrivalPlan::is_stationary`]): no intervals,
    /// and no saturation to speak of.
    #[must_use]
    pub fn not_stationary(self) -> Self {
        Self { stationary: false, ..self }
    }

    /// The arrivals went to the engines at `urls`, of which there are several, for a schedule with this digest.
    #[must_use]
    pub fn over_engines(self, urls: &[BaseUrl], schedule: Digest) -> Self {
        Self { replicas: ReplicaCounts::new(urls, schedule), ..self }
    }

    /// Computes the summary on two threads. Nothing in it changes by that.
    #[must_use]
    pub fn threaded(self, threads: bool) -> Self {
        Self { threads, ..self }
    }

    /// Takes a trace.
    pub fn add(&mut self, trace: Sample<'_>) {
        let Sample { clocks, facts, agent } = trace;
        let metrics = RequestMetrics::of(clocks, facts);
        if facts.outcome.is_success() {
            self.gaps.add(&metrics, clocks.chunk_gaps().map(|gap| gap.0));
        }
        self.take(agent, &metrics, facts);
    }

    /// Takes the gaps between the content events of successes that are taken by [`Summariser::take`].
    pub fn take_gaps(&mut self, gaps: Gaps) {
        self.gaps.absorb(gaps);
    }

    /// Takes a trace without its gaps (see [`Summariser::take_gaps`]), of the agent at this position in
    /// [`TrialInput::agents`].
    pub fn take(&mut self, agent: u16, metrics: &RequestMetrics, facts: &Facts) {
        let clocks = metrics.outline();
        let agent = self.agents.get_mut(usize::from(agent));
        self.books.enter(facts.index, agent.is_some());
        if let Some(agent) = agent {
            agent.requests += 1;
            agent.lateness.extend(metrics.dispatch_lateness.map(Nanos::as_secs_f64));
            if let Some(failure) = facts.outcome.failure() {
                *agent.failures.entry(failure.kind).or_default() += 1;
            }
        }
        self.replicas.add(metrics, facts);
        self.queue.add(clocks, facts);
        self.in_flight.add(clocks);
        self.window = self.window.max(clocks.finished);
        self.counts.reconnections += u64::from(facts.reconnections);
        self.counts.synthetic += u64::from(facts.synthetic);
        self.counts.repeated_prompts += u64::from(self.rows.repeats(facts.row));
        if let Some(reason) = &facts.finish_reason {
            count(&mut self.finish_reasons, reason);
        }
        let losses = metrics.losses(facts, self.input.slos);
        self.counts.good += u64::from(losses.is_good());
        self.per_request.add(metrics, facts.outcome.is_success(), losses.is_good());
        if !losses.is_good() {
            losses.iter().for_each(|cause| *self.lost.entry(cause).or_default() += 1);
        }
        match &facts.outcome {
            Outcome::Failure(failure) => *self.failures.entry(failure.kind).or_default() += 1,
            Outcome::Success => self.add_success(metrics, facts),
        }
    }

    fn add_success(&mut self, metrics: &RequestMetrics, facts: &Facts) {
        self.counts.add_success(facts, metrics.itl_proven());
        self.latency.add(metrics, facts);
        self.tokens.add(facts);
        for (slo, samples) in &mut self.objectives {
            samples.extend(metrics.seconds(slo.metric));
        }
        self.counts.content_events += metrics.content_events();
        let within = self.input.length.is_some_and(|length| metrics.finished() <= length);
        self.ended_within_length += u64::from(within);
    }

    /// Holds a success's known output tokens, `counted`, against its text tokenised again: evidence, and no number
    /// beside it changes.
    pub fn compare_retokenized(&mut self, counted: u64, retokenized: u64) {
        self.tokens.compare_retokenized(counted, retokenized);
    }

    /// The summary of the traces taken so far.
    #[must_use]
    pub fn finish(mut self) -> TrialSummary {
        let conservation = self.books.close();
        let recorded = conservation.recorded;
        let counted = std::mem::take(&mut self.agents);
        let mut agents = Vec::with_capacity(counted.len());
        let mut failures = Vec::with_capacity(counted.len());
        for (known, count) in self.input.agents.iter().zip(counted) {
            agents.push(AgentSummary {
                name: known.name.clone(),
                requests: count.requests,
                share: ratio(count.requests, recorded),
                failed: count.failures.values().sum(),
                dispatch_lateness_seconds: Distribution::of(count.lateness),
                // The model is the agent's: there the coordinator's is the other clock.
                clock_offset_seconds: known.clock.map(|c| 0.0 - c.offset_ns as f64 / 1e9),
                clock_bound_seconds: known.clock.map(|c| c.bound_ns as f64 / 1e9),
                clock_drift_ppm: drift(known.clock).map(|d| 0.0 - d.ppb as f64 / 1e3),
                clock_drift_bound_ppm: drift(known.clock).map(|d| d.bound_ppb as f64 / 1e3),
                start_skew_seconds: known.start_skew.map(Nanos::as_secs_f64),
                lost: known.lost,
                health: known.health,
            });
            failures.push(count.failures);
        }
        let evidence = Evidence {
            agents: (self.input.agents.iter().zip(&agents).zip(&failures))
                .map(|((known, agent), failures)| AgentEvidence {
                    name: &known.name,
                    lateness_p99: agent.dispatch_lateness_seconds.p99,
                    lateness_n: agent.dispatch_lateness_seconds.n,
                    clock_bound: known.clock.map(|c| Nanos(c.bound_ns)),
                    lost: known.lost,
                    health: known.health,
                    failures,
                })
                .collect(),
            conservation,
            queue_growth: self.queue.growth(),
            findings: self.input.findings,
        };
        let replicas = std::mem::take(&mut self.replicas).finish();
        let validity = judge(&evidence, &self.input.limits);
        let requests = self.input.scheduled;
        let numbers = conservation.holds().then(|| self.numbers());
        TrialSummary { requests, conservation, numbers, agents, replicas, validity }
    }

    fn numbers(self) -> Numbers {
        let Self { input, counts: c, window, .. } = self;
        let n = input.scheduled;
        let failed = n - c.successful;
        let per_window = |count: u64| (window > Nanos::ZERO).then(|| count as f64 / window.as_secs_f64());
        // No success, no tokens: 0 is the truth. Successes without any known count: it is unknown.
        let tokens_per_window =
            |tokens: u64, known: u64| per_window(tokens).filter(|_| known > 0 || c.successful == 0);
        let length = input.length.map(Nanos::as_secs_f64).filter(|&l| l > 0.0);
        let achieved = length.map(|l| self.ended_within_length as f64 / l);
        let output = tokens_per_window(c.output_tokens, c.with_output);
        let prompt = tokens_per_window(c.input_tokens, c.with_input);
        let good = (!input.slos.is_empty()).then_some(c.good);
        let lost = self.lost.iter().filter(|_| good.is_some());
        let steady_length = match length {
            None => Err(NoInterval::NoLength),
            Some(_) if !self.stationary => Err(NoInterval::NotStationary),
            Some(length) => Ok(length),
        };
        let steady = input.length.filter(|_| self.stationary);
        let (requests, latency, gaps) = (&self.per_request, self.latency, self.gaps);
        let in_flight = &self.in_flight;
        let ((latency_seconds, p99), (intervals, saturation, peak)) = both(
            self.threads,
            move || latency.distributions(requests, gaps, failed),
            || {
                let intervals = Intervals::of(requests, steady_length, good.is_some());
                let saturation = steady.and_then(|length| Saturation::of(in_flight.spans(), length.0));
                (intervals, saturation, in_flight.peak())
            },
        );
        let littles_law = achieved.zip(latency_seconds.e2e.mean).map(|(rate, e2e)| rate * e2e);
        let mean = self.in_flight.mean(window);
        Numbers {
            successful: c.successful,
            failed,
            failures_by_kind: self.failures.iter().map(|(kind, &n)| (kind.name().to_owned(), n)).collect(),
            duration_seconds: window.as_secs_f64(),
            offered_rate_per_second: input.offered.per_second(),
            scheduled_rate_per_second: length.map(|l| n as f64 / l),
            achieved_rate_per_second: achieved,
            request_throughput_per_second: per_window(c.successful),
            output_token_throughput_per_second: output,
            input_token_throughput_per_second: prompt,
            total_token_throughput_per_second: output.zip(prompt).map(|(o, p)| o + p),
            output_tokens: c.output_tokens,
            input_tokens: c.input_tokens,
            cached_tokens: (c.with_cached > 0).then_some(c.cached_tokens),
            requests_with_token_counts: c.with_output,
            requests_with_prompt_token_counts: c.with_input,
            requests_with_cached_token_counts: c.with_cached,
            token_count_sources: c.sources.iter().map(|(s, &n)| (s.name().to_owned(), n)).collect(),
            good,
            goodput_requests_per_second: good.and_then(per_window),
            slo_attainment: good.and_then(|good| ratio(good, n)),
            slo_lost_by_cause: lost.map(|(cause, &n)| (cause.name().to_owned(), n)).collect(),
            objectives: self.objectives.into_iter().filter_map(|(slo, s)| objective(slo, s, n)).collect(),
            in_flight: InFlight {
                mean,
                peak,
                littles_law,
                littles_law_relative_difference: littles_law
                    .zip(mean.filter(|&mean| mean > 0.0))
                    .map(|(law, mean)| law / mean - 1.0),
            },
            saturated: saturation.map(|s| s.is_saturated()),
            saturation,
            intervals,
            finish_reasons: self.finish_reasons,
            latency_seconds,
            p99_with_failures_as_infinite_seconds: p99,
            itl_proven_requests: c.itl_proven,
            token_evidence: self.tokens.evidence(),
            reconnections: c.reconnections,
            done_without_finish: c.done_without_finish,
            short_outputs: c.short_outputs,
            coalesced_streams: c.coalesced_streams,
            content_events: c.content_events,
            coalesced_events: c.coalesced_events,
            repeated_prompts: c.repeated_prompts,
            synthetic_traces: c.synthetic,
        }
    }
}

/// Both, on a thread each where there are `threads`.
fn both<A: Send, B>(threads: bool, one: impl FnOnce() -> A + Send, other: impl FnOnce() -> B) -> (A, B) {
    if !threads {
        return (one(), other());
    }
    std::thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        (one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), other)
    })
}

/// Over all `n` requests: one without a sample failed, or its metric is undefined and cannot meet an objective.
fn objective(slo: Slo, samples: Vec<f64>, n: u64) -> Option<ObjectiveResult> {
    let SloScope::Trial(percentile) = slo.scope else { return None };
    let samples = Samples::new(samples);
    let infinite = n.saturating_sub(samples.sorted().len() as u64);
    let value = percentile_with_infinite(samples.sorted(), infinite, percentile.value());
    let met = value.is_some_and(|v| v.get() <= slo.limit.as_secs_f64());
    Some(ObjectiveResult { objective: slo, value, met, infinite })
}

fn ratio(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    // The name is copied only when it is new.
    match counts.get_mut(name) {
        Some(n) => *n += 1,
        None => drop(counts.insert(name.to_owned(), 1)),
    }
}

fn drift(clock: Option<Estimate>) -> Option<Drift> {
    clock.and_then(|c| c.drift)
}
