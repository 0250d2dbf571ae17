//! Gives what the network does a name from the specification.
//!
//! Messages are for people: one line, lowercase, with the address where there is one, without anything that was sent
//! or received.

use std::fmt::Display;
use std::io::{self, ErrorKind};

use common::trace::{Failure, FailureKind};
use rustix::io::Errno;

use super::connection::Broken;
use super::stream::BodyEnd;
use super::tls;

/// A connection that could not be made.
pub(super) fn connect(to: impl Display, error: &io::Error) -> Failure {
    Failure::new(kind_of(error, FailureKind::Connect), format!("connect to {to}: {}", plain(error)))
}

/// A response whose body went wrong.
pub(super) fn in_body(broken: &Broken) -> BodyEnd {
    match broken {
        Broken::Closed => BodyEnd::Truncated,
        Broken::Io(cause) => match tls::in_flight(cause) {
            Some(failure) => BodyEnd::Broken(failure),
            // Inside TLS a connection ends with a word, and this one did not.
            None if cause.kind() == ErrorKind::UnexpectedEof => BodyEnd::Truncated,
            None => BodyEnd::Broken(self::broken(cause)),
        },
        Broken::Malformed(what) => {
            let message = format!("the chunked body is malformed: {what}");
            BodyEnd::Broken(Failure::new(FailureKind::MalformedStream, message))
        }
        // Only before a head.
        Broken::Endless => BodyEnd::Broken(broken.before_head()),
    }
}

/// A body that cannot be read because of its `coding`.
pub(super) fn coded(coding: &str) -> Failure {
    let message = format!(
        "the body is compressed ({coding}), which was not asked for; have the engine or its proxy send it as it is"
    );
    Failure::new(FailureKind::MalformedStream, message)
}

/// The operator cut the request.
pub(super) fn cancelled() -> Failure {
    Failure::new(FailureKind::Cancelled, "cut while in flight")
}

/// A socket, or TLS over it, that failed in the middle of an exchange.
pub(super) fn broken(cause: &io::Error) -> Failure {
    if let Some(failure) = tls::in_flight(cause) {
        return failure;
    }
    if cause.kind() == ErrorKind::UnexpectedEof {
        // rustls says it at length, with a link: inside TLS a connection ends with a word, and this one did not.
        return Failure::new(FailureKind::Reset, "the connection was closed");
    }
    Failure::new(kind_of(cause, FailureKind::Reset), plain(cause))
}

/// `otherwise`, unless this host ran out of something.
pub(super) fn kind_of(error: &io::Error, otherwise: FailureKind) -> FailureKind {
    if is_local_limit(error) { FailureKind::LocalLimit } else { otherwise }
}

/// This host has no more ports, files or memory: not the engine's fault, nor the network's.
fn is_local_limit(error: &io::Error) -> bool {
    let limits = [Errno::ADDRNOTAVAIL, Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    error.raw_os_error().is_some_and(|code| limits.contains(&Errno::from_raw_os_error(code)))
}

/// "connection refused", not "Connection refused (os error 111)".
pub(super) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_out_on_this_host_is_not_charged_to_the_network() {
        for limit in [Errno::ADDRNOTAVAIL, Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS] {
            let error = io::Error::from_raw_os_error(limit.raw_os_error());
            assert_eq!(connect("h:1", &error).kind, FailureKind::LocalLimit, "{error}");
            assert_eq!(broken(&error).kind, FailureKind::LocalLimit, "{error}");
        }
        for network in [Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::TIMEDOUT] {
            let error = io::Error::from_raw_os_error(network.raw_os_error());
            assert_eq!(connect("h:1", &error).kind, FailureKind::Connect, "{error}");
        }
        let refused = io::Error::from_raw_os_error(Errno::CONNREFUSED.raw_os_error());
        assert_eq!(connect("h:1", &refused).message, "connect to h:1: connection refused");
    }
}
