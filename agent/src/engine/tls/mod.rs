//! TLS to the engine: whom this agent trusts, who it says it is, and the handshake.
//!
//! It exists apart because what it holds is read from this host's files and comes from no plan: a plan may say `https`,
//! and never whose certificate is good. [`Tls`] is that, once for an agent; `Session` is that for one engine.
//!
//! Without `--engine-ca` the authorities are those that this host trusts (rustls-native-certs), and not a list built
//! into the program (webpki-roots): whoever runs the host has often added an authority of their own, removes one that
//! has gone bad without waiting for a release, and expects to be heeded. `--engine-ca` replaces them: an engine with a
//! private authority is not also whoever any public one vouches for.
//!
//! The provider is ring and the protocol is HTTP/1.1 (ALPN), as without TLS: the measured path is one.
//!
//! Must never: accept a certificate that was not verified, show a key, or read from the network but in the handshake.
//!
//! Guarded by `tests/engine/tls.rs` (what is accepted and what is refused, by which words), `tls_stamp_tests` beside
//! this folder, and `tests/tests/tls.rs` (whole runs).

mod faults;
mod records;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use common::plan::BaseUrl;
use common::trace::{Failure, FailureKind};
use proto::tls::{Identity, TlsFileError, certificates, provider};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SignatureScheme};

use super::io::{Socket, Stamped};
pub(super) use faults::in_flight;
use records::Records;

/// The protocol that is spoken inside.
const ALPN: &[u8] = b"http/1.1";

/// Files that say whom to trust and who this agent is. All are PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities that may vouch for an engine, instead of those that this host trusts.
    pub ca: Option<PathBuf>,
    /// This agent's certificate, with those between it and its authority, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Why TLS cannot be set up. Nothing has been sent. No message holds anything of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error("{option} {}: {problem}", path.display())]
    File {
        /// The option that names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong, and what is expected.
        problem: String,
    },
    /// This host trusts nobody.
    #[error(
        "this host has no certificate authorities to trust ({0}); install its ca-certificates, or give the engine's with --engine-ca"
    )]
    NoAuthorities(String),
    /// rustls refuses what it was given.
    #[error("tls cannot be set up: {0}")]
    Refused(String),
    /// The host in the base URL is none that a certificate can be for.
    #[error("{0:?} is no name that a certificate can be for; check --base-url")]
    Name(String),
}

/// Whom this agent trusts, and who it says it is. Clones share it.
#[derive(Clone, Default)]
pub struct Tls(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Of `--engine-ca`; none means those that this host trusts.
    authorities: Option<Arc<RootCertStore>>,
    identity: Option<Arc<CertifiedKey>>,
    /// Made with the first https engine: an agent without one does not depend on what the host trusts.
    config: OnceLock<Result<ClientConfig, TlsError>>,
}

impl Tls {
    /// Reads `files`.
    ///
    /// # Errors
    /// [`TlsError::File`] and [`TlsError::Refused`].
    pub fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let authorities = files.ca.as_deref().map(authorities).transpose()?.map(Arc::new);
        let identity = files.identity.as_ref().map(|(cert, key)| identity(cert, key)).transpose()?;
        Ok(Self(Arc::new(Inner { authorities, identity, config: OnceLock::new() })))
    }

    /// For connections to the engine at `url`.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub(super) fn session(&self, url: &BaseUrl) -> Result<Session, TlsError> {
        let mut config = self.0.config.get_or_init(|| self.configure()).clone()?;
        let host = url.host();
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))?;
        let asked = Arc::new(Asked { identity: self.0.identity.clone(), unmet: AtomicBool::new(false) });
        config.client_auth_cert_resolver = Arc::clone(&asked) as Arc<dyn ResolvesClientCert>;
        let to: Arc<str> = format!("{host}:{}", url.port()).into();
        Ok(Session { connector: TlsConnector::from(Arc::new(config)), name, to, asked })
    }

    fn configure(&self) -> Result<ClientConfig, TlsError> {
        let authorities = match &self.0.authorities {
            Some(given) => Arc::clone(given),
            None => Arc::new(authorities_of_the_host()?),
        };
        let versions = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let versions = versions.map_err(|e| TlsError::Refused(e.to_string()))?;
        let mut config = versions.with_root_certificates(authorities).with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ca, identity) = (self.0.authorities.is_some(), self.0.identity.is_some());
        f.debug_struct("Tls").field("own_ca", &ca).field("identity", &identity).finish_non_exhaustive()
    }
}

/// TLS to one engine. Clones share what was found out about it.
#[derive(Clone)]
pub(super) struct Session {
    connector: TlsConnector,
    name: ServerName<'static>,
    /// HOST:PORT, for messages.
    to: Arc<str>,
    asked: Arc<Asked>,
}

impl Session {
    /// Shakes hands over `socket`. The caller sets the time limit.
    pub(super) async fn handshake<S: Socket>(
        &self,
        socket: Stamped<S>,
    ) -> Result<Records<Stamped<S>>, Failure> {
        let shaken = self.connector.connect(self.name.clone(), socket).await;
        shaken.map(Records::of).map_err(|e| self.refused(faults::handshake(&self.to, &e)))
    }

    /// The failure of a handshake that took too long.
    pub(super) fn late(&self, seconds: f64) -> Failure {
        Failure::new(FailureKind::Tls, format!("tls to {}: no handshake within {seconds} s", self.to))
    }

    /// What a failure before the first answer means: often that this agent has not said who it is.
    pub(super) fn refused(&self, failure: Failure) -> Failure {
        let by_the_engine = failure.kind == FailureKind::Reset || faults::is_alert(&failure);
        if by_the_engine && self.asked.unmet.load(Ordering::Relaxed) {
            return faults::no_certificate(&self.to);
        }
        failure
    }
}

/// Says who this agent is when an engine asks, and remembers that there was nothing to say.
#[derive(Debug)]
struct Asked {
    identity: Option<Arc<CertifiedKey>>,
    /// An engine has asked, and there is no identity.
    unmet: AtomicBool,
}

impl ResolvesClientCert for Asked {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        if self.identity.is_none() {
            self.unmet.store(true, Ordering::Relaxed);
        }
        self.identity.clone()
    }

    fn has_certs(&self) -> bool {
        self.identity.is_some()
    }
}

fn wrong(option: &'static str, path: &Path, problem: String) -> TlsError {
    TlsError::File { option, path: path.to_owned(), problem }
}

fn read(option: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path)
        .map_err(|e| wrong(option, path, format!("cannot be read: {}", super::faults::plain(&e))))
}

/// Authorities may be of a version of certificates that is too old for anybody else.
fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let option = "--engine-ca";
    let pem = read(option, path)?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|_| wrong(option, path, "not valid PEM".to_owned()))?;
        let added = store.add(certificate);
        added.map_err(|e| wrong(option, path, format!("not an authority's certificate: {e}")))?;
    }
    if store.is_empty() {
        return Err(wrong(option, path, TlsFileError::NoCertificate.to_string()));
    }
    Ok(store)
}

fn authorities_of_the_host() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    // Some of a host's are older than what rustls reads; the others are as good as ever.
    let (usable, _) = store.add_parsable_certificates(found.certs);
    if usable == 0 {
        let why = found.errors.first().map_or_else(|| "none were found".to_owned(), ToString::to_string);
        return Err(TlsError::NoAuthorities(why));
    }
    Ok(store)
}

fn identity(cert: &Path, key: &Path) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates(&read("--engine-cert", cert)?)
        .map_err(|e| wrong("--engine-cert", cert, e.to_string()))?;
    let identity = Identity::new(chain, &read("--engine-key", key)?).map_err(|e| {
        let problem = match e {
            TlsFileError::KeyMismatch => format!("not the key of {}", cert.display()),
            other => other.to_string(),
        };
        wrong("--engine-key", key, problem)
    })?;
    Ok(identity.certified())
}
