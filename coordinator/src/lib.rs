//! The coordinator: plans trials, leads the agents through them, keeps what they record, and reports.
//!
//! - [`cli`] turns options and files into one validated [`plan::Plan`]; [`run`] carries it out.
//! - [`sweep`] orders the trials, [`trial`] leads the fleet through one, [`fleet`] knows who belongs to it.
//! - [`rpc`] is the wire; [`ingest`] and [`store`] keep traces; [`analysis`] and [`report`] make numbers of them, [`export`]
//!   tables for other programs.
//! - [`live`] is what is known of a run while it goes on, [`web`] its page.
//! - [`retokenize`] counts tokens of kept text; [`record`] is the experiment record, [`kept`] what a report can be computed from again.
//!
//! A run on one machine is a coordinator that starts agents beside itself, over the same protocol: one code path,
//! always the distributed one.

pub mod analysis;
mod aside;
pub mod cli;
pub mod export;
pub mod fleet;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod ingest;
pub mod kept;
pub mod live;
pub mod out;
pub mod page;
pub mod plan;
pub mod record;
pub mod report;
pub mod retokenize;
pub mod rpc;
pub mod run;
pub mod store;
pub mod sweep;
pub mod telemetry;
pub mod trial;
pub mod web;
