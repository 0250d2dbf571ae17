//! How a request ended: the rules of the specification, section 2, that need the whole of it.

use common::ids::Nanos;
use common::trace::{Failure, FailureKind, Outcome};

use super::Stream;
use crate::engine::events::{self, Meaning};
use crate::engine::sse;

/// Finish reasons that say that the engine gave up.
const ABORTED: &[&str] = &["abort", "error", "canceled", "cancelled"];

impl Stream {
    /// `[DONE]`, or what stands for it in the engine's dialect.
    pub(super) fn ended_with_mark(&mut self, at: Nanos) {
        if let Some(aborted) = self.aborted() {
            self.fail(at, aborted);
        } else if self.trace.clocks.content.is_empty() {
            self.fail(at, Failure::new(FailureKind::NoContent, "the stream ended without any text"));
        } else {
            self.decide(at, Outcome::Success);
        }
    }

    /// The body ended as HTTP says, and no end mark was in it.
    pub(super) fn ended_without_mark(&mut self, at: Nanos) {
        let facts = &self.trace.facts;
        if facts.data_events == 0 {
            let failure = self.no_stream();
            return self.fail(at, failure);
        }
        if facts.finish_reason.is_some() && !self.rules.sends_done {
            return self.ended_with_mark(at);
        }
        let message = match &facts.finish_reason {
            Some(_) => "the body ended without [DONE], though with a finish reason",
            None => "the body ended without finish reason and [DONE]",
        };
        let truncated = Failure::new(FailureKind::TruncatedStream, message);
        self.fail(at, self.aborted().unwrap_or(truncated));
    }

    /// A successful status, and then not one event.
    fn no_stream(&mut self) -> Failure {
        let body = std::mem::take(&mut self.preamble);
        let whole = sse::Event { name: b"", data: &body, comment: b"", error: b"" };
        let failure = match events::classify(whole) {
            Ok(Meaning::Error(error)) => {
                Failure::new(FailureKind::ErrorEvent, labelled("an error instead of a stream", &error.label))
            }
            _ if self.is_event_stream || body.trim_ascii().is_empty() => {
                return Failure::new(FailureKind::NoContent, "the body ended without any event");
            }
            _ => Failure::new(FailureKind::MalformedStream, "the body is not an event stream"),
        };
        self.error_body = body;
        failure
    }

    pub(super) fn aborted(&self) -> Option<Failure> {
        let reason = self.trace.facts.finish_reason.as_deref()?;
        let gave_up = ABORTED.contains(&reason);
        gave_up.then(|| Failure::new(FailureKind::EngineAborted, format!("finish reason {reason}")))
    }

    pub(super) fn bad_status(&self, status: u16) -> Failure {
        let label = events::error_in(&self.error_body).label;
        Failure::new(FailureKind::HttpStatus, labelled(&format!("status {status}"), &label))
    }

    pub(super) fn status_is_success(&self) -> bool {
        self.trace.facts.http_status.is_some_and(|s| (200..300).contains(&s))
    }

    pub(super) fn decide(&mut self, at: Nanos, outcome: Outcome) {
        if self.verdict.is_none() {
            self.verdict = Some(outcome);
            self.trace.clocks.finished = at;
        }
    }
}

pub(super) fn labelled(what: &str, label: &str) -> String {
    if label.is_empty() { what.to_owned() } else { format!("{what} ({label})") }
}
