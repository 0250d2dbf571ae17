//! `agent calibrate`: what this host can carry, measured against an engine that costs next to nothing.
//!
//! A generator that has run out of CPU measures itself, and only a measurement on the host says where that begins. It
//! owns the order of the measurements and what is kept of them, and exists apart from `load` and `engine` because it is
//! their user: what it times is the load thread, the client and the spool of a real trial, and nothing made for the
//! purpose. The engine is another process ([`crate::null_engine`]) on a core of its own where there is one.
//!
//! - `target` starts and ends the null engine, `trial` carries a load out as a session would, `measure` decides which
//!   loads and makes numbers of them, `table` is for people, `kept` the file, `command` the command line.
//!
//! It must never say more than it saw: a cost is of CPU time of this process, a ceiling is what was reached here, and
//! what the engine did is taken from the engine. [`common::calibration`] has the definitions, docs/calibration.md the
//! reasons.
//!
//! Guarded by the tests in each file and by `tests/tests/calibration.rs`.

mod command;
pub mod kept;
mod measure;
mod table;
mod target;
mod trial;

pub use command::{CALIBRATE, run};
