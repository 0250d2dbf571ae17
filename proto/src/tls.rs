//! Certificates and keys of the control plane, read before a socket is opened.
//!
//! Both sides read the same kind of files and fail on the other's for the same reasons: so what a file may hold, and what
//! a handshake's failure means, is said once. Everything here is over bytes; who reads a file names it in the error.
//!
//! Must never: put a key, or any part of one, into an error or a `Debug`. The tests below look.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;

/// What is wrong with a file's content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsFileError {
    /// Nothing in it is a certificate.
    #[error("no certificate in it; expected PEM, which begins with -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    /// One of its certificates cannot be read.
    #[error("certificate {number} in it cannot be read: {reason}")]
    Certificate {
        /// Which, from 1.
        number: usize,
        /// Why.
        reason: String,
    },
    /// Nothing in it is a private key that can be used.
    #[error(
        "no private key in it that can be used; expected PEM of PKCS#8, PKCS#1 or SEC1, without a passphrase"
    )]
    NoKey,
    /// The key is not the certificate's.
    #[error("the key does not belong to the certificate")]
    KeyMismatch,
}

/// The one implementation of cryptography that both sides use.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Every certificate of a PEM file, in order.
///
/// # Errors
/// When there is none, or one cannot be read.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let mut all = Vec::new();
    for (number, certificate) in (1..).zip(CertificateDer::pem_slice_iter(pem)) {
        let bad = |reason: String| TlsFileError::Certificate { number, reason };
        let certificate = certificate.map_err(|e| bad(e.to_string()))?;
        webpki::EndEntityCert::try_from(&certificate).map_err(|e| bad(e.to_string()))?;
        all.push(certificate);
    }
    if all.is_empty() { Err(TlsFileError::NoCertificate) } else { Ok(all) }
}

/// A certificate with its chain, and the key that belongs to it.
#[derive(Clone)]
pub struct Identity(Arc<CertifiedKey>);

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificates", &self.0.cert.len()).finish_non_exhaustive()
    }
}

impl Identity {
    /// Takes certificates that were read, and the key of the first from a PEM file.
    ///
    /// # Errors
    /// [`TlsFileError::NoKey`], or [`TlsFileError::KeyMismatch`]: both are about the key's file.
    pub fn new(chain: Vec<CertificateDer<'static>>, key_pem: &[u8]) -> Result<Self, TlsFileError> {
        // Not the reader's error: it may quote what it could not read.
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| TlsFileError::NoKey)?;
        let key = provider().key_provider.load_private_key(key).map_err(|_| TlsFileError::NoKey)?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
                Ok(Self(Arc::new(certified)))
            }
            Err(_) => Err(TlsFileError::KeyMismatch),
        }
    }

    /// For rustls.
    #[must_use]
    pub fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0)
    }

    /// The DNS names that the certificate is for, in its order.
    #[must_use]
    pub fn dns_names(&self) -> Vec<String> {
        let first = self.0.cert.first().and_then(|c| webpki::EndEntityCert::try_from(c).ok());
        first.map(|c| c.valid_dns_names().map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Whether a peer that dials this address, and asks for no name, would take the certificate.
    #[must_use]
    pub fn is_for(&self, address: IpAddr) -> bool {
        let first = self.0.cert.first().and_then(|c| webpki::EndEntityCert::try_from(c).ok());
        let name = ServerName::IpAddress(address.into());
        first.is_some_and(|c| c.verify_is_valid_for_subject_name(&name).is_ok())
    }
}

/// What TLS said, wherever in a chain of errors it stands.
#[must_use]
pub fn failure<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        // An I/O error shows what it carries, but does not name it as its source.
        let carried = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(found) = carried.and_then(|e| e.downcast_ref::<rustls::Error>()) {
            return Some(found);
        }
        next = carried.map_or_else(|| error.source(), |e| Some(e as &(dyn Error + 'static)));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    fn made(names: &[&str]) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|&n| n.to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn a_certificate_and_its_key_are_taken() {
        let (certificate, key) = made(&["coordinator.lab", "127.0.0.1"]);
        let chain = certificates(certificate.as_bytes()).unwrap();
        let identity = Identity::new(chain, key.as_bytes()).unwrap();
        assert_eq!(identity.dns_names(), ["coordinator.lab"]);
        assert!(identity.is_for([127, 0, 0, 1].into()) && !identity.is_for([10, 0, 0, 1].into()));
    }

    /// Each is told from the others, and none of it quotes the key.
    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let (certificate, key) = made(&["a"]);
        let (_, other) = made(&["b"]);
        let chain = || certificates(certificate.as_bytes()).unwrap();
        assert_eq!(certificates(b"").unwrap_err(), TlsFileError::NoCertificate);
        assert_eq!(certificates(key.as_bytes()).unwrap_err(), TlsFileError::NoCertificate);
        let broken = certificate.replacen("MI", "QQ", 1);
        assert!(matches!(certificates(broken.as_bytes()), Err(TlsFileError::Certificate { number: 1, .. })));
        let both = format!("{certificate}{broken}");
        assert!(matches!(certificates(both.as_bytes()), Err(TlsFileError::Certificate { number: 2, .. })));
        let refused = |pem: &str| Identity::new(chain(), pem.as_bytes()).unwrap_err();
        assert_eq!(refused(&other), TlsFileError::KeyMismatch);
        assert_eq!(refused(&certificate), TlsFileError::NoKey);
        let secret = "c2VjcmV0LXRoYXQtbXVzdC1ub3Qtc2hvdw==";
        let torn = format!("-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----\n");
        assert_eq!(refused(&torn), TlsFileError::NoKey);
        assert!(!format!("{:?}", refused(&torn)).contains("c2Vj"));
        let identity = Identity::new(chain(), key.as_bytes()).unwrap();
        let body = key.lines().nth(1).unwrap();
        assert!(!format!("{identity:?}").contains(body), "a key was shown");
    }

    #[test]
    fn a_failure_is_found_under_others() {
        let tls = rustls::Error::NoCertificatesPresented;
        let io = std::io::Error::new(std::io::ErrorKind::InvalidData, tls.clone());
        let nested = std::io::Error::other(io);
        assert_eq!(failure(&nested), Some(&tls));
        assert_eq!(failure(&std::io::Error::other("else")), None);
    }
}
