//! What a coordinator costs with many agents at the other end of real connections.
//!
//! The coordinator is a process of its own, so that its processor time and memory are its own: the bench's program, started
//! again ([`child`]), which carries out a run as `coordinator run` does ([`coordinator`]). The agents are as many sessions
//! of the real agent as are wanted, in the bench's process ([`agents`]): joining, heartbeats, clock probes, spool and
//! delivery are the agent's own code over loopback. Only their load is none ([`engine`]): traces are made up.
//!
//! [`wire`] is how fast traces are taken in, [`crowd`] what agents cost that are only there. They print figures and assert
//! nothing. No release has any of this.

pub mod agents;
pub mod child;
pub mod coordinator;
pub mod crowd;
pub mod engine;
pub mod figures;
pub mod wire;
