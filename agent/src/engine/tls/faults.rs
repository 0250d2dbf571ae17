//! What goes wrong in TLS, in words that say what to do.
//!
//! Nothing of a key or of what was sent is in them. Names in a certificate come from whoever answered: they are cut
//! short and shown only where they are plain text.

use std::io::{self, ErrorKind};

use common::trace::{Failure, FailureKind};
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use super::super::faults;

/// Of the names that a certificate is for, this many are shown.
const NAMES_SHOWN: usize = 3;
/// And of each no more than this many bytes.
const NAME_BYTES: usize = 40;
/// What is said of bytes that make no sense.
const NOT_TLS: &str = "what the engine sent is not TLS";
/// Begins what is said of an alert.
const ALERT: &str = "the engine ended the handshake";

/// A handshake that failed, with `to` as HOST:PORT.
pub(super) fn handshake(to: &str, error: &io::Error) -> Failure {
    match cause(error) {
        Some(cause) => Failure::new(FailureKind::Tls, format!("tls to {to}: {}", explain(cause))),
        None if error.kind() == ErrorKind::UnexpectedEof => {
            Failure::new(FailureKind::Tls, format!("tls to {to}: {ALERT} by closing the connection"))
        }
        None => Failure::new(
            faults::kind_of(error, FailureKind::Tls),
            format!("tls to {to}: {}", faults::plain(error)),
        ),
    }
}

/// A failure of TLS after the handshake, if it is one.
pub(in super::super) fn in_flight(error: &io::Error) -> Option<Failure> {
    let why = match cause(error)? {
        // That it spoke TLS is known by now.
        Error::InvalidMessage(_) => NOT_TLS.to_owned(),
        cause => explain(cause),
    };
    Some(Failure::new(FailureKind::Tls, format!("tls: {why}")))
}

/// The engine wants to know who this agent is.
pub(super) fn no_certificate(to: &str) -> Failure {
    let message = format!(
        "tls to {to}: the engine wants a client certificate, and this agent has none; give one with --engine-cert and --engine-key"
    );
    Failure::new(FailureKind::Tls, message)
}

/// It was the engine that ended TLS.
pub(super) fn is_alert(failure: &Failure) -> bool {
    failure.kind == FailureKind::Tls && failure.message.contains(ALERT)
}

fn cause(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(e) => certificate(e),
        Error::AlertReceived(alert) => self::alert(*alert),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "what answered does not speak TLS; does its address begin with http://?".into()
        }
        Error::PeerIncompatible(_) => "the engine speaks no version or cipher of TLS that is safe".into(),
        Error::PeerSentOversizedRecord | Error::InvalidMessage(_) | Error::DecryptError => NOT_TLS.into(),
        other => format!("{other:?}").chars().take(80).collect(),
    }
}

fn certificate(error: &CertificateError) -> String {
    use CertificateError as E;
    match error {
        E::UnknownIssuer => {
            "its certificate is of an authority that is not trusted here; give that authority's with --engine-ca".into()
        }
        E::Expired | E::ExpiredContext { .. } => {
            "its certificate has expired; renew it, or check this host's clock".into()
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "its certificate is not valid yet; check this host's clock".into()
        }
        E::NotValidForNameContext { expected, presented } => {
            let names: Vec<String> = presented.iter().take(NAMES_SHOWN).map(|name| shown(name)).collect();
            let names = if names.is_empty() { "no name at all".to_owned() } else { names.join(", ") };
            format!("its certificate is not for {} but for {names}; check --base-url", shown(&expected.to_str()))
        }
        E::NotValidForName => "its certificate is for another name; check --base-url".into(),
        E::BadSignature => "its certificate is not signed by the authority that it names; check --engine-ca".into(),
        E::Revoked => "its certificate has been revoked".into(),
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "its certificate is not for a server (extended key usage serverAuth)".into()
        }
        E::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "its certificate is an authority's own; it needs one of a server, signed by that authority".into()
        }
        other => format!("its certificate is no good: {}", shown(&format!("{other:?}"))),
    }
}

fn alert(alert: AlertDescription) -> String {
    use AlertDescription as A;
    match alert {
        A::CertificateRequired => {
            format!("{ALERT}: it wants a client certificate; give one with --engine-cert and --engine-key")
        }
        A::BadCertificate
        | A::UnsupportedCertificate
        | A::CertificateRevoked
        | A::CertificateExpired
        | A::CertificateUnknown
        | A::UnknownCA
        | A::AccessDenied
        | A::DecryptError => {
            format!("{ALERT}: it does not accept this agent's certificate ({alert:?}); check --engine-cert")
        }
        A::ProtocolVersion | A::InsufficientSecurity => {
            format!("{ALERT}: it speaks no version or cipher of TLS that is safe ({alert:?})")
        }
        A::NoApplicationProtocol => format!("{ALERT}: it does not speak HTTP/1.1"),
        A::UnrecognisedName => format!("{ALERT}: it does not know its own name; check --base-url"),
        other => format!("{ALERT} ({other:?})"),
    }
}

/// Text of somebody else, for a message.
fn shown(text: &str) -> String {
    let plain: String = text.chars().filter(char::is_ascii_graphic).take(NAME_BYTES).collect();
    if plain.is_empty() { "something unreadable".into() } else { plain }
}
