//! TLS on the coordinator's side: what it shows agents, whose certificates it takes, and what a handshake's failure means.
//!
//! TLS 1.3 only: both ends are ours.

use std::io;
use std::sync::Arc;

use proto::tls::{self, Identity};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::sign::SingleCertAndKey;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error, RootCertStore, ServerConfig, version};

/// What the coordinator shows agents, and whom it asks for a certificate.
#[derive(Clone)]
pub struct ServerTls {
    acceptor: TlsAcceptor,
}

impl ServerTls {
    /// Shows `identity`; with `client_ca`, takes only agents that show a certificate signed by one of these.
    ///
    /// # Errors
    /// When a certificate of `client_ca` cannot be anybody's authority.
    pub fn new(identity: &Identity, client_ca: Option<Vec<CertificateDer<'static>>>) -> Result<Self, String> {
        let provider = tls::provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|e| e.to_string())?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                for authority in authorities {
                    roots.add(authority).map_err(|e| e.to_string())?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|e| e.to_string())?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity.certified())));
        config.alpn_protocols.push(b"h2".to_vec());
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    pub(super) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}

/// Why a handshake failed, and what to do, for the coordinator's operator.
pub(super) fn reason(error: &io::Error) -> String {
    match tls::failure(error) {
        Some(Error::NoCertificatesPresented) => {
            "it shows no certificate, and --tls-client-ca asks for one: start that agent with --tls-cert and --tls-key"
                .into()
        }
        Some(Error::InvalidCertificate(why)) => format!(
            "{}: give that agent a valid one that --tls-client-ca has signed",
            match why {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    "its certificate is not signed by --tls-client-ca"
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "its certificate has expired"
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "its certificate is not valid yet"
                }
                _ => "its certificate cannot be used",
            }
        ),
        Some(Error::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError),
        )) => format!(
            "it does not take this coordinator's certificate ({alert:?}): compare its --tls-ca and --tls-name with --tls-cert"
        ),
        Some(other) => format!("the TLS handshake failed: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "it hung up in the TLS handshake".into(),
        None => format!("the TLS handshake failed: {error}"),
    }
}
