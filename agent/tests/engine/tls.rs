//! An https engine: whom the client accepts, whom it does not, and by which words it says so.

use std::path::PathBuf;
use std::sync::Arc;

use agent::engine::{Access, Client, ClientConfig, Tls, TlsFiles};
use common::ids::Nanos;
use common::plan::Target;
use common::trace::{Failure, FailureKind};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::support::{Rig, SSE_HEAD, chunked, good_response, listen, target, token};

static VERSIONS: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];

/// An authority, with a folder for files of what it vouches for.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        Self::called("the engine's authority")
    }

    fn called(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer, folder: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn file(&self) -> PathBuf {
        self.write("ca.pem", &self.issuer.pem())
    }

    /// Vouches for somebody of this name.
    fn vouch(&self, params: &CertificateParams) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// A client's identity, as files.
    fn identity(&self) -> (PathBuf, PathBuf) {
        let (certificate, key) = self.vouch(&named("agent"));
        (self.write("client.pem", &certificate.pem()), self.write("client.key", &key.serialize_pem()))
    }
}

fn named(name: &str) -> CertificateParams {
    CertificateParams::new([name.to_owned()]).unwrap()
}

/// What an engine is set up with.
struct Setup<'a> {
    authority: &'a Authority,
    certificate: CertificateParams,
    clients: Option<&'a Authority>,
    versions: &'static [&'static SupportedProtocolVersion],
}

impl<'a> Setup<'a> {
    fn of(authority: &'a Authority) -> Self {
        Self { authority, certificate: named("localhost"), clients: None, versions: VERSIONS }
    }

    fn acceptor(self) -> TlsAcceptor {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(self.versions).unwrap();
        let builder = match self.clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut store = RootCertStore::empty();
                store.add(authority.issuer.der().clone()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(store.into(), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let (certificate, key) = self.authority.vouch(&self.certificate);
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    /// An engine that gives every request the same answer. Gives its port.
    async fn serve(self) -> u16 {
        let acceptor = self.acceptor();
        let (listener, port) = listen().await;
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(answer(acceptor.clone(), socket));
            }
        });
        port
    }
}

async fn answer(acceptor: TlsAcceptor, socket: TcpStream) {
    let Ok(mut stream) = acceptor.accept(socket).await else { return };
    let mut request = Vec::new();
    let mut some = [0; 4096];
    loop {
        match stream.read(&mut some).await {
            Ok(n @ 1..) => request.extend_from_slice(&some[..n]),
            _ => return,
        }
        // The body is the end of what a client sends.
        if request.ends_with(b"}") || request.starts_with(b"GET") {
            request.clear();
            let _ = stream.write_all(good_response().as_bytes()).await;
            let _ = stream.flush().await;
        }
    }
}

fn https(port: u16) -> Target {
    Target { base_url: format!("https://localhost:{port}").parse().unwrap(), ..target(port) }
}

fn access(ca: Option<PathBuf>, identity: Option<(PathBuf, PathBuf)>) -> Access {
    Access { tls: Tls::read(&TlsFiles { ca, identity }).unwrap(), ..Access::default() }
}

/// Says that a request must end so, and a warm-up, too.
#[track_caller]
fn refused(what: &str, failure: Option<&Failure>, says: &[&str]) {
    let failure = failure.unwrap_or_else(|| panic!("{what}: it was accepted"));
    assert_eq!(failure.kind, FailureKind::Tls, "{what}: {failure:?}");
    for text in says {
        assert!(failure.message.contains(text), "{what}: no {text:?} in {:?}", failure.message);
    }
    assert!(failure.message.len() < 200 && failure.message.starts_with("tls"), "{what}: {}", failure.message);
}

async fn check_refused(what: &str, target: Target, access: Access, says: &[&str]) {
    let rig = Rig::with(target, access);
    let trace = rig.send().await;
    refused(what, trace.facts.outcome.failure(), says);
    assert_eq!(trace.facts.http_status, None, "{what}");
    refused(what, rig.client.get("/v1/models").await.err().as_ref(), says);
}

#[tokio::test]
async fn an_engine_with_a_private_authority_is_accepted_and_its_connections_are_used_again() {
    let authority = Authority::new();
    for versions in VERSIONS.chunks(1) {
        let port = Setup { versions, ..Setup::of(&authority) }.serve().await;
        let rig = Rig::with(https(port), access(Some(authority.file()), None));
        assert_eq!(rig.client.warm(2).await, Ok(2));
        for _ in 0..4 {
            let trace = rig.send().await;
            assert!(trace.facts.outcome.is_success(), "{versions:?}: {:?}", trace.facts.outcome);
            assert_eq!(trace.facts.output_tokens.count, Some(3));
            assert_eq!(trace.facts.reconnections, 0);
            assert_eq!(trace.clocks.connected, trace.clocks.released, "a warm one was there");
        }
    }
}

#[tokio::test]
async fn an_engine_that_nobody_vouches_for_is_refused() {
    let (authority, other) = (Authority::new(), Authority::called("another"));
    let port = Setup::of(&authority).serve().await;
    let says = ["--engine-ca", "not trusted"];
    check_refused("another authority", https(port), access(Some(other.file()), None), &says).await;
    let rig = Rig::with(https(port), access(Some(other.file()), None));
    refused("a warm connection", rig.client.warm(1).await.err().as_ref(), &says);
    // Of the same name, and not the same.
    let namesake = access(Some(Authority::new().file()), None);
    check_refused("a namesake", https(port), namesake, &["not signed by", "--engine-ca"]).await;
}

#[tokio::test]
async fn an_engine_with_another_name_or_another_time_is_refused() {
    let authority = Authority::new();
    let trusted = || access(Some(authority.file()), None);
    let certificate = named("engine.example");
    let port = Setup { certificate, ..Setup::of(&authority) }.serve().await;
    check_refused("another name", https(port), trusted(), &["localhost", "engine.example", "--base-url"])
        .await;
    let mut certificate = named("localhost");
    certificate.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let port = Setup { certificate, ..Setup::of(&authority) }.serve().await;
    check_refused("an old one", https(port), trusted(), &["expired", "clock"]).await;
    let mut certificate = named("localhost");
    certificate.not_before = rcgen::date_time_ymd(2200, 1, 1);
    certificate.not_after = rcgen::date_time_ymd(2300, 1, 1);
    let port = Setup { certificate, ..Setup::of(&authority) }.serve().await;
    check_refused("one of the future", https(port), trusted(), &["not valid yet", "clock"]).await;
}

#[tokio::test]
async fn an_address_is_a_name_as_well() {
    let authority = Authority::new();
    let port = Setup { certificate: named("127.0.0.1"), ..Setup::of(&authority) }.serve().await;
    let target = Target { base_url: format!("https://127.0.0.1:{port}").parse().unwrap(), ..target(port) };
    let trace = Rig::with(target, access(Some(authority.file()), None)).send().await;
    assert!(trace.facts.outcome.is_success(), "{:?}", trace.facts.outcome);
}

#[tokio::test]
async fn a_client_certificate_is_given_to_an_engine_that_wants_one() {
    let authority = Authority::new();
    for versions in VERSIONS.chunks(1) {
        let setup = || Setup { versions, clients: Some(&authority), ..Setup::of(&authority) };
        let port = setup().serve().await;
        let known = access(Some(authority.file()), Some(authority.identity()));
        let trace = Rig::with(https(port), known).send().await;
        assert!(trace.facts.outcome.is_success(), "{versions:?}: {:?}", trace.facts.outcome);
        let nobody = access(Some(authority.file()), None);
        let says = ["wants a client certificate", "--engine-cert", "--engine-key"];
        check_refused("no certificate", https(port), nobody, &says).await;
    }
}

#[tokio::test]
async fn what_does_not_speak_tls_is_refused_and_what_says_nothing_is_waited_for_no_longer_than_a_connection()
{
    let authority = Authority::new();
    let (listener, port) = listen().await;
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = socket.read(&mut [0; 1024]).await;
                let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            });
        }
    });
    let trusted = || access(Some(authority.file()), None);
    check_refused("plain HTTP", https(port), trusted(), &["does not speak TLS", "http://"]).await;
    let (listener, port) = listen().await;
    tokio::spawn(async move {
        let mut silent = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            silent.push(socket);
        }
    });
    let hasty = Target { connect_timeout: Nanos::from_millis(200), ..https(port) };
    check_refused("silence", hasty, trusted(), &["no handshake within 0.2 s"]).await;
}

/// What an engine does inside TLS after a token.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// Closes the socket without TLS's word for it.
    Cut,
    /// Sends something else than TLS.
    Garbage,
    /// Comments without end.
    Comments,
}

#[tokio::test]
async fn what_goes_wrong_inside_tls_has_its_name() {
    let authority = Authority::new();
    for (then, kind, says) in [
        (Then::Cut, FailureKind::TruncatedStream, "after 1 content events"),
        (Then::Garbage, FailureKind::Tls, "not TLS"),
        (Then::Comments, FailureKind::MalformedStream, "8 MiB"),
    ] {
        let acceptor = Setup::of(&authority).acceptor();
        let (listener, port) = listen().await;
        let serving = tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(socket).await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            stream.write_all(format!("{SSE_HEAD}{}", chunked(&token("a"))).as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            match then {
                Then::Cut => {}
                Then::Garbage => {
                    let (socket, _) = stream.get_mut();
                    let _ = socket.write_all(&[b'x'; 64]).await;
                    let _ = socket.read(&mut [0; 16]).await;
                }
                Then::Comments => {
                    let comments = chunked(&": still here\n\n".repeat(1000));
                    while stream.write_all(comments.as_bytes()).await.is_ok() {}
                }
            }
        });
        let trace = Rig::with(https(port), access(Some(authority.file()), None)).send().await;
        let failure = trace.facts.outcome.failure().unwrap_or_else(|| panic!("{then:?}: a success"));
        assert_eq!(failure.kind, kind, "{then:?}: {failure:?}");
        assert!(failure.message.contains(says), "{then:?}: {failure:?}");
        assert_eq!(trace.clocks.content.len(), 1, "{then:?}");
        serving.await.unwrap();
    }
}

#[test]
fn files_that_cannot_be_used_are_named_with_their_option_and_never_quoted() {
    let authority = Authority::new();
    let (cert, key) = authority.identity();
    let read = |ca, identity| Tls::read(&TlsFiles { ca, identity }).unwrap_err().to_string();
    let missing = read(Some("/no/such.pem".into()), None);
    assert!(missing.contains("--engine-ca /no/such.pem: cannot be read: no such file"), "{missing}");
    let empty = read(Some(authority.write("empty", "nothing\n")), None);
    assert!(empty.contains("--engine-ca") && empty.contains("BEGIN CERTIFICATE"), "{empty}");
    let planted = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
    let bad = read(None, Some((cert.clone(), authority.write("bad.key", planted))));
    assert!(bad.contains("--engine-key") && !bad.contains("c2VjcmV0"), "{bad}");
    let swapped = read(None, Some((key.clone(), cert.clone())));
    assert!(swapped.contains("--engine-cert"), "{swapped}");
    let (_, other_key) = Authority::new().vouch(&named("agent"));
    let other = authority.write("other.key", &other_key.serialize_pem());
    let mismatch = read(None, Some((cert, other)));
    assert!(mismatch.contains("not the key of"), "{mismatch}");
}

#[test]
fn a_host_that_is_no_name_of_a_certificate_is_refused_before_anything_is_sent() {
    let target = Target { base_url: "https://-bad-.example".parse().unwrap(), ..target(1) };
    let system: Arc<dyn common::clock::Clock> = Arc::new(common::clock::SystemClock);
    let config = ClientConfig {
        target,
        access: Access::default(),
        agent: "a1".parse().unwrap(),
        run: "run-1".parse().unwrap(),
        trial: "0".into(),
    };
    let clock = agent::engine::TrialClock::new(system, Nanos::ZERO);
    let error = Client::new(config, clock).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("-bad-.example") || error.contains("--engine-ca"), "{error}");
}
