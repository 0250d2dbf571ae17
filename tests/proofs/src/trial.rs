//! One trial of a known queue, from its schedule to its summary.
//!
//! Owns the part of the agent in this world without time: every clock is filled as an ideal agent would stamp it. The
//! schedule, its split, the traces' types and the summary are the real ones. Must never compute a latency: that is
//! what is on trial.

use std::time::Duration;

use common::ids::{AgentName, ArrivalIndex, Nanos};
use common::plan::{ArrivalPlan, Extent, OfferedRate, Process};
use common::schedule::Schedule;
use common::seed::Seed;
use common::slo::SloSet;
use common::split::{Share, owners};
use common::summary::{AgentInput, Numbers, Sample, TrialInput, TrialSummary, summarise};
use common::trace::{
    Channel, ContentEvent, Failure, FailureKind, Outcome, OutputTokens, TokenSource, Trace, Unsent,
};
use common::validity::ValidityLimits;
use sim_engine::Engine;
use sim_engine::closed_form::MmcQueue;
use sim_engine::engine::{Job, SeqId, Timing};
use sim_engine::mmc::MmcTiming;
use sim_engine::virtual_time::{Served, serve_limited};

/// Mean service time. Any would do: only its ratio to the gaps matters.
pub const SERVICE: Duration = Duration::from_millis(100);
/// A first and a last token, so that TTFT and E2E differ.
const TOKENS: u32 = 2;
const AGENTS: usize = 3;

/// A queue, and how much of it is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// Servers.
    pub servers: u32,
    /// ρ: the offered load as a share of what all servers can do.
    pub load: f64,
    /// Requests in the trial.
    pub requests: u64,
}

impl Case {
    /// As queueing theory writes it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("M/M/{} at {:.0}%", self.servers, self.load * 100.0)
    }

    /// μ, per second and server.
    #[must_use]
    pub fn service_rate(&self) -> f64 {
        1.0 / SERVICE.as_secs_f64()
    }

    /// The truth. None above a load of 1.
    #[must_use]
    pub fn truth(&self) -> Option<MmcQueue> {
        MmcQueue::new(self.rate(), self.service_rate(), self.servers)
    }

    /// λ, per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.load * f64::from(self.servers) * self.service_rate()
    }

    /// An idle engine whose service times this seed decides.
    #[must_use]
    pub fn engine(&self, seed: Seed) -> Engine {
        Engine::new(Timing::Mmc(MmcTiming {
            servers: self.servers as usize,
            max_queue: usize::MAX,
            mean_service: SERVICE,
            per_token: false,
            seed: seed.derive("service").0,
        }))
    }

    /// The plan of its arrivals.
    ///
    /// # Errors
    /// When the rate is none that can be offered.
    pub fn plan(&self) -> anyhow::Result<ArrivalPlan> {
        let rate = self.rate().to_string().parse()?;
        Ok(ArrivalPlan { process: Process::Poisson, rate, extent: Extent::Requests(self.requests) })
    }
}

/// What the engine's jobs look like.
#[must_use]
pub fn job() -> Job {
    Job::new(SeqId(0), 16, TOKENS)
}

/// A trial's traces and what is known beside them.
#[derive(Debug)]
pub struct Trial {
    /// The plan of the arrivals.
    pub plan: ArrivalPlan,
    /// One for each arrival, in order.
    pub traces: Vec<Trace>,
    owners: Vec<usize>,
    agents: Vec<AgentInput>,
}

impl Trial {
    /// An open loop with at most `permits` requests in flight.
    ///
    /// # Errors
    /// When the case cannot be planned.
    pub fn open(case: &Case, seed: Seed, permits: usize) -> anyhow::Result<Self> {
        Self::run(case, case.plan()?, seed, permits)
    }

    /// A closed loop of `workers`: what is scheduled is what is sent.
    ///
    /// # Errors
    /// When the case cannot be planned.
    pub fn closed(case: &Case, seed: Seed, workers: usize) -> anyhow::Result<Self> {
        let at_once = ArrivalPlan { rate: OfferedRate::Infinite, ..case.plan()? };
        let mut trial = Self::run(case, at_once, seed, workers)?;
        trial.count_from_dispatch();
        Ok(trial)
    }

    fn run(case: &Case, plan: ArrivalPlan, seed: Seed, permits: usize) -> anyhow::Result<Self> {
        let schedule = Schedule::generate(&plan, seed, 1)?;
        let names = (0..AGENTS).map(|i| Ok(format!("agent-{i}").parse()?));
        let names = names.collect::<anyhow::Result<Vec<AgentName>>>()?;
        let shares: Vec<Share> =
            names.iter().map(|agent| Share { agent: agent.clone(), weight: 1.0 }).collect();
        let owners = owners(&schedule, seed, &shares);
        let arrivals: Vec<(Duration, Job)> =
            schedule.arrivals.iter().map(|arrival| (arrival.at.to_duration(), job())).collect();
        let served = serve_limited(&mut case.engine(seed), &arrivals, permits);
        let traces = schedule.arrivals.iter().zip(&served);
        let traces = traces.map(|(arrival, served)| {
            let unsent = Unsent {
                index: arrival.index,
                scheduled: arrival.at,
                row: arrival.row,
                requested_tokens: TOKENS,
                prompt_tokens: None,
            };
            trace(unsent, served)
        });
        let agents = names
            .into_iter()
            .map(|name| AgentInput { name, clock: None, start_skew: None, lost: false, health: None })
            .collect();
        Ok(Self { plan, traces: traces.collect(), owners, agents })
    }

    /// Forgets when each request was due: it counts from when it was sent. In an open loop this is the error that is
    /// called coordinated omission.
    pub fn count_from_dispatch(&mut self) {
        for trace in &mut self.traces {
            trace.clocks.scheduled = trace.clocks.written.unwrap_or(trace.clocks.scheduled);
        }
    }

    /// Forgets every request that did not succeed.
    pub fn leave_failures_out(&mut self) {
        let succeeded: Vec<bool> = self.traces.iter().map(|trace| trace.facts.outcome.is_success()).collect();
        let keep = |place: usize| succeeded.get(place).copied().unwrap_or(false);
        let mut place = 0..;
        self.owners.retain(|_| place.next().is_some_and(keep));
        self.traces.retain(|trace| trace.facts.outcome.is_success());
        for (index, trace) in (0..).zip(&mut self.traces) {
            // Numbered anew, or the books would not balance and the error would show.
            trace.facts.index = ArrivalIndex(index);
        }
    }

    /// Moves each first token to the instant at which its service began, as of an engine that takes no time for a prompt:
    /// then the time to it is the wait, whose distribution is known.
    pub fn answer_at_once(&mut self) {
        for trace in &mut self.traces {
            if let [first, last] = trace.clocks.content.as_mut_slice() {
                // The tokens come evenly over the service; the division to nanoseconds may put it one before.
                let begun = first.at.0.saturating_sub(last.at.since(first.at).0);
                first.at = Nanos(begun).max(trace.clocks.written.unwrap_or_default());
            }
        }
    }

    /// What Plimsoll says of it; an error when the books do not balance.
    ///
    /// # Errors
    /// When a trace is missing or too many.
    pub fn numbers(&self, slos: &SloSet) -> anyhow::Result<Numbers> {
        let summary = self.summary(slos);
        summary.numbers.ok_or_else(|| anyhow::anyhow!("the books do not balance: {:?}", summary.conservation))
    }

    /// What Plimsoll says of it, with its verdict.
    #[must_use]
    pub fn summary(&self, slos: &SloSet) -> TrialSummary {
        let input = TrialInput {
            scheduled: self.traces.len() as u64,
            offered: self.plan.rate,
            length: self.plan.length(),
            slos,
            agents: &self.agents,
            limits: ValidityLimits::default(),
            findings: &[],
        };
        let samples = self.traces.iter().zip(&self.owners).map(|(trace, owner)| Sample {
            agent: u16::try_from(*owner).unwrap_or(u16::MAX),
            clocks: &trace.clocks,
            facts: &trace.facts,
        });
        summarise(input, samples)
    }
}

/// The trace that an ideal agent writes: it sends at the instant, and reads at the instant.
fn trace(unsent: Unsent, served: &Served) -> Trace {
    let ended = Nanos::from(served.ended);
    let mut trace = Trace::unsent(unsent, Failure::new(FailureKind::HttpStatus, "the queue was full"), ended);
    let released = Some(Nanos::from(served.released));
    let (clocks, facts) = (&mut trace.clocks, &mut trace.facts);
    clocks.released = released;
    clocks.connected = released;
    clocks.written = released;
    facts.waited_for_permit = released.is_some_and(|released| released > clocks.scheduled);
    if let (Some(first), Some(last)) = (served.first_token, served.last_token) {
        clocks.headers = Some(first.into());
        clocks.content =
            [first, last].map(|at| ContentEvent { at: at.into(), channel: Channel::Answer }).to_vec();
        facts.outcome = Outcome::Success;
        facts.output_tokens = OutputTokens { count: Some(TOKENS.into()), source: TokenSource::Usage };
        facts.data_events = TOKENS;
        facts.finish_reason = Some("length".to_owned());
        facts.done_seen = true;
    }
    trace
}

/// The request ends as a failure when its answer takes longer than this from its dispatch. (The engine does not
/// notice: its truth stays what it was.)
pub fn cut_at(trace: &mut Trace, timeout: Nanos) {
    let Some(written) = trace.clocks.written else { return };
    let deadline = written + timeout;
    if trace.clocks.finished > deadline {
        trace.clocks.finished = deadline;
        trace.clocks.content.retain(|event| event.at <= deadline);
        trace.facts.outcome = Outcome::Failure(Failure::new(FailureKind::TimeoutTotal, "it took too long"));
        trace.facts.finish_reason = None;
        trace.facts.done_seen = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_complete_valid_and_a_function_of_its_seed() {
        let case = Case { servers: 1, load: 0.5, requests: 500 };
        let trial = Trial::open(&case, Seed(3), usize::MAX).unwrap();
        let summary = trial.summary(&SloSet::default());
        assert!(summary.conservation.holds());
        assert!(summary.validity.is_valid(), "{:?}", summary.validity);
        let again = Trial::open(&case, Seed(3), usize::MAX).unwrap();
        assert_eq!(trial.traces, again.traces);
        assert_ne!(trial.traces, Trial::open(&case, Seed(4), usize::MAX).unwrap().traces);
        let numbers = summary.numbers.unwrap();
        assert_eq!((numbers.successful, numbers.output_tokens), (500, 1000));
        assert_eq!(numbers.latency_seconds.dispatch_lateness.max, Some(0.0));
    }

    #[test]
    fn a_timeout_counts_from_the_dispatch() {
        let case = Case { servers: 1, load: 0.9, requests: 200 };
        let mut trial = Trial::open(&case, Seed(1), 2).unwrap();
        let before = trial.traces.clone();
        trial.traces.iter_mut().for_each(|trace| cut_at(trace, Nanos::from_millis(150)));
        for (before, after) in before.iter().zip(&trial.traces) {
            let took = before.clocks.finished - before.clocks.written.unwrap();
            assert_eq!(after.facts.outcome.is_success(), took <= Nanos::from_millis(150));
            assert_eq!(after.clocks.scheduled, before.clocks.scheduled);
        }
    }
}
