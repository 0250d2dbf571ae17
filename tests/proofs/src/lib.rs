//! Proofs that the number is right.
//!
//! Queues whose truth is known in closed form are put under load in virtual time, and what the real analysis says of
//! the traces is held against that truth, over many seeds: [`common::schedule`] → [`common::split`] → the engine →
//! [`common::trace`] → [`common::summary`]. The agents of this world are ideal (they send on the nanosecond), so that
//! only the analysis and the arrivals are on trial; the measured path has tests of its own.
//!
//! A proof that cannot fail proves nothing. So each has its sabotage: the same numbers computed the way that is known
//! to be wrong, which the same judgement must reject.
//!
//! - [`coverage`]: how often an interval holds the truth, and how often none is given.
//! - [`knee`]: how often the bracket of a search holds the true knee.
//! - [`latency`]: measured from the schedule and not from the dispatch; an open loop against a closed one.
//! - [`losses`]: failures and the drain count.
//! - [`arrivals`]: arrivals are the process that they say they are, from one host or from five whose clocks differ.
//!
//! It must never read a clock: the same seeds give the same page, `docs/credibility.md`, on every machine.

pub mod arrivals;
pub mod coverage;
pub mod knee;
pub mod latency;
pub mod losses;
mod markdown;
pub mod page;
pub mod parallel;
pub mod statistics;
pub mod trial;
