//! The measured path: one HTTP request to the engine, from the bytes of its body to its [`common::trace::Trace`].
//!
//! It owns the connections to the engine, the stamps of a request, the reading of a stream, and the verdict on how
//! a request ended. It exists apart from the rest of the agent because every nanosecond spent here is charged to the
//! engine: no disk, no coordinator, no lock that is held across a wait, no allocation per event beyond the growth of
//! the trace itself.
//!
//! From the inside out:
//! - [`sse`] cuts bytes into events, [`events`] says what one event means, [`stream`] keeps what a trace needs
//!   (with `evidence` for tokens, `transcript` for text) and decides how the request ended. These are pure: no I/O,
//!   no clock, no runtime.
//! - [`access`] is what this agent brings of its own, [`allowed`] whom it is to be sent to.
//! - [`requests`] makes head and body of a request.
//! - `io` reads and writes the socket and takes the stamps, [`tls`] lies over it for an https engine, `http` reads a
//!   response, `connection` puts them together, `exchange` carries one request on one connection with its deadlines
//!   (`alarm`), all in the request's own task; `pool` keeps connections that may be used again, `faults` names what went
//!   wrong.
//! - [`client`] puts them together: [`Client::send`] turns an arrival into a trace, always into exactly one. Where there
//!   are several engines, [`replicas`] says which client that is.
//!
//! What it must never do: retry (but for the one replacement of a connection that was closed while idle), follow a
//! redirect, wait for anything but this request, count an event as a token, turn an unknown number into 0, let a
//! secret into a trace, or grow without bound because of what an engine sends. `httparse` and `tokio_rustls` are named
//! only here.
//!
//! A request in flight holds its text, 16 bytes for each content event and the begin of an event that a read has cut.
//! Whatever an engine sends, this stays below 8 MiB of text, 16 MiB of stamps and a few times 4 MiB for an event. What
//! it sends ends, too: 256 KiB before a response head, 8 MiB without content, a gigabyte, or the request's deadlines.
//!
//! Guarded by: `sse` (any split of the bytes gives the same events) and, in `tests/engine/`, `captures` (recorded bytes
//! of real engines), `dialects` (shapes from bug reports), `failures` (every failure kind over real sockets),
//! `connections` (reuse and replacement), `rogue` (an engine that sends without end) and
//! `garbage` (no bytes make it panic); `allocation_tests` (an event costs no allocation), `stamp_tests` and
//! `tls_stamp_tests`, with `stamps` there (each event carries the stamp of the read that completed it); `tls` there.

pub mod access;
pub mod allowed;
pub mod client;
pub mod events;
pub mod replicas;
pub mod requests;
pub mod secret;
pub mod sse;
pub mod stream;
pub mod tls;
pub mod trial_clock;

mod alarm;
#[cfg(test)]
mod allocation_tests;
mod connection;
mod evidence;
mod exchange;
mod faults;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod http;
mod io;
mod pool;
#[cfg(test)]
mod stamp_tests;
#[cfg(test)]
mod tls_stamp_tests;
mod transcript;

pub use access::Access;
pub use allowed::{AllowedTarget, AllowedTargets, NotAllowed};
pub use client::{Client, ClientConfig, ConfigError, Engine, Outgoing};
pub use replicas::Replicas;
pub use requests::{Prepared, Requests};
pub use secret::Secret;
pub use tls::{Tls, TlsFiles};
pub use trial_clock::TrialClock;
