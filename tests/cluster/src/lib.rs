//! Faults, on purpose, of a fleet on hosts of its own.
//!
//! `cluster` starts workers, each on a stage of its own ([`stage`]): a coordinator, four agents and an engine on six
//! network namespaces ([`net`]), with links that can be made slow or treacherous ([`link`]). A worker plays scenarios
//! ([`scenarios`]) and rounds of [`chaos`] on a [`world`], and holds what the run says of itself against the engine's
//! own log ([`judge`]). What held is a table ([`page`]).
//!
//! It must never leave anything on the host, and never take a run for good that nobody judged.

pub mod chaos;
pub mod judge;
pub mod link;
pub mod net;
pub mod page;
pub mod scenarios;
pub mod stage;
pub mod world;
