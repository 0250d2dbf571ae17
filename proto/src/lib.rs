//! The wire between coordinator and agents: generated types, and their conversions to and from the domain.
//!
//! The .proto files argue for each message. Wire types travel no further than the shells that send and receive them
//! (`coordinator/src/rpc/`, `agent/src/session/`): everything that comes in goes through a `TryFrom` here, with an
//! error that names the message and the field. `tls` reads the files of both sides. This crate must hold no behaviour.

pub mod convert;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod tls;

/// Generated from `proto/plimsoll/v1/*.proto`; documented there.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("plimsoll.v1");
}

/// Raised whenever a message changes its meaning. Coordinator and agent must agree on it.
pub const PROTOCOL_VERSION: u32 = 3;

/// Metadata key of the join token.
pub const TOKEN_METADATA: &str = "x-plimsoll-token";

/// Metadata key of the pass: what a welcomed agent was told, and puts on every other call.
pub const PASS_METADATA: &str = "x-plimsoll-pass";
