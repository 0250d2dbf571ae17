//! Port numbers for what cannot listen on port 0.

use std::net::{SocketAddr, TcpListener};

fn listen() -> (TcpListener, SocketAddr) {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr().map(|a| (l, a)));
    bound.unwrap_or_else(|e| panic!("no free port on 127.0.0.1: {e}"))
}

/// An address that was free a moment ago: for a coordinator whose agents are started before it.
#[must_use]
pub fn free_port() -> SocketAddr {
    listen().1
}
