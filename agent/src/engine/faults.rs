//! Gives what the network does a name from the specification.
//!
//! Messages are for people: one line, lowercase, with the address where there is one, without anything that was sent
//! or received.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, ErrorKind};

use common::trace::{Failure, FailureKind};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, TRANSFER_ENCODING};
use rustix::io::Errno;

use super::stream::BodyEnd;
use super::tls;

/// A connection that could not be made.
pub(super) fn connect(to: impl Display, error: &io::Error) -> Failure {
    Failure::new(kind_of(error, FailureKind::Connect), format!("connect to {to}: {}", plain(error)))
}

/// A request to which no response head came.
pub(super) fn before_head(error: &hyper::Error) -> Failure {
    if error.is_parse() {
        // hyper's words for what it could not parse quote nothing.
        return Failure::new(
            FailureKind::MalformedStream,
            format!("the response head is malformed: {error}"),
        );
    }
    match io_cause(error) {
        Some(cause) => broken(cause),
        None => Failure::new(FailureKind::Reset, "the connection was closed before a response head came"),
    }
}

/// A response whose body went wrong.
pub(super) fn in_body(error: &hyper::Error) -> BodyEnd {
    let cause = io_cause(error);
    // Before the others: rustls calls it invalid data, as a chunked body that is malformed.
    if let Some(failure) = cause.and_then(tls::in_flight) {
        return BodyEnd::Broken(failure);
    }
    match cause {
        Some(cause) if cause.kind() == ErrorKind::UnexpectedEof => BodyEnd::Truncated,
        Some(cause) if matches!(cause.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData) => {
            let message = format!("the chunked body is malformed: {}", plain(cause));
            BodyEnd::Broken(Failure::new(FailureKind::MalformedStream, message))
        }
        Some(cause) => BodyEnd::Broken(broken(cause)),
        None if error.is_incomplete_message() => BodyEnd::Truncated,
        None => BodyEnd::Broken(Failure::new(
            FailureKind::Reset,
            "the connection broke in the middle of the body",
        )),
    }
}

/// The coding of a body that is not the bytes themselves, such as gzip, as short text. It is never taken off: a
/// kilobyte may hold a gigabyte, and nobody asked for it.
pub(super) fn coding(headers: &HeaderMap) -> Option<String> {
    let of =
        |name| headers.get_all(name).into_iter().flat_map(|value| value.as_bytes().split(|b| *b == b','));
    let plain = |coding: &&[u8]| {
        coding.is_empty() || [&b"identity"[..], b"chunked"].iter().any(|p| coding.eq_ignore_ascii_case(p))
    };
    let mut codings = of(CONTENT_ENCODING).chain(of(TRANSFER_ENCODING)).map(<[u8]>::trim_ascii);
    let coding = codings.find(|coding| !plain(coding))?;
    let shown = coding.iter().map(|b| char::from(*b)).filter(char::is_ascii_graphic).take(20);
    Some(shown.collect())
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

fn broken(cause: &io::Error) -> Failure {
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

fn io_cause(error: &hyper::Error) -> Option<&io::Error> {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref() {
            return Some(io);
        }
        cause = inner.source();
    }
    None
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
    fn a_coding_is_named_unless_it_is_none() {
        let coding_of = |values: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            values.iter().for_each(|(name, value)| {
                headers.append(*name, value.parse().unwrap());
            });
            coding(&headers)
        };
        for none in [&[][..], &[("content-encoding", "identity")], &[("transfer-encoding", " Chunked")]] {
            assert_eq!(coding_of(none), None);
        }
        assert_eq!(coding_of(&[("content-encoding", "gzip")]).as_deref(), Some("gzip"));
        assert_eq!(coding_of(&[("content-encoding", "identity, br")]).as_deref(), Some("br"));
        let twice = [("content-encoding", "identity"), ("content-encoding", "zstd")];
        assert_eq!(coding_of(&twice).as_deref(), Some("zstd"));
        assert_eq!(coding_of(&[("transfer-encoding", "gzip, chunked")]).as_deref(), Some("gzip"));
    }

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
