//! How much one peer may cost, in one place. docs/security.md lists every number here, and a test holds it to that.
//!
//! A peer that has not shown the join token may cost little: a connection for some seconds. One that has is trusted to
//! send load, and still must not be able to use up the coordinator by a fault: what it may send is limited by message, by
//! call and by second.

use std::time::Duration;

use common::ids::Nanos;

/// Connections at once. Three for each of the agents that there may be, and some for those that come back.
pub const MAX_CONNECTIONS: usize = 4_096;

/// Of them, connections that have not shown the token yet.
pub const MAX_STRANGERS: usize = 256;

/// Of them, those from one address. Loopback is excepted: many agents may be started there at once.
pub const MAX_STRANGERS_PER_PEER: usize = 16;

/// A connection must have said its first byte, and ended its TLS handshake, within this.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

/// A connection must have made a call with the token within this.
pub const PROVE_WITHIN: Duration = Duration::from_secs(10);

/// Calls without the token, or with a wrong one, after which a connection is closed.
pub const MAX_REFUSALS: u32 = 4;

/// A session must have said hello within this.
pub const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// A session that does not take what it is told within this is ended.
pub const HEAR_WITHIN: Duration = Duration::from_secs(30);

/// Calls under way on one connection. An agent has two or three.
pub const MAX_STREAMS: u32 = 16;

/// Calls under way of one agent over all its connections, its session apart: probes, a slice, a workload, uploads.
pub const MAX_CALLS_PER_AGENT: usize = 8;

/// Bytes of one call that are received before anybody reads them.
pub const STREAM_WINDOW: u32 = 1 << 20;

/// Bytes of all calls of a connection that are received before anybody reads them.
pub const CONNECTION_WINDOW: u32 = 2 << 20;

/// Bytes of a call's metadata.
pub const MAX_METADATA_BYTES: u32 = 16 << 10;

/// Bytes of a control message from an agent.
pub const MAX_CONTROL_MESSAGE: usize = 1 << 20;

/// Bytes of a batch of traces or telemetry: one very large block, or an honest batch of about 1 MiB.
pub const MAX_BATCH_MESSAGE: usize = common::trace::segment::MAX_BLOCK_BYTES + (1 << 20);

/// Bytes of control messages that a session may send at once ([`MESSAGE_COST`] is added to each).
pub const SESSION_BURST: u64 = 8 << 20;

/// Bytes of control messages that a session may send each second over time. A heartbeat is about 100.
pub const SESSION_RATE: u64 = 64 << 10;

/// What a control message costs beside its bytes.
pub const MESSAGE_COST: u64 = 1 << 10;

/// Telemetry that is kept of one agent process in one run: a day of it is about a quarter.
pub const MAX_TELEMETRY_BYTES: u64 = 1 << 30;

/// How often an agent may deliver its slice of a trial, under one process or several: an honest one does so once.
pub const MAX_DELIVERIES: u64 = 2;

/// Frames of telemetry in one call: an agent sends up to 60.
pub const MAX_FRAMES: usize = 256;

/// Agents whose passes are remembered. Those without a session are forgotten first, the oldest before others.
pub const MAX_PASSES: usize = 2_048;

/// Agents that a coordinator may want, local and remote together. Three connections each fit [`MAX_CONNECTIONS`].
pub const MAX_AGENTS: usize = 1_024;

/// Lines about refused peers at once; after that one each [`LINE_EVERY`].
pub const LINES_AT_ONCE: u32 = 16;

/// See [`LINES_AT_ONCE`].
pub const LINE_EVERY: Nanos = Nanos::from_secs(10);

/// The same peer, turned away for the same reason, is told of once in this time.
pub const SAME_LINE_EVERY: Nanos = Nanos::from_secs(60);

/// Those of the limits that a test makes smaller.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// [`MAX_CONNECTIONS`].
    pub connections: usize,
    /// [`MAX_STRANGERS`].
    pub strangers: usize,
    /// [`MAX_STRANGERS_PER_PEER`].
    pub strangers_per_peer: usize,
    /// [`HANDSHAKE_WITHIN`].
    pub handshake_within: Duration,
    /// [`PROVE_WITHIN`].
    pub prove_within: Duration,
    /// [`HELLO_WITHIN`].
    pub hello_within: Duration,
    /// [`HEAR_WITHIN`].
    pub hear_within: Duration,
    /// [`MAX_TELEMETRY_BYTES`].
    pub telemetry_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: MAX_CONNECTIONS,
            strangers: MAX_STRANGERS,
            strangers_per_peer: MAX_STRANGERS_PER_PEER,
            handshake_within: HANDSHAKE_WITHIN,
            prove_within: PROVE_WITHIN,
            hello_within: HELLO_WITHIN,
            hear_within: HEAR_WITHIN,
            telemetry_bytes: MAX_TELEMETRY_BYTES,
        }
    }
}
