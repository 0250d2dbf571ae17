//! `agent null-engine`: an engine without a model, which answers at once or by a clock, and says when it did.
//!
//! It is what this host's ceiling is measured against (`agent calibrate`), and clients against one another. It owns its
//! bytes, its thread and its clock, and exists apart from `sim-engine` because that one plays an engine, queue and all,
//! and this one must cost as near to nothing as sockets allow. One thread, no lock, no allocation per event.
//!
//! `request` reads what is asked, `response` knows the bytes of an answer, `connection` lets them out; these hold no
//! socket's readiness. `server` is the loop around them, `arrivals` what it remembers, `command` the process.
//!
//! It must never read a client's event as late because it was itself: each answer's instants are kept as they were, and
//! whoever measures takes those and not what was asked for. It listens on the loopback unless told otherwise, and asks
//! nobody for a token: it has nothing to give away.
//!
//! Guarded by the tests in each file and by `tests/null_engine.rs`, through the agent's own client.

mod arrivals;
mod command;
mod connection;
mod request;
mod response;
mod server;

use common::ids::Nanos;

pub use arrivals::{Arrival, KEPT};
pub use command::{NULL_ENGINE, run};

/// When an answer's events leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Pacing {
    /// From the whole request to the first content event.
    ttft: Nanos,
    /// Between two content events; zero: back to back.
    interval: Nanos,
    /// Back to back, but each in a write of its own.
    split: bool,
}
