//! Inside TLS each event carries the stamp of the read that completed its record, whatever rustls decrypts ahead.
//!
//! A scripted socket stands in for the network, with a real TLS server behind it: each piece of the answer is a record
//! of its own, and the script says in which reads their bytes come. It sets the clock at each read, so the stamp of
//! every event is known from where the last byte of its record lies.

use std::io::{self, Read as _, Write as _};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use common::clock::ManualClock;
use common::ids::Nanos;
use common::trace::Trace;
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection};

use super::connection::{Connection, Wire};
use super::exchange::{Ended, Exchange};
use super::stamp_tests::{Framing, answer, patient};
use super::tls::{Tls, TlsFiles};
use super::trial_clock::TrialClock;

/// What one read of rustls takes at most, of whatever is there.
const MOST: usize = 4096;

/// A TLS server whose answer comes in the reads that the script says.
struct Script {
    clock: Arc<ManualClock>,
    server: ServerConnection,
    /// Plain bytes of the answer, a record each.
    records: Vec<Vec<u8>>,
    /// Where to cut the encrypted answer, as shares of its length.
    cuts: Vec<f64>,
    /// The encrypted answer, once the request has come, and the read under way.
    sent: Option<(Vec<u8>, Vec<usize>)>,
    at: usize,
    reads: u64,
    /// The read that brings the last byte of each record.
    stamps: Arc<std::sync::Mutex<Vec<u64>>>,
}

impl Script {
    /// The request has come: everything is encrypted and cut.
    fn respond(&mut self) {
        let mut wire = Vec::new();
        let mut ends = Vec::new();
        for record in &self.records {
            self.server.writer().write_all(record).unwrap();
            while self.server.wants_write() {
                self.server.write_tls(&mut wire).unwrap();
            }
            ends.push(wire.len());
        }
        let mut cuts: Vec<usize> = self.cuts.iter().map(|c| (c * wire.len() as f64) as usize).collect();
        cuts.extend((MOST..wire.len()).step_by(MOST));
        cuts.extend([0, wire.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let stamp = |end: &usize| cuts.iter().position(|cut| cut >= end).unwrap() as u64;
        *self.stamps.lock().unwrap() = ends.iter().map(stamp).collect();
        self.sent = Some((wire, cuts));
    }
}

impl AsyncRead for Script {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.server.wants_write() {
            // The handshake and its tickets are not what is looked at.
            let mut wire = Vec::new();
            this.server.write_tls(&mut wire)?;
            assert!(wire.len() <= into.remaining(), "a flight of the handshake fits into a read");
            into.put_slice(&wire);
            return Poll::Ready(Ok(()));
        }
        let Some((wire, cuts)) = &this.sent else {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        };
        let end = cuts.iter().copied().find(|cut| *cut > this.at).unwrap_or(wire.len());
        assert!(end - this.at <= into.remaining(), "the script's reads must fit into one read");
        this.reads += 1;
        this.clock.advance(Nanos(1000));
        into.put_slice(&wire[this.at..end]);
        this.at = end;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let read = this.server.read_tls(&mut &bytes[..])?;
        this.server.process_new_packets().map_err(io::Error::other)?;
        let mut request = Vec::new();
        // There is no end of file: it would block.
        let _ = this.server.reader().read_to_end(&mut request);
        if !request.is_empty() && this.sent.is_none() {
            this.respond();
        }
        Poll::Ready(Ok(read))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A certificate for `localhost`, vouched for by itself, and its key.
fn certified() -> (rcgen::Certificate, rcgen::KeyPair) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key);
    (certificate.unwrap(), key)
}

/// Sends a request; gives its trace and the reads that completed each record.
fn run(records: Vec<Vec<u8>>, cuts: Vec<f64>) -> (Trace, Vec<u64>) {
    let (certificate, key) = certified();
    let der = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = builder.with_single_cert(vec![certificate.der().clone()], der).unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, certificate.pem()).unwrap();
    let tls = Tls::read(&TlsFiles { ca: Some(ca), identity: None }).unwrap();
    let session = tls.session(&"https://localhost:1".parse().unwrap()).unwrap();

    let manual = Arc::new(ManualClock::at(Nanos::ZERO));
    let clock = TrialClock::new(manual.clone(), Nanos::ZERO);
    let stamps = Arc::default();
    let mut stream = patient();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let script = Script {
            clock: manual,
            server: ServerConnection::new(Arc::new(config)).unwrap(),
            records,
            cuts,
            sent: None,
            at: 0,
            reads: 0,
            stamps: Arc::clone(&stamps),
        };
        let connection = Connection::inside_tls(script, &session, &clock).await.unwrap();
        let request = Wire { head: b"POST / HTTP/1.1\r\n\r\n".to_vec(), body: Bytes::from_static(b"{}") };
        let interrupt = pin!(std::future::pending());
        let mut exchange = Exchange { clock: &clock, stream: &mut stream, interrupt };
        assert!(matches!(exchange.run(connection, request, false).await, Ended::Over(_)));
    });
    let stamps = stamps.lock().unwrap().clone();
    (stream.finish(None), stamps)
}

/// `n` events, `per_record` of them in one record, in reads cut at `cuts`.
fn check(n: usize, per_record: usize, cuts: Vec<f64>) {
    let (bytes, ends) = answer(n, Framing::Chunked(1));
    let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    // The head is a record; then so many events each, the last with the end of the body.
    let mut record_ends: Vec<usize> =
        std::iter::once(head).chain(ends.chunks(per_record).map(|c| c[c.len() - 1])).collect();
    *record_ends.last_mut().unwrap() = bytes.len();
    let from = std::iter::once(0).chain(record_ends.iter().copied());
    let records = from.zip(&record_ends).map(|(from, to)| bytes[from..*to].to_vec()).collect();
    let (trace, reads) = run(records, cuts);
    assert!(trace.facts.outcome.is_success(), "{:?}", trace.facts.outcome);
    let record_of = |event: usize| 1 + event / per_record;
    let expected: Vec<Nanos> = (0..n).map(|i| Nanos(reads[record_of(i)] * 1000)).collect();
    let seen: Vec<Nanos> = trace.clocks.content.iter().map(|e| e.at).collect();
    assert_eq!(seen, expected, "records complete at reads {reads:?}");
    assert_eq!(trace.clocks.headers, Some(Nanos(reads[0] * 1000)));
    let shared = expected.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!(trace.facts.coalesced_events as usize, shared);
    assert_eq!(trace.text.output, Some((0..n).map(|i| format!("{i} ")).collect::<String>()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_event_has_the_stamp_of_the_read_that_completed_its_record(
        n in 1usize..20,
        per_record in 1usize..4,
        cuts in proptest::collection::vec(0.0..1.0, 0..60),
    ) {
        check(n, per_record, cuts);
    }
}

#[test]
fn several_records_in_one_read_share_its_stamp() {
    check(20, 1, Vec::new());
    check(200, 1, Vec::new());
    check(20, 5, vec![0.3, 0.6]);
}

#[test]
fn a_record_in_many_reads_has_the_stamp_of_the_last() {
    check(3, 3, (0..100).map(|i| f64::from(i) / 100.0).collect());
}
