//! TLS on the agent's side: whom it trusts, what it shows, and what a failure means for the person at this end.
//!
//! Only the authorities of `--tls-ca` are trusted, never those of the system: a coordinator is one machine of a lab, and
//! nobody else's certificate should do.

use std::error::Error;
use std::path::{Path, PathBuf};

use proto::tls::{Identity, TlsFileError, certificates, failure};
use tonic::transport::{Certificate, ClientTlsConfig};

use super::limits::HANDSHAKE_WITHIN;
use super::{AgentError, JoinError};

/// What `--tls-ca` and its company say, read and checked.
#[derive(Clone)]
pub struct JoinTls {
    authorities: Vec<u8>,
    /// Certificate and key, as PEM.
    identity: Option<(Vec<u8>, Vec<u8>)>,
    name: Option<String>,
}

impl std::fmt::Debug for JoinTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinTls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl JoinTls {
    /// Reads the authorities and, for mutual TLS, this agent's certificate and key.
    ///
    /// # Errors
    /// [`AgentError::Tls`] with the option and the file.
    pub fn read(
        ca: &Path,
        identity: Option<(&Path, &Path)>,
        name: Option<String>,
    ) -> Result<Self, AgentError> {
        let authorities = read("--tls-ca", ca)?;
        certificates(&authorities).map_err(|e| wrong("--tls-ca", ca, e))?;
        let identity = match identity {
            None => None,
            Some((cert, key)) => {
                let (chain, key_pem) = (read("--tls-cert", cert)?, read("--tls-key", key)?);
                let parsed = certificates(&chain).map_err(|e| wrong("--tls-cert", cert, e))?;
                Identity::new(parsed, &key_pem).map_err(|e| {
                    let why = match e {
                        TlsFileError::KeyMismatch => format!("{e} of --tls-cert {}", cert.display()),
                        other => other.to_string(),
                    };
                    wrong("--tls-key", key, why)
                })?;
                Some((chain, key_pem))
            }
        };
        Ok(Self { authorities, identity, name })
    }

    /// For tonic. `host` is what was dialled, and the name that is asked for where none was given.
    pub(super) fn config(&self, host: &str) -> ClientTlsConfig {
        let name = self.name.as_deref().unwrap_or(host).trim_start_matches('[').trim_end_matches(']');
        let config = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&self.authorities))
            .domain_name(name)
            .timeout(HANDSHAKE_WITHIN);
        match &self.identity {
            Some((cert, key)) => config.identity(tonic::transport::Identity::from_pem(cert, key)),
            None => config,
        }
    }
}

fn wrong(option: &'static str, path: &Path, reason: impl ToString) -> AgentError {
    AgentError::Tls { option, path: PathBuf::from(path), reason: reason.to_string() }
}

fn read(option: &'static str, path: &Path) -> Result<Vec<u8>, AgentError> {
    std::fs::read(path).map_err(|e| wrong(option, path, e))
}

/// What TLS has to do with a failure to join; none when nothing. What only this agent's options can mend is fatal; what
/// the coordinator can mend is waited for.
pub(super) fn trouble(join: &str, error: &(dyn Error + 'static)) -> Option<JoinError> {
    use rustls::{CertificateError as Bad, Error as Tls, InvalidMessage};
    let again = |what: &str| Some(JoinError::Again(format!("the coordinator at {join} {what}")));
    let fatal = |message: &str| {
        Some(JoinError::Fatal(AgentError::Refused { join: join.to_owned(), message: message.to_owned() }))
    };
    match failure(error) {
        Some(Tls::InvalidCertificate(bad)) => {
            return again(match bad {
                Bad::UnknownIssuer | Bad::BadSignature => {
                    "shows a certificate that --tls-ca has not signed: compare --tls-ca here with --tls-cert there"
                }
                Bad::Expired | Bad::ExpiredContext { .. } => {
                    "shows a certificate that has expired: give it a new one with --tls-cert, or set this host's clock"
                }
                Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                    "shows a certificate that is not valid yet: set the clocks of both hosts"
                }
                Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                    "shows a certificate for another name: join by a name that it has, or give one with --tls-name"
                }
                _ => "shows a certificate that cannot be used: give it another with --tls-cert",
            });
        }
        Some(Tls::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            return again(
                "speaks without TLS: start it with --tls-cert and --tls-key, or this agent without https:// and --tls-ca",
            );
        }
        _ => {}
    }
    // HTTP/2 keeps of an error below it only the words.
    let mut next = Some(error);
    while let Some(error) = next {
        let words = error.to_string();
        if words.contains("this coordinator speaks TLS") {
            return fatal(
                "it speaks TLS, and this agent does not: start it with https:// in --join, and --tls-ca",
            );
        }
        if words.contains("alert: CertificateRequired") {
            return fatal(
                "it wants a certificate of this agent: give --tls-cert and --tls-key, signed by its --tls-client-ca",
            );
        }
        for (alert, why) in [
            ("CertificateExpired", "it has expired"),
            ("UnknownCA", "its --tls-client-ca has not signed it"),
            ("BadCertificate", "it cannot be used"),
            ("UnsupportedCertificate", "it cannot be used"),
            ("CertificateUnknown", "it cannot be used"),
            ("DecryptError", "its --tls-client-ca has not signed it"),
        ] {
            if words.contains(&format!("alert: {alert}")) {
                return fatal(&format!(
                    "it does not take this agent's certificate ({why}): give another with --tls-cert and --tls-key"
                ));
            }
        }
        next = error.source();
    }
    None
}
