//! The life cycle of the engine, on the engine's host: start, wait until it answers, stop, start again, record.
//!
//! It owns the engine's processes, its port before and after, its log, and what of all that goes into the experiment's
//! record. It exists because an engine that was started by hand is an engine whose command nobody wrote down, and
//! because a trial that begins on what the one before left behind (a warm cache, a worker that would not die, a port
//! that is still held) measures something else.
//!
//! - [`recipe`] reads a recipe: a TOML file that says how one engine is started. No shell is ever used.
//! - [`Engine`] is the agent's handle: `start`, `wait_ready`, `stop`, `restart`, `exited`, `record`.
//! - [`Kept`] is an engine that is kept for as long as the agent lives, as the session sees it.
//! - [`supervise()`] is a process of its own between agent and engine. It ends the engine's whole process tree when the
//!   agent says so or is gone, however it went. `protocol` is what the two say to each other, `tree` and `cgroup` find
//!   the processes, `supervised` is the agent's end.
//! - `port` says whose a port is, `log` reads the end of a log, `scrub` keeps secrets out of all of it.
//!
//! What it must never do: take a command from the wire (recipes come from files on this host), ask an engine for a
//! token to find out whether it is ready, let a secret of the environment into an error, a log line or the record, end
//! a process that the engine did not start, or leave one that it did.
//!
//! Guarded by `tests/launch/`: `recipes` (each recipe in `deploy/engines`), `lifecycle` (ready, crash, stop, restart),
//! `tree` (no process is left, also after `kill -9` of the agent or of the supervisor), `ports` and `record`.

mod cgroup;
mod engine;
mod error;
mod keeper;
mod log;
mod port;
mod protocol;
pub mod recipe;
mod record;
mod scrub;
mod supervise;
mod supervised;
mod tree;

pub use engine::{Died, Engine, Launcher, Waiting};
pub use error::LaunchError;
pub use keeper::{Keeping, Kept};
pub use log::{LogEnd, LogFacts};
pub use port::{Owner, listener};
pub use protocol::Exit;
pub use recipe::{Recipe, RecipeError};
pub(crate) use scrub::is_secret_option;
pub use supervise::{SUPERVISE, supervise};
