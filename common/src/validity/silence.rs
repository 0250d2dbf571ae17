//! When an engine fell silent: from some moment on nothing came from it, and requests ended without an answer.
//!
//! Silence alone says nothing about who is at fault: an engine that is overloaded refuses connections and breaks them,
//! and that is its result. Whoever led the trial has the engine looked at once no request is left, and only an engine
//! that is not there then has died. It must never call a trial anything by itself.

use std::collections::BTreeMap;

use crate::ids::Nanos;
use crate::trace::{Clocks, Facts, FailureKind};

/// How far apart the clocks of two agents of a trial may be: none is armed whose bound is wider.
const SKEW: Nanos = Nanos::from_secs(1);

/// An engine's silence to the end of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// Its last sign of life, since the trial's start; none when there never was one.
    pub since: Option<Nanos>,
    /// Requests that ended without an answer from about then on, by kind.
    pub lost: BTreeMap<FailureKind, u64>,
}

impl Silence {
    /// For a person.
    #[must_use]
    pub fn told(&self) -> String {
        let lost: Vec<String> = self.lost.iter().map(|(kind, n)| format!("{n} {}", kind.name())).collect();
        let since = self.since.map_or_else(
            || "nothing came from it in this trial".to_owned(),
            |at| format!("nothing came from it after {:.3} s", at.as_secs_f64()),
        );
        format!("{since} ({})", lost.join(", "))
    }
}

/// Looks at the requests of a trial, one after the other in any order.
#[derive(Debug, Clone, Default)]
pub struct Listener {
    last_sign: Option<Nanos>,
    unanswered: Vec<(Nanos, FailureKind)>,
}

impl Listener {
    /// Takes a request in.
    pub fn hear(&mut self, clocks: &Clocks, facts: &Facts) {
        self.last_sign = self.last_sign.max(last_sign(clocks, facts));
        if let Some(failure) = facts.outcome.failure().filter(|f| is_silence(f.kind)) {
            self.unanswered.push((clocks.finished, failure.kind));
        }
    }

    /// The silence at the end of the trial; none when the last that was heard is the engine.
    #[must_use]
    pub fn silence(&self) -> Option<Silence> {
        let from = self.last_sign.unwrap_or_default() - SKEW;
        let mut lost = BTreeMap::new();
        for (_, kind) in self.unanswered.iter().filter(|(at, _)| *at >= from) {
            *lost.entry(*kind).or_default() += 1;
        }
        (!lost.is_empty()).then_some(Silence { since: self.last_sign, lost })
    }
}

/// What a request ends as when nobody answers any more.
fn is_silence(kind: FailureKind) -> bool {
    use FailureKind::{Connect, Reset, TimeoutIdle, TimeoutTotal, Tls, TruncatedStream};
    matches!(kind, Connect | Reset | Tls | TimeoutIdle | TimeoutTotal | TruncatedStream)
}

/// The last instant at which a request shows that the engine was there.
fn last_sign(clocks: &Clocks, facts: &Facts) -> Option<Nanos> {
    // A connection that was there before says nothing; a new one, that somebody listened.
    let met = clocks.connected.filter(|at| clocks.released.is_some_and(|released| *at > released));
    let answered = facts.http_status.is_some()
        && facts.outcome.failure().is_none_or(|f| !is_silence(f.kind) && f.kind != FailureKind::Cancelled);
    [met, clocks.headers, clocks.last_content(), answered.then_some(clocks.finished)]
        .into_iter()
        .flatten()
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Channel, ContentEvent, Failure, Outcome, Trace, Unsent};

    fn at(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    fn ended(kind: Option<FailureKind>, finished: u64) -> Trace {
        let failure = Failure::new(kind.unwrap_or(FailureKind::Connect), "");
        let mut trace = Trace::unsent(Unsent::default(), failure, at(finished));
        if kind.is_none() {
            trace.facts.outcome = Outcome::Success;
            trace.facts.http_status = Some(200);
            trace.clocks.headers = Some(at(finished - 100));
        }
        trace
    }

    fn silence(traces: &[Trace]) -> Option<Silence> {
        let mut listener = Listener::default();
        traces.iter().for_each(|t| listener.hear(&t.clocks, &t.facts));
        listener.silence()
    }

    #[test]
    fn an_engine_that_dies_is_silent_from_its_last_answer_on() {
        let traces = [
            ended(None, 900),
            ended(Some(FailureKind::Reset), 1_000),
            ended(Some(FailureKind::Connect), 1_500),
            ended(Some(FailureKind::Connect), 9_000),
        ];
        let lost = [(FailureKind::Connect, 2), (FailureKind::Reset, 1)].into();
        let found = silence(&traces).unwrap();
        assert_eq!(found, Silence { since: Some(at(900)), lost });
        assert_eq!(found.told(), "nothing came from it after 0.900 s (2 connect, 1 reset)");
        let never = silence(&traces[2..]).unwrap();
        assert_eq!(never.told(), "nothing came from it in this trial (2 connect)");
    }

    /// A burst of refusals, however long, that is followed by an answer.
    #[test]
    fn an_overloaded_engine_that_answers_again_is_not_silent() {
        let mut traces: Vec<Trace> = (0..500).map(|n| ended(Some(FailureKind::Connect), 1_000 + n)).collect();
        traces.push(ended(None, 4_000));
        assert_eq!(silence(&traces), None);
        assert_eq!(silence(&[]), None);
        let refused = ended(Some(FailureKind::HttpStatus), 5_000);
        assert_eq!(silence(&[refused]), None, "a status is an answer");
    }

    /// Clocks of two agents differ by less than a second: which of them was last is not known to the millisecond.
    #[test]
    fn a_loss_just_before_the_last_answer_may_have_come_after_it() {
        let traces = [ended(Some(FailureKind::Reset), 4_500), ended(None, 4_510)];
        assert!(silence(&traces).is_some());
    }

    #[test]
    fn a_stream_that_is_cut_is_a_sign_until_its_last_text() {
        let mut cut = ended(Some(FailureKind::TimeoutIdle), 60_000);
        cut.facts.http_status = Some(200);
        cut.clocks.headers = Some(at(100));
        cut.clocks.content = vec![ContentEvent { at: at(700), channel: Channel::Answer }];
        assert_eq!(silence(&[cut]).unwrap().since, Some(at(700)));
        // Somebody accepted a new connection at 300 ms.
        let mut met = ended(Some(FailureKind::TimeoutTotal), 30_000);
        (met.clocks.released, met.clocks.connected) = (Some(at(299)), Some(at(300)));
        assert_eq!(silence(&[met]).unwrap().since, Some(at(300)));
    }

    #[test]
    fn what_the_generator_did_is_no_silence() {
        for kind in [FailureKind::Cancelled, FailureKind::NotDispatched, FailureKind::LocalLimit] {
            assert_eq!(silence(&[ended(None, 900), ended(Some(kind), 5_000)]), None, "{kind:?}");
        }
    }
}
