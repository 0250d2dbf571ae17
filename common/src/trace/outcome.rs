//! How a request ended, and whose fault a failure was.

use serde::{Deserialize, Serialize};

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// 2xx, content, no error event, a clean end.
    Success,
    /// Anything else.
    Failure(Failure),
}

impl Outcome {
    /// A success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Success)
    }

    /// The failure, if it is one.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Success => None,
            Self::Failure(f) => Some(f),
        }
    }
}

/// Why a request failed: data, not an error of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What happened.
    pub kind: FailureKind,
    /// Details for a person: short, one line, without prompts and secrets.
    pub message: String,
}

impl Failure {
    /// A failure of `kind`.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Kind and message, for a person.
    #[must_use]
    pub fn told(&self) -> String {
        headed(self.kind.name(), &self.message)
    }
}

/// `text` under a heading, which is left out where `text` begins with that word: "connect to h:1: connection refused"
/// needs no "connect: " before it.
#[must_use]
pub fn headed(heading: &str, text: &str) -> String {
    let rest = text.strip_prefix(heading);
    if rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')) {
        return text.to_owned();
    }
    format!("{heading}: {text}")
}

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The engine answered wrongly, too late or not at all.
    Engine,
    /// The network between agent and engine.
    Network,
    /// The declared concurrency limit was the bottleneck: the trial is degraded (client-limited).
    Limit,
    /// The generator: the trial is invalid, and the engine is not charged.
    Generator,
}

macro_rules! failure_kinds {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $class:ident;)*) => {
        /// The kinds of failure. The names are those of the specification, section 2.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum FailureKind { $($(#[$doc])* $variant,)* }

        impl FailureKind {
            /// Every kind, in the order of the specification.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name used in every output.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Whose fault it is.
            #[must_use]
            pub fn class(self) -> FailureClass {
                match self { $(Self::$variant => FailureClass::$class),* }
            }
        }
    };
}

failure_kinds! {
    /// A status other than 2xx.
    HttpStatus = "http_status", Engine;
    /// An error event in the stream, after a 2xx.
    ErrorEvent = "error_event", Engine;
    /// Finish reason `abort`, `error` or `canceled`.
    EngineAborted = "engine_aborted", Engine;
    /// A clean end without any text.
    NoContent = "no_content", Engine;
    /// The body ended before the stream did.
    TruncatedStream = "truncated_stream", Engine;
    /// The body is not what the protocol says.
    MalformedStream = "malformed_stream", Engine;
    /// Not finished within the total timeout, counted from `written`.
    TimeoutTotal = "timeout_total", Engine;
    /// No further content within the idle timeout, counted from the last content event.
    TimeoutIdle = "timeout_idle", Engine;
    /// No connection could be made.
    Connect = "connect", Network;
    /// The TLS handshake failed.
    Tls = "tls", Network;
    /// The connection broke after the request was written.
    Reset = "reset", Network;
    /// Still waiting for a permit at `scheduled` + timeout.
    ClientQueueTimeout = "client_queue_timeout", Limit;
    /// Proven never sent.
    NotDispatched = "not_dispatched", Generator;
    /// The agent is gone and the fate unknown: the engine may have served it.
    AgentLost = "agent_lost", Generator;
    /// Ports, files or memory of the generator's host ran out.
    LocalLimit = "local_limit", Generator;
    /// Cut by the operator while in flight.
    Cancelled = "cancelled", Generator;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_is_said_once() {
        let told = |kind, message: &str| Failure::new(kind, message).told();
        let refused = "connect to h:1: connection refused";
        assert_eq!(told(FailureKind::Connect, refused), refused);
        assert_eq!(told(FailureKind::Reset, "broken pipe"), "reset: broken pipe");
        assert_eq!(headed("connect", &headed("connect", refused)), refused);
        assert_eq!(headed("connect", "connection refused"), "connect: connection refused");
        assert_eq!(headed("tls", ""), "tls: ");
    }

    #[test]
    fn every_name_is_its_serde_name() {
        for kind in FailureKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
