//! The metrics of one request: the one place where clocks become latencies.
//!
//! Every output takes its numbers from here, so that a metric cannot mean two things. A metric that the
//! specification (section 1) calls undefined is `None` here and never 0: a stream that came in one read has no TPOT,
//! a request that waited for a permit has no dispatch lateness. This module must never divide a chunk's gap by its
//! tokens: a chunk is not a token. The tables in the tests below guard the definitions.

use crate::ids::Nanos;
use crate::slo::{SloMetric, SloSet};
use crate::trace::{Channel, Clocks, Facts, FailureKind, ItlEvidence, Outcome, Outline, Trace};

/// Time per output token, kept as the two numbers it is made of, so that it is held against a limit exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tpot {
    /// Last content − first content. Never 0.
    pub span: Nanos,
    /// Output tokens − 1. Never 0.
    pub gaps: u64,
}

impl Tpot {
    /// Seconds per output token.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.span.0 as f64 / self.gaps as f64 / 1e9
    }

    /// Whether it is above `limit`.
    #[must_use]
    pub fn exceeds(self, limit: Nanos) -> bool {
        u128::from(self.span.0) > u128::from(limit.0) * u128::from(self.gaps)
    }
}

/// What the clocks of one request say. `None` is undefined by the table of the specification, section 1.
#[derive(Debug, Clone, Copy)]
pub struct RequestMetrics {
    /// First content − scheduled. None without content.
    pub ttft: Option<Nanos>,
    /// First content − written. None without content.
    pub service_ttft: Option<Nanos>,
    /// Finished − scheduled.
    pub e2e: Nanos,
    /// Released − scheduled for a request that waited for a permit, else 0. None when never released.
    pub client_queue: Option<Nanos>,
    /// Connected − released. None when never connected.
    pub connect: Option<Nanos>,
    /// Released − scheduled for a request that did not wait for a permit. None when it waited or was never released.
    pub dispatch_lateness: Option<Nanos>,
    /// (Last content − first content)/(output tokens − 1). None when the tokens are unknown or fewer than 2, or when
    /// all text came in one read.
    pub tpot: Option<Tpot>,
    /// What the engine says that it spent on the request, from acceptance to the last token, on its own clock. None
    /// where it does not say. It stands beside E2E and never instead of it.
    pub engine_time: Option<Nanos>,
    /// (Finished − written) − `engine_time`, at least 0: what network, HTTP and both ends' handling took. From
    /// `written`, so that a wait in the client is not charged to the network. None without an engine time, and for a
    /// failure: what ended it need not be in the engine's time.
    pub engine_overhead: Option<Nanos>,
    outline: Outline,
    itl_proven: bool,
}

impl RequestMetrics {
    /// The metrics of a request. Its text is not needed, so that a re-analysis can leave it on disk.
    #[must_use]
    pub fn of(clocks: &Clocks, facts: &Facts) -> Self {
        Self::of_outline(clocks.into(), facts)
    }

    /// The same, of a request whose content events stay packed.
    #[must_use]
    pub fn of_outline(clocks: Outline, facts: &Facts) -> Self {
        let (first, last) = (clocks.first_content, clocks.last_content);
        let waited = facts.waited_for_permit;
        let after_schedule = clocks.released.map(|r| r.since(clocks.scheduled));
        let engine_time = facts.engine_time.total();
        let served = clocks.written.filter(|_| facts.outcome.is_success()).map(|d| clocks.finished.since(d));
        Self {
            ttft: first.map(|f| f.since(clocks.scheduled)),
            service_ttft: first.zip(clocks.written).map(|(f, d)| f.since(d)),
            e2e: clocks.finished.since(clocks.scheduled),
            client_queue: after_schedule.map(|wait| if waited { wait } else { Nanos::ZERO }),
            connect: clocks.connected.zip(clocks.released).map(|(c, r)| c.since(r)),
            dispatch_lateness: after_schedule.filter(|_| !waited),
            tpot: first.zip(last).zip(facts.output_tokens.count).and_then(|((f, l), n)| tpot(f, l, n)),
            engine_time,
            engine_overhead: served.zip(engine_time).map(|(served, engine)| served.since(engine)),
            outline: clocks,
            itl_proven: facts.itl_evidence == ItlEvidence::Proven,
        }
    }

    /// The metrics of a whole trace.
    #[must_use]
    pub fn of_trace(trace: &Trace) -> Self {
        Self::of(&trace.clocks, &trace.facts)
    }

    /// First event with visible text in `channel` − scheduled. None where the request had no such channel.
    #[must_use]
    pub fn first_in(&self, channel: Channel) -> Option<Nanos> {
        self.outline.first_in(channel).map(|at| at.since(self.outline.scheduled))
    }

    /// The largest inter-token latency: of the chunk gaps of a request whose evidence proves one token for every
    /// content event. None without proof or with fewer than two content events.
    #[must_use]
    pub fn largest_itl(&self) -> Option<Nanos> {
        self.outline.largest_gap.filter(|_| self.itl_proven)
    }

    /// Whether its chunk gaps are proven to be inter-token latencies.
    #[must_use]
    pub fn itl_proven(&self) -> bool {
        self.itl_proven
    }

    /// Content events of the request.
    #[must_use]
    pub fn content_events(&self) -> u64 {
        self.outline.content_events
    }

    /// The instants that they come from.
    #[must_use]
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// When it ended.
    #[must_use]
    pub fn finished(&self) -> Nanos {
        self.outline.finished
    }

    /// The metric that an objective limits, in seconds.
    #[must_use]
    pub fn seconds(&self, metric: SloMetric) -> Option<f64> {
        match metric {
            SloMetric::Ttft => self.ttft.map(Nanos::as_secs_f64),
            SloMetric::Tpot => self.tpot.map(Tpot::as_secs_f64),
            SloMetric::E2e => Some(self.e2e.as_secs_f64()),
            SloMetric::Itl => self.largest_itl().map(Nanos::as_secs_f64),
        }
    }

    /// Whether the request is good, or everything that made it not so.
    ///
    /// A failure is lost to its kind alone: its latencies are not held against the objectives. A success is lost to
    /// *each* objective that it misses, and to `short_output`. Objectives over the trial play no part here. Without
    /// any objective a success with full output is good.
    #[must_use]
    pub fn losses(&self, facts: &Facts, slos: &SloSet) -> Losses {
        let mut losses = Losses::default();
        if let Outcome::Failure(failure) = &facts.outcome {
            losses.insert(LossCause::Failure(failure.kind));
            return losses;
        }
        if facts.short_output {
            losses.insert(LossCause::ShortOutput);
        }
        for (metric, limit) in slos.each_request() {
            let above = |value: Option<Nanos>| value.is_none_or(|v| v > limit);
            let missed = match metric {
                SloMetric::Ttft => above(self.ttft).then_some(LossCause::Ttft),
                SloMetric::E2e => above(Some(self.e2e)).then_some(LossCause::E2e),
                SloMetric::Itl => above(self.largest_itl()).then_some(LossCause::Itl),
                SloMetric::Tpot => match self.tpot {
                    None => Some(LossCause::TpotUndefined),
                    Some(tpot) => tpot.exceeds(limit).then_some(LossCause::Tpot),
                },
            };
            if let Some(cause) = missed {
                losses.insert(cause);
            }
        }
        losses
    }
}

fn tpot(first: Nanos, last: Nanos, tokens: u64) -> Option<Tpot> {
    let (span, gaps) = (last.since(first), tokens.saturating_sub(1));
    (span > Nanos::ZERO && gaps > 0).then_some(Tpot { span, gaps })
}

/// Why a scheduled request was not good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossCause {
    /// It failed.
    Failure(FailureKind),
    /// TTFT above its limit.
    Ttft,
    /// TPOT above its limit.
    Tpot,
    /// No TPOT: an undefined metric cannot meet an objective on it.
    TpotUndefined,
    /// E2E above its limit.
    E2e,
    /// The largest proven gap above its limit, or none proven.
    Itl,
    /// Fewer tokens than asked for under `ignore_eos`.
    ShortOutput,
}

impl LossCause {
    const OF_SUCCESS: [Self; 6] =
        [Self::Ttft, Self::Tpot, Self::TpotUndefined, Self::E2e, Self::Itl, Self::ShortOutput];

    /// The name used in every output; a failure's is that of its kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Failure(kind) => kind.name(),
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::TpotUndefined => "tpot_undefined",
            Self::E2e => "e2e",
            Self::Itl => "itl",
            Self::ShortOutput => "short_output",
        }
    }

    /// Every cause: the failure kinds, then what a success can be lost to.
    pub fn all() -> impl Iterator<Item = Self> {
        FailureKind::ALL.iter().map(|&kind| Self::Failure(kind)).chain(Self::OF_SUCCESS)
    }

    fn bit(self) -> u32 {
        let position = Self::all().position(|c| c == self).unwrap_or_default();
        1 << position
    }
}

/// The set of causes that one request was lost to; empty for a good one. A bit set: one is made for every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses(u32);

impl Losses {
    fn insert(&mut self, cause: LossCause) {
        self.0 |= cause.bit();
    }

    /// The request is good: a success that meets every objective on it.
    #[must_use]
    pub fn is_good(self) -> bool {
        self.0 == 0
    }

    /// Each cause once.
    pub fn iter(self) -> impl Iterator<Item = LossCause> {
        LossCause::all().enumerate().filter(move |(i, _)| self.0 >> i & 1 != 0).map(|(_, cause)| cause)
    }
}

#[cfg(test)]
mod tests;
