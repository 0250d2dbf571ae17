//! What is known of a run while it goes on, for whoever looks at it.
//!
//! - [`Model`] is a pure state machine: told of events, it keeps plan, progress, agents, time lines, trials and warnings.
//! - `tap` brings it what agents deliver, by a channel that drops and counts rather than making the ingest wait.
//! - [`Hub`] shares it; [`Observer`] tells it what a run's [`crate::run::Ui`] is told.
//!
//! The web page (`crate::web`) and the terminal (`crate::cli::screen`) both show it, so that they show the same. Numbers of
//! a second are for the eye; what counts is the report, which is computed from the stored traces, by the same definitions.
//!
//! Must never: define a metric a second time, slow the ingest or the driver, or grow with the length of a run.

mod agents;
mod counter;
mod hub;
mod lines;
mod machines;
mod messages;
mod model;
mod observer;
mod outlook;
mod point;
mod request;
mod seconds;
mod showing;
mod tap;
#[cfg(test)]
pub(crate) mod tests;
mod trials;
mod view;

pub use agents::{AgentRow, MOST_AGENTS};
pub use hub::{Hub, Pulse};
pub use lines::{Lines, MOST_POINTS};
pub use machines::{EngineNow, GpuNow};
pub use messages::{Line, Warning};
pub use model::Model;
pub use observer::Observer;
pub use point::{Metric, Point, Values};
pub use request::{Finished, StoredTraces};
pub use tap::{Offer, Outlet, Tap, tap};
pub use trials::{KneeRow, RateRow, TrialRow};
pub use view::{About, Known, News, State, Sweep, TrialNow};
