//! TLS in front of the engine, as a proxy would put it there.
//!
//! Owns the files of `--tls-cert` and its like, and the wire of a connection with or without TLS. Must never know
//! anything of HTTP: what is inside is the same.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// Who the engine says it is, and whom it lets in.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// With a certificate and its key, both PEM; with `client_ca` only clients are let in for whom one of its
    /// authorities vouches.
    ///
    /// # Errors
    /// Files that cannot be used, by name.
    pub fn read(cert: &Path, key: &Path, client_ca: Option<&Path>) -> anyhow::Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions()?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut store = RootCertStore::empty();
                for certificate in certificates(path)? {
                    store.add(certificate).with_context(|| path.display().to_string())?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider).build()?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let der = PrivateKeyDer::from_pem_file(key).with_context(|| key.display().to_string())?;
        let mut config = builder.with_single_cert(certificates(cert)?, der)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    read.with_context(|| path.display().to_string())
}

/// A connection's bytes. Hands are shaken by whoever first reads, so that accepting waits for nobody.
pub(crate) enum Wire {
    Plain(TcpStream),
    Shaking(Box<Accept<TcpStream>>),
    Inside(Box<TlsStream<TcpStream>>),
    /// The handshake failed.
    Closed,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, tls: Option<&Tls>) -> Self {
        match tls {
            None => Self::Plain(stream),
            Some(tls) => Self::Shaking(Box::new(tls.0.accept(stream))),
        }
    }

    /// The socket underneath, while there is one.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Shaking(accept) => accept.get_ref(),
            Self::Inside(stream) => Some(stream.get_ref().0),
            Self::Closed => None,
        }
    }

    /// The stream that HTTP is on, when hands are shaken.
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Pin<&mut dyn Stream>>> {
        if let Self::Shaking(accept) = self {
            match ready!(Pin::new(&mut **accept).poll(context)) {
                Ok(stream) => *self = Self::Inside(Box::new(stream)),
                Err(error) => {
                    tracing::info!(%error, "a TLS handshake failed");
                    *self = Self::Closed;
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(match self {
            Self::Plain(stream) => Ok(Pin::new(stream)),
            Self::Inside(stream) => Ok(Pin::new(&mut **stream)),
            Self::Shaking(_) | Self::Closed => Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

/// What HTTP needs of a connection.
trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.get_mut().poll_open(context))?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.get_mut().poll_open(context))?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.get_mut().poll_open(context))?.poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.get_mut().poll_open(context))?.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if matches!(this, Self::Shaking(_) | Self::Closed) {
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_open(context))?.poll_shutdown(context)
    }
}
