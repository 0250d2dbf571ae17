//! Peers that do not keep to the protocol, played by a raw client against the services as they are served.
//!
//! Each must end in a refusal that says what was wrong, on the peer's side, and must leave the others served.

mod calls;
mod connections;
mod documented;
mod house;
mod sessions;
mod uploads;
