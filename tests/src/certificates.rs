//! Certificates of a lab: an authority of its own, and what it signs.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;

/// An authority, with its files in a folder that goes with it.
pub struct Lab {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    ca: PathBuf,
}

/// A certificate's files.
#[derive(Debug, Clone)]
pub struct Issued {
    /// The certificate.
    pub cert: String,
    /// Its key, which only its owner can read.
    pub key: String,
}

fn made<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|e| panic!("no certificate: {e}"))
}

impl Lab {
    /// An authority of this name.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let folder = made(TempDir::new());
        let mut params = made(CertificateParams::new(Vec::new()));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = made(KeyPair::generate());
        let ca = folder.path().join("ca.pem");
        made(std::fs::write(&ca, made(params.self_signed(&key)).pem()));
        Self { issuer: Issuer::new(params, key), folder, ca }
    }

    /// Its own certificate.
    #[must_use]
    pub fn ca(&self) -> String {
        self.ca.display().to_string()
    }

    /// Signs one for these names.
    #[must_use]
    pub fn issue(&self, file: &str, names: &[&str]) -> Issued {
        self.sign(file, names, false)
    }

    /// Signs one that has expired.
    #[must_use]
    pub fn issue_expired(&self, file: &str, names: &[&str]) -> Issued {
        self.sign(file, names, true)
    }

    fn sign(&self, file: &str, names: &[&str], expired: bool) -> Issued {
        let names: Vec<String> = names.iter().map(|&n| n.to_owned()).collect();
        let mut params = made(CertificateParams::new(names));
        params.distinguished_name.push(DnType::CommonName, file);
        if expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 2);
        }
        let key = made(KeyPair::generate());
        let certificate = made(params.signed_by(&key, &self.issuer));
        let at = |ending: &str| self.folder.path().join(format!("{file}.{ending}"));
        made(std::fs::write(at("pem"), certificate.pem()));
        made(std::fs::write(at("key"), key.serialize_pem()));
        made(std::fs::set_permissions(at("key"), PermissionsExt::from_mode(0o600)));
        Issued { cert: at("pem").display().to_string(), key: at("key").display().to_string() }
    }

    /// Writes another file beside them, for its owner only.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn file(&self, name: &str, content: &str) -> String {
        let path: PathBuf = Path::new(self.folder.path()).join(name);
        made(std::fs::write(&path, content));
        made(std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)));
        path.display().to_string()
    }
}
