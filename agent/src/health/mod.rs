//! Whether the generator kept up: the evidence on which a trial is called late.
//!
//! Two things are measured that the traces cannot show. How late reads were stamped: a reading thread that gets no
//! CPU stamps a token late and charges it to the engine, so [`canary`] is due on that thread every millisecond and
//! says how late it got to run. And why: run-queue delay, CPU pressure, steal and CPU time ([`evidence`]).
//!
//! It gathers and does not judge: verdicts are `common::validity`'s.

pub mod canary;
pub mod evidence;
